"""Damaged files and lines are refused in one line; and what `bench.fuzz_files` looks for, it finds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench import fuzz_files, fuzz_readers
from lab.blind.session_socket import SessionSocket, address, ask
from lab.errors import LabError, StackError, UsageError
from lab.replay import recording
from lab.results.folder import Run
from lab.results.jsontext import parse
from lab.results.probe_line import read_probe_line
from lab.stacks import preflight
from loadtest.histogram import Histogram

RIGHT = Path(__file__).parents[3] / "docs" / "runs" / "keys-command"
QUICK = [name for name in fuzz_readers.READERS if name != "session-socket"]
"""The socket's session needs a quarter of a minute to begin."""


@pytest.mark.parametrize("name", [*QUICK, pytest.param("session-socket", marks=pytest.mark.whole)])
def test_random_damage_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Hundreds of damaged inputs bring no fault; some are refused, and some are taken."""
    with fuzz_readers.READERS[name](tmp_path) as reader:
        reader.close = reader.close if name == "session-socket" else list
        found = fuzz_files.fuzz(reader, 300)
    assert found.faults == {}, found.examples
    assert found.inputs >= 300
    assert found.refused < found.inputs
    assert found.refused > 5


def test_faults_are_found() -> None:
    """An error that is not the lab's, two lines, a slow reader and a bad end are faults."""

    def read(_name: str, content: bytes) -> None:
        if len(content) % 3 == 0:
            raise KeyError("x")
        if len(content) % 3 == 1:
            raise LabError("one\ntwo")

    found = fuzz_files.fuzz(
        fuzz_readers.Reader({"a": b"0123456789" * 9}, frozenset(), read, lambda: ["it has ended"]), 100
    )
    assert set(found.faults) == {
        "refused although it is right",
        "KeyError",
        "more than one line",
        "at the end",
    }


def test_a_reader_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that takes longer than the limit is a fault."""
    monkeypatch.setattr(fuzz_files, "HANG_S", -1.0)
    found = fuzz_files.fuzz(fuzz_readers.Reader({"a": b"0"}, frozenset(), lambda _n, _c: None), 3)
    assert set(found.faults) == {"hang"}


def test_brackets_in_brackets() -> None:
    """Text that is nested deeper than Python reads is no JSON, and no RecursionError."""
    with pytest.raises(ValueError, match="too deep"):
        parse("[" * 100_000)


@pytest.mark.parametrize("name", [recording.META, recording.METRICS])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"labels": {}, "t": [Infinity], "v": [1e999]}'])
def test_a_recording_with_numbers_without_end(name: str, text: str, tmp_path: Path) -> None:
    """A recording that is nested too deeply, or has endless numbers, is damaged."""
    with fuzz_readers.recorded(tmp_path):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        with pytest.raises(UsageError, match=r"is damaged|another version"):
            recording.read(tmp_path)


def test_a_recording_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kilobytes that unpack to more than is allowed are refused, and no more than that is unpacked."""
    monkeypatch.setattr(recording, "MOST_BYTES", 1 << 20)
    with fuzz_readers.recorded(tmp_path) as reader:
        assert reader.close() == []
        monkeypatch.setattr(recording, "MOST_BYTES", 1 << 10)
        recording.read(tmp_path)
        monkeypatch.setattr(recording, "MOST_BYTES", 10)
        with pytest.raises(UsageError, match=r"metrics\.gz is damaged"):
            recording.read(tmp_path)


@pytest.mark.parametrize("text", ["[]", "5", "[" * 100_000])
def test_a_verdict_that_is_no_object(text: str, tmp_path: Path) -> None:
    """result.json that holds anything but an object is refused in a line."""
    (tmp_path / "run.json").write_bytes((RIGHT / "run.json").read_bytes())
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(UsageError, match=r"result\.json"):
        Run(tmp_path).result()


def test_a_port_of_five_thousand_digits(tmp_path: Path) -> None:
    """A number that Python does not convert is no port."""
    (tmp_path / ".env").write_text(f"GRAFANA_PORT={'9' * 5000}\n")
    found = preflight.settings_findings(preflight.read_env_file(tmp_path / ".env") or {}, set())
    assert [each.ok for each in found] == [False]
    assert "is no port" in found[0].detail


EMPTY = Histogram().encode()
WHOLE = {
    "t": 1.5e9, "interval_s": 0.25, "sent": 1, "received": 1, "errors": 0, "max_us": 5, "oldest_in_flight_us": 0,
    "last_error": None, "intended": EMPTY, "service": EMPTY, "lag": EMPTY,
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("5", "5 in place of an object"),
        (json.dumps({**WHOLE, "t": -1}), "t is -1"),
        (json.dumps({**WHOLE, "interval_s": float("inf")}), "interval_s is inf"),
        (json.dumps({**WHOLE, "sent": True}), "sent is True"),
        (json.dumps({**WHOLE, "last_error": 5}), "last_error is 5"),
        (json.dumps({**WHOLE, "lag": 5}), "lag is 5"),
        (json.dumps({**WHOLE, "service": "x"}), "service: it is not an HdrHistogram"),
        (json.dumps({**WHOLE, "intended": 5}), "intended is 5"),
    ],
)
def test_a_line_that_no_probe_prints(line: str, said: str) -> None:
    """A line that is whole and wrong says what is wrong with it."""
    with pytest.raises(StackError, match="a probe says something unexpected") as raised:
        read_probe_line(line)
    assert said in str(raised.value)


def test_a_line_that_was_cut_off() -> None:
    """The last line of a probe that was ended is left out; a whole one is read."""
    assert read_probe_line(json.dumps(WHOLE)) == WHOLE
    assert read_probe_line(json.dumps(WHOLE)[:-5]) is None


def test_requests_and_answers_that_are_none(tmp_path: Path) -> None:
    """A session answers brackets in brackets; an answer that is none is one line."""
    session = SessionSocket(tmp_path, lambda words: str(words["verb"]))
    try:
        assert session._reply(b"[" * 100_000)["code"] == 2
        assert ask({"verb": "x"}, tmp_path) == "x"
        session._reply = lambda data: 5  # type: ignore[assignment, method-assign, return-value]
        with pytest.raises(StackError, match="the session does not answer"):
            ask({"verb": "x"}, tmp_path)
        assert address(tmp_path).exists()
    finally:
        session.close()

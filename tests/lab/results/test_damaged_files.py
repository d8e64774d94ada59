"""Damaged files and lines are refused in one line, whatever was done to them."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from lab import scenarios
from lab.blind.session_socket import SessionSocket, address, ask
from lab.claims import judge
from lab.errors import LabError, StackError, UsageError
from lab.replay import recording
from lab.results.folder import Run
from lab.results.jsontext import parse
from lab.results.probe_line import read_probe_line
from lab.runner.judging import validate
from lab.scene import preflight
from loadtest.histogram import Histogram

RIGHT = Path(__file__).parents[3] / "docs" / "runs" / "keys-command"
FILES = ("run.json", "result.json", "samples.csv", "slowlog.csv", "probe.hlog")
PLACES = st.floats(0, 1, exclude_max=True)
PUT = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        (b"null", b"-1", b"1e999", b"[]", b'""', b"9" * 5000, b"[" * 100_000, b"\xff\xfe", b"\n", b",")
    ),
)
DAMAGES = st.tuples(st.sampled_from(FILES), PLACES, st.integers(0, 200), PUT)
"""A file, a place in it, how many bytes go there, and what comes in their stead."""
TRIES = settings(max_examples=40, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a recorded run."""
    copy = Path(shutil.copytree(RIGHT, tmp_path / "run"))
    (copy / "result.json").write_text(
        '{"scenario": "keys-command", "claims": [{"claim": "exact-cures", "holds": true}]}'
    )
    return copy


def complaint(folder: Path, damage: tuple[str, float, int, bytes], read: Callable[[Path], object]) -> str:
    """Return the error for the run with this damage, '' if it is accepted. The folder is repaired afterwards."""
    name, place, gone, put = damage
    content = (folder / name).read_bytes()
    at = int(place * len(content))
    (folder / name).write_bytes(content[:at] + put + content[at + gone :])
    try:
        read(folder)
    except LabError as error:
        return str(error)
    finally:
        (folder / name).write_bytes(content)
    return ""


def judged(folder: Path) -> None:
    """Read all of a run, and judge it."""
    run = Run(folder)
    assert (
        run.unreadable is not None and run.slow_commands(run.phases) is not None and run.result() is not None
    )
    judge(run, scenarios.find(run.facts.scenario).claims)
    validate(run)


def test_a_damaged_run_folder_is_taken_or_refused_in_one_line(folder: Path) -> None:
    """Whatever is changed in a run folder, reading and judging it raises no error but the lab's, of one line."""
    said: list[str] = []

    @TRIES
    @given(DAMAGES)
    def each(damage: tuple[str, float, int, bytes]) -> None:
        said.append(complaint(folder, damage, judged))
        assert "\n" not in said[-1]

    each()
    assert "" in said and any(said)


MOST_MEMORY = 400 * 2**20
"""Bytes. The largest sound run, 10,000,000 latencies, takes 80 MB."""


def test_no_run_folder_fills_the_memory(folder: Path) -> None:
    """Lines that claim any number of latencies, of any size, are read within a bound or left out."""
    log, began = folder / "probe.hlog", Run(folder).phases[0].t0
    sound, peaks = log.read_bytes(), []

    @settings(TRIES, max_examples=25)
    @given(st.lists(st.integers(1, 36).map(lambda power: 2**power), min_size=1, max_size=20))
    def each(counts: list[int]) -> None:
        lines = []
        for number, count in enumerate(counts):
            histogram = Histogram()
            histogram.counts[number], histogram.total = count, count
            lines.append(f"Tag=main-intended,{began + 0.1:.3f},0.250,1.0,{histogram.encode()}\n")
        log.write_bytes(sound + "".join(lines).encode())
        tracemalloc.start()
        try:
            Run(folder).p99_ms(Run(folder).phases[0])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert peaks[-1] < MOST_MEMORY

    each()
    assert max(peaks) > 10 * 2**20, "nothing large was tried"


def test_a_reader_with_an_error_of_its_own_would_be_found(folder: Path) -> None:
    """The same damages find a reader that takes run.json for sound JSON."""

    def broken(damage: tuple[str, float, int, bytes]) -> bool:
        try:
            complaint(folder, damage, lambda folder: json.loads((folder / "run.json").read_bytes()))
        except (ValueError, RecursionError):
            return True
        return False

    assert find(DAMAGES, broken, settings=TRIES)[0] == "run.json"


def test_brackets_in_brackets() -> None:
    """Text that is nested deeper than Python reads is no JSON, and no RecursionError."""
    with pytest.raises(ValueError, match="too deep"):
        parse("[" * 100_000)


def recorded(folder: Path) -> None:
    """Write a recording of a series and a trace."""
    times = [1_795_000_000_000 + 1000 * n for n in range(5)]
    metrics = recording.pack_metrics([recording.Series({"__name__": "up"}, times, [1, 1, 0, 1, 1])])
    meta = recording.Meta(
        times[0] / 1000, times[-1] / 1000, 1.0, {"prometheus": "3"}, ["redis"], {"series": 1}
    )
    recording.write(folder, meta, metrics, recording.pack_traces([b"one trace"]))


@pytest.mark.parametrize("name", [recording.META, recording.METRICS])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"labels": {}, "t": [Infinity], "v": [1e999]}'])
def test_a_recording_with_numbers_without_end(name: str, text: str, tmp_path: Path) -> None:
    """A recording that is nested too deeply, or has endless numbers, is damaged."""
    recorded(tmp_path)
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(UsageError, match=r"is damaged|another version"):
        recording.read(tmp_path)


def test_a_recording_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kilobytes that unpack to more than is allowed are refused, and no more than that is unpacked."""
    recorded(tmp_path)
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
    found = preflight.check_settings(preflight.read_env_file(tmp_path / ".env") or {}, set())
    assert [each.ok for each in found] == [False]
    assert "is no port" in found[0].detail


EMPTY = Histogram().encode()
WHOLE = {
    "by": "due", "t": 1.5e9, "interval_s": 0.25, "sent": 1, "received": 1, "errors": 0, "max_us": 5,
    "oldest_in_flight_us": 0, "last_error": None, "intended": EMPTY, "service": EMPTY, "lag": EMPTY,
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

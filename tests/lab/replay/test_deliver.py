"""A replay looks for the traces it has sent, sends missing ones again, and tells which stay missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from lab.errors import StackError
from lab.replay import replay
from lab.replay.deliver import deliver
from lab.replay.replay import Served
from lab.replay.tempo import Receiver, Tempo, spans
from tests.lab.replay.conftest import TempoStandin

START_NS = 1_795_000_000_000_000_000
NUMBER = 5


def trace(number: int) -> TracesData:
    """Return a trace of one span, whose id is the number."""
    span = Span(trace_id=number.to_bytes(16, "big"), span_id=b"12345678", start_time_unix_nano=START_NS)
    span.end_time_unix_nano = START_NS + number
    return TracesData(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=[span])])])


def delivered(tempo: TempoStandin) -> list[int]:
    """Send some traces; return the numbers of those that are missing at the end."""
    with Tempo(tempo.url) as asked, Receiver(tempo.url) as receiver:
        traces = [trace(number) for number in range(1, NUMBER + 1)]
        return [int(lost, 16) for lost in deliver(traces, asked, receiver, lambda _: None, settled_s=0.0)]


def test_what_arrives_is_sent_once(tempo: TempoStandin) -> None:
    """If all are found by a search nothing is sent again, and no trace is read."""
    assert delivered(tempo) == []
    assert tempo.asked == ["/api/search"]
    assert [sum(1 for _ in spans(kept)) for kept in tempo.traces.values()] == [1] * NUMBER


@pytest.mark.parametrize(
    ("lost", "missing"),
    [
        (lambda trace_id, times: trace_id.endswith("2") and times == 1, []),
        (lambda trace_id, _: trace_id.endswith(("2", "4")), [2, 4]),
        (lambda _, times: times == 1, []),
        (lambda *_: True, [1, 2, 3, 4, 5]),
    ],
)
def test_what_is_lost_is_sent_again(
    tempo: TempoStandin, lost: Callable[[str, int], bool], missing: list[int]
) -> None:
    """Traces that Tempo lost are sent once more, and named if lost again; the others are not sent again."""
    tempo.lose = lost
    assert delivered(tempo) == missing
    assert all(sum(1 for _ in spans(kept)) == 1 for kept in tempo.traces.values())


def test_what_a_search_leaves_out_is_asked_by_its_id(tempo: TempoStandin) -> None:
    """A trace that searches leave out but that its id finds is not missing."""
    tempo.searchable = False
    assert delivered(tempo) == []
    assert sum(path.startswith("/api/traces/") for path in tempo.asked) == NUMBER


def test_it_waits_for_what_is_late(tempo: TempoStandin) -> None:
    """Traces that a search does not list at first are waited for, not sent a second time."""
    tempo.searchable = False
    heard: list[str] = []

    def say(text: str) -> None:
        heard.append(text)
        tempo.searchable = tempo.searchable or "found" in text

    with Tempo(tempo.url) as asked, Receiver(tempo.url) as receiver:
        assert deliver([trace(1)], asked, receiver, say, settled_s=30.0) == []
    assert heard == ["traces: 1 are sent", "traces: 0 of 1 found", "traces: 1 of 1 found"]


def test_a_refusal_is_passed_on(tempo: TempoStandin) -> None:
    """What the receiver says when it takes nothing is passed on."""
    with (
        Tempo(tempo.url) as asked,
        Receiver(f"{tempo.url}/refused") as receiver,
        pytest.raises(StackError, match="does not take the traces: ingestion rate limit exceeded"),
    ):
        deliver([trace(1)], asked, receiver, lambda _: None)


@pytest.mark.parametrize(
    ("missing", "lines"),
    [
        ([], ["Tempo finds 318 of 318 traces."]),
        (["a", "b"], ["Tempo finds 316 of 318 traces.", "MISSING: 2, though sent twice"]),
    ],
)
def test_the_command_says_how_many_are_there(
    missing: list[str],
    lines: list[str],
    cold_case: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says how many of how many; a second one only where some are missing."""
    from lab.replay import command

    result = Served(1000.0, 1900.0, samples=7, traces=318, spans=9, missing=missing)
    monkeypatch.setattr(replay, "replay", lambda *_: (result, {"tempo": 10**8}))
    monkeypatch.setattr("lab.replay.docker.Docker", object)
    command.replay(cold_case)
    said = capsys.readouterr().out
    for line in lines:
        assert line in said
    assert ("MISSING" in said) == bool(missing)

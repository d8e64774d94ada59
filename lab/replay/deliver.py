"""Sends traces to a Tempo and checks that they can be found there: it drops some that it accepts."""

from __future__ import annotations

import time
from collections.abc import Callable

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lab.replay.tempo import Receiver, Tempo, spans

SENT = ("sent", "sent again")
SETTLED_S = 30.0
"""Seconds for which traces may stay unfound. Tempo keeps a trace in memory until no span has come for five seconds, and
looks for such traces every five seconds. It removes those from memory and then writes them to disk; in between, for a
second or less, they cannot be found. It also drops traces beyond a limit, without an error. So a trace counts as
delivered when a search lists it, because searches find only traces on disk; in 3.0 that takes six to twelve seconds."""
EVERY_S = 0.5
MOST_LISTED = 10_000
"""More traces than any recording has: a search must not stop before it has listed all."""


def deliver(
    traces: list[TracesData],
    tempo: Tempo,
    receiver: Receiver,
    say: Callable[[str], None],
    settled_s: float = SETTLED_S,
) -> list[str]:
    """Send traces until they are found, each twice at most; return the ids of those that are not found.

    Takes at most twice `settled_s`, plus the time of Tempo's answers. A trace that arrives twice does no harm: Tempo
    merges spans of the same id.
    """
    missing = {next(spans(trace)).trace_id.hex(): trace for trace in traces if any(spans(trace))}
    for how in SENT:
        if missing:
            say(f"traces: {len(missing)} are {how}")
            receiver.push(missing.values())
            missing = _awaited(missing, tempo, say, settled_s)
    return list(missing)


def _awaited(
    missing: dict[str, TracesData], tempo: Tempo, say: Callable[[str], None], settled_s: float
) -> dict[str, TracesData]:
    """Wait at most `settled_s` for the traces to be found; return those that are not."""
    number, until = len(missing), time.monotonic() + settled_s
    start = min(span.start_time_unix_nano for trace in missing.values() for span in spans(trace)) / 1e9
    end = max(span.end_time_unix_nano for trace in missing.values() for span in spans(trace)) / 1e9
    while True:
        listed = tempo.listed(start, end, MOST_LISTED)
        missing = {trace_id: trace for trace_id, trace in missing.items() if trace_id not in listed}
        say(f"traces: {number - len(missing)} of {number} found")
        if not missing or time.monotonic() > until:
            break
        time.sleep(EVERY_S)
    # Request the rest by id, as an exemplar does: a search may leave traces out. This comes last because Tempo then
    # reads the whole trace.
    return {trace_id: trace for trace_id, trace in missing.items() if not tempo.has(trace_id)}

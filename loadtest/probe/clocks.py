"""Measures the offset of a server's clock from this machine's.

The server reads its clock for TIME at some moment between question and answer. Taken for the middle of the round trip,
that moment is off by at most half of it, however unequal the two ways are (Cristian, "Probabilistic clock
synchronization", 1989). So the quickest of several rounds counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns, time_ns

from loadtest.resp import LoadFailed, Server, ask, command, connect

TIME = command("TIME")
ROUNDS = 10
ENOUGH_S, PATIENCE_S = 1.0, 3.0
"""Seconds after which no further round begins, and seconds to wait for an answer."""
SECOND, MILLISECOND, MICROSECOND = 10**9, 10**6, 10**3


@dataclass(frozen=True)
class Clocks:
    """`ahead_s`: the server's clock minus this machine's. The true difference is within `within_s` of it."""

    ahead_s: float
    within_s: float


def compare(server: Server) -> Clocks:
    """Compare the clocks on a connection of its own, in a second at most where the server answers soon.

    Raises `LoadFailed` if the server does not report the time, `ConnectionLost` if it is gone, or hangs up at TIME as
    some proxies do.
    """
    found: list[
        tuple[int, int]
    ] = []  # round trip, and the server's clock minus this one's in its middle, in ns
    steps = set()
    with connect(server) as line:
        line.settimeout(PATIENCE_S)
        ends = perf_counter_ns() + int(ENOUGH_S * SECOND)
        while len(found) < ROUNDS and (not found or perf_counter_ns() < ends):
            local_ns, began = time_ns(), perf_counter_ns()
            try:
                (reply,) = ask(line, TIME)
            except LoadFailed:
                if perf_counter_ns() - began < PATIENCE_S * SECOND:
                    raise
                raise LoadFailed(f"TIME was not answered within {PATIENCE_S:g} s") from None
            round_trip = perf_counter_ns() - began
            server_ns = _read(reply)
            steps.add(server_ns % MILLISECOND)
            found.append((round_trip, server_ns - local_ns - round_trip // 2))
    round_trip, ahead = min(found)
    # A clock reported in whole milliseconds is, on average, half a millisecond ahead of that.
    half_step = MILLISECOND // 2 if steps == {0} else MICROSECOND // 2
    return Clocks((ahead + half_step) / SECOND, (round_trip / 2 + half_step) / SECOND)


def _read(reply: object) -> int:
    """The server's clock in ns, from the answer to TIME: seconds and microseconds."""
    try:
        seconds, microseconds = map(int, reply if isinstance(reply, list) else ())
    except (TypeError, ValueError):
        raise LoadFailed(f"TIME was answered with {str(reply)[:60]}") from None
    return seconds * SECOND + microseconds * MICROSECOND

"""Claims about the server: its execution times, its slow log, its saturation."""

from __future__ import annotations

import statistics

from lab.claims.base import Claim, Missing, Result, elevation, need_arm
from lab.claims.texts import worded
from lab.results import operational
from lab.results.folder import Run

VICTIMS = ("GET", "SET", "DEL", "UNLINK")
ONE_IN = 100
"""At most 1 of this many slow-log entries may be a victim. The log times by the wall clock, and now and then the
machine takes the server off its core in the middle of a GET. Beside disturbances it was 1 of 352, once in 20 runs."""


def execution_steady(rising: str, server_times: float, client_times: float) -> Claim:
    """Execution time of GET on the server hardly moves while the client's p99 does: the rest is waiting.

    It may even fall: GETs that waited together are executed in a row, with code and data still in the
    processor's caches, while a lone GET on an idle server finds them cold. The median of the three highest plateaus
    counts: one GET that the machine took off its core for 6 ms makes a plateau's mean three times as long.
    """

    def check(run: Run) -> Result:
        grow = need_arm(run, rising, 4)
        first, *highest = (plateau.execution_us("GET") for plateau in (grow[0], *grow[-3:]))
        known = [each for each in highest if each is not None]
        if first is None or len(known) < len(highest):
            raise Missing("the server counted no GET")
        top = statistics.median(known)
        client = elevation(run, rising)
        return Result(
            top / first < server_times and client >= client_times,
            f"on the server {first:.2f} → {top:.2f} µs ({top / first:.2f} ×), for the client {client:.1f} ×",
            {"server_ratio": top / first, "client_ratio": client},
        )

    return worded("execution-steady", check, server_times=server_times, client_times=client_times)


def victims_never_slow(rising: str, times: float) -> Claim:
    """GET, SET, DEL and UNLINK stay out of the slow log although their p99 is a multiple of what it was.

    Entries of the plateaus count, not those of filling. The lab itself then writes many thousand keys a second, so the
    machine interrupts many of the writes half-way (see `ONE_IN`). An empty log is believed only where it should be
    empty: if SCAN took longer than the threshold on average, a log without SCAN was not read, and the claim fails.
    """

    def check(run: Run) -> Result:
        top = need_arm(run, rising, 2)[-1]
        entries = run.slow_commands(run.phases)
        victims = sum(entries[command] for command in VICTIMS)
        client = elevation(run, rising)
        named = ", ".join(f"{n} {c}" for c, n in entries.most_common()) or "nothing"
        was_read = bool(entries) or (top.execution_us("SCAN") or 0.0) < run.facts.slowlog_threshold_us
        return Result(
            victims * ONE_IN <= entries.total() and client >= times and was_read,
            f"on the plateaus the slow log recorded {named}; the client's p99 was {client:.1f} × the first"
            + ("" if was_read else "; but SCAN was slow enough to be in it"),
            {"victims": float(victims), "client_ratio": client},
        )

    return worded("victims-not-slow", check, one_in=ONE_IN, times=times)


def knee_predicted(rising: str, within: float) -> Claim:
    """The server saturates at the key count predicted from part of the load, just before and after each plateau.

    This tests the model: a third more scans cost a third more time, however many requests wait. Nearly so: at part of
    the load a key costs up to a tenth more, since other programs use the processor's caches between two events, and
    the speed of memory varies by as much (in nine runs the error was -16 % to +6 %). See
    `lab.runner.calibration` for why the prediction is made at the plateaus and not once at the start.
    """

    def check(run: Run) -> Result:
        found = [operational.predicted_demand(phase, run.facts) for phase in run.arm(rising)]
        predicted_demand = [demand for demand in found if demand is not None]
        if not predicted_demand:
            raise Missing("no demand was predicted")
        predicted = operational.predicted_knee(run, rising)
        if predicted is None:
            return Result(
                False,
                f"none predicted: part of the load predicts a demand of {max(predicted_demand):.0%} at most",
            )
        observed = operational.knee(run, rising)
        if observed is None:
            return Result(
                False,
                f"predicted {predicted:,.0f} keys; none observed: demand does not reach the server's capacity",
            )
        error = predicted / observed - 1
        return Result(
            abs(error) <= within,
            f"predicted {predicted:,.0f} keys, observed {observed:,.0f} ({error:+.1%})",
            {"predicted": predicted, "observed": observed, "error": error},
        )

    return worded("knee-predicted", check, within=within)

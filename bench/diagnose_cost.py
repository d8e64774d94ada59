"""What a diagnosis costs a bystander of a server that is 80 % busy. `python -m bench.diagnose_cost --pairs 150`.

One diagnosis and one open-loop probe (500 requests a second) last the whole time. The diagnosis is stopped (SIGSTOP)
and continued (SIGCONT) in turn, so that what the machine does meanwhile affects both halves of a pair. The probe's p99
is compared within each pair of neighbouring intervals, one with the diagnosis and one without, in an order that changes
from pair to pair. The mean ratio comes with its 95 % interval (of the logarithms). It prints one JSON line; exit code 0
when the whole interval is below the goal.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.exam import loaded
from bench.kit import report, server

GOAL = 1.05
PER_S = 500
SETTLED = 4
"""Intervals to skip before the first pair: starting Python takes a core for a second, apart from the server's work."""
NORMAL_95 = 1.96


def p99s(url: str, pairs: int, seconds: float) -> list[tuple[bool, float]]:
    """For each interval: True if the diagnosis was running, and the probe's p99 (µs, from the intended time)."""
    lasts = str(seconds * (SETTLED + 2 * pairs))
    probe = [sys.executable, "-m", "loadtest.probe", "--url", url, "--duration", lasts, "--rate", str(PER_S)]
    probe += ["--interval-seconds", str(seconds), "--arrivals", "jittered"]
    diagnosis = [sys.executable, "-m", "lab", "diagnose", url, "--seconds", lasts, "--json"]
    found: list[tuple[bool, float]] = []
    beside = subprocess.Popen(diagnosis, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with subprocess.Popen(probe, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.stdout is not None
            goes_on = True
            for number, line in enumerate(asking.stdout):
                if number >= SETTLED:
                    found.append((goes_on, float(json.loads(line)["p99_us"])))
                following = number + 1 - SETTLED
                goes_on = following < 0 or following % 4 in (0, 3)
                beside.send_signal(signal.SIGCONT if goes_on else signal.SIGSTOP)
    finally:
        beside.kill()
        beside.wait()
    return found


def ratios(found: list[tuple[bool, float]]) -> list[float]:
    """p99 with the diagnosis over p99 without, of each pair of neighbours."""
    pairs = [dict(found[at : at + 2]) for at in range(0, len(found) - 1, 2)]
    return [pair[True] / pair[False] for pair in pairs]


def interval(found: list[float]) -> tuple[float, float, float]:
    """The geometric mean of many ratios, and its 95 % interval."""
    logs = [math.log(ratio) for ratio in found]
    half = NORMAL_95 * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("bench.diagnose_cost", description="What a diagnosis costs a bystander.")
    parser.add_argument(
        "--pairs",
        type=int,
        default=150,
        help="pairs of intervals; a confidence interval needs at least 30 (150)",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds that an interval lasts (2)")
    asked = parser.parse_args()
    with (
        server("redis") as url,
        tempfile.TemporaryDirectory() as folder,
        loaded("busy-80", url, Path(folder)),
    ):
        found = ratios(p99s(url, asked.pairs, asked.seconds))
    mean, low, high = interval(found)
    report("diagnose_cost", mean, f"whole interval < {GOAL}", low=low, high=high, pairs=len(found))
    return 0 if high < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

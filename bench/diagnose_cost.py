"""What a diagnosis costs a bystander of a server that is 80 % busy. `python -m bench.diagnose_cost --rounds 20`.

Rounds in pairs, one with a diagnosis beside it and one without, in an order that changes from pair to pair. p99 of the
open-loop probe (200 requests a second) is compared within each pair; the mean ratio comes with its 95 % interval
(Student's t of the logarithms). One JSON line; exit code 0 where the whole interval is below the goal.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.exam import loaded
from bench.kit import report, server

GOAL = 1.05
T_95 = {5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023}
"""Student's t, by degrees of freedom, two sides."""


def p99_us(url: str, seconds: float) -> float:
    """p99 of a probe from the intended time."""
    words = ["--url", url, "--duration", str(seconds), "--interval-seconds", "60", "--arrivals", "jittered"]
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.probe", *words], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["p99_us"])


def one(url: str, seconds: float, diagnosed: bool) -> float:
    """p99 of a round."""
    beside = None
    if diagnosed:
        words = ["diagnose", url, "--seconds", str(seconds + 2), "--json"]
        beside = subprocess.Popen(
            [sys.executable, "-m", "lab", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        return p99_us(url, seconds)
    finally:
        if beside:
            beside.wait(60)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    t = next((T_95[free] for free in sorted(T_95, reverse=True) if free <= len(logs) - 1), 12.7)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser("bench.diagnose_cost", description="What a diagnosis costs a bystander.")
    parser.add_argument("--rounds", type=int, default=20, help="pairs (20)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a round (8)")
    asked = parser.parse_args()
    ratios = []
    with (
        server("redis") as url,
        tempfile.TemporaryDirectory() as folder,
        loaded("busy-80", url, Path(folder)),
    ):
        for number in range(asked.rounds):
            order = (True, False) if number % 2 else (False, True)
            found = {diagnosed: one(url, asked.seconds, diagnosed) for diagnosed in order}
            ratios.append(found[True] / found[False])
    mean, low, high = interval(ratios)
    report("diagnose_cost", mean, f"whole interval < {GOAL}", low=low, high=high, pairs=len(ratios))
    return 0 if high < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

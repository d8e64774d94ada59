"""Checks blind sessions in a row: each must start, show the evidence of its cause, and not reveal its name.

`python -m bench.blind_seeds --seeds 20` starts a session for each seed from --first on, takes readings, searches
everything a participant can read for the name of a cause, and prints a row for each session. Exit code 0 when every row
is good and all outlines are alike, else 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.blind_seal import gather, leaks, outline
from bench.blind_trial import Trial
from lab.blind.causes import CAUSES, choose
from lab.errors import LabError


def main() -> int:
    """Run the sessions; return the exit code."""
    parser = argparse.ArgumentParser("blind_seeds", description="Blind sessions in a row.")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds (20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    options = parser.parse_args()
    good = 0
    outlines: set[str] = set()
    print(
        "| seed | cause | started in | p99 page | p99 GET | oldest change | its evidence | others' | seal |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in range(options.first, options.first + options.seeds):
        good += _one(seed, outlines)
    print(f"{good} of {options.seeds} good; {len(outlines)} outlines of the scene")
    return 0 if good == options.seeds and len(outlines) == 1 else 1


def _one(seed: int, outlines: set[str]) -> bool:
    cause = choose(seed)
    found: list[str] = []
    began = time.monotonic()
    started = 0.0

    def inspect(trial: Trial) -> None:
        nonlocal started
        started = time.monotonic() - began
        found.extend(leaks(gather(trial, trial.said)))
        outlines.add(repr(outline(trial)))

    with tempfile.TemporaryDirectory(prefix="lab-") as home:
        trial = Trial(cause, Path(home) / "session", looks=0, inspect=inspect)
        try:
            trial.run()
        except LabError as error:
            print(f"| {seed} | {cause.id} | {error} |", flush=True)
            return False
    of = trial.outcome()
    own = cause.evidence(of)
    others = [other.id for other in CAUSES.values() if other is not cause and other.evidence(of).found]
    print(
        f"| {seed} | {cause.id} | {started:.0f} s | {of.healthy.page_ms:.1f} → {of.seen.page_ms:.1f} ms "
        f"| {of.healthy.get_ms:.1f} → {of.seen.get_ms:.1f} ms | {of.healthy.oldest_s:.1f} → {of.seen.oldest_s:.1f} s "
        f"| {'there' if own.found else 'MISSING'} | {', '.join(others) or '–'} | {'; '.join(found) or 'holds'} |",
        flush=True,
    )
    return own.found and not others and not found


if __name__ == "__main__":
    sys.exit(main())

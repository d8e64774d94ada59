"""Scenarios at a pace and size of their own: `python -m bench.paces [ID,...] [--pace full] [--keys N] [--times N]`.

Each run has the next seed. Kept are its seconds, its verdict, how many claims were as they should be, the memory that
the run announced before it began, and the most that its processes held at the end of a phase. Exit code 0 if every run
was valid and as it should be, else the worst of theirs. `--write FILE` keeps the rows for the table in docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.kit import OneLineParser, keep, lab_run, names_of
from bench.repeat import count, outcome
from lab import scenarios
from lab.results.folder import Run
from lab.runner.series import worst

ANNOUNCED = re.compile(r"need about ([0-9.]+) GB of memory")


@dataclass(frozen=True)
class Ran:
    """One run. Memory in GB, None where there was no phase; `notes`: why there is no verdict, or a claim failed."""

    scenario: str
    seed: int
    keys: int | None
    seconds: float
    code: int
    claims: str
    notes: list[str]
    announced_gb: float | None
    held_gb: float | None


def ran(scenario: str, seed: int, pace: str, keys: int | None, server: str, folder: Path) -> Ran:
    """Make one run into that folder, which may not be there yet."""
    words = [scenario, "--pace", pace, "--server", server, "--seed", str(seed), "--out", str(folder)]
    done, seconds = lab_run(*words, *(["--keys", str(keys)] if keys else []))
    told = ANNOUNCED.search(done.stderr)
    announced = float(told[1]) if told else None
    if not done.stdout:
        said = [line for line in done.stderr.splitlines() if line.startswith("lab:")][-1:]
        return Ran(scenario, seed, keys, seconds, done.returncode, "", said, announced, None)
    found = outcome(seed, done.returncode, seconds, json.loads(done.stdout), "")
    run = Run(folder)
    held = max((sum(phase.memory_mb.values()) for phase in run.phases), default=0.0) / 1e3
    notes = list(found.notes) if done.returncode else []
    return Ran(scenario, seed, run.facts.keys, seconds, done.returncode, found.claims, notes, announced, held)


def main() -> int:
    """Entry point; returns the exit code."""
    known = list(scenarios.catalogue())
    parser = OneLineParser(prog="bench.paces", description="Whole runs at a pace and size of their own.")
    parser.add_argument(
        "scenarios",
        nargs="?",
        type=lambda text: names_of(text, known, "scenario"),
        default=[name for name, one in scenarios.catalogue().items() if not one.refutes],
        help="names with commas between them (all but the controls)",
    )
    parser.add_argument("--pace", choices=("quick", "standard", "full"), default="full")
    parser.add_argument("--keys", type=count, help="the most keys (as the pace has it)")
    parser.add_argument("--times", type=count, default=1, help="runs of each scenario (1)")
    parser.add_argument("--server", default="embedded", help="server to run them on (embedded)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows, for the table in the docs")
    options = parser.parse_args()
    return _all(options)


def _all(options: argparse.Namespace) -> int:
    codes = []
    for scenario in options.scenarios:
        for seed in range(1, options.times + 1):
            with TemporaryDirectory() as place:
                one = ran(scenario, seed, options.pace, options.keys, options.server, Path(place) / "run")
            print(json.dumps(asdict(one)), flush=True)
            codes.append(one.code)
            size = f", {options.keys} keys" if options.keys else ""
            part = f"{scenario}, {options.pace}{size}, on {options.server}, seed {seed}"
            keep(options.write, part, "bench.paces", pace=options.pace, server=options.server, **asdict(one))
    return worst(codes)


if __name__ == "__main__":
    sys.exit(main())

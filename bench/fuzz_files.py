"""Random files and lines to whatever reads them: `python -m bench.fuzz_files [--inputs N] [--only NAME]`.

Each input was right at first: a file of a small run folder or of a recording, the .env file, a line of a probe, a
request to a blind session's socket. Then a few things were made wrong. Bytes were changed, added, cut out or repeated.
In JSON a value has become one of another type, or has gone, or has brackets in brackets a hundred thousand times.

The reader may take an input, or refuse it in one line (`LabError`). Faults: any other error, more than `HANG_S` seconds
for one input, more than `MOST_MB` of memory for all of a reader, and a traceback in the session's output. Exit code 0
without a fault, else 1. `--write FILE` keeps the figures for the pages.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from bench.fuzz_readers import HANG_S, READERS, Reader
from bench.kit import Faults, OneLineParser, interrupts_raise, keep
from lab.errors import INTERRUPTED, LabError

MOST_MB = 1500
"""A recording that unpacks to all that it may is held twice for a moment."""
ROUND = 2000
"""Inputs of one run of Hypothesis, which remembers all that it tried."""


@dataclass
class Findings(Faults):
    """What came of the inputs. `refused`: how many were refused in one line."""

    inputs: int = 0
    refused: int = 0


def fuzz(reader: Reader, number: int, seed_value: int = 1) -> Findings:
    """Give `number` inputs to a reader; returns what came of them."""
    found = Findings()
    for name, content in reader.right.items():
        try:
            reader.read(name, content)
        except Exception as error:
            found.fault("refused although it is right", f"{name}: {error}")

    def each(one: tuple[str, bytes]) -> None:
        name, content = one
        found.inputs += 1
        began = time.monotonic()
        try:
            reader.read(name, content)
        except LabError as error:
            found.refused += 1
            if "\n" in str(error):
                found.fault("more than one line", str(error))
        except Exception as error:
            found.fault(type(error).__name__, f"{error} after {name}: {content[:160]!r}")
        if time.monotonic() - began > HANG_S:
            found.fault("hang", f"{name}: {content[:160]!r}")

    rounds = 0
    while found.inputs < number:
        budget = settings(
            max_examples=min(ROUND, number - found.inputs),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seed(seed_value + rounds)(budget(given(reader.inputs())(each)))()
        rounds += 1
    for said in reader.close():
        found.fault("at the end", said)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if used > MOST_MB:
        found.fault("memory", f"{used:.0f} MB")
    return found


def main() -> int:
    """The command; its exit code."""
    parser = OneLineParser(
        prog="bench.fuzz_files", description="Random files and lines to whatever reads them."
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader")
    parser.add_argument("--only", choices=READERS, help="one of the readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="keep the figures, for the table in SECURITY.md"
    )
    options = parser.parse_args()
    if options.inputs < 1:
        parser.error("--inputs must be at least 1")
    bad = False
    for name in [options.only] if options.only else READERS:
        folder = Path(tempfile.mkdtemp(prefix="lab-fuzz-"))
        try:
            with READERS[name](folder) as reader:
                found = fuzz(reader, options.inputs, options.seed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kept = {
            "inputs": found.inputs,
            "refused": found.refused,
            "faults": dict(found.faults),
            "examples": found.examples,
        }
        print(json.dumps({"reader": name, **kept}), flush=True)
        keep(options.write, name, "bench.fuzz_files", **kept)
        bad = bad or bool(found.faults)
    return int(bad)


if __name__ == "__main__":
    interrupts_raise()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)

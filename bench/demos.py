"""What a newcomer's first command does: `make demo` from fresh clones, one after the other. `python -m bench.demos`.

Each clone holds the last commit and makes its own environment; it is removed afterwards. The last `--disturbed` demos
run beside disturbances, `--per-minute` of them on average (see `bench.disturb`). It prints a row for each demo: exit
code, seconds, the disturbances and when they came, which phases were measured again; of a demo that failed also what
its run said at last. Exit code 0 when each demo ended within `--within` seconds with every claim held.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.disturb import disturbed, repetitions
from bench.kit import ROOT, keep
from lab.errors import HOLDS

LAST_LINES = 30
"""Lines of a failed demo that are shown: the verdict, claim by claim."""


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench.demos", description="`make demo` from fresh clones.")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--disturbed", type=int, default=3, help="number of demos, the last ones, that are disturbed (3)"
    )
    parser.add_argument("--per-minute", type=float, default=1.0)
    parser.add_argument("--within", type=float, default=210.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows, for the table in the docs")
    options = parser.parse_args()
    good = 0
    rows: list[dict[str, Any]] = []
    print("| demo | exit code | seconds | disturbances | measured again |\n|---|---|---|---|---|", flush=True)
    for number in range(1, options.times + 1):
        per_minute = options.per_minute if number > options.times - options.disturbed else 0.0
        with tempfile.TemporaryDirectory(prefix="demo-") as place:
            clone = Path(place) / "clone"
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            code, seconds, done = disturbed(
                ["make", "demo"], clone, per_minute, options.seed + number, Path(place) / "demo.log"
            )
            said = (Path(place) / "demo.log").read_text(encoding="utf-8").splitlines()
            told = [text for out in clone.glob("runs/*") for text in repetitions(out)]
        good += code == HOLDS and seconds <= options.within
        rows.append({"code": code, "seconds": round(seconds), "done": done, "told": told})
        print(
            f"| {number} | {code} | {seconds:.0f} | {'; '.join(done) or 'none'} | {' '.join(told) or 'nothing'} |",
            flush=True,
        )
        if code != HOLDS:
            print(*said[-LAST_LINES:], sep="\n", flush=True)
    print(f"\n{good} of {options.times} ended with every claim held, within {options.within:g} s.")
    keep(options.write, "demos", "bench.demos", rows=rows, within_s=options.within, good=good)
    return 0 if good == options.times else 1


if __name__ == "__main__":
    sys.exit(main())

"""`make test` several times in a row: does any test fail now and then? `python -m bench.suite [--times N]`.

Beside the last `--hogged` of them a program takes half a core all the time. It prints a row a time: exit code, seconds,
pytest's closing line, and the tests that failed, and why. Exit code 0 when every time all tests passed. `--write FILE`
keeps the rows for the pages.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.disturb import spin
from bench.kit import ROOT, keep

HOG = 0.5
"""Share of a core that the program beside takes."""
LONGEST_S = 3600.0
CLOSING = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed).*?)(?: in [\d.]+s.*)$", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FAILURES = re.compile(r"^=+ (?:FAILURES|ERRORS) =+$.*?(?=^=+ [a-z])", re.MULTILINE | re.DOTALL)


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="bench.suite", description="`make test` several times in a row.")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--hogged", type=int, default=1, help="how many of them have a hog beside: the last")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows, for the table in the docs")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| time | exit code | seconds | beside | tests | failed |\n|---|---|---|---|---|---|", flush=True)
    for number in range(1, options.times + 1):
        hogged = number > options.times - options.hogged
        hog = multiprocessing.Process(target=spin, args=(LONGEST_S, HOG), daemon=True)
        if hogged:
            hog.start()
        began = time.monotonic()
        done = subprocess.run(["make", "test"], cwd=ROOT, capture_output=True, text=True)
        seconds = time.monotonic() - began
        if hogged:
            hog.kill()
            hog.join()
        closing = CLOSING.findall(done.stdout) or ["it ended without a closing line"]
        row = {
            "code": done.returncode,
            "seconds": round(seconds),
            "hogged": hogged,
            "closing": closing[-1],
            "failed": FAILED.findall(done.stdout),
        }
        rows.append(row)
        beside = f"a hog of {HOG:.0%} of a core" if hogged else "nothing"
        print(
            f"| {number} | {done.returncode} | {seconds:.0f} | {beside} | {closing[-1]} | {' '.join(row['failed'])} |",
            flush=True,
        )
        if done.returncode:
            print(
                "\n".join(FAILURES.findall(done.stdout)) or done.stdout[-2000:], file=sys.stderr, flush=True
            )
    keep(options.write, "suite", "bench.suite", rows=rows)
    return 0 if all(row["code"] == 0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

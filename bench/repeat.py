"""Ten quick runs in a row, as a table: `python -m bench.repeat [--runs N] [--scenario ID] [--server NAME]`.

Runs until so many *valid* runs are done (at most a fifth more are started) and exits 0 when all of those hold. A
run that is not valid says something about the machine, not about the claims, and is counted apart.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def once(scenario: str, server: str, folder: Path, seed: int) -> tuple[int, float, list[str]]:
    """One run: exit code, seconds, and the ids of what failed (claims, or validity checks)."""
    began = time.monotonic()
    command = [sys.executable, "-m", "lab", "run", scenario, "--pace", "quick", "--server", server, "--json"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--out", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1, 4):
        return done.returncode, seconds, done.stderr.strip().splitlines()[-1:]
    result = json.loads(done.stdout)
    if done.returncode == 4:
        return 4, seconds, [f"{c['check']} ({c['detail']})" for c in result["validity"] if not c["ok"]]
    wrong = [c for c in result["claims"] if c["holds"] is result["refutes"]]
    return done.returncode, seconds, [f"{c['id']}: {c['measured']}" for c in wrong] or figures(result)


def figures(result: dict[str, Any]) -> list[str]:
    """What is worth a look from run to run."""
    found = {c["id"]: c["figures"] for c in result["claims"]}
    asked = (("p99 rises", "p99-rises", "ratio", "{:.0f} ×"), ("knee", "knee-predicted", "error", "{:+.1%}"))
    return [f"{name} {form.format(found[c][f])}" for name, c, f, form in asked if f in found.get(c, {})]


def main() -> int:
    """Entry point; exit code 0 when enough runs were valid and every valid one was as it should be."""
    parser = argparse.ArgumentParser(prog="bench.repeat", description="Repeat a quick run and count.")
    parser.add_argument("--runs", type=int, default=10, help="valid runs wanted (10)")
    parser.add_argument("--scenario", default="key-growth")
    parser.add_argument("--server", default="embedded")
    options = parser.parse_args()
    valid = held = started = 0
    words = {0: "holds", 1: "FAILED", 4: "not valid"}
    while valid < options.runs and started < options.runs + options.runs // 5:
        started += 1
        with TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            code, seconds, wrong = once(options.scenario, options.server, run, started)
            if code == 1:  # worth a look afterwards
                kept = ROOT / "runs" / f"failed-{time.strftime('%Y%m%d-%H%M%S')}-{options.scenario}"
                shutil.copytree(run, kept)
                wrong.append(f"kept in {kept.relative_to(ROOT)}")
        valid += code in (0, 1)
        held += code == 0
        print(
            f"{started:>3}  {words.get(code, f'exit {code}'):<10} {seconds:5.1f} s  {'; '.join(wrong)}",
            flush=True,
        )
    print(f"{held} of {valid} valid runs hold; {started} started")
    return 0 if valid >= options.runs and held == valid else 1


if __name__ == "__main__":
    sys.exit(main())

"""Real runs beside disturbances: do they reach a verdict, and the right one? `python -m bench.disturb [--times N]`.

Each run of `key-growth` (quick, embedded server or --server NAME) gets disturbances at random moments, `--per-minute`
of them on average. Two kinds take turns: a pause of 60 to 250 ms in which all processes of the lab stand still, server
and probe included (SIGSTOP, like a hypervisor), and a program that takes all cores for 0.5 to 2 s. `--hog SHARE` adds
a program that takes this share of a core all the time.

It prints a row for each run: exit code, seconds, the disturbances and when they came, which phases were measured again,
and the reason if there was no verdict. The last line counts the runs that ended in a verdict, and those of them in
which every claim held. Exit code 0 when at least 19 of 20 runs ended in a verdict, and every claim held in all of
those. The run folders are kept under --out; `--write` keeps the rows in docs/trust.json, under a name of their own for
each rate, hog and server.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.kit import ROOT
from bench.repeat import EVIDENCE
from lab.errors import CLAIM_FAILED, HOLDS

PAUSE_S, BURST_S = (0.06, 0.25), (0.5, 2.0)
SLICE_S = 0.02
VERDICTS_OF_20 = 19


@dataclass
class Disturbances:
    """Disturbs one run while it goes on; `done` lists what was done."""

    process: subprocess.Popen[bytes]
    per_minute: float
    random: random.Random
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)

    def keep_on(self) -> None:
        """Disturb the run until it ends."""
        turn = 0
        while self.process.poll() is None:
            if self._sleep(self.random.expovariate(self.per_minute / 60)):
                return
            at = time.monotonic() - self.began
            if turn % 2 == 0:
                seconds = self.random.uniform(*PAUSE_S)
                self.done.append(f"{at:.0f} s: stopped for {seconds * 1000:.0f} ms")
                pause(self.process.pid, seconds)
            else:
                seconds = self.random.uniform(*BURST_S)
                self.done.append(f"{at:.0f} s: all cores for {seconds:.1f} s")
                burst(seconds)
            turn += 1

    def _sleep(self, seconds: float) -> bool:
        """Sleep for that long, or until the run ends. True if the run ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            if self.process.poll() is not None:
                return True
        return False


def pause(pid: int, seconds: float) -> None:
    """Stop a process and all its descendants for that long."""
    with suppress(psutil.Error):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for member in family:
                with suppress(psutil.Error):
                    member.send_signal(number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)


def burst(seconds: float) -> None:
    """Keep every core busy for that long."""
    hogs = [multiprocessing.Process(target=spin, args=(seconds, 1.0)) for _ in range(os.cpu_count() or 1)]
    for hog in hogs:
        hog.start()
    for hog in hogs:
        hog.join()


def spin(seconds: float, share: float) -> None:
    """Take a share of a core for that long, in slices of 20 ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        until = time.monotonic() + SLICE_S * share
        while time.monotonic() < until:
            pass
        time.sleep(SLICE_S * (1 - share))


def disturbed(
    command: list[str | Path], cwd: Path, per_minute: float, seed: int, log: Path
) -> tuple[int, float, list[str]]:
    """Run a command beside disturbances; return its exit code, the seconds that it took, and what was done to it."""
    began = time.monotonic()
    with log.open("wb") as said:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    disturbances = Disturbances(process, per_minute, random.Random(seed))
    thread = threading.Thread(target=disturbances.keep_on)
    if per_minute:
        thread.start()
    code = process.wait()
    if per_minute:
        thread.join()
    return code, time.monotonic() - began, disturbances.done


def repetitions(out: Path) -> list[str]:
    """What a run says of the phases that it measured again."""
    result = out / "result.json"
    return list(json.loads(result.read_text())["repeated"]) if result.exists() else []


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench.disturb", description="Real runs beside disturbances.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--per-minute", type=float, default=3.0)
    parser.add_argument(
        "--hog",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of a core that another program uses all the time (0)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default="embedded")
    parser.add_argument("--out", type=Path, default=None, help="folder for the run folders (a temporary one)")
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the page")
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp(prefix="disturbed-"))
    folder.mkdir(parents=True, exist_ok=True)
    hog = multiprocessing.Process(target=spin, args=(86_400.0, options.hog), daemon=True)
    if options.hog:
        hog.start()
    rows: list[dict[str, Any]] = []
    print("| run | exit code | seconds | disturbances | measured again |\n|---|---|---|---|---|", flush=True)
    for number in range(1, options.times + 1):
        out = folder / f"{number:02}"
        run = [ROOT / "bin" / "lab", "run", "key-growth", "--pace", "quick", "--out", out]
        run += ["--server", options.server]
        log = folder / f"{number:02}.log"
        code, seconds, done = disturbed(run, ROOT, options.per_minute, options.seed + number, log)
        told = repetitions(out)
        if code not in (HOLDS, CLAIM_FAILED):
            told.append((log.read_text().splitlines() or ["no output"])[-1])
        rows.append({"code": code, "seconds": round(seconds), "done": done, "told": told})
        print(
            f"| {number} | {code} | {seconds:.0f} | {'; '.join(done) or 'none'} | {' '.join(told) or 'nothing'} |",
            flush=True,
        )
    verdicts = sum(row["code"] in (HOLDS, CLAIM_FAILED) for row in rows)
    held = sum(row["code"] == HOLDS for row in rows)
    print(
        f"\n{verdicts} of {len(rows)} runs ended in a verdict; in {held} of those every claim held. {folder}"
    )
    if options.write:
        part = f"disturbed {options.per_minute:g} a minute, hog {options.hog:g}, {options.server}"
        EVIDENCE.keep(part, "bench.disturb", rows=rows, verdicts=verdicts, held=held)
    return 0 if verdicts >= VERDICTS_OF_20 / 20 * len(rows) and held == verdicts else 1


if __name__ == "__main__":
    sys.exit(main())

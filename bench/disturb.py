"""Real runs beside disturbances: does a verdict come of it, and the right one? `python -m bench.disturb [--times N]`.

Beside each run of `key-growth` (quick, embedded server or --server NAME) disturbances come at random moments,
`--per-minute` of them in the mean: by turns a pause of 60 to 250 ms in which the lab's processes, the server and the
probe included, all stand still (SIGSTOP, as a hypervisor does it), and a program that takes all cores for 0.5 to 2 s.
`--hog SHARE`: a program besides that takes this share of a core all the time. It prints a row a run: exit code,
seconds, what came when, which phases were measured again, and why where there was no verdict; and at last how many
runs ended in a verdict, and in how many of those every claim held. Exit code 0 when at least 19 of 20 did, and all of
those held. The run folders are kept under --out.
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

import psutil

from lab.errors import CLAIM_FAILED, HOLDS

ROOT = Path(__file__).resolve().parents[1]
PAUSE_S, BURST_S = (0.06, 0.25), (0.5, 2.0)
SLICE_S = 0.02
VERDICTS_OF_20 = 19


@dataclass
class Disturbances:
    """What was done beside one run, while it goes on."""

    process: subprocess.Popen[bytes]
    per_minute: float
    random: random.Random
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)

    def keep_on(self) -> None:
        """Until the run ends."""
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
        """Whether the run ended meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            if self.process.poll() is not None:
                return True
        return False


def pause(pid: int, seconds: float) -> None:
    """Stop a process and all below it for so long."""
    with suppress(psutil.Error):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for member in family:
                with suppress(psutil.Error):
                    member.send_signal(number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)


def burst(seconds: float) -> None:
    """Keep every core busy for so long."""
    hogs = [multiprocessing.Process(target=spin, args=(seconds, 1.0)) for _ in range(os.cpu_count() or 1)]
    for hog in hogs:
        hog.start()
    for hog in hogs:
        hog.join()


def spin(seconds: float, share: float) -> None:
    """Take a share of a core for so long, in slices of 20 ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        until = time.monotonic() + SLICE_S * share
        while time.monotonic() < until:
            pass
        time.sleep(SLICE_S * (1 - share))


def disturbed(
    command: list[str | Path], cwd: Path, per_minute: float, seed: int, log: Path
) -> tuple[int, float, list[str]]:
    """A command beside disturbances: its exit code, the seconds that it took, what was done to it."""
    began = time.monotonic()
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
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
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="bench.disturb", description="Real runs beside disturbances.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--per-minute", type=float, default=3.0)
    parser.add_argument("--hog", type=float, default=0.0, metavar="SHARE", help="of a core, all the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", default="embedded")
    parser.add_argument("--out", type=Path, default=None, help="where run folders are kept")
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp(prefix="disturbed-"))
    folder.mkdir(parents=True, exist_ok=True)
    hog = multiprocessing.Process(target=spin, args=(86_400.0, options.hog), daemon=True)
    if options.hog:
        hog.start()
    codes = []
    print("| run | exit code | seconds | disturbances | measured again |\n|---|---|---|---|---|", flush=True)
    for number in range(1, options.times + 1):
        out = folder / f"{number:02}"
        run = [ROOT / "bin" / "lab", "run", "key-growth", "--pace", "quick", "--out", out]
        run += ["--server", options.server]
        log = folder / f"{number:02}.log"
        code, seconds, done = disturbed(run, ROOT, options.per_minute, options.seed + number, log)
        codes.append(code)
        told = " ".join(repetitions(out)) or "nothing"
        if code not in (HOLDS, CLAIM_FAILED):
            told += f"; {(log.read_text().splitlines() or ['it said nothing'])[-1]}"
        print(f"| {number} | {code} | {seconds:.0f} | {'; '.join(done) or 'none'} | {told} |", flush=True)
    verdicts, held = sum(code in (HOLDS, CLAIM_FAILED) for code in codes), codes.count(HOLDS)
    print(
        f"\n{verdicts} of {len(codes)} runs ended in a verdict; in {held} of those every claim held. {folder}"
    )
    return 0 if verdicts >= VERDICTS_OF_20 / 20 * len(codes) and held == verdicts else 1


if __name__ == "__main__":
    sys.exit(main())

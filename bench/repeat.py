"""Several quick runs of a scenario in a row, as a table: `python -m bench.repeat [ID] [--server NAME] [--times N]`.

Runs until N *valid* runs are done (at most a fifth more are started) and exits 0 when all of those are as they
should be: claims hold, or with a control are refuted. A run that is not valid says something about the machine, not
about the claims, and is counted apart. Each run has a seed of its own. With `--stack compose` the runs are made in the
scene that `make up` brought up. With `--claim ID` the last line shows how far that claim's ratio varies from run to
run: lowest, highest, and the mean with its 95 % interval (Student's t).

`--per-minute N` disturbs each run at random moments, N times a minute in the mean. Two kinds take turns: a pause of 60
to 250 ms in which all processes of the run stand still, server and probe included (SIGSTOP, like a hypervisor), and a
program that takes all cores for 0.5 to 2 s.

With `all` in place of ID each scenario in turn is repeated: how often is a valid run of a true claim refuted? Without
`--claim`, disturbances and `--server`, `--write` keeps a row of that table.

`--write` keeps the rows in docs/trust.json, with that claim's figures, and renews the tables in docs/trust.md and
docs/predict.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench.kit import ROOT, Evidence, OneLineParser
from lab import scenarios
from lab.errors import LabError

WORDS = {0: "holds", 1: "FAILED", 4: "not valid"}
WIDTH = 100
PAUSE_S, BURST_S = (0.06, 0.25), (0.5, 2.0)


@dataclass(frozen=True)
class Outcome:
    """A run: its exit code, its seconds, how many claims were as they should be, and notes.

    `ratios`: that of each claim which has one. `figures`: those of the requested claim. `disturbed`: the
    disturbances of the run.
    """

    seed: int
    code: int
    seconds: float
    claims: str
    notes: tuple[str, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    disturbed: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """True if there is a verdict."""
        return self.code in (0, 1)

    def row(self) -> str:
        """The run as a line of the table."""
        text = "; ".join(self.notes)
        text = text if self.code == 1 or len(text) <= WIDTH else text[: WIDTH - 1] + "…"
        return (
            f"{self.seed:>4}  {WORDS.get(self.code, f'exit {self.code}'):<9} {self.seconds:>6.1f} s  "
            f"{self.claims:>8}  {text}"
        )


def outcome(
    seed: int, code: int, seconds: float, result: dict[str, Any], headline: str, claim: str | None = None
) -> Outcome:
    """The outcome of a run with a result. Its notes: failed checks of validity, or failed claims, or the headline."""
    if code == 4:
        wrong = tuple(f"{c['check']} ({c['detail']})" for c in result["validity"] if not c["ok"])
        return Outcome(seed, code, seconds, "", wrong)
    judged = [c for c in result["claims"] if c["holds"] is not None]
    wrong = tuple(f"{c['id']}: {c['measured']}" for c in judged if c["holds"] is result["refutes"])
    claims = f"{len(judged) - len(wrong)} of {len(judged)}"
    foremost = tuple(c["measured"] for c in judged if c["id"] == headline)
    ratios = {c["id"]: c["figures"]["ratio"] for c in judged if "ratio" in c["figures"]}
    figures: dict[str, float] = next((c["figures"] for c in judged if c["id"] == claim), {})
    return Outcome(seed, code, seconds, claims, wrong or foremost, ratios, figures)


def run_once(
    scenario: str,
    server: str,
    stack: str,
    folder: Path,
    seed: int,
    claim: str | None = None,
    per_minute: float = 0.0,
    pace: str = "quick",
) -> Outcome:
    """Make one run into that folder, with disturbances if any are requested."""
    words = [scenario, "--pace", pace, "--server", server, "--stack", stack, "--seed", str(seed)]
    command = [sys.executable, "-m", "lab", "run", *words, "--json", "--out", str(folder)]
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    disturbances: list[str] = []
    if per_minute:
        threading.Thread(
            target=disturb, args=(process, per_minute, random.Random(seed), disturbances)
        ).start()
    printed, errors = process.communicate()
    seconds = time.monotonic() - began
    if process.returncode in WORDS and printed:
        headline = scenarios.find(scenario).headline
        found = outcome(seed, process.returncode, seconds, json.loads(printed), headline, claim)
    else:  # it broke, or the machine was too busy to begin
        text = [line for line in errors.splitlines() if line.startswith("lab:")]
        found = Outcome(seed, process.returncode, seconds, "", tuple(text[-1:]))
    return replace(found, disturbed=tuple(disturbances))


def disturb(
    process: subprocess.Popen[str], per_minute: float, chance: random.Random, disturbances: list[str]
) -> None:
    """Disturb a run until it ends, and add each disturbance to `disturbances`."""
    began = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.expovariate(per_minute / 60))
            return
        at = f"{time.monotonic() - began:.0f} s"
        if len(disturbances) % 2 == 0:
            seconds = chance.uniform(*PAUSE_S)
            disturbances.append(f"{at}: stopped for {seconds * 1000:.0f} ms")
            pause(process.pid, seconds)
        else:
            seconds = chance.uniform(*BURST_S)
            disturbances.append(f"{at}: all cores for {seconds:.1f} s")
            hogs = [multiprocessing.Process(target=spin, args=(seconds,)) for _ in range(os.cpu_count() or 1)]
            for hog in hogs:
                hog.start()
            for hog in hogs:
                hog.join()


def pause(pid: int, seconds: float) -> None:
    """Stop a process and all its descendants for that long."""
    with suppress(psutil.Error):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for member in family:
                with suppress(psutil.Error):
                    member.send_signal(number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)


def spin(seconds: float) -> None:
    """Take a core for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def table(scenario: str, server: str, outcomes: Sequence[Outcome]) -> str:
    """All runs, and a last line with the count."""
    took = [one.seconds for one in outcomes]
    judged = [one for one in outcomes if one.judged]
    return "\n".join(
        (
            f"seed  {'outcome':<9} {'took':>8}  {'claims':>8}  {scenario} on {server}",
            *(one.row() for one in outcomes),
            f"{sum(one.code == 0 for one in judged)} of {len(judged)} valid runs hold, {len(outcomes)} started; "
            f"{statistics.median(took):.0f} s each (median), at most {max(took):.0f} s",
        )
    )


def wandering(claim: str, outcomes: Sequence[Outcome]) -> str:
    """A line on how a claim's ratio varies between valid runs; with fewer than three it says so."""
    found = [one.ratios[claim] for one in outcomes if one.judged and claim in one.ratios]
    if len(found) < 3:
        return f"{claim}: {len(found)} valid runs have a ratio of it; three are needed"
    from scipy.stats import t as student_t  # more than a second, which each of pytest's workers would spend

    mean, error = statistics.fmean(found), statistics.stdev(found) / math.sqrt(len(found))
    half = float(student_t.ppf(0.975, len(found) - 1)) * error
    return (
        f"{claim}: {min(found):.2f} to {max(found):.2f} in {len(found)} runs, mean {mean:.2f} "
        f"({mean - half:.2f} to {mean + half:.2f})"
    )


def verdicts(records: dict[str, Any], part: str) -> str | None:
    """Return a sentence: how many runs of a part have a verdict, in how many every claim held, how a ratio varies."""
    if (found := records.get(part)) is None:
        return None
    judged = sum(row["code"] in (0, 1) for row in found["rows"])
    all_hold = sum(row["code"] == 0 for row in found["rows"])
    return (
        f"`{found['command']}` on {found['machine']}, {found['date']}: {judged} of {len(found['rows'])} runs ended in "
        f"a verdict; in {all_hold} of those every claim held."
        + (f" `{found['wanders']}`" if found["wanders"] else "")
    )


def every_scenario(records: dict[str, Any]) -> str | None:
    """Return a table of the repeated scenarios, a row each, with each refusal and each missing verdict."""
    lines = []
    for part, found in records.items():
        if not part.startswith("verdicts "):
            continue
        rows = found["rows"]
        judged = [row for row in rows if row["code"] in (0, 1)]
        refused = [
            f"seed {row['seed']}: {note}" for row in judged if row["code"] == 1 for note in row["notes"]
        ]
        unjudged = Counter(
            note.split(" (")[0] for row in rows if row not in judged for note in row["notes"][:1]
        )
        lines.append(
            f"| {part.removeprefix('verdicts ')} | {len(judged)} of {len(rows)} | "
            f"{sum(row['code'] == 0 for row in judged)} | {'; '.join(refused) or '-'} | "
            f"{'; '.join(f'{count} x {why}' for why, count in unjudged.items()) or '-'} | {found['date']} |"
        )
    if not lines:
        return None
    head = "| scenario, pace | runs with a verdict | all claims hold | refused | why there was no verdict | day |"
    return "\n".join(
        [
            "`python -m bench.repeat ID --times N --write`, or `all` for each ID:",
            "",
            head,
            "|---|---|---|---|---|---|",
            *lines,
        ]
    )


def predicted_again(records: dict[str, Any]) -> str | None:
    """Return a sentence on the errors of the predicted knees in repeated runs of a cluster."""
    if (part := records.get("repeat shards on embedded")) is None:
        return None
    figures = [row["figures"] for row in part["rows"] if row["figures"]]
    off = {
        nodes: sorted(100 * (each[f"predicted_{nodes}"] / each[f"knee_{nodes}"] - 1) for each in figures)
        for nodes in ("one", "three")
    }
    within = sum(each["low_three"] <= each["knee_three"] <= each["high_three"] for each in figures)
    return (
        f"`{part['command']}` on {part['machine']}, {part['date']}; {len(figures)} of {len(part['rows'])} runs (the "
        f"others had no verdict, or no knee was found): the knee of one node was predicted {off['one'][0]:+.0f} % to "
        f"{off['one'][-1]:+.0f} % off, that of three nodes {off['three'][0]:+.0f} % to {off['three'][-1]:+.0f} % off, "
        f"and in {within} of them within the stated range."
    )


EVIDENCE = Evidence(
    "docs/trust.json",
    {
        "docs/trust.md": {
            "disturbed": lambda records: verdicts(
                records, "repeat key-growth on embedded, 3 disturbances a minute"
            ),
            "verdicts": every_scenario,
            "repeated": lambda records: verdicts(records, "repeat key-growth on embedded"),
        },
        "docs/predict.md": {"predicted again": predicted_again},
    },
)


def count(text: str) -> int:
    """A number of runs from the command line. Raises `ValueError` for anything else (argparse reports it)."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def repeat(scenario: str, options: argparse.Namespace) -> list[Outcome]:
    """Repeat a scenario until `times` runs are valid, or a fifth more were started; print and return the outcomes."""
    found: list[Outcome] = []
    while sum(one.judged for one in found) < options.times:
        if len(found) >= options.times + max(1, options.times // 5):
            break
        with TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            where, seed = (scenario, options.server, options.stack), options.seed + len(found)
            found.append(run_once(*where, run, seed, options.claim, options.per_minute, options.pace))
            print(found[-1].row(), file=sys.stderr, flush=True)
            if found[-1].code == 1:  # worth a look afterwards
                records = ROOT / "runs" / f"failed-{time.strftime('%Y%m%d-%H%M%S')}-{scenario}"
                shutil.copytree(run, records)
                print(f"      kept in {records.relative_to(ROOT)}", file=sys.stderr)
    print(table(scenario, options.server, found), flush=True)
    return found


def main() -> int:
    """Entry point; exit code 0 when enough runs were valid and every valid one was as it should be."""
    parser = OneLineParser(prog="bench.repeat", description="Repeat a quick run and count.")
    parser.add_argument("scenario", nargs="?", default="key-growth", help="scenario, or all (key-growth)")
    parser.add_argument("--server", default="embedded", help="server to run it on (embedded)")
    parser.add_argument(
        "--stack", default="native", help="stack to run it on: native, or compose beside `make up` (native)"
    )
    parser.add_argument("--pace", choices=("quick", "standard", "full"), default="quick", help="pace (quick)")
    parser.add_argument("--times", type=count, default=10, help="valid runs wanted (10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the first run; each later run takes the next number (1)"
    )
    parser.add_argument(
        "--per-minute", type=float, default=0.0, help="disturbances a minute, in the mean (0)"
    )
    parser.add_argument("--claim", help="also print how far the ratio of this claim varies from run to run")
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the pages")
    options = parser.parse_args()
    try:
        names = [one.id for one in scenarios.catalogue().values() if not one.refutes]
        names = names if options.scenario == "all" else [scenarios.find(options.scenario).id]
    except LabError as error:
        print(f"bench.repeat: {error}", file=sys.stderr)
        return error.exit_code
    code = 0
    for name in names:
        found = repeat(name, options)
        if enough := sum(one.judged for one in found) >= options.times:
            enough = all(one.code == 0 for one in found if one.judged)
        code = code if enough else 1
        wanders = wandering(options.claim, found) if options.claim else ""
        if wanders:
            print(wanders)
        disturbed = f", {options.per_minute:g} disturbances a minute" if options.per_minute else ""
        plain = options.server == "embedded" and not (options.claim or disturbed)
        part = (
            f"verdicts {name}, {options.pace}" if plain else f"repeat {name} on {options.server}{disturbed}"
        )
        if options.write:
            rows = [asdict(one) for one in found]
            EVIDENCE.keep(part, "bench.repeat", rows=rows, claim=options.claim or "", wanders=wanders)
    return code


if __name__ == "__main__":
    sys.exit(main())

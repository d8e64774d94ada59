"""Several quick runs of a scenario in a row, as a table: `python -m bench.repeat [ID] [--server NAME] [--times N]`.

Runs until N *valid* runs are done (at most a fifth more are started) and exits 0 when all of those are as they
should be: claims hold, or with a control are refuted. A run that is not valid says something about the machine, not
about the claims, and is counted apart. Each run has a seed of its own. With `--stack compose` the runs are made in the
scene that `make up` brought up. With `--claim ID` the last line tells how far that claim's ratio varies from run to
run: lowest, highest, and the mean with its 95 % interval (Student's t). With `--hold 0.5` the server gets half a core
(`bench.held`), which stands in for another machine. `--write` keeps the rows in docs/trust.json, with that claim's
figures, and renews what docs/trust.md and docs/predict.md say of them.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.held import share
from bench.kit import ROOT, Evidence, OneLineParser, lab_run
from lab import scenarios
from lab.errors import LabError

WORDS = {0: "holds", 1: "FAILED", 4: "not valid"}
WIDTH = 100


@dataclass(frozen=True)
class Outcome:
    """One run: its exit code, its seconds, how many claims were as they should be, and notes on what matters.

    `ratios`: that of each claim which has one. `figures`: those of the claim that was asked for.
    """

    seed: int
    code: int
    seconds: float
    claims: str
    notes: tuple[str, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """True if there is a verdict."""
        return self.code in (0, 1)

    def row(self) -> str:
        """The run as a line of the table."""
        said = "; ".join(self.notes)
        said = said if self.code == 1 or len(said) <= WIDTH else said[: WIDTH - 1] + "…"
        return (
            f"{self.seed:>4}  {WORDS.get(self.code, f'exit {self.code}'):<9} {self.seconds:>6.1f} s  "
            f"{self.claims:>8}  {said}"
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


def once(
    scenario: str,
    server: str,
    stack: str,
    folder: Path,
    seed: int,
    hold: float | None = None,
    claim: str | None = None,
) -> Outcome:
    """Make one run into that folder, with the server held to the share `hold` of a core where one is given."""
    held = [sys.executable, "-m", "bench.held", "--share", str(hold), "--server", server] if hold else []
    words = [scenario, "--pace", "quick", "--server", server, "--stack", stack, "--seed", str(seed)]
    done, seconds = lab_run(*words, "--out", str(folder), within=held)
    if done.returncode not in WORDS or not done.stdout:  # it broke, or the machine was too busy to begin
        said = [line for line in done.stderr.splitlines() if line.startswith("lab:")]
        return Outcome(seed, done.returncode, seconds, "", tuple(said[-1:]))
    headline = scenarios.find(scenario).headline
    return outcome(seed, done.returncode, seconds, json.loads(done.stdout), headline, claim)


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


def verdicts(kept: dict[str, Any], part: str) -> str | None:
    """Of a kept part: how many runs ended in a verdict, and in how many of those every claim held."""
    if (found := kept.get(part)) is None:
        return None
    judged = sum(row["code"] in (0, 1) for row in found["rows"])
    held = sum(row["code"] == 0 for row in found["rows"])
    return (
        f"`{found['command']}` on {found['machine']}, {found['date']}: {judged} of {len(found['rows'])} runs ended in "
        f"a verdict; in {held} of those every claim held."
    )


def repeated(kept: dict[str, Any]) -> str | None:
    """The runs on a held server, and how far their claim's ratio varies."""
    part = "repeat key-growth on embedded, held to 0.5"
    return f"{said} `{kept[part]['wanders']}`" if (said := verdicts(kept, part)) else None


def predicted_again(kept: dict[str, Any]) -> str | None:
    """Repeated runs of a cluster: how far the predicted knees were from the observed ones."""
    if (part := kept.get("repeat shards on embedded")) is None:
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
            "disturbed": lambda kept: verdicts(kept, "disturbed 3 a minute, hog 0, embedded"),
            "repeated": repeated,
        },
        "docs/predict.md": {"predicted again": predicted_again},
    },
)


def count(text: str) -> int:
    """A number of runs from the command line. Raises `ValueError` for anything else (argparse reports it)."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def main() -> int:
    """Entry point; exit code 0 when enough runs were valid and every valid one was as it should be."""
    parser = OneLineParser(prog="bench.repeat", description="Repeat a quick run and count.")
    parser.add_argument("scenario", nargs="?", default="key-growth", help="scenario to repeat (key-growth)")
    parser.add_argument("--server", default="embedded", help="server to run it on (embedded)")
    parser.add_argument(
        "--stack", default="native", help="stack to run it on: native, or compose beside `make up` (native)"
    )
    parser.add_argument("--times", type=count, default=10, help="valid runs wanted (10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the first run; each later run takes the next number (1)"
    )
    parser.add_argument("--hold", type=share, metavar="SHARE", help="hold the server to a share of a core")
    parser.add_argument("--claim", help="also tell how far the ratio of this claim wanders from run to run")
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the pages")
    options = parser.parse_args()
    if options.hold and options.stack != "native":
        parser.error("only a server that the run itself starts can be held: --hold goes with --stack native")
    try:
        scenarios.find(options.scenario)
    except LabError as error:
        print(f"bench.repeat: {error}", file=sys.stderr)
        return error.exit_code
    found: list[Outcome] = []
    while (valid := sum(one.judged for one in found)) < options.times:
        if len(found) >= options.times + max(1, options.times // 5):
            break
        with TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            where = options.scenario, options.server, options.stack
            found.append(once(*where, run, options.seed + len(found), options.hold, options.claim))
            print(found[-1].row(), file=sys.stderr, flush=True)
            if found[-1].code == 1:  # worth a look afterwards
                kept = ROOT / "runs" / f"failed-{time.strftime('%Y%m%d-%H%M%S')}-{options.scenario}"
                shutil.copytree(run, kept)
                print(f"      kept in {kept.relative_to(ROOT)}", file=sys.stderr)
    print(table(options.scenario, options.server, found))
    wanders = wandering(options.claim, found) if options.claim else ""
    if wanders:
        print(wanders)
    part = f"repeat {options.scenario} on {options.server}" + (
        f", held to {options.hold}" if options.hold else ""
    )
    if options.write:
        rows = [asdict(one) for one in found]
        EVIDENCE.keep(part, "bench.repeat", rows=rows, claim=options.claim or "", wanders=wanders)
    return 0 if valid >= options.times and all(one.code == 0 for one in found if one.judged) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Renews what the README shows of runs, between its marks. The README holds no other figure of a run.

`python -m lab.readme DIR` (`make picture RUN=DIR`): docs/key-growth.svg and the block `verdict`, from one run.
`python -m lab.readme --table DIR` (`make table RUNS=DIR`): the block `incidents`, from a folder of `lab run all`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from lab import scenarios
from lab.errors import LabError, UsageError
from lab.report import picture
from lab.runfolder import Run

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = {
    name: re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    for name in ("verdict", "incidents")
}
WORDS = {True: "holds", False: "refuted", None: "not applicable"}


def verdict_block(run: Run) -> str:
    """The claims of a judged run as a Markdown table. Raises `UsageError` for a run without a verdict."""
    result = run.result()
    if result is None or result["holds"] is None:
        raise UsageError(f"{run.folder} has no verdict to show.")
    rows = [
        f"| {claim['statement']} | {claim['bound']} | {claim['measured']} | {WORDS[claim['holds']]} |"
        for claim in result["claims"]
    ]
    facts = run.facts
    head = (
        f"Measured by `{facts.command}` on {_machine(run)}, {facts.keys:,} keys, "
        f"{facts.load['events_per_second']:.1f} events and {facts.load['reads_per_second']:.0f} reads a second:\n\n"
    )
    return head + "| claim | bound | measured | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def incidents_block(folder: Path) -> str:
    """The incidents of a folder of runs as a Markdown table, in the catalogue's order, without controls.

    Raises `UsageError` where there is no run, or one without a verdict.
    """
    runs = [Run(found.parent) for found in sorted(folder.glob("*/run.json"))]
    order = list(scenarios.catalogue())
    runs = [run for run in runs if not run.facts.refutes and run.facts.scenario in order]
    if not runs:
        raise UsageError(f"{folder} holds no runs: name a folder of `lab run all`.")
    runs.sort(key=lambda run: order.index(run.facts.scenario))
    try:
        command = json.loads((folder / "summary.json").read_text())["command"]
    except (OSError, ValueError, KeyError):
        command = f"bin/lab run ID --pace {runs[0].facts.pace}"
    head = f"Measured by `{command}` on {'; '.join(dict.fromkeys(map(_machine, runs)))}:\n\n"
    titles = "| scenario | symptom | cause | claim | measured | claims |\n|---|---|---|---|---|---|\n"
    return head + titles + "\n".join(map(_row, runs)) + "\n"


def _row(run: Run) -> str:
    result, scenario = run.result(), scenarios.find(run.facts.scenario)
    if result is None or result["holds"] is None:
        raise UsageError(f"{run.folder} has no verdict to show.")
    headline = next((claim for claim in result["claims"] if claim["id"] == scenario.headline), None)
    if headline is None:
        raise UsageError(f"{scenario.id} names no claim of its own as its headline.")
    judged = [claim["holds"] for claim in result["claims"] if claim["holds"] is not None]
    cells = (
        f"`{scenario.id}`",
        scenario.symptom,
        scenario.cause,
        f"{headline['statement']}: {headline['bound']}",
        headline["measured"] if headline["holds"] is not False else f"{headline['measured']} (refuted)",
        f"all {len(judged)} hold" if all(judged) else f"{sum(judged)} of {len(judged)} hold",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _machine(run: Run) -> str:
    facts = run.facts
    return f"{facts.host['cores']} cores of {facts.host['processor']}, {facts.server} {facts.server_version}"


def renew(folder: Path, readme: Path = ROOT / "README.md") -> None:
    """Rewrite picture and verdict from a run folder."""
    run = Run(folder)
    block = verdict_block(run)
    _replace(readme, "verdict", block)
    target = readme.parent / "docs" / f"{run.facts.scenario}.svg"
    target.parent.mkdir(exist_ok=True)
    picture(run, target)
    _keep(readme, run.facts.scenario, run.facts.command, block)


def renew_table(folder: Path, readme: Path = ROOT / "README.md") -> None:
    """Rewrite the table of incidents from a folder of runs."""
    block = incidents_block(folder)
    _replace(readme, "incidents", block)
    _keep(readme, "incidents", block.split("`")[1], block)


def _replace(readme: Path, name: str, block: str) -> None:
    text = readme.read_text()
    renewed, count = BLOCKS[name].subn(lambda found: found.group(1) + block + found.group(2), text)
    if count != 1:
        raise UsageError(f"{readme} has {count} {name} blocks, not one.")
    readme.write_text(renewed)


def _keep(readme: Path, name: str, command: str, block: str) -> None:
    """A copy in docs/, so that a test can tell whether the README still says what the run said."""
    target = readme.parent / "docs" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"command": command, "block": block}, indent=1) + "\n")


def main() -> int:
    """Entry point."""
    match sys.argv[1:]:
        case ["--table", folder] if folder:
            work = renew_table
        case [folder] if folder and folder != "--table":
            work = renew
        case _:
            print("readme: make picture RUN=runs/…, or make table RUNS=runs/…-all", file=sys.stderr)
            return 2
    try:
        work(Path(folder))
    except LabError as error:
        print(f"readme: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

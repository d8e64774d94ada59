"""Output of commands on a terminal: the catalogue, a verdict, a series of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.claims.wording import outcome, sentence
from lab.foreign_text import shown
from lab.scenarios.model import Scenario


def catalogue(known: Sequence[Scenario]) -> list[dict[str, Any]]:
    """The scenarios in a form that JSON can hold."""
    return [
        {
            "id": s.id,
            "title": s.title,
            "story": s.story,
            "source": s.source,
            "symptom": s.symptom,
            "cause": s.cause,
            "paces": {name: vars(pace) for name, pace in s.paces.items()},
            "claims": [{"id": c.id, "statement": c.statement, "bound": c.bound} for c in s.claims],
            "refutes": s.refutes,
        }
        for s in known
    ]


def show_catalogue(console: Console, known: Sequence[Scenario]) -> None:
    """Print every scenario with source and claims. A control's claims are its scenario's: they are only counted."""
    for scenario in known:
        console.print(Text(scenario.id, style="bold").append(f"  {scenario.title}", style="not bold"))
        page = Table.grid(padding=(0, 1, 0, 0))
        page.add_column(width=9, justify="right")
        page.add_column(overflow="fold")
        page.add_row("", Text(scenario.story))
        page.add_row("source", Text(scenario.source))
        if scenario.refutes:
            page.add_row("refutes", Text(f"{len(scenario.claims)} claims, without the cause"))
        for claim in () if scenario.refutes else scenario.claims:
            page.add_row("claim", Text(f"{claim.statement} ({claim.bound})"))
        console.print(page)
        console.print()


def show_verdict(console: Console, folder: Path, spoilers: bool = True, verbose: bool = False) -> None:
    """Print the headline, claims, quality checks and the verdict of a judged run folder.

    Without `spoilers` nothing that names the cause is printed: no headline and no claim. The quality checks that passed
    are one line unless `verbose`.
    """
    from lab.report.view import RunView  # numpy and all: `bin/lab list` needs none of it
    from lab.results.folder import Run

    result = json.loads((folder / "result.json").read_text())
    view = RunView(Run(folder), spoilers)
    if spoilers:
        if view.headline:
            console.print(f"{view.headline['statement']}: {shown(view.headline['measured'])}\n", style="bold")
        table = Table(box=None, header_style="bold", pad_edge=False)
        for heading in ("", "claim", "bound", "measured"):
            table.add_column(heading, overflow="fold")
        for claim in result["claims"]:
            found = outcome(claim["holds"], result["refutes"])
            table.add_row(found, claim["statement"], claim["bound"], shown(claim["measured"]))
        console.print(table)
        console.print()
    for check in result["validity"]:
        if verbose or not check["ok"]:
            console.print(
                f"{'valid  ' if check['ok'] else 'INVALID'} {check['check']}: {shown(check['detail'])}"
            )
    if (passed := sum(check["ok"] for check in result["validity"])) and not verbose:
        console.print(f"valid   {passed} quality checks passed; -v lists them")
    if view.facts.despite_noise:
        console.print(f"noise   started despite noise: {shown(view.facts.despite_noise)}")
    for text in view.repeated:  # by the phases' names; result.json has their ids
        console.print(f"again   {shown(text)}")
    if result["holds"] is None and view.headline and spoilers:
        console.print(f"seen    {shown(view.headline['measured'])}")
    console.print()
    console.print(shown(sentence(result)), style="bold")


def show_series(console: Console, summary: dict[str, Any], page: Path, spoilers: bool = False) -> None:
    """Print a row for each run of a series (verdict, headline, seconds, report), from the content of summary.json.

    A headline's measurement names the cause: without `spoilers` its column only says why a run has no verdict.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("scenario", "verdict", "measured" if spoilers else "no verdict because"):
        table.add_column(heading, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("report", overflow="fold")
    for run in summary["runs"]:
        text = run["said"] if spoilers or run["error"] or run["invalid"] else ""
        cells = (run["scenario"], run["verdict"], text, f"{run['seconds']:.0f}", run["report"] or "")
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print()
    console.print(Text(summary["verdict"], style="bold"))
    print(f"summary: {page}")

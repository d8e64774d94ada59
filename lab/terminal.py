"""What commands print on a terminal: the catalogue, a verdict, a series of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.scenario import Scenario

if TYPE_CHECKING:
    from lab.series import Series


def catalogue(known: Sequence[Scenario]) -> list[dict[str, Any]]:
    """The scenarios as JSON may hold them."""
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


def show_verdict(console: Console, folder: Path) -> None:
    """Print claims, validity and the verdict of a judged run folder."""
    result = json.loads((folder / "result.json").read_text())
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("", "claim", "bound", "measured"):
        table.add_column(heading, overflow="fold")
    words = {True: "holds", False: "refuted", None: "n/a"}
    for claim in result["claims"]:
        table.add_row(words[claim["holds"]], claim["statement"], claim["bound"], claim["measured"])
    console.print(table)
    console.print()
    for check in result["validity"]:
        console.print(f"{'valid  ' if check['ok'] else 'INVALID'} {check['check']}: {check['detail']}")
    for said in result["repeated"]:
        console.print(f"again   {said}")
    console.print()
    console.print(f"[bold]{verdict_sentence(result)}[/bold]")


def verdict_sentence(result: dict[str, object]) -> str:
    """The verdict in a sentence."""
    if result["holds"] is None:
        return "No verdict: the run is not valid. Close other programs, or take a calmer machine, and run it again."
    if result["refutes"]:
        return (
            "The control is as it should be: without the cause every applicable claim is refuted."
            if result["holds"]
            else "The control is not as it should be: a claim held without its cause."
        )
    return "Every claim holds." if result["holds"] else "A claim was refuted."


def show_series(console: Console, series: Series) -> None:
    """Print one row for each run: verdict, headline, seconds, report."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("scenario", "verdict", "measured"):
        table.add_column(heading, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("report", overflow="fold")
    for entry in series.entries:
        cells = (entry.scenario, entry.verdict, entry.said, f"{entry.seconds:.0f}", entry.report or "")
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print()
    console.print(Text(series.verdict, style="bold"))
    print(f"summary: {series.folder / 'summary.html'}")

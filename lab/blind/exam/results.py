"""The result of an examination: rows, counts by kind of scene, and the table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.blind.exam.sitting import Row
from lab.results.numbers import UNKNOWN

KINDS = ("one cause", "nothing", "two causes")


@dataclass(frozen=True)
class Result:
    """The result of a candidate.

    `trusted`: the candidate could have known the causes, because the seed was given, or because it ran as the user who
    examined it. Then the result is on trust. `planned`: number of scenes; fewer rows: not all were held, or not yet.
    """

    candidate: str
    stack: str
    level: int
    task: str
    seed: int
    trusted: bool
    planned: int
    rows: Sequence[Row]

    def counts(self) -> dict[str, dict[str, int]]:
        """For each kind of scene that occurred: scenes, right ones, points, and the most points."""
        found = {}
        for kind in KINDS:
            rows = [row for row in self.rows if row.kind == kind]
            if rows:
                found[kind] = {
                    "scenes": len(rows),
                    "right": sum(row.right for row in rows),
                    "points": sum(row.points for row in rows),
                    "full": sum(row.full for row in rows),
                }
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "candidate": self.candidate,
            "stack": self.stack,
            "level": self.level,
            "task": self.task,
            "seed": self.seed,
            "on_trust": self.trusted,
            "planned": self.planned,
            "counts": self.counts(),
            "rows": [row.as_dict() for row in self.rows],
        }


def cells(row: Row) -> list[str]:
    """A row for people."""
    cured = "" if row.cured is None else ", cured" if row.cured else ", not cured"
    return [
        str(row.number),
        " + ".join(row.causes),
        " then ".join(row.answers) or UNKNOWN,
        f"{'right' if row.right else 'not right'}{cured}",
        f"{row.points} of {row.full}" if row.full else UNKNOWN,
        f"{row.minutes:.1f}",
        row.ended,
    ]


def show(console: Console, result: Result) -> None:
    """Print the rows and the counts."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("scene", "it was", "answers", "outcome", "points", "minutes", ""):
        table.add_column(heading, overflow="fold")
    for row in result.rows:
        table.add_row(*map(Text, cells(row)))
    console.print(table)
    console.print()
    for kind, of in result.counts().items():
        points = f", {of['points']} of {of['full']} points" if of["full"] else ""
        console.print(f"{kind}: {of['right']} of {of['scenes']} right{points}")
    if len(result.rows) < result.planned:
        console.print(f"{len(result.rows)} of {result.planned} scenes were held")
    console.print(f"seed {result.seed}{'; on trust' if result.trusted else ''}")

"""What became of accepted events while parts failed: tables from docs/faults.json, which `make faults` writes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/faults.json")
REASONS = Path("docs/pages/accepted_faults.toml")
"""Why some red cells are accepted, by hand."""
NOT_YET = {
    "native": "Not measured yet: `make faults`, about forty minutes.",
    "compose": "Not measured yet: `make up`, then `make faults STACK=compose`, about forty minutes.",
}


def _rows(root: Path, stack: str) -> list[dict[str, Any]]:
    path = root / FILE
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return [row for row in kept.values() if row["stack"] == stack]


def _cells(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each cell, with its row."""
    for row in rows:
        for cell in row.get("cells", ()):
            yield row, cell


def _span(cells: list[dict[str, Any]], name: str) -> str:
    """The least and the most of a time, in seconds; `never` if one cell has none."""
    values = [cell.get(name) for cell in cells]
    known = sorted(value for value in values if value is not None)
    if len(known) < len(values):
        return "never"
    least, most = f"{known[0]:.1f}", f"{known[-1]:.1f}"
    return least if least == most else f"{least} to {most}"


def matrix(root: Path, stack: str) -> str:
    """A row a fault, over all strategies: events, stale entries, failed requests, times."""
    rows = _rows(root, stack)
    if not rows:
        return NOT_YET[stack]
    shown = []
    for row in rows:
        cells = row.get("cells")
        if not cells:
            shown.append([row["title"], f"not applicable: {row['not_here']}", *[""] * 7])
            continue
        sums = [
            f"{sum(cell.get(name, 0) for cell in cells):,}"
            for name in ("accepted", "refused", "lost", "stale", "late", "failed")
        ]
        red = [cell["strategy"] for cell in cells if cell["red"]]
        shown.append(
            [
                row["title"],
                f"red: {', '.join(red)}" if red else "green",
                *sums,
                f"{_span(cells, 'recovered_s')} / {_span(cells, 'drained_s')}",
            ]
        )
    cells = [cell for _, cell in _cells(rows)]
    red_cells = sum(bool(cell["red"]) for cell in cells)
    accepted, lost = (sum(cell.get(name, 0) for cell in cells) for name in ("accepted", "lost"))
    said = (
        f"{len(cells)} cells, {red_cells} of them red; {accepted:,} events accepted, {lost:,} lost. "
        f"{', '.join(sorted({row['machine'] for row in rows}))}; "
        f"{' to '.join(sorted({min(row['date'] for row in rows), max(row['date'] for row in rows)}))}."
    )
    heads = [
        "fault",
        "cells",
        "accepted",
        "refused",
        "lost",
        "stale",
        "late",
        "reads failed",
        "success / empty, s",
    ]
    return f"{said}\n\n{table(heads, shown, range(2, 8))}"


def said(root: Path, stack: str) -> str:
    """What health, readiness and metrics said: of each row the cell with the largest backlog."""
    rows = _rows(root, stack)
    if not rows:
        return NOT_YET[stack]
    shown = []
    for row in rows:
        cells = [cell for cell in row.get("cells", ()) if "said" in cell]
        if cells:
            most = max(cells, key=lambda cell: int(cell.get("backlog", 0)))
            shown.append([row["title"], f"`{most['strategy']}`", most["said"]])
    return table(["fault", "strategy", "what was said while it lasted"], shown)


def red(root: Path, stack: str) -> str:
    """Each red cell, why it is red, and why it is accepted."""
    rows = _rows(root, stack)
    if not rows:
        return NOT_YET[stack]
    path = root / REASONS
    by_hand = tomllib.loads(path.read_text(encoding="utf-8")).get("cell", []) if path.exists() else []
    known = {(each["fault"], strategy): each["why"] for each in by_hand for strategy in each["strategies"]}
    shown = [
        [
            row["title"],
            f"`{cell['strategy']}`",
            "; ".join(cell["red"]),
            known.get((row["fault"], cell["strategy"]), "not explained yet"),
        ]
        for row, cell in _cells(rows)
        if cell["red"]
    ]
    return table(["fault", "strategy", "why it is red", "why it is accepted"], shown) if shown else "None."


LISTS: dict[str, Callable[[Path], str]] = {
    "faults": partial(matrix, stack="native"),
    "faults-said": partial(said, stack="native"),
    "faults-red": partial(red, stack="native"),
    "faults-compose": partial(matrix, stack="compose"),
    "faults-compose-said": partial(said, stack="compose"),
    "faults-compose-red": partial(red, stack="compose"),
}

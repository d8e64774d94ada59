"""What the checker of histories found, as `bench.history` kept it: tables from docs/history.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/history.json")
NOT_YET = f"Not measured yet: `.venv/bin/python -m bench.history --write {FILE}`."
COUNTED = ("reads", "hits", "puts", "events", "kills", "turns")


def _rows(root: Path) -> list[dict[str, Any]]:
    path = root / FILE
    return list(json.loads(path.read_text(encoding="utf-8")).values()) if path.exists() else []


def accused(root: Path) -> str:
    """A row for each strategy on each server: what it did, and what is accused."""
    rows = _rows(root)
    if not rows:
        return NOT_YET
    dates = sorted({row["date"] for row in rows})
    said = (
        f"{len(rows)} histories with {sum(row['reads'] for row in rows):,} reads and "
        f"{sum(row['events'] for row in rows):,} events; "
        f"{sum(sum(row['accused'].values()) for row in rows):,} accused. "
        f"{', '.join(sorted({row['machine'] for row in rows}))}; {' to '.join(sorted({dates[0], dates[-1]}))}."
    )
    kinds = list(rows[0]["accused"])
    shown = [
        [
            row["server"],
            f"`{row['strategy']}`",
            *(f"{row[name]:,}" for name in COUNTED),
            *(f"{row['accused'][kind]:,}" for kind in kinds),
        ]
        for row in rows
    ]
    heads = ["server", "strategy", *COUNTED, *kinds]
    found = [
        f"- `{row['strategy']}` on {row['server']}, {kind}: {example}"
        for row in rows
        for kind, examples in row["examples"].items()
        for example in examples
    ]
    return "\n".join(
        [f"{said}\n\n{table(heads, shown, range(2, len(heads)))}", *([""] if found else []), *found]
    )


def raced(root: Path) -> str:
    """A row for each strategy on each server: how often the race of cache-aside was lost, and for how long."""
    rows = _rows(root)
    if not rows:
        return NOT_YET
    shown = [
        [
            row["server"],
            f"`{row['strategy']}`",
            f"{row['puts']:,}",
            f"{row['late']:,}",
            f"{1e4 * row['late'] / row['puts']:.1f}" if row["puts"] else "",
            f"{row['raced']:,}",
            f"{row['longest_s']:.2f}",
            f"{row['ttl_s']:g}",
        ]
        for row in rows
    ]
    heads = ["server", "strategy", "puts", "raced", "in 10,000 puts", "reads served", "longest, s", "TTL, s"]
    return table(heads, shown, range(2, len(heads)))


LISTS: dict[str, Callable[[Path], str]] = {"histories": accused, "races": raced}

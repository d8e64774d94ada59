"""Blind sessions from complaint to cure: the table from docs/sessions.json, which `bench.blind_table` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/sessions.json")
NOT_YET = f"Not measured yet: `.venv/bin/python -m bench.blind_table --write {FILE}`."
HEADINGS = ["causes", "stack", "level", "what tempts", "what cures, and when users were well", "as promised"]


def sessions(root: Path) -> str:
    """A row for each session, how many were as promised, and where and when they were played."""
    path = root / FILE
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not kept:
        return NOT_YET
    rows: list[dict[str, Any]] = sorted(kept.values(), key=lambda row: (row["stack"], row["level"] == 3))
    days = sorted({row["date"] for row in rows})
    good = sum(not row["broken"] for row in rows)
    minutes = sum(row["seconds"] for row in rows) / 60
    said = (
        f"{good} of {len(rows)} sessions were as promised, in {minutes:.0f} minutes. "
        f"{'; '.join(sorted({row['machine'] for row in rows}))}; {' to '.join(dict.fromkeys((days[0], days[-1])))}."
    )
    return f"{said}\n\n{table(HEADINGS, [_row(row) for row in rows])}"


def _row(row: dict[str, Any]) -> list[str]:
    tempting = row["tempting"]
    return [
        " and ".join(f"`{cause}`" for cause in row["causes"]),
        row["stack"],
        str(row["level"]),
        f"`{tempting['lever']}`" if tempting else "nothing",
        ", then ".join(_lever(each) for each in row["cures"]),
        "; ".join(row["broken"]) or "yes",
    ]


def _lever(pulled: dict[str, Any]) -> str:
    after = pulled["well_after_s"]
    return f"`{pulled['lever']}`" + (f" ({after:.0f} s)" if pulled["cured"] and after is not None else "")


LISTS: dict[str, Callable[[Path], str]] = {"sessions": sessions}

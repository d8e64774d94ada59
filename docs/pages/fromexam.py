"""Results of `bin/lab exam`: a row for each file in docs/exams/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table
from lab.blind.exam.results import KINDS
from lab.results.numbers import UNKNOWN

FOLDER = Path("docs/exams")
NOT_YET = f"Not held yet: `bin/lab exam --for diagnose --out {FOLDER}/diagnose.json`."


def exams(root: Path) -> str:
    """Who was examined, and how many scenes of each kind were answered right."""
    files = sorted((root / FOLDER).glob("*.json"))
    if not files:
        return NOT_YET
    rows = [_row(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return table(
        ["examined", "stack", "level", "task", *KINDS, "causes known?"],
        rows,
        range(4, 4 + len(KINDS)),
    )


def _row(name: str, of: dict[str, Any]) -> list[str]:
    counts = of["counts"]
    return [
        name,
        of["stack"],
        str(of["level"]),
        of["task"],
        *(
            f"{counts[kind]['right']} of {counts[kind]['scenes']}" if kind in counts else UNKNOWN
            for kind in KINDS
        ),
        "on trust" if of["on_trust"] else "sealed",
    ]


LISTS: dict[str, Callable[[Path], str]] = {"exams": exams}

"""The description of a run folder for programs (JSON Schema) and for people (a page), from `lab.results.schema`.

Also the JSON Schema of a diagnosis, made from `lab.diagnose.diagnosis`.
"""

from __future__ import annotations

import json
from pathlib import Path

from docs.pages.fromruns import table
from lab.diagnose import diagnosis
from lab.results.schema import FACTS, SAMPLES, SLOWLOG, Column

JSON_SCHEMA, PAGE = Path("docs/run.schema.json"), Path("docs/run-folder.md")
DIAGNOSIS = Path("docs/diagnosis.schema.json")
INTRODUCTION = """# A run folder

`bin/lab run` leaves a folder. `run.json` follows [run.schema.json](run.schema.json) (JSON Schema 2020-12): what was
run, where, what was planned, and what each phase did. A file that does not fit is refused in one line that names file,
field and what was expected, with exit code 2. This page and the schema are made from `lab/results/schema.py` by
`make docs`.

`probe.hlog` holds the latencies of every probe in quarters of a second: an HdrHistogram log (format 1.3, microseconds),
tags `NAME-intended` (from the moment a request was due) and `NAME-service` (from the moment it was sent).
A reply counts in the quarter in which its request was due, whenever it came: `sent` of a phase is `received` and
`errors`. (In records made before 29 November 2026 a reply counts when it came: beyond the knee their
`received` is less than `sent`, and their p99 is a lower bound.)
`loads.jsonl` holds what the scenario's own loads said: one JSON object a line, each with `phase`, `attempt` and `load`.
`result.json` is the verdict: all of `run.json`, `claims`, `validity`, `repeated` and `holds`.
"""


MORE = """
Each other command that programs called has the same two columns, `COMMAND_per_s` and `COMMAND_exec_us`, at the end of
the table. Those of a command that came late are empty until then.
"""


def schema() -> str:
    """The JSON Schema of run.json."""
    return json.dumps(FACTS.json_schema(), indent=1) + "\n"


def page() -> str:
    """The page: every column of the tables."""
    parts = [INTRODUCTION]
    for name, columns in (("samples.csv", SAMPLES), ("slowlog.csv", SLOWLOG)):
        rows = [[f"`{column.name}`", _kind(column), column.meaning] for column in columns]
        parts.append(f"\n## {name}\n\n{table(['column', 'holds', 'meaning'], rows)}\n")
        if columns is SAMPLES:
            parts.append(MORE)
    return "".join(parts)


def _kind(column: Column) -> str:
    return f"{column.kind}, or nothing" if column.may_be_empty else column.kind


def files(root: Path) -> dict[Path, str]:
    """All files that this module makes: path → text."""
    return {root / JSON_SCHEMA: schema(), root / PAGE: page(), root / DIAGNOSIS: diagnosis.schema()}

"""The verdicts of the committed runs, word for word, and the file that keeps them.

`python -m tests.lab.claims.verdicts` writes the file anew, after a claim, a check or a record was changed on purpose.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lab.claims.verdict import as_result
from lab.results.folder import Run
from lab.runner.judging import reach
from tests.lab.claims.bending import RECORDS

KEPT = Path(__file__).with_name("verdicts.json")


def records() -> list[str]:
    """The names of the committed runs."""
    return sorted(path.parent.name for path in RECORDS.glob("*/run.json"))


def as_json(run: Run) -> dict[str, Any]:
    """Return a verdict's claims, validity, demands, and whether it holds, as JSON would have it."""
    verdict = reach(run)
    result = as_result(run, verdict)
    said = {name: result[name] for name in ("claims", "validity", "holds", "repeated")}
    said["demand"] = {phase["id"]: phase["demand"] for phase in result["phases"]}
    said["exit_code"] = verdict.exit_code
    return dict(json.loads(json.dumps(said)))


def recorded() -> dict[str, dict[str, Any]]:
    """The verdicts as the file has them, by the name of their run."""
    return dict(json.loads(KEPT.read_text(encoding="utf-8")))


def main() -> int:
    """Write the file anew."""
    found = {name: as_json(Run(RECORDS / name)) for name in records()}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

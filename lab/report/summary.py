"""The summary page of a series of runs: one row for each, and its claims."""

from __future__ import annotations

from typing import Any

from lab import errors
from lab.claims.wording import signed
from lab.report.page import fill
from lab.report.tables import started

SIGNS = {
    errors.HOLDS: "✓",
    errors.CLAIM_FAILED: "✗",
    errors.USAGE: "?",
    errors.STACK_BROKE: "?",
    errors.NOT_VALID: "?",
    errors.INTERRUPTED: "?",
}


def render(summary: dict[str, Any], spoilers: bool = False) -> str:
    """Return the page as HTML, from the content of summary.json. Causes are folded unless `spoilers` is given."""
    done = {run["scenario"] for run in summary["runs"]}
    servers = sorted({run["server"] for run in summary["runs"] if run["server"]})
    return fill(
        "summary.html.j2",
        {},
        summary=summary,
        spoilers=spoilers,
        servers=", ".join(servers) or summary["server"],
        sign=SIGNS.get(summary["exit_code"], "?"),
        signs=SIGNS,
        left=[name for name in summary["planned"] if name not in done],
        minutes=minutes,
        signed=signed,
        started=started,
    )


def minutes(seconds: float) -> str:
    """A length of time for people."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"

"""Nothing at all: the cause of a session in which all is well."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.server.figures import Evidence


def evidence(of: Readings) -> Evidence:
    """Found if none of the three figures is bad."""
    return Evidence(
        not of.symptom,
        f"{of.pages_text}; {of.p99_text}; {of.changes_text}.",
    )

"""No cause: the answer of a session in which all is well."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.server.figures import Evidence


def evidence(readings: Readings) -> Evidence:
    """Found if none of the three figures is bad."""
    return Evidence(
        not readings.symptom,
        f"{readings.pages_text}; {readings.p99_text}; {readings.changes_text}.",
    )

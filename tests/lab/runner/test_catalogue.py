"""Every incident of the catalogue, for real: a quick run on the embedded server, in which every claim holds.

(The main incident has a file of its own, test_main_incident.py.)
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import scenarios
from lab.results.folder import Run
from tests.lab.labkit import whole_run

pytestmark = pytest.mark.whole

INCIDENTS = [s.id for s in scenarios.catalogue().values() if not s.refutes and s.id != scenarios.MAIN]


@pytest.mark.parametrize("incident", INCIDENTS)
def test_every_claim_holds_in_a_quick_run(incident: str, tmp_path: Path) -> None:
    """The incident reproduces on this machine: exit code 0, every phase measured, a report."""
    finished = whole_run(tmp_path, incident)
    assert finished.refuted() == []
    assert finished.answer.code == 0, finished.answer
    assert [phase.id for phase in Run(finished.folder).phases] == [
        phase.id for phase in scenarios.find(incident).phases
    ]
    assert (finished.folder / "report.html").stat().st_size > 100_000

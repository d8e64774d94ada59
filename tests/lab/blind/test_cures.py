"""Real scenes, a minute or two each: a cure cures, and a tempting lever does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.blind_trial import Trial
from lab.blind.causes import CAUSES
from lab.blind.checking import LONGEST_S, Outcome
from lab.blind.session import TICK_S

pytestmark = pytest.mark.whole

CURES = [(cause.id, lever) for cause in CAUSES.values() for lever in cause.cures]
TEMPTING = [(cause.id, lever) for cause in CAUSES.values() for lever in cause.tempting]


class Cured(Trial):
    """A session in which one lever is pulled, and which ends with its outcome."""

    def __init__(self, cause: str, folder: Path, lever: str) -> None:
        super().__init__(CAUSES[cause], folder, task="cure")
        self._lever = lever

    def _watch(self) -> None:
        self.reply({"verb": "cure", "words": self._lever.split()})
        for _ in range(round(2 * LONGEST_S / TICK_S)):
            self._wait(TICK_S)
            self._tell_users()
            if self.journal.outcomes:
                return


def outcome(cause: str, folder: Path, lever: str) -> Outcome:
    """Return the outcome of a lever in a real scene of the cause."""
    session = Cured(cause, folder / "session", lever)
    session.run()
    [found] = session.journal.outcomes
    return found


@pytest.mark.parametrize(("cause", "lever"), CURES)
def test_a_cure_cures(cause: str, lever: str, tmp_path: Path) -> None:
    """After each cure of a cause users are well for 30 s, no event is lost, and nobody's work is worse."""
    found = outcome(cause, tmp_path, lever)
    assert found.cured, found.text


@pytest.mark.parametrize(("cause", "lever"), TEMPTING)
def test_a_tempting_lever_does_not_cure(cause: str, lever: str, tmp_path: Path) -> None:
    """After each tempting lever of a cause the symptom stays or returns, or somebody's work is worse."""
    found = outcome(cause, tmp_path, lever)
    assert not found.cured, found.text

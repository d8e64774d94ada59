"""Real scenes, half a minute each: only the cause's own evidence is found, and nothing readable names the cause."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from lab.blind.causes import CAUSES
from tests.lab.blind.conftest import Recorded
from tests.lab.blind.seal import leaks

pytestmark = pytest.mark.whole

Record = Callable[[str], Recorded]


@pytest.mark.parametrize("cause", CAUSES)
def test_evidence_is_there_and_differs_from_look_alikes(cause: str, recorded: Record) -> None:
    """In a real scene of a cause its evidence is found, and no other cause's is."""
    readings = recorded(cause).readings
    found = {other.id: other.evidence(readings) for other in CAUSES.values()}
    assert found[cause].found, found[cause].text
    assert [other for other, finding in found.items() if finding.found] == [cause], readings


@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_readable_names_a_cause(cause: str, recorded: Record) -> None:
    """No argument, environment, thread, endpoint, file or printed line of a scene names any cause."""
    sources = recorded(cause).sources
    assert any(where.startswith("environment of web") for where in sources)
    assert any("state.sqlite3" in where for where in sources)
    assert leaks(sources) == []


def test_scenes_look_the_same_whatever_the_cause(recorded: Record) -> None:
    """Processes, arguments, environments, files, metrics' names and settings are the same for every cause."""
    outlines = {cause: recorded(cause).outline for cause in CAUSES}
    for (one, left), (other, right) in pairwise(outlines.items()):
        assert left == right, f"{one} and {other} differ"

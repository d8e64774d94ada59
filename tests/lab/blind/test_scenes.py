"""Real scenes: sessions from complaint to cure, some minutes each; and nothing that is readable names the cause."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from bench.blind_table import play, wanted
from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from tests.lab.blind.conftest import Recorded
from tests.lab.blind.seal import leaks

pytestmark = pytest.mark.whole

Record = Callable[[str], Recorded]


@pytest.mark.parametrize(
    ("level", "causes"),
    [pytest.param(*row, id="+".join(cause.id for cause in row[1])) for row in wanted(None)],
)
def test_a_session_is_as_promised(level: int, causes: tuple[Cause, ...]) -> None:
    """The causes' evidence is there and no other, the complaint is true, the cure cures and what tempts does not."""
    assert play(causes, level).broken == []


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

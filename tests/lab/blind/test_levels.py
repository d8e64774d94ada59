"""A blind session begins: its levels, what is never drawn again, and how strong its cause has to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.blind.cause import LEVELS
from lab.blind.causes import CAUSES, PAIRS, choose, choose_two
from lab.blind.commands import random_seed
from lab.blind.inbox import Order
from lab.blind.readings import Readings, UserFigures
from lab.blind.session import Session
from lab.blind.session_folders import remember, revealed
from lab.blind.sizing import SECOND
from lab.errors import UsageError
from tests.lab.blind.conftest import HEALTHY, MEASURED
from tests.lab.blind.test_checking import sample
from tests.lab.labkit import lab


def session(level: int, folder: Path) -> Session:
    """A session of that level without a scene: three samples while all was well, and three since the cause began."""
    held = Session([CAUSES["slow-network"]], 1, 1.0, folder / "now", lambda _: None, level=LEVELS[level])
    held.healthy, held.measured = HEALTHY, MEASURED
    samples = [*(sample(tick) for tick in range(3)), *(sample(tick, page_ms=60.0) for tick in range(3, 6))]
    held.observer = SimpleNamespace(samples=samples)  # type: ignore[assignment]
    held._samples_before, held.begun_at = 3, 15.0
    held.stack = SimpleNamespace()
    return held


@pytest.mark.parametrize("level", LEVELS)
def test_healthy_figures_are_shown_at_the_first_level_only(level: int, tmp_path: Path) -> None:
    """`look users` names the healthy figures, and `look history` shows what was before, at level 1 and no other."""
    held = session(level, tmp_path)
    usual = f"p99 of a page {HEALTHY.page_ms:.1f} ms"
    assert (usual in held._users_text()) is (level == 1)
    assert (usual in held._healthy_line()) is (level == 1)
    rows = held._history_text().splitlines()[2:]
    assert len([row for row in rows if row.strip()]) == (5 if level == 1 else 3)


@pytest.mark.parametrize("level", [2, 3])
def test_there_is_no_look_ping_at_the_higher_levels(level: int, tmp_path: Path) -> None:
    """It is refused in one line; the other readings are not."""
    held = session(level, tmp_path)
    with pytest.raises(UsageError, match="no look ping"):
        held.reply({"verb": "look", "what": "ping"})
    assert "p99 of a page" in held.reply({"verb": "look", "what": "users"})


def test_the_last_two_causes_are_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three seeds the third is taken; after two other sessions the first cause comes again. Pairs likewise."""
    one, two, three = (
        next(seed for seed in range(99) if choose(seed) is cause) for cause in list(CAUSES.values())[:3]
    )

    def drawn(*seeds: int, several: bool = False) -> int:
        left = iter(seeds)
        monkeypatch.setattr("secrets.randbelow", lambda _: next(left))
        return random_seed(tmp_path, several)

    assert drawn(one) == one
    for seed in (one, two):
        remember(tmp_path, choose(seed).id)
    assert drawn(one, two, three) == three
    remember(tmp_path, choose(three).id)
    assert drawn(two, one) == one
    assert revealed(tmp_path) == [choose(three).id, choose(two).id]
    remember(tmp_path, "+".join(PAIRS[0]))
    again = next(seed for seed in range(99) if tuple(cause.id for cause in choose_two(seed)) == PAIRS[0])
    other = next(seed for seed in range(99) if tuple(cause.id for cause in choose_two(seed)) != PAIRS[0])
    assert drawn(again, other, several=True) == other


@pytest.mark.parametrize(
    "words", [["--level", "4"], ["--level", "0"], ["--causes", "3"], ["--causes", "two"]]
)
def test_levels_and_numbers_of_causes_that_do_not_exist(words: list[str], tmp_path: Path) -> None:
    """One line names the option; nothing is started."""
    answer = lab("blind", "start", *words, cwd=tmp_path)
    assert answer.code == 2
    assert words[0] in answer.err
    assert answer.err.count("\n") == 1


Begin = Callable[[Readings], list[Order]]
ONLY_GETS, EVERYTHING = UserFigures(6.0, 10.0, 0.1), UserFigures(11.0, 10.0, 0.1)
"""GETs take ten times as long as when all is well; pages hardly longer, or twice as long."""


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins `connection-storm`, without a scene, under these readings; returns the orders that its program got."""

    def begun(now: Readings) -> list[Order]:
        orders: list[Order] = []
        session = Session((CAUSES["connection-storm"],), 1, 1.0, tmp_path, lambda _: None)
        fakes: dict[str, Any] = {
            "stack": SimpleNamespace(
                order=lambda name, order: orders.append(order) if name == SECOND else None
            ),
            "observer": SimpleNamespace(samples=[], take_sample=lambda: None),
            "journal": SimpleNamespace(),
            "measured": MEASURED,
            "readings": lambda _newest: now,
            "_wait": lambda _seconds: None,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(session, name, fake, raising=False)
        session._begin()
        return orders

    return begun


def test_a_cause_begins_once_where_the_complaint_is_true(begin: Begin, healthy: Readings) -> None:
    """A page takes twice as long, and a GET of another team ten times as long: everybody complains."""
    assert len(begin(healthy.with_user_figures(EVERYTHING))) == 1


def test_a_symptom_that_nobody_complains_of_is_not_enough(begin: Begin, healthy: Readings) -> None:
    """Everybody complains of slow pages, and only a bystander's GETs are slow: the cause begins again, stronger."""
    now = healthy.with_user_figures(ONLY_GETS)
    assert now.slow_gets and not now.slower_pages
    first, second = begin(now)
    assert second != first

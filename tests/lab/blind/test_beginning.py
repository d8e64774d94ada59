"""How a session begins its cause: stronger, until the readings bear out what people say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.blind.causes import CAUSES
from lab.blind.inbox import Order
from lab.blind.readings import Readings, Seen
from lab.blind.session import Session
from lab.blind.sizing import SECOND, Measured

Begin = Callable[[Readings], list[Order]]
ONLY_GETS, EVERYTHING = Seen(6.0, 10.0, 0.1), Seen(11.0, 10.0, 0.1)
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
            "measured": Measured(ping_us=50.0, key_us=0.3, keys=200_000, core=0, cores=2),
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
    assert len(begin(replace(healthy, seen=EVERYTHING))) == 1


def test_a_symptom_that_nobody_complains_of_is_not_enough(begin: Begin, healthy: Readings) -> None:
    """Everybody complains of slow pages, and only a bystander's GETs are slow: the cause begins again, stronger."""
    now = replace(healthy, seen=ONLY_GETS)
    assert now.slow_gets and not now.slower_pages
    first, second = begin(now)
    assert second != first

"""The invalidator ends although a task did not notice that it was cancelled."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from app.invalidator import Invalidator
from app.settings import Settings
from app.state import State
from app.strategies import STRATEGIES


def test_a_lost_cancellation_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cancellation is lost, as by `asyncio.wait_for` before Python 3.12: it ends, and keeps the event."""
    state = State(tmp_path)
    state.init_invalidation("scan", 100)
    state.add_event(1, "order", None)
    settings = Settings(store_url="redis://127.0.0.1:1")
    begun = asyncio.Event()

    async def deaf(*_: object) -> int:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)
        return 0

    async def stopped() -> None:
        stop = asyncio.Event()
        work = Invalidator(settings, state, None, logging.getLogger("test"))
        running = asyncio.create_task(work.run(stop))
        await begun.wait()
        stop.set()
        await asyncio.wait_for(running, 10)

    monkeypatch.setitem(STRATEGIES, "scan", deaf)
    asyncio.run(stopped())
    assert state.pending() == 1
    state.close()

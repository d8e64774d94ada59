"""Fixtures: the real scene of each cause, brought up at most once; the readings of a healthy storefront; a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.blind_trial import Trial
from lab.blind.causes import CAUSES
from lab.blind.journal import Journal
from lab.blind.judging import judge
from lab.blind.readings import Readings, UserFigures
from lab.blind.sizing import Measurements
from tests.lab.blind.seal import Sources, gather, outline
from tests.loadtest.conftest import Server

HEALTHY = UserFigures(page_ms=5.0, get_ms=1.0, oldest_s=0.3)
MEASURED = Measurements(ping_us=50.0, key_us=0.3, keys=200_000, core=1, cores=2, healthy=HEALTHY)


@dataclass(frozen=True)
class Recorded:
    """The record of one real scene: its readings, everything a participant could read, and its outline."""

    readings: Readings
    sources: Sources
    outline: dict[str, list[str]]


@pytest.fixture
def healthy() -> Readings:
    """Readings of a storefront in which nothing is wrong."""
    return Readings(
        seconds=10.0, healthy=HEALTHY, cores=2, keys=290_000, **asdict(HEALTHY), wait_ms=0.2, busy=0.1, waited=0.01,
        others=0.0, evicted_per_s=0.0, memory=0.6, link_ms=0.1, direct_ms=0.05, past_cache_per_s=0.0, link_most_ms=5.0,
        direct_most_ms=4.0, web_most_ms=8.0, expired_per_s=0.0, sent_mb_per_s=0.2, connects_per_s=3.0,
    )  # fmt: skip


def journal_of(names: Sequence[str], folder: Path, measured: Readings, **more: Any) -> Journal:
    """Return the journal of a session with these causes, in which the lab measured the same readings all the time."""
    return Journal(
        tuple(CAUSES[name] for name in names),
        folder / "notes.txt",
        lambda cause, said: judge(
            cause, said, [measured], measured, [name for name in names if name != cause.id]
        ),
        **more,
    )


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """A function that returns the record of a cause's real scene, which it brings up at the first call."""
    records: dict[str, Recorded] = {}

    def record(cause: str) -> Recorded:
        if cause not in records:
            records[cause] = _record(cause, tmp_path_factory.mktemp("scene") / "session")
        return records[cause]

    return record


def _record(cause: str, folder: Path) -> Recorded:
    seen: list[tuple[Sources, dict[str, list[str]]]] = []
    trial = Trial(
        CAUSES[cause], folder, looks=0, inspect=lambda it: seen.append((gather(it, it.output), outline(it)))
    )
    # pytest keeps the test's name in the environment; every child would inherit it, and it names the cause
    test = os.environ.pop("PYTEST_CURRENT_TEST", "")
    try:
        trial.run()
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = test  # pytest removes it at the end
    return Recorded(trial.outcome(), *seen[0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A real server, started for this test."""
    found = Server(tmp_path)
    found.start()
    yield found
    found.kill()

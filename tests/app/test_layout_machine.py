"""The cache and its layouts keep their laws in any order of steps, and the state machine finds planted faults."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

import app.cache_async
import app.layouts
from app.cache import Cache
from app.layouts import GenerationCache, HashCache
from app.state import Invalidation, State
from tests.app.layout_machine import PROFILE, LayoutMachine
from tests.app.servicekit import ServerProcess


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch, server: ServerProcess) -> None:
    """Chunks of two, so that a handful of entries takes many round trips."""
    monkeypatch.setattr(app.strategies.index, "CHUNK", 2)
    monkeypatch.setattr(app.cache_async, "UNLINK_CHUNK", 2)
    LayoutMachine.server = server


def test_layouts_keep_their_laws() -> None:
    """In any order of steps nothing stale is served beyond the stated exceptions, and no entry is lost."""
    run_state_machine_as_test(LayoutMachine, settings=PROFILE)


class NoEpochs(State):
    """Deliberately wrong: without epochs, a switch back to a layout finds the keys it had left."""

    def invalidation(self) -> Invalidation:
        right = super().invalidation()
        return Invalidation(right.strategy, right.scan_count, right.layout, 0)


class LearnsLate(GenerationCache):
    """Deliberately wrong: puts into the generation current at the put, not at the read before it."""

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        super().put(user, name, value)


class Immortal(HashCache):
    """Deliberately wrong: ignores the expiry times of values."""

    def get(self, user: int, name: str) -> bytes | None:
        key, member = self.keyspace.user_hash(user), self.keyspace.member(name)
        stored: bytes | None = self._client.execute_command("HGET", key, member)
        return stored and stored[13:]


@pytest.fixture
def machine() -> Iterator[Callable[[type[State]], LayoutMachine]]:
    """Return a function that makes a machine with a given state class."""
    made: list[LayoutMachine] = []

    def make(state: type[State] = State) -> LayoutMachine:
        kind = type("Kind", (LayoutMachine,), {"state_class": state})
        made.append(kind())
        return made[-1]

    yield make
    for each in made:
        each.teardown()


def serves(machine: LayoutMachine, stale: str | None) -> None:
    """Assert that the machine's next read reports the fault `stale`, or none if `stale` is None."""
    if stale is None:
        machine.look(1, "page-0", 0)
    else:
        with pytest.raises(AssertionError, match=stale):
            machine.look(1, "page-0", 0)


@pytest.mark.parametrize(("kind", "stale"), [(State, None), (NoEpochs, "is stale")])
@pytest.mark.parametrize("other", ["hash", "generation", "ttl"])
def test_machine_finds_a_switch_that_brings_old_entries_back(
    machine: Any, kind: type[State], stale: str | None, other: str
) -> None:
    """Without epochs, an event under another layout misses the old entries, and a switch back serves them stale."""
    found = machine(kind)
    found.fill(1, 0)
    found.switch(other)
    found.event(1)
    found.switch("index")
    serves(found, stale)


@pytest.mark.parametrize(("kind", "stale"), [(GenerationCache, None), (LearnsLate, "is stale")])
def test_machine_finds_a_late_put_in_the_wrong_generation(
    machine: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Cache], stale: str | None
) -> None:
    """A value computed before an event is put into the generation of that time, not into the current one."""
    monkeypatch.setitem(app.layouts.KINDS, "generation", kind)
    found = machine()
    found.switch("generation")
    found.look(1, "page-0", 0)
    found.event(1)
    found.put(0, 0)
    serves(found, stale)


@pytest.mark.parametrize(("step", "stale"), [(None, None), (1, "is stale")])
def test_machine_finds_a_counter_that_starts_again(
    machine: Any, monkeypatch: pytest.MonkeyPatch, step: int | None, stale: str | None
) -> None:
    """If generations counted 1, 2, 3, a lost counter would reach an old number again and serve its entries."""
    if step:
        for module in (app.layouts, app.cache_async):
            monkeypatch.setattr(module, "generation_step", lambda: step)
    found = machine()
    found.switch("generation")
    found.fill(1, 0)
    found.event(1)
    found.raw.delete("t-e1-generation:1")
    found.certain.clear()
    found.look(1, "cart-0", 0)
    serves(found, stale)


@pytest.mark.parametrize(("kind", "stale"), [(HashCache, None), (Immortal, "outlived its TTL")])
def test_machine_finds_a_hash_that_never_ends(
    machine: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Cache], stale: str | None
) -> None:
    """Each put extends the life of the hash; it must not extend the life of its other fields."""
    monkeypatch.setitem(app.layouts.KINDS, "hash", kind)
    found = machine()
    found.switch("hash")
    found.look(1, "page-0", 0)
    found.look(1, "cart-0", 0)
    found.put(0, 0)
    found.advance(59.9)
    found.put(0, 0)
    found.advance(0.5)
    serves(found, stale)


@pytest.mark.parametrize(("early", "stale"), [(False, None), (True, "is stale")])
def test_machine_finds_an_event_in_an_epoch_before_its_own(
    machine: Any, early: bool, stale: str | None
) -> None:
    """An event accepted after a switch must run in the new epoch, so an attempt reads the state as it begins."""
    found = machine()
    before = found.state.invalidation()
    found.switch("hash")
    found.fill(1, 0)
    found.version[1] += 1
    found.certain.clear()
    found.attempt(1, found.version[1], before if early else found.state.invalidation())
    found._finish(found.running[-1])
    serves(found, stale)

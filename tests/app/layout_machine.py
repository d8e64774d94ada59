"""Reads, puts, fills, events and switches of strategy in any order: a Hypothesis state machine on a real server.

Every value carries a version: how many events of its user had been accepted when it was computed. A read is stale if it
returns a lower version than that of the last event done when the read began. Operations of several round trips are
interrupted between them: invalidations by a gate before each call to the server, reads and fills by whole events.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import app.bulk
import app.cache_async
from app.cache import Cache
from app.cache_async import connect
from app.fragments import AREAS, fragment_names
from app.layouts import Layouts
from app.settings import Settings
from app.state import Invalidation, State
from app.strategies import STRATEGIES
from tests.app.servicekit import ServerProcess
from tests.app.test_index_machine import Gate, GatedClient

USERS = st.integers(1, 2)
NAMES = st.sampled_from(fragment_names(3))
SWITCHES = st.sampled_from(["scan", "index", "hash", "generation", "ttl"])
WHEN = st.sampled_from([0, 0, 0, 1, 2, 3])
TTL = 60
PROFILE = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@dataclass(frozen=True)
class Value:
    """A cached value, parsed from its text."""

    user: int
    name: str
    version: int
    serial: int

    @property
    def text(self) -> str:
        """The value as it is stored."""
        return f"{self.user}/{self.name}/{self.version}/{self.serial}"


def read_back(text: bytes) -> Value:
    """Parse a stored text."""
    user, name, version, serial = text.decode().split("/")
    return Value(int(user), name, int(version), int(serial))


@dataclass
class Reader:
    """A request that has missed and computes its value."""

    cache: Cache
    value: Value
    since: int
    evictions: int


@dataclass
class Running:
    """An event under way. `version` is its user's version when it was accepted."""

    user: int
    version: int
    task: "asyncio.Task[int]"
    gates: list[Gate] = field(default_factory=list)


class LayoutMachine(RuleBasedStateMachine):
    """Laws: a read shows nothing older than the events done when it began, nothing outlives its TTL, and a cached value
    is found unless an event, expiry, eviction or switch of layout removed it. Two exceptions to the first: the layout
    `plain` may serve stale values, and so may `entries` and `hash` if a value was put after a later event was accepted.
    """

    server: ClassVar[ServerProcess]
    state_class: ClassVar[type[State]] = State

    def __init__(self) -> None:
        super().__init__()
        self.raw = self.server.client()
        self.raw.flushall()
        self.folder = tempfile.TemporaryDirectory()
        self.state = self.state_class(Path(self.folder.name))
        self.state.init_invalidation("index", 3)
        self.options = Settings(
            store_url=self.server.url, key_prefix="t", entry_ttl_seconds=TTL, fragments_per_user=3
        )
        self.offset = 0.0
        self.layouts = Layouts(Cache(self.options, self.now))
        self.loop = asyncio.new_event_loop()
        self.client = connect(self.options)
        self.version = {1: 0, 2: 0}
        self.done = {1: 0, 2: 0}
        self.serial = self.evictions = 0
        self.put_at: dict[int, float] = {}
        self.late: set[int] = set()
        self.certain: dict[tuple[int, str], tuple[Invalidation, Value]] = {}
        self.readers: list[Reader] = []
        self.running: list[Running] = []

    def now(self) -> float:
        # Far ahead of the server's clock: `advance` expires keys by this one.
        return 4_000_000_000 + self.offset

    def teardown(self) -> None:
        for run in self.running:
            run.task.cancel()
        self.loop.run_until_complete(asyncio.wait_for(self._ended(), 10))
        self.loop.run_until_complete(self.client.aclose())
        self.loop.run_until_complete(self.client.connection_pool.disconnect())
        self.loop.close()
        self.layouts.at(Invalidation("index", 3)).close()
        self.raw.close()
        self.state.close()
        self.folder.cleanup()

    def _new(self, user: int, name: str) -> Value:
        self.serial += 1
        return Value(user, name, self.version[user], self.serial)

    def _did_put(self, value: Value, evictions: int, mode: Invalidation) -> None:
        self.put_at[value.serial] = self.now()
        key = value.user, value.name
        if self.version[value.user] > value.version:
            self.late.add(value.serial)
        if (
            value.serial in self.late
            or evictions != self.evictions
            or any(run.user == value.user for run in self.running)
        ):
            self.certain.pop(key, None)
        else:
            self.certain[key] = mode, value

    @contextmanager
    def _interrupted(self, user: int, when: int) -> Iterator[None]:
        """In this block an event of the user is accepted and done before call number `when` to the server; 0: none."""
        calls = 0

        def count(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == when:
                    self.event(user)
                return call(*args)

            return counted

        def render(hole: str, name: str, size: int) -> str:
            # The hole stands for the user's id, and is filled in later.
            return f"{hole}/{name}/{self.version[user]}/{self.serial}"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cache, "_timed", count(Cache._timed))
            patch.setattr(app.bulk, "write_users", count(app.bulk.write_users))
            patch.setattr(app.bulk, "render", render)
            yield

    @rule(user=USERS, name=NAMES, when=WHEN)
    def look(self, user: int, name: str, when: int) -> None:
        """A request reads, and computes its value on a miss."""
        done, mode = self.done[user], self.state.invalidation()
        cache, evictions = self.layouts.at(mode), self.evictions
        known = self.certain.get((user, name))
        with self._interrupted(user, when):
            text, since = cache.get_with_since(user, name)
        if text is None:
            assert known is None or known[0].epoch != mode.epoch or (user, name) not in self.certain
            # Under `generation` an event under way may raise the number that the put will compare with `since`.
            overtaken = mode.layout == "generation" and any(run.user == user for run in self.running)
            self.readers.append(Reader(cache, self._new(user, name), since, -1 if overtaken else evictions))
            return
        value = read_back(text)
        assert (value.user, value.name) == (user, name)
        assert self.now() < self.put_at[value.serial] + TTL, f"{value} outlived its TTL"
        excused = mode.layout == "plain" or (mode.layout != "generation" and value.serial in self.late)
        assert value.version >= done or excused, f"{value} is stale under {mode}: {done} events were done"
        if known and known[0].epoch == mode.epoch and (user, name) in self.certain:
            assert value == known[1]

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 3), when=WHEN)
    def put(self, which: int, when: int) -> None:
        """A request that had missed puts its value into the cache that it read from."""
        reader = self.readers.pop(which % len(self.readers))
        value, mode = reader.value, self.state.invalidation()
        with self._interrupted(value.user, when):
            reader.cache.put(value.user, value.name, value.text, reader.since)
        here = reader.cache is self.layouts.at(mode)
        self._did_put(value, reader.evictions if here else -1, mode)

    @rule(user=USERS, when=WHEN)
    def fill(self, user: int, when: int) -> None:
        """The warmer caches all of a user's fragments."""
        mode, evictions = self.state.invalidation(), self.evictions
        self.serial += 1
        values = [Value(user, name, self.version[user], self.serial) for name in fragment_names(3)]
        with self._interrupted(user, when):
            assert self.layouts.at(mode).put_users([user]) == 3
        kept = [self.layouts.at(mode).get(user, value.name) for value in values]
        stored = [read_back(text) for text in kept if text is not None]
        for value in stored or values:
            self._did_put(value, evictions, mode)

    @rule(seconds=st.sampled_from([0.5, 20.0, 59.9, 60.0, 61.5, 130.0]))
    def advance(self, seconds: float) -> None:
        """Move the clock, and delete the keys that have expired by then, as a server would."""
        self.offset += seconds
        for key in self.raw.keys("*"):
            if self.raw.pexpiretime(key) <= self.now() * 1000:
                self.raw.delete(key)
        for place, (_, value) in list(self.certain.items()):
            if self.put_at[value.serial] + TTL <= self.now() + 0.002:
                del self.certain[place]

    @rule(which=st.integers(0, 30))
    def evict(self, which: int) -> None:
        """The server evicts a key, as when memory is short. (Never an index set: `index` would miss its entries.)"""
        if keys := sorted(key for key in self.raw.keys("*") if "index" not in key):
            self.raw.delete(keys[which % len(keys)])
            self.evictions += 1
            self.certain.clear()

    @rule(name=SWITCHES)
    def switch(self, name: str) -> None:
        """The strategy is changed."""
        self.state.set_invalidation({"strategy": name})

    @precondition(lambda self: len(self.running) < 3)
    @rule(user=USERS)
    def begin(self, user: int) -> None:
        """An event is accepted, and an attempt at it begins under the strategy in force."""
        self.version[user] += 1
        for key in [key for key in self.certain if key[0] == user]:
            del self.certain[key]
        self.attempt(user, self.version[user], self.state.invalidation())

    def event(self, user: int) -> None:
        """An event is accepted and carried out. Under `ttl` it is done as soon as it begins."""
        others = len(self.running)
        self.begin(user)
        for run in self.running[others:]:
            self._finish(run)

    def attempt(self, user: int, version: int, mode: Invalidation) -> None:
        gated = GatedClient(self.client, self.options, mode.strategy, self.now, mode.epoch)
        gated.gates = []
        task = self.loop.create_task(self._invalidate(gated, mode.strategy, user))
        self.running.append(Running(user, version, task, gated.gates))
        self.loop.run_until_complete(self._quiet())
        self._note_end(self.running[-1])

    async def _invalidate(self, gated: GatedClient, strategy: str, user: int) -> int:
        return await STRATEGIES[strategy](gated, user, AREAS, 3)

    async def _ended(self) -> None:
        await asyncio.gather(*(run.task for run in self.running), return_exceptions=True)

    async def _quiet(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    @precondition(lambda self: self.running)
    @rule(run=st.integers(0, 2), which=st.integers(0, 2))
    def step(self, run: int, which: int) -> None:
        """Release one call to the server of an event under way."""
        self._step(self.running[run % len(self.running)], which)

    @precondition(lambda self: self.running)
    @rule(run=st.integers(0, 2))
    def finish(self, run: int) -> None:
        """Carry out an event under way to its end."""
        self._finish(self.running[run % len(self.running)])

    def _finish(self, run: Running) -> None:
        while not run.task.done():
            self._step(run, 0)

    def _step(self, run: Running, which: int) -> None:
        gate = run.gates.pop(which % len(run.gates))

        async def go() -> None:
            gate.go.set_result(None)
            await gate.back
            await self._quiet()

        self.loop.run_until_complete(go())
        self._note_end(run)

    def _note_end(self, run: Running) -> None:
        if run.task.done():
            run.task.result()
            self.running.remove(run)
            self.done[run.user] = max(self.done[run.user], run.version)

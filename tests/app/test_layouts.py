"""The layouts `hash` and `generation`: what they store, what they cost, and how a switch is stored and counted."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.bulk import GenerationTemplate, HashTemplate, PlainTemplate, UserTemplate
from app.cache import Cache, CacheUnavailable
from app.cache_async import AsyncClient, connect, disconnect
from app.fragments import AREAS, Keyspace, fragment_names, render
from app.layouts import KINDS, Layouts
from app.metrics import CALL_DURATION
from app.settings import STRATEGY_NAMES, Settings, layout_of
from app.state import Invalidation, State
from app.storefront import create_app
from app.strategies import STRATEGIES
from tests.app.servicekit import ServerProcess, Service, eventually

FAR = 4_000_000_000.25
OTHERS = [name for name in STRATEGY_NAMES if layout_of(name) != "entries"]


def cache_of(settings: Settings, strategy: str, clock: Callable[[], float] | None = None) -> Cache:
    """A cache in the layout of that strategy, in the first epoch."""
    first = Cache(settings, clock) if clock else Cache(settings)
    return Layouts(first).at(Invalidation(strategy, 1, layout_of(strategy)))


def invalidate(settings: Settings, strategy: str, user: int, clock: Callable[[], float] = lambda: FAR) -> int:
    """Carry out one invalidation as the invalidator would."""

    async def run() -> int:
        raw = connect(settings)
        try:
            client = AsyncClient(raw, settings, strategy, clock)
            return await STRATEGIES[strategy](client, user, AREAS, 100)
        finally:
            await disconnect(raw)

    return asyncio.run(run())


def calls(raw: Any) -> dict[str, int]:
    """Commands the server has executed since `config_resetstat`, by name."""
    stats = raw.info("commandstats")
    names = {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}
    return {name: count for name, count in names.items() if name not in ("config|resetstat", "info")}


def test_every_strategy_has_a_layout() -> None:
    """The layouts that the strategies name are exactly those that have a cache class."""
    assert {layout_of(name) for name in STRATEGY_NAMES} == set(KINDS)


def timed(settings: Settings) -> dict[str, float]:
    """The number of calls to the server that the application has timed, by command."""
    return {
        sample.labels["db_operation_name"]: sample.value
        for family in CALL_DURATION.collect()
        for sample in family.samples
        if sample.name.endswith("_count") and sample.labels["server"] == settings.server_name
    }


ROUND_TRIPS = {
    "hash": ({"HGET": 1}, {"HSET": 1}, {"HGET": 1}),
    "generation": ({"GET": 1, "INCRBY": 1}, {"GET": 1, "SET": 1}, {"GET": 2}),
    "plain": ({"GET": 1}, {"SET": 1}, {"GET": 1}),
}
"""By layout: the commands timed for a miss, a put and a hit."""


@pytest.mark.parametrize("layout", ROUND_TRIPS)
def test_each_round_trip_is_timed_under_its_command(settings: Settings, layout: str) -> None:
    """Each round trip is one observation, under the command name that dashboards and the server use. A put takes bytes,
    too.
    """
    strategy = next(name for name in STRATEGY_NAMES if layout_of(name) == layout)
    cache, seen = cache_of(settings, strategy), []
    for step in (
        partial(cache.get, 7, "page-0"),
        partial(cache.put, 7, "page-0", b"x"),
        partial(cache.get, 7, "page-0"),
    ):
        before = timed(settings)
        step()
        seen.append(
            {
                name: count - before.get(name, 0)
                for name, count in timed(settings).items()
                if count != before.get(name)
            }
        )
    assert tuple(seen) == ROUND_TRIPS[layout]


def test_a_generation_is_made_in_one_piece_and_does_not_stay_for_ever(
    settings: Settings, server: ServerProcess
) -> None:
    """A generation number and its expiry are set in one MULTI. A bulk write reads the existing numbers by one MGET and
    keeps them; for no users it writes nothing.
    """
    cache, raw = cache_of(settings, "generation"), server.client()
    raw.config_resetstat()
    cache.get(7, "page-0")
    assert calls(raw).get("multi") == 1 and raw.pttl("shop-generation:7") > 0
    before, asked = raw.get("shop-generation:7"), timed(settings).get("MGET", 0)
    cache.put_users([7, 8])
    assert raw.get("shop-generation:7") == before and raw.exists("shop-generation:8")
    assert timed(settings)["MGET"] == asked + 1
    assert cache.put_users([]) == 0


def test_an_entry_ends_at_its_end(settings: Settings) -> None:
    """A field of a hash is gone in the very millisecond of its expiry time."""
    now = [FAR]
    cache = cache_of(settings, "hash", lambda: now[0])
    cache.put(7, "page-0", "x")
    ends = cache.keyspace.entry_expires_ms(FAR) / 1000
    now[0] = ends - 0.001
    assert cache.get(7, "page-0") == b"x"
    now[0] = ends
    assert cache.get(7, "page-0") is None


def test_the_first_layout_is_the_cache_itself(settings: Settings) -> None:
    """No second cache is made for the mode that a service begins in."""
    first = Cache(settings)
    assert Layouts(first).at(Invalidation("scan", 1000)) is first


def test_every_strategy_says_how_many_keys_went(settings: Settings) -> None:
    """The number of deleted keys covers all pages of a search; a new generation deletes none."""
    gone = {}
    for strategy in ("scan", "keys", "exact", "index", "index-naive", "hash", "generation", "ttl"):
        cache_of(settings, strategy, lambda: FAR).put_users(range(1, 30))
        gone[strategy] = invalidate(settings, strategy, 7)
    all_entries = settings.fragments_per_user
    entries = dict.fromkeys(("scan", "keys", "exact", "index", "index-naive"), all_entries)
    assert gone == entries | {"hash": 1, "generation": 0, "ttl": 0}


@pytest.mark.parametrize("layout", ["hash", "generation"])
def test_all_of_a_user_goes_and_nothing_else(settings: Settings, server: ServerProcess, layout: str) -> None:
    """The user's fragments of any name and release go; those of users whose ids begin or end alike stay."""
    cache = cache_of(settings, layout)
    cache.put_users([1, 11, 12, 21])
    cache.put(1, "page-extra", "x")
    if layout == "hash":
        server.client().hset("shop-hash:1", "r0:page-0", "another release's")
    invalidate(settings, layout, 1, cache.now)
    names = [*fragment_names(20), "page-extra"]
    assert [cache.get(1, name) for name in names] == [None] * 21
    for user in (11, 12, 21):
        assert all(cache.get(user, name) for name in names[:20])
    if layout == "hash":
        assert not server.client().exists("shop-hash:1")
    invalidate(settings, layout, 1, cache.now)


@pytest.mark.parametrize(
    ("layout", "read", "put", "invalidation"),
    [
        ("hash", {"hget": 1}, {"multi": 1, "hset": 1, "pexpireat": 1, "exec": 1}, {"unlink": 1}),
        (
            "generation",
            {"get": 2},
            {"multi": 1, "set": 1, "pexpireat": 1, "exec": 1},
            {"multi": 1, "incrby": 1, "pexpireat": 1, "exec": 1},
        ),
        ("ttl", {"get": 1}, {"set": 1}, {}),
    ],
)
def test_costs_are_those_of_the_docstrings(
    settings: Settings,
    server: ServerProcess,
    layout: str,
    read: dict[str, int],
    put: dict[str, int],
    invalidation: dict[str, int],
) -> None:
    """A read, a put and an invalidation cost exactly these commands, whatever else the server holds."""
    cache, raw = cache_of(settings, layout), server.client()
    cache.put_users(range(1, 50))
    raw.config_resetstat()
    assert cache.get(7, "page-0")
    assert calls(raw) == read
    _, since = cache.get_with_since(7, "page-0")
    raw.config_resetstat()
    cache.put(7, "page-0", "x", since)
    assert calls(raw) == put
    raw.config_resetstat()
    invalidate(settings, layout, 7, cache.now)
    assert calls(raw) == invalidation


def test_ttl_leaves_everything_to_its_end(settings: Settings, server: ServerProcess) -> None:
    """Under `ttl` an event changes nothing: cached entries are still served, and keep their expiry times."""
    cache, raw = cache_of(settings, "ttl", lambda: FAR), server.client()
    cache.put_users([1])
    assert invalidate(settings, "ttl", 1) == 0
    assert cache.get(1, "page-0") == render(1, "page-0", settings.value_bytes).encode()
    assert {raw.pexpiretime(key) for key in raw.keys("*")} == {int((FAR + settings.entry_ttl_seconds) * 1000)}


@pytest.mark.parametrize("strategy", OTHERS)
def test_bulk_equals_single_puts(settings: Settings, server: ServerProcess, strategy: str) -> None:
    """Bulk writing leaves the same keys, values and expiry times as one put at a time, at every id length."""
    users, raw = [1, 9, 10, 99, 12345, 999_999_999, 10**9], server.client()
    cache = cache_of(settings, strategy, lambda: FAR)

    def content() -> dict[str, Any]:
        kinds: dict[str, Callable[[str], Any]] = {"hash": raw.hgetall, "string": raw.get, "set": raw.smembers}
        return {key: (kinds[raw.type(key)](key), raw.pexpiretime(key)) for key in raw.keys("*")}

    assert cache.put_users(users) == 20 * len(users)
    in_bulk = content()
    for key in raw.keys("*"):
        if "generation" not in key:
            raw.delete(key)
    for user in users:
        for name in fragment_names(20):
            cache.put(user, name, render(user, name, settings.value_bytes))
    assert content() == in_bulk
    assert cache.get(10**9, "cart-1") == render(10**9, "cart-1", settings.value_bytes).encode()


@pytest.mark.parametrize("strategy", ["scan", *OTHERS])
def test_refused_bulk_write_is_one_error(own_server: ServerProcess, strategy: str) -> None:
    """Running out of memory in a fill is `CacheUnavailable` in every layout; with memory again, filling works again."""
    raw = own_server.client()
    raw.config_set("maxmemory", int(raw.info("memory")["used_memory"]) + 3_000_000)
    cache = cache_of(Settings(store_url=own_server.url), strategy)
    with pytest.raises(CacheUnavailable, match=r"OOM|EXECABORT"):
        for first in range(1, 20_000, 500):
            cache.put_users(range(first, first + 500))
    raw.config_set("maxmemory", 0)
    assert cache.put_users([1]) == 20


@pytest.mark.parametrize("kind", [UserTemplate, HashTemplate, PlainTemplate])
def test_templates_know_their_replies(kind: type[UserTemplate]) -> None:
    """A template expects one reply for each of its commands."""
    template = kind(Keyspace("shop", 60), fragment_names(3), 200, 0.0)
    assert template.replies == template.user(17).count(b"\r\n*") + 1


def test_generations_of_any_width_are_filled_in() -> None:
    """A generation number of any width is filled in, and no placeholder is left."""
    generations = {5: 0x1, 6: 0xABCDEF, 77: 2**40}
    template = GenerationTemplate(Keyspace("shop", 60), fragment_names(2), 50, 0.0, generations)
    for user, generation in generations.items():
        data = template.user(user)
        assert f"shop:user:{user}:{generation:x}:page-0:r1".encode() in data
        assert not {0, 1} & set(data)
        assert template.replies == data.count(b"\r\n*") + 1


def test_generation_lives_as_long_as_its_entries(settings: Settings, server: ServerProcess) -> None:
    """A put extends the life of the generation number to that of the entry, which is out of reach without it."""
    now = FAR
    cache, raw = cache_of(settings, "generation", lambda: now), server.client()
    _, since = cache.get_with_since(3, "page-0")
    now = FAR + 100
    cache.put(3, "page-0", "x", since)
    ends = {raw.pexpiretime(key) for key in raw.keys("*")}
    assert ends == {int((FAR + 100 + settings.entry_ttl_seconds) * 1000)}


def test_an_epoch_begins_with_another_layout_only(tmp_path: Path) -> None:
    """A switch within a layout keeps the epoch; every change of layout gets a new one."""
    state = State(tmp_path)
    state.init_invalidation("scan", 10)

    def epoch(change: dict[str, Any]) -> tuple[str, int]:
        state.set_invalidation(change)
        mode = State(tmp_path).invalidation()
        return mode.layout, mode.epoch

    assert epoch({"strategy": "index"}) == ("entries", 0)
    assert epoch({"strategy": "hash"}) == ("hash", 1)
    assert epoch({"scan_count": 5}) == ("hash", 1)
    assert epoch({"strategy": "hash"}) == ("hash", 1)
    assert epoch({"strategy": "generation", "scan_count": 7}) == ("generation", 2)
    assert epoch({"strategy": "keys"}) == ("entries", 3)
    assert epoch({"strategy": "hash"}) == ("hash", 4)
    assert state.invalidation() == Invalidation("hash", 7, "hash", 4)


def test_state_of_an_earlier_version_is_the_first_epoch_of_entries(tmp_path: Path) -> None:
    """A state stored without a layout is read and changed as `entries` in epoch 0."""
    state = State(tmp_path)
    old = json.dumps({"strategy": "index", "scan_count": 9})
    state._run("INSERT INTO settings VALUES ('invalidation', ?)", (old,))
    assert state.invalidation() == Invalidation("index", 9, "entries", 0)
    state.set_invalidation({"strategy": "scan"})
    assert state.invalidation().epoch == 0
    state.set_invalidation({"strategy": "hash"})
    assert state.invalidation() == Invalidation("hash", 9, "hash", 1)


def test_nothing_stored_is_scan_of_entries(tmp_path: Path) -> None:
    """Without stored settings the state is `scan` on `entries`; a change may come before any initial values."""
    state = State(tmp_path)
    assert state.invalidation() == Invalidation("scan", 1000, "entries", 0)
    state.set_invalidation({"strategy": "generation"})
    assert state.invalidation().layout == "generation"


def test_reads_do_without_the_cache_while_the_state_fails(settings: Settings) -> None:
    """While the state cannot be read, reads bypass the cache: nothing tells which entries are valid."""
    state = State(settings.state_dir)
    web = create_app(settings, state, Cache(settings)).test_client()
    web.get("/users/1/fragments/page-0")
    assert web.get("/users/1/fragments/page-0").headers["Cache-Status"] == "shop; hit"
    state.close()
    reply = web.get("/users/1/fragments/page-0")
    assert (reply.status_code, reply.headers["Cache-Status"]) == (200, "shop; fwd=bypass")


@pytest.mark.whole
def test_warmer_follows_a_switch_and_counts_entries(
    new_service: Callable[..., Service], own_server: ServerProcess
) -> None:
    """After each change of layout the warmer caches its target again, and does not count what earlier epochs left."""
    service, raw = new_service(own_server).start("web", "warmer"), own_server.client()

    def settled(prefix: str, made: int) -> bool:
        answer = service.get("/settings/warming").json
        found = len(raw.keys(prefix))
        return bool(answer["state"] == "idle" and answer["keys"] == 2000 and found == made)

    service.put("/settings/warming", {"target_keys": 2000})
    eventually(lambda: settled("shop:user:*", 2000))
    for strategy, prefix, made in (
        ("hash", "shop-e1-hash:*", 100),
        ("generation", "shop-e2:user:*", 2000),
        ("ttl", "shop-e3:user:*", 2000),
        ("scan", "shop-e4:user:*", 2000),
    ):
        service.put("/settings/invalidation", {"strategy": strategy})
        eventually(partial(settled, prefix, made))
        hit = service.get("/users/100/fragments/cart-5").headers["Cache-Status"]
        assert hit == "shop; hit"
    assert len(raw.keys("shop:user:*")) == 2000, "entries of an earlier layout stay until their TTL ends"
    for key in raw.keys("*"):  # as if their TTL had ended
        if not key.startswith("shop-e4"):
            raw.delete(key)
    service.put("/settings/warming", {"target_keys": 2400})
    eventually(lambda: service.get("/settings/warming").json["keys"] == 2400)
    gone = raw.keys("shop-e4:user:7:*")
    raw.delete(*gone)
    eventually(lambda: service.get("/settings/warming").json["keys"] == 2380)


@pytest.mark.parametrize("strategy", sorted({layout_of(name): name for name in STRATEGY_NAMES}.values()))
def test_a_layout_counts_what_it_fills(settings: Settings, server: ServerProcess, strategy: str) -> None:
    """Each layout knows how many keys a fill makes, and how many entries those keys hold."""
    cache, raw = cache_of(settings, strategy), server.client()
    written = cache.put_users([1, 2, 3])
    assert cache.keys(3) == raw.dbsize()
    assert cache.entries(raw.dbsize(), 3) == written

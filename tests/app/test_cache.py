"""Cache, strategies and bulk writing on a real server."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pytest

from app import backfill
from app.bulk import UserTemplate
from app.cache import Cache, CacheUnavailable
from app.cache_async import AsyncClient, ServerError, connect
from app.fragments import AREAS, Keyspace, fragment_names, render
from app.metrics import BUCKETS
from app.settings import STRATEGY_NAMES, Settings, layout_of
from app.strategies import STRATEGIES
from app.strategies import index as index_strategy
from tests.app.servicekit import ServerProcess, free_port

OF_ENTRIES = [name for name in STRATEGY_NAMES if layout_of(name) == "entries"]


@pytest.fixture
def cache(settings: Settings) -> Iterator[Cache]:
    made = Cache(settings)
    yield made
    made.close()


def invalidate(settings: Settings, strategy: str, user: int, count: int = 100) -> int:
    """Carry out one invalidation as the invalidator would."""

    async def run() -> int:
        raw = connect(settings)
        try:
            return await STRATEGIES[strategy](AsyncClient(raw, settings, strategy), user, AREAS, count)
        finally:
            await raw.aclose()
            await raw.connection_pool.disconnect()

    return asyncio.run(run())


def calls(raw: Any) -> dict[str, int]:
    """Commands the server has executed, by name."""
    stats = raw.info("commandstats")
    return {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}


def test_an_empty_page_of_the_index_is_not_its_end() -> None:
    """SSCAN may give an empty page with a cursor to go on with; what comes after it is deleted too."""
    keyspace = Keyspace("shop", 60)
    pages = [(7, []), (0, [keyspace.member("page-0").encode()])]

    class Paged:
        def __init__(self) -> None:
            self.keyspace, self.clock = keyspace, lambda: 0.0

        async def sscan(self, index: bytes, cursor: int, count: int) -> tuple[int, list[bytes]]:
            return pages.pop(0)

        async def unlink_indexed(self, user: int, index: bytes, members: list[bytes]) -> int:
            return len(members)

    assert asyncio.run(index_strategy._sweep(cast(Any, Paged()), 1, 0, (b"page-",))) == 1
    assert pages == []


@pytest.mark.parametrize("strategy", OF_ENTRIES)
def test_strategy_deletes_one_users_entries_only(
    settings: Settings, cache: Cache, server: ServerProcess, strategy: str
) -> None:
    """Every strategy deletes the user's entries, and none of users whose ids begin or end alike."""
    cache.put_users([1, 11, 12, 21])
    if strategy != "exact":  # `exact` knows the usual names only
        cache.put(1, "page-extra", "x")
    assert invalidate(settings, strategy, 1) == (20 if strategy == "exact" else 21)
    left = server.client().keys("shop:*")
    assert len(left) == 60
    assert not [key for key in left if key.startswith("shop:user:1:")]
    assert invalidate(settings, strategy, 1) == 0


def test_exact_searches_nothing_and_leaves_what_its_docstring_says(
    settings: Settings, cache: Cache, server: ServerProcess
) -> None:
    """`exact` sends one UNLINK and no search. Entries with an unlisted name or of another release stay."""
    raw = server.client()
    cache.put_users([6])
    cache.put(6, "page-extra", "x")
    raw.set("shop:user:6:page-1:r0", "another release's")
    raw.config_resetstat()
    assert invalidate(settings, "exact", 6) == 20
    assert {
        name: number for name, number in calls(raw).items() if name not in ("config|resetstat", "info")
    } == {"unlink": 1}
    assert sorted(raw.keys("shop:*")) == ["shop:user:6:page-1:r0", "shop:user:6:page-extra:r1"]


@pytest.mark.parametrize("before", OF_ENTRIES)
def test_index_covers_entries_cached_before_the_switch(settings: Settings, cache: Cache, before: str) -> None:
    """After a switch `index` finds an entry, whatever strategy was in force when it was cached."""
    cache.put_users([5])
    invalidate(settings, before, 5)
    cache.put(5, "cart-7", "again")
    assert invalidate(settings, "index", 5) == 1
    assert cache.get(5, "cart-7") is None


def test_index_asks_no_more_than_its_docstring_says(
    settings: Settings, cache: Cache, server: ServerProcess
) -> None:
    """A user's usual 20 entries cost one SSCAN per live bucket and one UNLINK, and never a scan of the
    keyspace.
    """
    compact = server.client()
    compact.config_set("set-max-listpack-entries", 128)
    try:
        cache.put_users(range(1, 50))
        compact.config_resetstat()
        assert invalidate(settings, "index", 7) == 20
        made = calls(compact)
    finally:
        compact.config_set("set-max-listpack-entries", 0)
    assert made.get("sscan", 0) in (3, 4)
    assert made["unlink"] == 1
    assert not {"scan", "keys"} & set(made)


def test_giant_index_set_goes_in_chunks(settings: Settings, cache: Cache, server: ServerProcess) -> None:
    """A user with thousands of entries is invalidated completely, and no call touches more than 500 of them."""
    many = settings.model_copy(update={"fragments_per_user": 5000})
    Cache(many).put_users([3])
    raw = server.client()
    raw.config_set("slowlog-log-slower-than", 0)
    raw.slowlog_reset()
    raw.config_set("slowlog-max-len", 10_000)
    try:
        assert invalidate(settings, "index", 3) == 5000
        lengths = [entry["command"].decode().split(" ") for entry in raw.slowlog_get(10_000)]
    finally:
        raw.config_set("slowlog-log-slower-than", 10_000)
    assert raw.dbsize() == 0
    # The slow log cuts long commands after 32 words, the last being "... (N more arguments)".
    sizes = [int(words[-3].strip("(")) + 31 for words in lengths if words[-1] == "arguments)"]
    assert sizes
    assert max(sizes) <= 502


def test_giant_index_set_goes_at_once(settings: Settings, cache: Cache, server: ServerProcess) -> None:
    """Under `index-naive` the same user is one SMEMBERS, one DEL and one SREM, whatever the size."""
    assert cache.put_many(3, 5000) == 5000
    raw = server.client()
    raw.config_resetstat()
    assert invalidate(settings, "index-naive", 3) == 5000
    made = calls(raw)
    assert made.get("smembers", 0) in (3, 4)  # live buckets
    assert (made["del"], made["srem"]) == (1, 1)
    assert not {"scan", "keys", "sscan"} & set(made)
    assert raw.dbsize() == 0


def test_many_puts_equal_single_ones_and_stall_nobody(
    settings: Settings, cache: Cache, server: ServerProcess
) -> None:
    """All of a user's fragments are cached with their index, in transactions of at most 500."""
    raw = server.client()
    raw.config_resetstat()
    assert cache.put_many(77, 1203) == 1203
    assert calls(raw)["exec"] == 3
    names = fragment_names(1203)
    entries = [cache.keyspace.entry(77, name) for name in names]
    assert raw.mget(entries) == [render(77, name, settings.value_bytes) for name in names]
    index = cache.keyspace.index(77, cache.keyspace.bucket(cache.now()))
    assert raw.smembers(index) == {cache.keyspace.member(name) for name in names}
    assert invalidate(settings, "index", 77) == 1203
    assert raw.dbsize() == 0


def test_bulk_equals_single_puts(settings: Settings, server: ServerProcess) -> None:
    """Bulk writing leaves the same keys, values, index and expiry times as one put at a time, at every id
    length.
    """
    users = [1, 9, 10, 99, 12345, 999_999_999, 10**9]
    raw = server.client()

    def content(fill: Any) -> dict[str, Any]:
        raw.flushall()
        fill(Cache(settings, clock=lambda: 4_000_000_000.25))
        found: dict[str, Any] = {}
        for key in raw.keys("*"):
            value = raw.smembers(key) if "index" in key else raw.get(key)
            found[key] = (value, raw.pexpiretime(key))
        return found

    def one_by_one(cache: Cache) -> None:
        for user in users:
            for name in fragment_names(settings.fragments_per_user):
                cache.put(user, name, render(user, name, settings.value_bytes))

    assert content(lambda cache: cache.put_users(users)) == content(one_by_one)


def test_member_outlives_its_entry_by_one_ttl_at_most() -> None:
    """For a put at any time, the index set outlives the entry by at most one TTL and the tolerance for clock skew. As
    long as the entry lives, its bucket is among those that an invalidation reads.
    """
    keys = Keyspace("p", 60)
    for tenth in range(6000):
        put = 1_000_000 + tenth / 10
        bucket = keys.bucket(put)
        slack = keys.index_expires_ms(bucket) - keys.entry_expires_ms(put)
        assert 0 < slack <= 62_000
        for age in (0, 1, 30, 59.9, 60):
            for skew in (-1, 0, 1):
                assert bucket in keys.live_buckets(put + age + skew)
        for back in (1, 30, 60):
            assert bucket in keys.live_buckets(put - back), "a clock that was set back hides the entry"


def test_index_sets_match_no_fragment_pattern(
    settings: Settings, cache: Cache, server: ServerProcess
) -> None:
    """No fragment pattern of a user matches an index set."""
    cache.put_users([4])
    for area in AREAS:
        found = server.client().keys(Keyspace("shop", 1).pattern(4, area))
        assert found
        assert not [key for key in found if "index" in key]


def test_refused_bulk_write_is_an_error_and_leaves_the_index_true(own_server: ServerProcess) -> None:
    """Running out of memory in a fill raises CacheUnavailable, and every cached entry is indexed. With memory again,
    filling works again.
    """
    raw = own_server.client()
    raw.config_set("maxmemory", int(raw.info("memory")["used_memory"]) + 3_000_000)
    settings = Settings(store_url=own_server.url)
    cache = Cache(settings)
    with pytest.raises(CacheUnavailable, match=r"OOM|EXECABORT"):
        cache.put_users(range(1, 5000))
    bucket_sets = {key.split(":")[1]: raw.smembers(key) for key in raw.keys("shop-index:*")}
    cached = raw.keys("shop:*")
    assert cached
    for key in cached:
        _, _, user, name, release = key.split(":")
        assert f"{release}:{name}" in bucket_sets[user]
    raw.config_set("maxmemory", 0)
    assert cache.put_users([1]) == 20


def test_no_retries_and_one_error_type(settings: Settings) -> None:
    """A server that is not there is tried once per call: silent retries would multiply the load on a stalled server."""
    down = settings.model_copy(update={"store_url": f"redis://127.0.0.1:{free_port()}/0"})
    cache = Cache(down)
    attempts = 0
    original = cache._pool.connection_class.connect

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return original(self, *args, **kwargs)

    cache._pool.connection_class = type("C", (cache._pool.connection_class,), {"connect": count})
    for call in (lambda: cache.get(1, "page-0"), lambda: cache.put_users([1]), cache.ping):
        attempts = 0
        with pytest.raises(CacheUnavailable):
            call()
        assert attempts == 1
    with pytest.raises(ServerError):
        invalidate(down, "scan", 1)


@pytest.mark.parametrize("binary", [ServerProcess.valkey(), ServerProcess.redis()])
def test_connecting_needs_no_handshake(binary: str | None) -> None:
    """Neither the blocking nor the asynchronous client sends HELLO, CLIENT or any other command that a Redis-compatible
    server might not know.
    """
    if binary is None:
        pytest.skip("no redis-server on PATH (Debian: apt install redis-server)")
    server = ServerProcess(binary).start()
    try:
        settings = Settings(store_url=server.url)
        cache = Cache(settings)
        raw = server.client()
        raw.config_resetstat()
        cache.put(1, "page-0", "x")
        assert cache.get(1, "page-0") == b"x"
        assert cache.put_users([2]) == 20
        for strategy in STRATEGY_NAMES:
            invalidate(settings, strategy, 2)
        known = {
            "set",
            "get",
            "sadd",
            "pexpireat",
            "multi",
            "exec",
            "scan",
            "sscan",
            "keys",
            "unlink",
            "smembers",
            "del",
            "srem",
            "incrby",
        }
        assert set(calls(raw)) <= known | {"config|resetstat", "info"}
    finally:
        server.stop()


def test_backfill_indexes_foreign_entries(
    settings: Settings, cache: Cache, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the back-fill `index` finds entries that another program cached, with or without a TTL; other keys stay."""
    raw = server.client()
    raw.set("shop:user:8:page-1:r1", "a")
    raw.set("shop:user:8:cart-1:r1", "b", ex=50)
    raw.set("shop:user:8:offer-1:r1", "c", ex=10 * settings.entry_ttl_seconds)
    raw.set("shop:user:8:page-2:r0", "another release's")
    raw.set("shop:user:8:other:r1", "not ours")
    raw.set("shop:user:x:page-1:r1", "not ours")
    monkeypatch.setenv("APP_STORE_URL", server.url)
    assert invalidate(settings, "index", 8) == 0
    backfill.main()
    assert raw.ttl("shop:user:8:cart-1:r1") <= 50
    assert raw.ttl("shop:user:8:offer-1:r1") <= settings.entry_ttl_seconds
    assert invalidate(settings, "index", 8) == 4
    assert sorted(raw.keys("shop:*")) == ["shop:user:8:other:r1", "shop:user:x:page-1:r1"]


def test_buckets_are_fine_enough_for_p99() -> None:
    """Histogram bounds reach from 0.1 ms to 10 s, each 20 % to 34 % above the one before."""
    assert (BUCKETS[0], BUCKETS[-1]) == (0.0001, 10.0)
    assert all(1.2 < high / low < 1.34 for low, high in pairwise(BUCKETS))


def test_template_is_built_once_per_id_length(settings: Settings) -> None:
    """The bytes for two users of equal id length differ in the id only."""
    template = UserTemplate(Keyspace("shop", 60), fragment_names(3), 200, 0.0)
    assert template.user(17).replace(b"17", b"42") == template.user(42)
    assert template.replies == template.user(17).count(b"*")

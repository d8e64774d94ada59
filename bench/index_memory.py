"""Measures the index's memory on the server: bytes for each cached entry, and as a part of the entry
itself.

Run as ``python -m bench.index_memory``. The same entries are stored with and without the index on one emptied
server.
"""

from typing import Any

import redis

from app.cache import Cache
from app.settings import Settings
from bench.kit import report, server

USERS = 10_000


def main() -> None:
    """Print bytes per entry and the ratio."""
    with server() as url:
        raw: Any = redis.Redis.from_url(url)
        settings = Settings(store_url=url)
        cache = Cache(settings)
        empty = raw.info("memory")["used_memory"]
        entries = cache.put_users(range(1, USERS + 1))
        with_index = raw.info("memory")["used_memory"] - empty
        pipe = raw.pipeline(transaction=False)
        for user in range(1, USERS + 1):
            now = cache.keyspace.bucket(cache.now())
            pipe.delete(cache.keyspace.index(user, now), cache.keyspace.index(user, now - 1))
        pipe.execute()
        assert raw.dbsize() == entries
        without = raw.info("memory")["used_memory"] - empty
    report(
        "index bytes / entry bytes",
        (with_index - without) / without,
        goal="small",
        index_bytes_per_key=(with_index - without) / entries,
        entry_bytes_per_key=without / entries,
    )


if __name__ == "__main__":
    main()

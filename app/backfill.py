"""Indexes entries that another program cached without the index, then ends: ``python -m app.backfill``.

The service itself never needs it, because in this layout it writes the index whatever the strategy in force. Cost: one
iteration over the keyspace, and one transaction per SCAN page. Run it before switching to `index`, when a scan is
affordable. Only keys of the first epoch are found (see `app.layouts`): other programs write no others.
"""

from app.cache import Cache, CacheUnavailable
from app.process import fail
from app.settings import load_settings


def main() -> None:
    """Entry point: exit code 3 if the server fails; entries indexed by then stay indexed."""
    settings = load_settings()
    if settings.store_cluster:
        raise fail("APP_STORE_CLUSTER: a cluster cannot be backfilled, because a cursor is one server's.", 2)
    cache = Cache(settings)
    cursor, adopted = 0, 0
    try:
        while True:
            cursor, count = cache.adopt(cursor)
            adopted += count
            if cursor == 0:
                break
    except CacheUnavailable as error:
        raise fail(str(error), 3) from None
    print(f"indexed {adopted} entries")


if __name__ == "__main__":
    main()

"""Indexes entries that some other program cached without the index, then ends: ``python -m app.backfill``.

The service itself never needs it, because it writes the index whatever strategy searches or deletes its entries. Cost:
one iteration over the keyspace and one transaction per entry, in pipelines; run it when a scan is affordable, before
switching to `index`. Only the first epoch's entries are found (see `app.layouts`): other programs know no other keys.
"""

from app.cache import Cache, CacheUnavailable
from app.process import fail
from app.settings import load_settings


def main() -> None:
    """Entry point: exit code 3 if the store fails; what was indexed by then stays indexed."""
    cache = Cache(load_settings())
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

"""Measures the CPU cost of one event under each strategy: over the keys on the server, and over the user's own entries.

Run as ``python -m bench.cost --write docs/cost.json``, on a quiet machine. Two series, with a server of their own for
each layout:

- over keys: the server grows from a thousand entries to `--keys`, and users with the usual 20 entries have an event;
- over entries: on a server with 100,000 other entries, users with 1 to `--entries` entries have an event.

The cost is CPU time of the server, as it counts it itself: of the main thread, which serves no other request meanwhile,
and of its other threads, which may free large values in the background. It is read before and after some events, and
the cost of reading it is subtracted. Each size is measured in several rounds, with users chosen at random.
`bench.cost_tables` fits the growth. `--write` keeps the figures in docs/cost.json, and renews the tables and plots of
docs/scale.md.

`ttl` does nothing at an event, and is not measured.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import redis

from app.cache import Cache, CacheUnavailable
from app.cache_async import AsyncClient, connect
from app.fragments import AREAS
from app.layouts import KINDS
from app.settings import STRATEGY_ROWS, Settings
from app.strategies import STRATEGIES
from app.warmer import CHUNK_ENTRIES
from bench.cost_tables import EVIDENCE, draw
from bench.kit import OneLineParser, interrupts_raise, parse_names, server
from lab.errors import HOLDS, INTERRUPTED, STACK_BROKE, LabError
from lab.server.servers import SERVERS, Server
from lab.stacks.memory import BASE_BYTES, require_memory
from loadtest import info

MEASURED = tuple(name for name, row in STRATEGY_ROWS.items() if row.layout not in ("plain", "tagged"))
"""Not `ttl`, which does nothing, nor those for a server in cluster mode, which the measured one is not."""
USUAL = 20
"""Entries of a user in the series over keys."""
OTHERS = 100_000
"""Entries of others in the series over entries."""
LEAST_KEYS, MOST_KEYS, MOST_ENTRIES = 1_000, 50_000_000, 100_000
TTL_S = 30 * 86400
"""Nothing may expire while the series lasts."""
SHARE = 0.02
"""The largest share of the users on the server that has an event in a round, so that nearly all keys stay there."""
EVENTS = 50
"""The most events in a round."""
FEWEST, FILLED = 3, 20_000
"""Series over entries: a batch has at least FEWEST events, and uses up at most FILLED entries."""
ENOUGH_US, BATCHES = 500.0, 5
"""CPU time that a round must add up to, in at most BATCHES batches: cheap events need large numbers."""
SETTLE_S = 0.3
"""Wait after a user was filled: the server goes on resizing tables and buffers, which would count as the event's."""
READINGS = 50
"""Readings of the CPU time; their median distance is the cost of one reading."""
GIANT = 900_000_000
"""Ids of the users with many entries begin here, beyond those of the others."""


@dataclass(frozen=True)
class Point:
    """The cost of an event at one size. `entries` are all on the server, `own` the user's, `keys` the server's count.

    `main_us` and `others_us`: for each round, CPU time of the main thread and of the other threads, in µs an event.
    """

    strategy: str
    entries: int
    own: int
    keys: int
    main_us: list[float] = field(default_factory=list)
    others_us: list[float] = field(default_factory=list)


class Place:
    """A server, filled in one layout, on which events are carried out."""

    def __init__(self, url: str, layout: str, own: int = USUAL) -> None:
        self.settings = Settings(
            store_url=url, entry_ttl_seconds=TTL_S, fragments_per_user=own, store_timeout_seconds=600
        )
        self.cache = Cache(self.settings).other(KINDS[layout], 0)
        self._observer: Any = redis.Redis.from_url(url, protocol=2)
        self._observer.set_response_callback("INFO", lambda text, **_: info.fields(text))
        self._about = self._observer.info("server")
        read = [self.cpu_us()[0] for _ in range(READINGS)]
        self._reading_us = median(after - before for before, after in pairwise(read))

    def fill(self, users: range) -> Iterator[int]:
        """Give users their usual entries, in steps; yields the last user of each."""
        step = max(1, CHUNK_ENTRIES // self.settings.fragments_per_user)
        for first in range(users.start, users.stop, step):
            last = min(users.stop, first + step)
            self.cache.put_users(range(first, last))
            yield last - 1

    def keys(self) -> int:
        """Return the number of keys on the server."""
        return int(self.cache.census()[1])

    def cpu_us(self) -> tuple[float, float]:
        """CPU time of the main thread and of the other threads until now, in µs."""
        fields = self._about | self._observer.info("cpu")
        main, whole = info.busy_seconds(fields), info.process_seconds(fields)
        assert main is not None
        assert whole is not None
        return main * 1e6, (whole - main) * 1e6

    def wait_for_freeing(self) -> None:
        """Wait until the other threads have freed what they were given."""
        while int(self._observer.info("memory").get("lazyfree_pending_objects", 0)):
            time.sleep(0.002)

    async def events(self, strategy: str, users: Sequence[int]) -> tuple[float, float]:
        """Carry out one event for each user in turn. CPU time in µs of one event: main thread, other threads."""
        raw = connect(self.settings)
        client = AsyncClient(raw, self.settings, strategy)
        await raw.ping()  # the connection is made, and not counted
        before = self.cpu_us()
        for user in users:
            await STRATEGIES[strategy](client, user, AREAS, self.settings.scan_count)
        main = self.cpu_us()[0]
        self.wait_for_freeing()
        others = self.cpu_us()[1]
        await raw.aclose()
        await raw.connection_pool.disconnect()
        return (main - before[0] - self._reading_us) / len(users), (others - before[1]) / len(users)

    def measure(self, point: Point, users: Sequence[int]) -> None:
        """Run a round: an event for each of these users, whose entries are cached."""
        main, others = asyncio.run(self.events(point.strategy, users))
        point.main_us.append(main)
        point.others_us.append(others)

    def round_of_giants(self, point: Point, first: int, each: int) -> int:
        """Run a round: users get `point.own` entries and an event, `each` at a time, until `ENOUGH_US` were measured.

        They have numbers from `first` on. Returns the number of the next one.
        """
        took: list[tuple[float, float]] = []
        while not took or (each * sum(main for main, _ in took) < ENOUGH_US and len(took) < BATCHES):
            users = range(first, first + each)
            for user in users:
                self.cache.put_many(user, point.own)
            time.sleep(SETTLE_S)
            took.append(asyncio.run(self.events(point.strategy, users)))
            first += each
        main, others = (sum(part) / len(took) for part in zip(*took, strict=True))
        point.main_us.append(main)
        point.others_us.append(others)
        return first

    def close(self) -> None:
        """Close the connections."""
        self.cache.close()
        self._observer.close()


def sizes(least: int, most: int) -> list[int]:
    """Two sizes for each power of ten, from the least to the most."""
    found, step = [], 0
    while (size := round(least * 10 ** (step / 2))) < most:
        found.append(size)
        step += 1
    return [*found, most]


def by_layout(strategies: Sequence[str]) -> dict[str, list[str]]:
    """The strategies by their layout."""
    found: dict[str, list[str]] = {}
    for name in strategies:
        found.setdefault(STRATEGY_ROWS[name].layout, []).append(name)
    return found


def over_keys(kind: str, strategies: Sequence[str], most: int, rounds: int) -> Iterator[Point]:
    """The series over keys: each strategy at each size."""
    choose = random.Random(1)
    for layout, names in by_layout(strategies).items():
        with server(kind) as url:
            place, filled = Place(url, layout), 0
            for size in sizes(LEAST_KEYS, most):
                users = size // USUAL
                began = time.monotonic()
                for last in place.fill(range(filled + 1, users + 1)):
                    show_progress(layout, last - filled, users - filled, time.monotonic() - began)
                filled = users
                for name in names:
                    point = Point(name, users * USUAL, USUAL, place.keys())
                    having = max(1, min(EVENTS, round(users * SHARE)))
                    if STRATEGY_ROWS[name].searches:
                        having = max(1, min(having, LEAST_KEYS * EVENTS // size))
                    for _ in range(rounds):
                        chosen = choose.sample(range(1, users + 1), having)
                        place.measure(point, chosen)
                        place.cache.put_users(chosen)
                    yield point
            place.close()


def over_entries(kind: str, strategies: Sequence[str], most: int, rounds: int) -> Iterator[Point]:
    """The series over a user's entries: each strategy at each size."""
    for layout, names in by_layout(strategies).items():
        with server(kind) as url:
            others = Place(url, layout)
            for _ in others.fill(range(1, OTHERS // USUAL + 1)):
                pass
            giant = GIANT
            for size in sizes(1, most):
                place = Place(url, layout, size)
                having = max(FEWEST, min(USUAL, FILLED // size))
                for name in names:
                    point = Point(name, OTHERS, size, place.keys())
                    each = min(having, FEWEST) if STRATEGY_ROWS[name].searches else having
                    for _ in range(rounds):
                        giant = place.round_of_giants(point, giant, each)
                    yield point
                place.close()
            others.close()


def caches(fields: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Bytes of the caches of the first core that hold data, by name (L1, L2 ...); without those that Linux does not
    report (some kernels on arm64).
    """
    found = {}
    for folder in sorted(fields.glob("index*")):
        with suppress(OSError, ValueError):
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[f"L{level}"] = int(size.removesuffix("K")) * 1024
    return found


def require_room(options: argparse.Namespace, row: Server) -> str:
    """A sentence on the memory that is needed, and what is free.

    Raises `UsageError` where it is too little, or more than the server is started with.
    """
    # `generation` leaves all entries behind that were filled for its events.
    left = OTHERS + FEWEST * BATCHES * options.rounds * options.entries * 2
    most = {"keys": options.keys, "entries": left}
    needed_bytes = row.key_bytes * max(count for name, count in most.items() if options.only in (None, name))
    remedy = "Choose less with --keys, --entries or --rounds, or one series with --only."
    if row.most_bytes:
        require_memory(f"the entries on {row.name}", needed_bytes, row.most_bytes, "its maxmemory", remedy)
    what = f"the servers of both series ({row.name}), one at a time,"
    return require_memory(what, BASE_BYTES + needed_bytes, psutil.virtual_memory().available, "free", remedy)


def show_progress(layout: str, done: int, whole: int, seconds: float) -> None:
    """Print the progress of a long fill, on one line that is overwritten."""
    if seconds > 1 and sys.stderr.isatty():
        left = seconds * (whole - done) / done
        print(
            f"\rfilling, layout {layout}: {done / whole:4.0%}, {left:4.0f} s left ", end="", file=sys.stderr
        )


def line(point: Point) -> str:
    """A point in words: the median of its rounds."""
    who = f"{point.strategy:12} {point.keys:>11,} keys, {point.own:>7,} of the user"
    return f"{who}: {median(point.main_us):>14,.1f} µs an event"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, read."""
    parser = OneLineParser(prog="bench.cost", description="What does an event cost the server?")
    known = ", ".join(MEASURED)
    parser.add_argument("--server", default="embedded", choices=sorted(SERVERS))
    parser.add_argument(
        "--keys", type=int, default=10_000_000, metavar="N", help="the most entries on the server"
    )
    parser.add_argument("--entries", type=int, default=MOST_ENTRIES, metavar="N", help="the most of one user")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument(
        "--strategies",
        type=lambda text: parse_names(text, MEASURED, "strategy"),
        default=list(MEASURED),
        help=known,
    )
    parser.add_argument("--only", choices=("keys", "entries"), help="one of the two series")
    parser.add_argument("--write", action="store_true", help="keep the figures, and renew the page's tables")
    found = parser.parse_args(words)
    for name, least, most in (
        ("keys", LEAST_KEYS, MOST_KEYS),
        ("entries", 1, MOST_ENTRIES),
        ("rounds", 1, 1000),
    ):
        if not least <= getattr(found, name) <= most:
            parser.error(f"--{name} must be {least:,} to {most:,}")
    return found


def main() -> int:
    """Measure, print a line for each size, and keep the figures. Returns the exit code of the contract."""
    options = arguments()
    interrupts_raise()
    try:
        row = SERVERS[options.server]
        row.require()
        print(f"bench.cost: {require_room(options, row)}.", file=sys.stderr)
        series: dict[str, Iterator[Point]] = {
            "keys": over_keys(options.server, options.strategies, options.keys, options.rounds),
            "entries": over_entries(options.server, options.strategies, options.entries, options.rounds),
        }
        for name, points in series.items():
            if options.only in (None, name):
                found: list[dict[str, Any]] = []
                for point in points:
                    print(line(point), flush=True)
                    found.append(asdict(point))
                part = f"{options.server}, {name}" + (f" to {options.keys}" if name == "keys" else "")
                about = {"server": options.server, "key_bytes": row.key_bytes, "caches": caches()}
                if options.write:
                    EVIDENCE.keep(part, "bench.cost", series=name, **about, points=found)
                    draw(EVIDENCE)
    except KeyboardInterrupt:
        print("bench.cost: interrupted; a series that was not complete is not kept", file=sys.stderr)
        return INTERRUPTED
    except LabError as error:
        print(f"bench.cost: {error}", file=sys.stderr)
        return error.exit_code
    except (CacheUnavailable, redis.RedisError) as error:
        print(f"bench.cost: {options.server} failed: {' '.join(str(error).split())}", file=sys.stderr)
        return STACK_BROKE
    return HOLDS


if __name__ == "__main__":
    sys.exit(main())

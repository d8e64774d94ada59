"""A history of the cache under concurrent use, and its judge: is an event lost, or an old value served?

`python -m bench.history` reads and invalidates a few hundred entries as fast as it can, with the app's own cache,
layouts, strategies, state and invalidator, for each strategy in turn. In the history `switch` all of them
take turns, three a second. Meanwhile the invalidator is killed every few seconds, and is told to begin anew what it has
under way. Every operation is recorded with its begin and end: `bench.history_load` says how, and `bench.history_judge`
says what is accused. Entries live for three seconds, so that they expire too, and indexes change their bucket.

Exit code 0: nothing is accused; 1: something is; 2: bad arguments; 3: the server or a process is not there; 130:
interrupted. `--plant BUG` plants a bug, which must be found (`bench.history_plants`). `--write FILE` keeps the figures
of each strategy as soon as it is done, for docs/history.md.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from app.cache import connection_options
from app.settings import STRATEGY_NAMES, layout_of
from app.state import StateError
from bench.history_judge import Found, judge
from bench.history_load import Events, Indexes, Job, count, histories
from bench.history_plants import PLANTS
from bench.kit import ROOT, OneLineParser, interrupts_raise, keep, names_of, server
from lab.errors import CLAIM_FAILED, HOLDS, INTERRUPTED, STACK_BROKE, LabError, StackError
from lab.stacks.processes import Child, stop_all, uninterrupted
from lab.stacks.servers import SERVERS

SWITCH = "switch"
TURNS = tuple(name for name in STRATEGY_NAMES if layout_of(name) != "plain")
STRATEGIES = (*TURNS, SWITCH)
"""All strategies that promise anything: `ttl` serves what is old by intention."""
KILL_S = (1.0, 6.0)
"""Between two kills of the invalidator, which needs about a second to start."""
TURN_S = (0.1, 0.5)
STEP_S = 0.02
OPERATIONS_MAX = 100_000_000


@dataclass(frozen=True)
class History:
    """What came of one strategy: its figures, and what the judge found."""

    figures: dict[str, Any]
    found: Found


class Chaos:
    """Kills and starts the invalidator, and changes the settings, at random moments. Main thread only."""

    def __init__(self, job: Job) -> None:
        self._job, self._state = job, job.state()
        self._chance = random.Random(f"{job.seed} chaos")
        self.kills = self.turns = 0
        self._next: list[str] = []
        self._child = self._start()
        self._kill_at = time.monotonic() + self._chance.uniform(*KILL_S)
        self._turn_at = time.monotonic() + self._chance.uniform(*TURN_S)

    def _start(self) -> Child:
        folder = Path(self._job.folder)
        command = [sys.executable, "-m", "bench.history_load", "invalidator", str(folder)]
        return Child("invalidator", command, folder / "invalidator.log", cwd=ROOT)

    def check(self) -> None:
        """Raise `StackError` if the invalidator has ended by itself."""
        self._child.check()

    def step(self) -> None:
        """Do what is due. Raises `StackError` as `check` does."""
        self.check()
        now = time.monotonic()
        if now >= self._kill_at:
            self._child.process.kill()
            self._child.stop()
            self._child = self._start()
            self.kills += 1
            self._kill_at = time.monotonic() + self._chance.uniform(*KILL_S)
        if now >= self._turn_at:
            self._turn()
            self._turn_at = time.monotonic() + self._chance.uniform(*TURN_S)

    def _turn(self) -> None:
        """Change the strategy, or COUNT only: both give up what is under way, and have it done again."""
        if not self._next:
            self._next = list(TURNS if self._job.strategy == SWITCH else [self._job.strategy])
            self._chance.shuffle(self._next)
        chosen = self._next.pop()
        late = self._job.strategy == SWITCH and self._chance.random() < 0.5
        change = {"strategy": chosen, "scan_count": self._chance.randrange(100, 2000)}
        self._state.set_invalidation(change, late=late)
        self.turns += 1

    def end(self) -> None:
        """End the invalidator."""
        self._child.stop()
        self._state.close()


def record(job: Job, readers: int) -> History:
    """Make the history of a job with so many reader processes, and judge it.

    Raises `StackError` if a process ends too soon, redis-py's error or `StateError` if the indexes cannot be looked at.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    job.save()
    state = job.state()
    state.init_invalidation(TURNS[0] if job.strategy == SWITCH else job.strategy, 1000)
    state.close()
    began = time.monotonic()
    events, indexes, chaos = Events(job), Indexes(job), Chaos(job)
    children: list[Child] = []
    events.begin()
    indexes.begin()
    try:
        while not events.first.wait(STEP_S):
            chaos.check()
        for number in range(readers):
            command = [sys.executable, "-m", "bench.history_load", "reader", str(folder), str(number)]
            children.append(Child("reader", command, folder / f"reader-{number}.log", cwd=ROOT))
        while any(child.alive() for child in children):
            chaos.step()
            time.sleep(STEP_S)
        for child in children:
            if child.exit_code():
                raise StackError(child.end_message())
        events.stop(job.patience_s)
        while events.under_way():
            chaos.check()
            time.sleep(STEP_S)
    finally:
        with uninterrupted():
            events.stop(0)
            stop_all(children)
            events.end()
            chaos.end()
            indexes.end()
    if indexes.error is not None:
        raise indexes.error
    seconds = time.monotonic() - began
    found = judge(histories(job, events.sent), job.ttl_s)
    for key in sorted(indexes.lost):
        found.accuse("lost index entry", f"{key}: no index names it")
    sent = [event for own in events.sent.values() for event in own]
    figures = {
        "strategy": job.strategy,
        **count(job),
        "events": sum(event.number is not None for event in sent),
        "kills": chaos.kills,
        "turns": chaos.turns,
        "looked": indexes.looked,
        "seconds": round(seconds, 1),
        "ttl_s": job.ttl_s,
    }
    return History(figures, found)


def line(history: History) -> str:
    """A history in one line."""
    figures, found = history.figures, history.found
    wrong = ", ".join(f"{number} {kind}" for kind, number in found.accused.items() if number)
    raced = f"race: {found.raced:,} reads of {found.late:,} values, for {found.longest_s:.2f} s at most"
    return (
        f"{figures['strategy']:<12} {wrong or 'nothing accused'}; "
        f"{figures['reads']:,} reads ({figures['hits']:,} hits), "
        f"{figures['events']:,} events, {figures['kills']} kills, {figures['turns']} turns, "
        f"{figures['failed']} failed; {raced} [{figures['seconds']:.0f} s]"
    )


@contextmanager
def address(text: str) -> Iterator[str]:
    """The URL of a server: a new one of this name, or one that runs. Raises `StackError` if it does not answer."""
    if text in SERVERS:
        SERVERS[text].require()
        with server(text) as url:
            yield url
        return
    try:
        with redis.Redis.from_url(text, **connection_options(5, text)) as client:
            client.ping()
    except redis.RedisError as error:
        raise StackError(f"{text} does not answer: {error}") from None
    yield text


def _server(text: str) -> str:
    if text in SERVERS:
        return text
    try:
        redis.Redis.from_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; or give one of {', '.join(SERVERS)}") from None
    return text


def _operations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= OPERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {OPERATIONS_MAX:,}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = OneLineParser(prog="bench.history", description="Is an event lost, or an old value served?")
    parser.add_argument(
        "--operations", type=_operations, default=100_000, metavar="N",
        help="reads for each strategy; puts and events come on top (100000)",
    )  # fmt: skip
    parser.add_argument(
        "--server", type=_server, default="embedded", metavar="NAME|URL",
        help=f"{', '.join(SERVERS)}, or the URL of one that runs, on which only keys history-* are written (embedded)",
    )  # fmt: skip
    parser.add_argument(
        "--strategies", type=lambda text: names_of(text, list(STRATEGIES), "strategy"), default=list(STRATEGIES),
        metavar="NAME,...", help=f"{', '.join(STRATEGIES)} (all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, help="of what is read, sent and killed; not of the times (1)"
    )
    parser.add_argument("--plant", choices=list(PLANTS), default="", help="plant a bug, which must be found")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="keep the figures, for the table in the docs"
    )
    options = parser.parse_args(arguments)
    if options.plant and options.write:
        parser.error("--write keeps what the code does, not a planted bug: leave one of the two out")
    if options.write and options.server not in SERVERS:
        parser.error(f"--write keeps what anybody can repeat: give one of {', '.join(SERVERS)} as --server")
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("bench.history: interrupted; every process has ended", file=sys.stderr)
        return INTERRUPTED
    except (LabError, OSError, StateError, redis.RedisError) as error:
        print(f"bench.history: {' '.join(str(error).split())}", file=sys.stderr)
        return STACK_BROKE


def _run(options: argparse.Namespace) -> int:
    readers = max(1, (os.cpu_count() or 1) - 1)
    wrong = 0
    print(
        f"{len(options.strategies)} strategies, {options.operations:,} reads each, {readers} reader processes",
        flush=True,
    )
    with (
        address(options.server) as url,
        tempfile.TemporaryDirectory(prefix="history-", ignore_cleanup_errors=True) as folder,
    ):
        for strategy in options.strategies:
            job = Job(
                folder=str(Path(folder) / strategy),
                url=url,
                strategy=strategy,
                prefix=f"history-{secrets.token_hex(4)}",
                reads=-(-options.operations // readers),
                seed=options.seed,
                plant=options.plant,
            )
            history = record(job, readers)
            wrong += not history.found.clean
            print(line(history), flush=True)
            for kind, examples in history.found.examples.items():
                for example in examples:
                    print(f"  {kind}: {example}", flush=True)
            found = history.found
            shown = {"raced": found.raced, "late": found.late, "longest_s": round(found.longest_s, 2)}
            keep(
                options.write,
                f"{options.server} {strategy}",
                "bench.history",
                server=options.server,
                **history.figures,
                accused=found.accused,
                examples=dict(found.examples),
                **shown,
            )
    print(f"{wrong} of {len(options.strategies)} histories show something wrong")
    return CLAIM_FAILED if wrong else HOLDS


if __name__ == "__main__":
    interrupts_raise()
    sys.exit(main())

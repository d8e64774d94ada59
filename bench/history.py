"""Is an accepted event lost, or an old value served, while parts fail? `python -m bench.history`, or `make faults`.

It reads and invalidates a few hundred entries as fast as it can, with the app's own cache, layouts, strategies, state
and invalidator, for each strategy in turn. In the history `switch` all of them take turns, three a second. Meanwhile
parts fail one after the other, at random moments (`FAULTS`), and the settings change, so that the invalidator restarts
the events under way. Every operation is recorded with its begin and end: `bench.history_load` records
them, and `bench.history_judge` judges them. Entries live for three seconds, so that they expire too, and indexes change
their bucket.

Exit code 0: nothing is accused; 1: something is; 2: bad arguments; 3: the server or a process is not there; 130:
interrupted. `--write` keeps the figures in docs/history.json, and renews the tables of docs/history.md.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import redis

from app.settings import STRATEGY_NAMES, layout_of
from app.state import StateError
from bench.history_judge import Judgement, judge
from bench.history_load import Events, Indexes, Job, count, handled, histories, reads_done
from bench.kit import ROOT, Evidence, OneLineParser, days, interrupts_raise, parse_names
from docs.pages.fromruns import table
from lab.errors import CLAIM_FAILED, HOLDS, INTERRUPTED, STACK_BROKE, LabError, StackError
from lab.server.processes import Child, free_port, stop_all, uninterrupted
from lab.server.servers import SERVERS

SWITCH = "switch"
TURNS = tuple(name for name in STRATEGY_NAMES if layout_of(name) != "plain")
STRATEGIES = (*TURNS, SWITCH)
"""All strategies that promise anything: `ttl` serves what is old by intention."""
PAUSE_S, FAULT_S, TURN_S = (0.5, 1.5), (0.5, 2.5), (0.1, 0.5)
"""Between two faults, how long one lasts, and between two changes of the settings."""
STEP_S, READY_S = 0.02, 20.0
OPERATIONS_MAX = 100_000_000
LOAD = (sys.executable, "-m", "bench.history_load")


class FaultScene:
    """The processes of a history: a server, the invalidator and readers, which can be made to fail."""

    def __init__(self, job: Job, program: Sequence[str]) -> None:
        self._job, self._program = job, program
        self.server, self.invalidator = self._start_server(), self._load("invalidator")
        self.readers: list[Child] = []
        self.started = 0

    def _start_server(self) -> Child:
        folder = Path(self._job.folder)
        row, port = SERVERS[self._job.server], int(self._job.url.rpartition(":")[2].removesuffix("/0"))
        server = Child("server", row.command(port, str(folder)), folder / "server.log", cwd=folder)
        end = time.monotonic() + READY_S
        while True:
            try:
                with self.admin() as admin:
                    admin.ping()
                return server
            except redis.RedisError:
                if time.monotonic() > end or not server.alive():
                    server.stop()
                    raise StackError(f"{self._job.server} does not answer: {server.last_words()}") from None
                time.sleep(STEP_S)

    def _load(self, *words: str) -> Child:
        folder = Path(self._job.folder)
        command = [*self._program, words[0], str(folder), *words[1:]]
        return Child(words[0], command, folder / f"{words[0]}.log", cwd=ROOT)

    def admin(self) -> redis.Redis:
        """A connection to the server. Its timeout is longer than any fault."""
        return redis.Redis.from_url(self._job.url, protocol=2, socket_timeout=30, socket_connect_timeout=30)

    def add_reader(self) -> None:
        """Start a reader, with a number that no other has."""
        self.readers.append(self._load("reader", str(self.started)))
        self.started += 1

    def check(self) -> None:
        """Raise `StackError` if a process has ended by itself."""
        for child in (self.server, self.invalidator, *self.readers):
            child.check()

    def kill(self, child: Child) -> None:
        """End a process at once (SIGKILL)."""
        child.process.kill()
        child.stop()

    def restart_server(self, number: int, pause_s: float) -> None:
        """End the server by a signal, and start it again after a pause. All entries are gone."""
        os.killpg(self.server.pid, number)
        self.server.process.wait(READY_S)
        time.sleep(pause_s)
        self.server = self._start_server()

    def end(self) -> None:
        """End all processes."""
        os.kill(self.server.pid, signal.SIGCONT)
        stop_all([*self.readers, self.invalidator, self.server])


def server_killed(scene: FaultScene, seconds: float) -> None:
    """SIGKILL to the server, which is away for a while."""
    scene.restart_server(signal.SIGKILL, seconds)


def server_restarted(scene: FaultScene, _: float) -> None:
    """SIGTERM to the server, and a new start at once."""
    scene.restart_server(signal.SIGTERM, 0.0)


def server_frozen(scene: FaultScene, seconds: float) -> None:
    """SIGSTOP to the server, for longer than its clients wait, or shorter; it then carries out what it was sent."""
    scene.server.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    scene.server.process.send_signal(signal.SIGCONT)


def connections_cut(scene: FaultScene, seconds: float) -> None:
    """The server closes all connections, again and again: clients do not learn what was carried out."""
    end = time.monotonic() + seconds
    with scene.admin() as admin:
        while time.monotonic() < end:
            admin.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.05)


def invalidator_killed(scene: FaultScene, _: float) -> None:
    """SIGKILL to the invalidator, which needs about a second to start."""
    scene.kill(scene.invalidator)
    scene.invalidator = scene.invalidator.start_again()


def reader_killed(scene: FaultScene, _: float) -> None:
    """SIGKILL to a reader, with all that it is about to put; another takes its place."""
    scene.kill(scene.readers.pop(0))
    scene.add_reader()


FAULTS: dict[str, Callable[[FaultScene, float], None]] = {
    "server killed": server_killed,
    "server restarted": server_restarted,
    "server frozen": server_frozen,
    "connections cut": connections_cut,
    "invalidator killed": invalidator_killed,
    "reader killed": reader_killed,
}


class Chaos:
    """Lets parts fail, and changes the settings, at random moments. Main thread only."""

    def __init__(self, job: Job, scene: FaultScene) -> None:
        self._job, self._scene, self._state = job, scene, job.state()
        self._chance = random.Random(f"{job.seed} chaos")
        self.faults: Counter[str] = Counter()
        self.turns = 0
        self._next: dict[Sequence[str], list[str]] = {}
        self._fault_at = time.monotonic() + self._chance.uniform(*PAUSE_S)
        self._turn_at = time.monotonic() + self._chance.uniform(*TURN_S)

    def step(self) -> None:
        """Do what is due. Raises `StackError` if a process has ended by itself."""
        self._scene.check()
        if time.monotonic() >= self._fault_at:
            name = self._choose(tuple(FAULTS))
            FAULTS[name](self._scene, self._chance.uniform(*FAULT_S))
            self.faults[name] += 1
            self._fault_at = time.monotonic() + self._chance.uniform(*PAUSE_S)
        if time.monotonic() >= self._turn_at:
            self._turn()
            self._turn_at = time.monotonic() + self._chance.uniform(*TURN_S)

    def _choose(self, names: Sequence[str]) -> str:
        """The next of the names, each once before one comes again."""
        if not self._next.get(names):
            self._next[names] = self._chance.sample(names, len(names))
        return self._next[names].pop()

    def _turn(self) -> None:
        """Change the strategy, or COUNT only: both give up what is under way, and have it done again."""
        switch = self._job.strategy == SWITCH
        chosen = self._choose(TURNS) if switch else self._job.strategy
        change = {"strategy": chosen, "scan_count": self._chance.randrange(100, 2000)}
        self._state.set_invalidation(change, late=switch and self._chance.random() < 0.5)
        self.turns += 1

    def end(self) -> None:
        """Close the state."""
        self._state.close()


class History(NamedTuple):
    """The history of one strategy: its figures and its judgement."""

    figures: dict[str, Any]
    found: Judgement


def record(job: Job, readers: int, program: Sequence[str] = LOAD) -> History:
    """Make the history of a job with so many reader processes, and judge it.

    It ends when its reads are done, `job.handlings` events were carried out since they began, and every fault came.
    `program`: the command of the processes. Raises `StackError` if one ends too soon, redis-py's error or `StateError`.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    job.save()
    state = job.state()
    state.init_invalidation(TURNS[0] if job.strategy == SWITCH else job.strategy, 1000)
    state.close()
    began = time.monotonic()
    scene = FaultScene(job, program)
    events, indexes, chaos = Events(job), Indexes(job), Chaos(job, scene)
    events.begin()
    indexes.begin()
    try:
        while not events.first.wait(STEP_S):
            scene.check()
        handled_target = handled(job) + job.handlings
        for _ in range(readers):
            scene.add_reader()
        while reads_done(job) < job.reads or handled(job) < handled_target or len(chaos.faults) < len(FAULTS):
            chaos.step()
            time.sleep(STEP_S)
        events.stop(job.patience_s)
        while events.under_way():
            scene.check()
            time.sleep(STEP_S)
        indexes.end()
    finally:
        with uninterrupted():
            events.stop(0)
            events.end()
            indexes.end()
            chaos.end()
            scene.end()
    if indexes.error is not None:
        raise indexes.error
    found = judge(histories(job, events.sent), job.ttl_s)
    for key in sorted(indexes.lost):
        found.accuse("lost index entry", f"{key}: no index names it")
    sent = [event for own in events.sent.values() for event in own]
    figures = {
        "strategy": job.strategy,
        **count(job),
        "events": sum(event.number is not None for event in sent),
        "faults": sum(chaos.faults.values()),
        "turns": chaos.turns,
        "looked": indexes.looked,
        "seconds": round(time.monotonic() - began, 1),
        "ttl_s": job.ttl_s,
    }
    return History(figures, found)


def line(history: History) -> str:
    """A history in one line."""
    figures, found = history
    wrong = ", ".join(f"{number} {kind}" for kind, number in found.accused.items() if number)
    raced = f"race: {found.raced:,} reads of {found.late:,} values, for {found.longest_s:.2f} s at most"
    return (
        f"{figures['strategy']:<12} {wrong or 'nothing accused'}; "
        f"{figures['reads']:,} reads ({figures['hits']:,} hits), "
        f"{figures['events']:,} events, {figures['faults']} faults, {figures['turns']} turns, "
        f"{figures['failed']} failed; {raced} [{figures['seconds']:.0f} s]"
    )


COUNTED = ("reads", "hits", "puts", "events", "faults", "turns")


def accused_table(records: dict[str, Any]) -> str:
    """A row for each strategy on each server: what it did, and what is accused."""
    rows = list(records.values())
    kinds = list(rows[0]["accused"])
    summary = (
        f"{len(rows)} histories with {sum(row['reads'] for row in rows):,} reads and "
        f"{sum(row['events'] for row in rows):,} events; "
        f"{sum(sum(row['accused'].values()) for row in rows):,} accused. {days(rows)}"
    )
    shown = [
        [row["server"], f"`{row['strategy']}`"]
        + [f"{row[name]:,}" for name in COUNTED]
        + [f"{row['accused'][kind]:,}" for kind in kinds]
        for row in rows
    ]
    heads = ["server", "strategy", *COUNTED, *kinds]
    found = [
        f"- `{row['strategy']}` on {row['server']}, {kind}: {example}"
        for row in rows
        for kind, examples in row["examples"].items()
        for example in examples
    ]
    return "\n\n".join(
        [summary, table(heads, shown, range(2, len(heads))), *(["\n".join(found)] if found else [])]
    )


def races_table(records: dict[str, Any]) -> str:
    """A row for each strategy on each server: how often the race of cache-aside was lost, and for how long."""
    shown = [
        [
            row["server"],
            f"`{row['strategy']}`",
            f"{row['puts']:,}",
            f"{row['late']:,}",
            f"{1e4 * row['late'] / row['puts']:.1f}" if row["puts"] else "",
            f"{row['raced']:,}",
            f"{row['longest_s']:.2f}",
            f"{row['ttl_s']:g}",
        ]
        for row in records.values()
    ]
    heads = ["server", "strategy", "puts", "raced", "in 10,000 puts", "reads served", "longest, s", "TTL, s"]
    return table(heads, shown, range(2, len(heads)))


EVIDENCE = Evidence(
    "docs/history.json", {"docs/history.md": {"histories": accused_table, "races": races_table}}
)


def _operations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= OPERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {OPERATIONS_MAX:,}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = OneLineParser(
        prog="bench.history", description="Is an event lost, or an old value served, while parts fail?"
    )
    parser.add_argument(
        "--operations", type=_operations, default=100_000, metavar="N",
        help="reads for each strategy; puts and events come on top (100000)",
    )  # fmt: skip
    parser.add_argument("--server", choices=list(SERVERS), default="embedded", help="(embedded)")
    parser.add_argument(
        "--strategies", type=lambda text: parse_names(text, list(STRATEGIES), "strategy"), default=list(STRATEGIES),
        metavar="NAME,...", help=f"{', '.join(STRATEGIES)} (all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, help="of what is read, sent and done to parts; not of the times (1)"
    )
    parser.add_argument("--write", action="store_true", help="keep the figures, and renew the page's tables")
    options = parser.parse_args(arguments)
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
    SERVERS[options.server].require()
    print(
        f"{len(options.strategies)} strategies, {options.operations:,} reads each, {readers} reader processes",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="history-", ignore_cleanup_errors=True) as folder:
        for strategy in options.strategies:
            job = Job(
                folder=str(Path(folder) / strategy),
                url=f"redis://127.0.0.1:{free_port()}/0",
                server=options.server,
                strategy=strategy,
                prefix=f"history-{secrets.token_hex(4)}",
                reads=options.operations,
                seed=options.seed,
            )
            history = record(job, readers)
            found = history.found
            wrong += not found.clean
            print(line(history), flush=True)
            for kind, examples in found.examples.items():
                for example in examples:
                    print(f"  {kind}: {example}", flush=True)
            if options.write:
                shown = {"raced": found.raced, "late": found.late, "longest_s": round(found.longest_s, 2)}
                EVIDENCE.keep(
                    f"{options.server} {strategy}", "bench.history", server=options.server, **history.figures,
                    accused=found.accused, examples=dict(found.examples), **shown,
                )  # fmt: skip
    print(f"{wrong} of {len(options.strategies)} histories show something wrong")
    return CLAIM_FAILED if wrong else HOLDS


if __name__ == "__main__":
    interrupts_raise()
    sys.exit(main())

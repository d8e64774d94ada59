"""The processes that carry the load: this one alone, or the workers of a master.

A master gives every worker that has users its slot of the one schedule, so that N workers together ask for
exactly the asked rate, evenly: each takes every N-th turn. (Reads and events are shared out separately: Locust may
well give all users of one kind to the same worker, and with three workers it does.) It sends all dials to the workers
whenever one changes, and again twice a second. That alone takes in workers that join, leave or come back.

The master asks the workers for their results at the moment these are wanted. Reports every few seconds, like Locust's
own, would be out of date by as much. What a worker did after its last report is lost when it dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from time import time
from typing import Any, Protocol

import gevent  # type: ignore[import-untyped] # no type information in the package
from gevent.event import Event  # type: ignore[import-untyped] # the same
from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped] # the same
from locust.exception import RPCError
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from loadtest.customers.load import EVENTS_NAME, READS_NAME, Load, Result, Tally
from loadtest.customers.metrics import Counts
from loadtest.customers.pacing import Slot

TELL, ASK, REPORT = "lab-tell", "lab-ask", "lab-report"
TELL_EVERY_S = 0.5
ANSWER_S = 1.0
NO_SLOT = Slot(0, 0, 0.0)


class Team(Protocol):
    """The processes that carry the load, seen from the web UI."""

    def results(self) -> dict[str, Result]:
        """The results of all requests since the last reset."""
        ...

    def counts(self) -> dict[str, Counts]:
        """The counts of all requests since the beginning."""
        ...

    def reset(self) -> None:
        """Start the results again from nothing."""
        ...


class Alone:
    """This process carries the whole load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        for pace in (load.reads, load.events):
            gevent.spawn(pace.run)

    def results(self) -> dict[str, Result]:
        """See `Team`."""
        return self._load.results()

    def counts(self) -> dict[str, Counts]:
        """See `Team`."""
        return self._load.counts_now()

    def reset(self) -> None:
        """See `Team`."""
        self._load.reset()


class Master:
    """Lets its workers carry the load, and adds up their results."""

    def __init__(self, load: Load, runner: MasterRunner, carriers: Mapping[str, str]) -> None:
        """`carriers`: kind of request → name of the user class that asks for it."""
        self._load = load
        self._runner = runner
        self._carriers = carriers
        self._origin = time()
        self._epoch = 0  # counts the resets
        self._ticket = 0  # counts the questions
        self._awaited: set[str] = set()
        self._answered = Event()
        self._asking = BoundedSemaphore()
        self._reports: dict[str, Mapping[str, Any]] = {}
        runner.register_message(REPORT, self._receive_report)
        load.on_change = self._tell
        gevent.spawn(self._keep_telling)

    def results(self) -> dict[str, Result]:
        """See `Team`. Takes as long as the slowest worker's answer, a second at most."""
        self._ask()
        sums = {kind: Result(Tally()) for kind in (READS_NAME, EVENTS_NAME)}
        for report in list(self._reports.values()):
            if report["epoch"] == self._epoch:
                for kind, result in sums.items():
                    result.tally.include(report["results"][kind])
                    result.missed += report["results"][kind]["missed"]
                    result.due += report["results"][kind]["due"]
        return sums

    def counts(self) -> dict[str, Counts]:
        """See `Team`. Includes workers that are gone."""
        self._ask()
        sums = {kind: Counts() for kind in (READS_NAME, EVENTS_NAME)}
        for report in list(self._reports.values()):
            for kind in sums:
                sums[kind] = sums[kind].plus(Counts(**report["counts"][kind]))
        return sums

    def reset(self) -> None:
        """See `Team`."""
        self._epoch += 1
        self._load.reset()
        self._tell()

    def _keep_telling(self) -> None:
        while True:
            self._tell()
            gevent.sleep(TELL_EVERY_S)

    def _tell(self) -> None:
        clients = list(self._runner.clients.all)
        able = {
            kind: sorted(
                client.id
                for client in clients
                if client.state in (STATE_SPAWNING, STATE_RUNNING) and client.user_classes_count.get(carrier)
            )
            for kind, carrier in self._carriers.items()
        }
        for name in [client.id for client in clients]:
            slots = {
                kind: asdict(Slot(names.index(name), len(names), self._origin) if name in names else NO_SLOT)
                for kind, names in able.items()
            }
            self._send(TELL, {"dials": self._load.dials(), "slots": slots, "epoch": self._epoch}, name)

    def _ask(self) -> None:
        with self._asking:
            self._ticket += 1
            self._answered.clear()
            self._awaited = {client.id for client in self._runner.clients.all if client.state != "missing"}
            for name in list(self._awaited):
                self._send(ASK, {"ticket": self._ticket}, name)
            if self._awaited:
                self._answered.wait(timeout=ANSWER_S)

    def _send(self, kind: str, data: dict[str, Any], name: str) -> None:
        try:
            self._runner.send_message(kind, data, client_id=name)
        except RPCError:  # Locust repairs the connection, and the master sends the same again later
            self._awaited.discard(name)

    def _receive_report(self, environment: object, msg: Any) -> None:
        self._reports[msg.node_id] = msg.data
        if msg.data["ticket"] == self._ticket:
            self._awaited.discard(msg.node_id)
            if not self._awaited:
                self._answered.set()


class Worker:
    """Carries its part of the load, with users of its own, as its master says; before that it requests nothing."""

    def __init__(self, load: Load, runner: WorkerRunner) -> None:
        self._load = load
        self._runner = runner
        self._epoch = 0
        load.reads.slot = load.events.slot = NO_SLOT
        runner.register_message(TELL, self._follow)
        runner.register_message(ASK, self._report)
        for pace in (load.reads, load.events):
            gevent.spawn(pace.run)

    def _follow(self, environment: object, msg: Any) -> None:
        self._load.follow(msg.data["dials"], {kind: Slot(**slot) for kind, slot in msg.data["slots"].items()})
        if msg.data["epoch"] != self._epoch:
            self._epoch = msg.data["epoch"]
            self._load.reset()

    def _report(self, environment: object, msg: Any) -> None:
        results = {
            kind: {**result.tally.as_dict(), "missed": result.missed, "due": result.due}
            for kind, result in self._load.results().items()
        }
        counts = {kind: asdict(counts) for kind, counts in self._load.counts_now().items()}
        self._runner.send_message(
            REPORT,
            {"ticket": msg.data["ticket"], "epoch": self._epoch, "results": results, "counts": counts},
        )

"""The processes that carry the load: this one alone, or the workers of a master.

A master gives every worker that has users its slot of the one schedule, so that N workers together ask for
exactly the asked rate, evenly: each takes every N-th turn. It sends all dials and slots to the workers whenever a dial
changes, and again four times a second; each worker answers. That alone takes in workers that join, leave, come back or
die (`shares` has the arithmetic).

The master asks the workers for their results at the moment these are wanted. Reports every few seconds, like Locust's
own, would be out of date by as much. What a worker did after its last report is lost when it dies.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Any, Protocol

import gevent  # type: ignore[import-untyped] # no type information in the package
from gevent.event import Event  # type: ignore[import-untyped] # the same
from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped] # the same
from locust.dispatch import UsersDispatcher
from locust.exception import RPCError
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from loadtest.customers.load import EVENTS_NAME, READS_NAME, Load, Result, Tally
from loadtest.customers.metrics import Counts
from loadtest.customers.pacing import Slot
from loadtest.customers.shares import LEASE_S, TELL_EVERY_S, MastersClock, Share, Shares

TELL, HEARD, ASK, REPORT = "lab-tell", "lab-heard", "lab-ask", "lab-report"
ANSWER_S = 1.0
logger = logging.getLogger(__name__)
AT_WORK = (STATE_SPAWNING, STATE_RUNNING)


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


class EveryKind(UsersDispatcher):
    """Gives each worker users of every kind, so that no kind of request is lost with one worker.

    Locust deals users of all kinds round, one to a worker: with three workers and three users in turn, one worker would
    get all who order.
    """

    def _user_gen(self) -> Iterator[str | None]:
        for user in super()._user_gen():
            yield from itertools.repeat(user, max(1, len(self._worker_nodes)))


def share_users_out(runner: MasterRunner) -> None:
    """Have Locust share its users out over all workers, again whenever a worker is lost or joins."""
    environment = runner.environment
    environment.dispatcher_class = EveryKind
    if environment.parsed_options is not None:
        environment.parsed_options.enable_rebalancing = True
    # Locust's master reads no message while it waits for the users of a worker that joined, for a second by default:
    # all workers would seem lost.
    os.environ.setdefault("LOCUST_WAIT_FOR_WORKERS_REPORT_AFTER_RAMP_UP", "0.2")


class Master:
    """Lets its workers carry the load, and adds up their results."""

    def __init__(self, load: Load, runner: MasterRunner, carriers: Mapping[str, str]) -> None:
        """`carriers`: kind of request → name of the user class that asks for it."""
        self._load = load
        self._runner = runner
        self._carriers = carriers
        self._shares = Shares()
        self._origin = monotonic()
        self._epoch = 0  # counts the resets
        self._ticket = 0  # counts the questions
        self._awaited: set[str] = set()
        self._answered = Event()
        self._asking = BoundedSemaphore()
        self._reports: dict[str, Mapping[str, Any]] = {}
        runner.register_message(HEARD, self._receive_answer)
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
            began = monotonic()
            self._tell()
            gevent.sleep(TELL_EVERY_S)
            self._shares.excuse(monotonic() - began - TELL_EVERY_S)

    def _tell(self) -> None:
        now, clients = monotonic(), list(self._runner.clients.all)
        present = {client.id for client in clients if self._shares.answers(client.id, now)}
        able = {
            kind: sorted(
                client.id
                for client in clients
                if client.id in present and client.state in AT_WORK and client.user_classes_count.get(carrier)
            )
            for kind, carrier in self._carriers.items()
        }
        rates = {READS_NAME: self._load.reads.per_second, EVENTS_NAME: self._load.events.per_second}
        for name in self._shares.lose(present, rates, now):
            logger.warning("%s is gone, or does not answer: the others have its turns from now on", name)
        shares = self._shares.deal(able, rates)
        for name in [client.id for client in clients]:
            told = {
                "now": now,
                "origin": self._origin,
                "dials": self._load.dials(),
                "shares": {kind: asdict(each.get(name, Share())) for kind, each in shares.items()},
                "losses": self._shares.losses(name),
                "epoch": self._epoch,
            }
            self._send(TELL, told, name)

    def _ask(self) -> None:
        with self._asking:
            self._ticket += 1
            self._answered.clear()
            now = monotonic()
            self._awaited = {
                client.id for client in self._runner.clients.all if self._shares.answers(client.id, now)
            }
            for name in list(self._awaited):
                self._send(ASK, {"ticket": self._ticket}, name)
            if self._awaited:
                self._answered.wait(timeout=ANSWER_S)

    def _send(self, kind: str, data: dict[str, Any], name: str) -> None:
        try:
            self._runner.send_message(kind, data, client_id=name)
        except RPCError:  # Locust repairs the connection, and the master sends the same again later
            self._awaited.discard(name)

    def _receive_answer(self, environment: object, msg: Any) -> None:
        self._shares.heard(msg.node_id, msg.data["told"])

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
        self._clock = MastersClock()
        self._epoch = 0
        self._losses = 0
        for pace in (load.reads, load.events):
            pace.take(Slot(0, 0, 0.0), pace.per_second, 0.0, 0.0)
        runner.register_message(TELL, self._follow)
        runner.register_message(ASK, self._report)
        for pace in (load.reads, load.events):
            gevent.spawn(pace.run)

    def _follow(self, environment: object, msg: Any) -> None:
        told = msg.data
        # Counted from when the message was sent: one that waited in a stopped process comes with an old lease.
        since = told["now"] + self._clock.compare(monotonic(), told["now"])
        origin = told["origin"] + self._clock.steady()
        shares = {kind: Share(**share) for kind, share in told["shares"].items()}
        slots = {kind: Slot(share.index, share.of, origin) for kind, share in shares.items()}
        afresh, self._losses = told["losses"] != self._losses, told["losses"]
        self._load.follow(told["dials"], slots, since, since + LEASE_S, afresh=afresh)
        for kind, pace in ((READS_NAME, self._load.reads), (EVENTS_NAME, self._load.events)):
            pace.owe(shares[kind].owed)
        if told["epoch"] != self._epoch:
            self._epoch = told["epoch"]
            self._load.reset()
        with suppress(RPCError):  # Locust repairs the connection; without an answer the lease ends
            self._runner.send_message(HEARD, {"told": told["now"]})

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

"""A blind session: brings the scene up, measures it while healthy, begins the cause, shows the figures of users."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from lab.blind import diagnostics, levers, page, reveal, sizing
from lab.blind.cause import CURE, FIND, LEVELS, MORE_THAN_ONE, Cause, Complaint, Level, orders_of
from lab.blind.checking import Baseline, CureCheck, pace
from lab.blind.journal import LEVER, Journal
from lab.blind.judging import AnswerJudgement, judge
from lab.blind.observer import Observer
from lab.blind.prices import CHANGES, INDEX
from lab.blind.readings import RESTLESS_GET_MS, Readings, SessionSample, UserFigures, compute_readings
from lab.blind.scene import EVENTS_PER_S, PROBES_PER_S, BlindStack, SessionScene
from lab.blind.session_folders import remember
from lab.blind.session_socket import SERVER_URL, SessionSocket
from lab.errors import StackError, UsageError
from lab.scenarios.model import ProbeSpec
from lab.server import inside
from lab.server.processes import uninterrupted

POPULATION = sizing.KEYS // 20
LULL_S, HEALTHY_S, SETTLE_S, TICK_S = 1.0, 5.0, 5.0, 5.0
HEALTHY_SAMPLES = 6
"""The most healthy samples that are taken until one is undisturbed."""
STRONGER = 2.0
FILL_S = 60.0
HISTORY_ROWS = 120
REVEALED_SAMPLES = 12
"""The latest samples, as the reveal reports on them; those before the first lever decide whether a cure was needed."""
NEEDED_SAMPLES = 2
"""Samples with a symptom before the first lever from which a cure was needed; the machine may cause a single one."""
Print = Callable[[str], None]


def healthy_figures(measure: Callable[[], UserFigures], least: int = 1) -> UserFigures:
    """Return the healthy figures of users: the medians of `least` samples without those that the machine disturbed.

    If the machine disturbed all of them, more are taken, and the best one counts. A disturbed sample would make the
    healthy value too high for any cause to stand out.
    """
    samples = [measure() for _ in range(least)]
    while min(each.get_ms for each in samples) > RESTLESS_GET_MS and len(samples) < HEALTHY_SAMPLES:
        samples.append(measure())
    calm = [each for each in samples if each.get_ms <= RESTLESS_GET_MS]
    if not calm:
        return min(samples, key=lambda sample: sample.get_ms)
    return UserFigures(
        statistics.median(each.page_ms for each in calm),
        statistics.median(each.get_ms for each in calm),
        statistics.median(each.oldest_s for each in calm),
    )


class Session:
    """A blind session. `sealed` is False for an exercise whose cause is known; only the texts differ then.

    `causes` has one cause, or two that are at work together; `seed` is the number that chose them, None without one.
    `lab.blind` describes how the session hides them from the participant.
    """

    def __init__(
        self,
        causes: Sequence[Cause],
        seed: int | None,
        minutes: float,
        folder: Path,
        print_line: Print,
        announced: str = "",
        sealed: bool = True,
        make: Callable[[Path], SessionScene] = BlindStack,
        task: str = FIND,
        level: Level = LEVELS[1],
    ) -> None:
        self.causes = tuple(causes)
        self.seed = seed
        self.sealed = sealed
        self.folder = folder
        self.healthy = UserFigures(0.0, 0.0, 0.0)
        self.begun_at = 0.0
        self.page: Path | None = None
        self._make = make
        self._minutes = minutes
        self._print = print_line
        self._announced = announced or complaint(self.causes).text
        self._level = level
        self._strength = 1.0
        self._settings: dict[str, str] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._samples_before = 0
        self._task = task
        self._levers: levers.Levers | None = None
        self._pulled: levers.Pull | None = None
        self._check: CureCheck | None = None
        self._outcome_text = ""
        self._samples_until: int | None = None

    def run(self) -> None:
        """Run the session to its end, and end all its processes, also after an error. Raises `LabError`."""
        # The socket comes first, because two sessions at once would disturb each other.
        socket = SessionSocket(self.folder.parent, self.reply)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.journal = Journal(
                self.causes, self.folder / "notes.txt", self._judge_answer, task=self._task
            )
            self.stack = self._make(self.folder)
            try:
                self._play()
            finally:
                with uninterrupted():
                    self._ended.set()
                    if self._levers:
                        self._levers.close()
                    with suppress(StackError):  # the session ends, whatever the server says
                        self.stack.server.restore(self._settings)
                    self.stack.down()
                    shutil.rmtree(self.folder / "state", ignore_errors=True)
        finally:
            socket.close()

    def _play(self) -> None:
        stack = self.stack
        stack.up(self._print)
        self._settings = stack.server.settings(["*"])
        self._print(f"filling {sizing.KEYS:,} entries")
        self.measured = self._measure()
        self._configure_server()
        self._print("measuring what users see while all is well")
        probe = stack.start_probe(ProbeSpec("main"), PROBES_PER_S)
        self.observer = Observer(stack, probe)
        try:
            stack.locust.load(sizing.READS_PER_S, EVENTS_PER_S, POPULATION)
            threading.Thread(target=self._change_prices, daemon=True).start()
            self._wait(LULL_S)
            self.observer.take_sample()
            self.healthy = healthy_figures(self._measure_users, stack.healthy_samples)
            self.measured = replace(self.measured, healthy=self.healthy)
            self._begin()
            self._announce()
            self._watch()
        finally:
            self.observer.close()

    def _measure_users(self) -> UserFigures:
        self._wait(HEALTHY_S)
        return self.observer.take_sample().user_figures

    def _measure(self) -> sizing.Measurements:
        stack = self.stack
        stack.web.warm(sizing.KEYS, restart=False, seconds=FILL_S, check=stack.check)
        keys = stack.server.snapshot().keys
        pings = sorted(stack.server.ping_us())
        full_scan_us = stack.server.scan_cost_us(sizing.PATTERN, 1000, 0.3)
        return sizing.Measurements(
            ping_us=pings[len(pings) // 2],
            key_us=full_scan_us / keys,
            keys=keys,
            core=stack.core,
            cores=os.cpu_count() or 1,
        )

    def _configure_server(self) -> None:
        """Send all programs their healthy orders, and configure the server; the same for every cause."""
        stack = self.stack
        for name, order in sizing.HEALTHY_ORDERS.items():
            stack.order(name, order)
        client: Any = redis.Redis.from_url(stack.server.url, protocol=2, driver_info=None)
        end = time.monotonic() + FILL_S
        while client.scard(INDEX) < sizing.MEMBERS:
            stack.check()
            if time.monotonic() > end:
                raise StackError(f"the prices are not cached after {FILL_S:g} s. Try again.")
            time.sleep(0.05)
        client.close()
        stack.limit_memory(sizing.HEADROOM_MB * 1_000_000)
        stack.server.configure_slowlog(self.measured.slow_us)

    def _change_prices(self) -> None:
        client: Any = redis.Redis.from_url(self.stack.server.url, protocol=2, driver_info=None)
        while not self._ended.wait(self.measured.change_every_s):
            try:
                client.rpush(CHANGES, time.time())
                self.observer.changes_put += 1
            except redis.RedisError:
                self.observer.changes_refused += 1
        client.close()

    def _begin(self) -> None:
        """Begin the cause; if its complaint is not true yet, begin it once more, `STRONGER` times as strong.

        The cause `nothing` takes as long as a cause that shows at once, so the time does not reveal it.
        """
        self._print("something happens")
        self._samples_before = len(self.observer.samples)
        self.begun_at = self.journal.began = time.time()
        for _ in range(2):
            orders = orders_of(self.causes, self.measured, self._strength)
            self._levers = levers.Levers(self.stack, orders)
            for name, order in orders.items():
                if order != sizing.HEALTHY_ORDERS[name]:
                    self.stack.order(name, order)
            self._wait(SETTLE_S)
            self.observer.take_sample()
            if complaint(self.causes).is_true_in(self.readings(1)):
                self._wait(SETTLE_S)
                self.observer.take_sample()
                return
            self._strength *= STRONGER

    def readings(self, newest: int = REVEALED_SAMPLES) -> Readings:
        """Return readings over the newest samples since the cause began and before the first lever was pulled."""
        samples = list(self.observer.samples)[: self._samples_until]
        first = max(self._samples_before, len(samples) - newest)
        return compute_readings(samples[first - 1], samples[first:], self.healthy, self.measured.cores)

    def _judge_answer(self, cause: Cause, evidence: str) -> AnswerJudgement:
        present = [other.id for other in self.causes if other is not cause]
        return judge(cause, evidence, self._readings_by_sample(), self.readings(), present)

    def _readings_by_sample(self) -> list[Readings]:
        """Return the readings of each sample since the cause began and before the first lever was pulled."""
        samples = list(self.observer.samples)[: self._samples_until]
        return [
            compute_readings(samples[at - 1], [samples[at]], self.healthy, self.measured.cores)
            for at in range(self._samples_before, len(samples))
        ]

    def _announce(self) -> None:
        print_line = self._print
        print_line("")
        print_line(self._announced)
        print_line("")
        for name, address in self.stack.shown().items():
            print_line(f"  {name:<26}  {address}")
        print_line("")
        print_line(self._healthy_line())
        cure = "cure | " if self._task == CURE else ""
        verbs = f"note | hint | answer | {cure}reveal"
        print_line(f"In a second terminal: {inside.typed()} look | probe, {inside.typed()} blind {verbs}.")
        print_line("Ctrl-C here ends everything.")
        print_line("")

    def _healthy_line(self) -> str:
        if not self._level.figures:
            return "Healthy values are not shown at this level. Measure your own baseline first."
        return (
            f"When all was well: p99 of a page {self.healthy.page_ms:.1f} ms, of a bystander's GET "
            f"{self.healthy.get_ms:.1f} ms, the oldest price change {self.healthy.oldest_s:.1f} s."
        )

    def _watch(self) -> None:
        end = time.monotonic() + 60 * self._minutes
        while not self._ended.is_set() and time.monotonic() < end:
            self._wait(min(TICK_S, max(0.1, end - time.monotonic())))
            if not self._ended.is_set():
                self._report_users()
        if not self._ended.is_set():
            self._print("the time is up.")
            self._print(self._reveal())

    def _report_users(self) -> None:
        """Print the newest figures of users, or that a part does not answer in time: a participant may overload it."""
        try:
            self._print(users_line(self.observer.take_sample()))
            self._run_check()
        except StackError as error:
            self.stack.check()
            self._print(f"{datetime.now():%H:%M:%S}  {error}")

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._ended.is_set() and (left := end - time.monotonic()) > 0:
            self.stack.check()
            self._ended.wait(min(0.25, left))

    def reply(self, request: dict[str, Any]) -> str:
        """Return the reply to a request from the second terminal. Raises `LabError`."""
        verb = request["verb"]
        if verb == SERVER_URL:
            self._require_begun()
            return str(self.stack.server.url)
        if verb == "look":
            self._require_begun()
            name = str(request.get("name", ""))
            if request["what"] == "ping" and not self._level.pings:
                raise UsageError(
                    "at this level there is no look ping: measure it yourself, as the guide shows."
                )
            return diagnostics.raw_reading(
                str(request["what"]), self.stack, self._users_text, name, self._history_text
            )
        with self._lock:
            self._require_begun()
            if self._ended.is_set():
                raise UsageError("the session has ended.")
            if verb == "note":
                return self.journal.note(str(request["text"]), str(request.get("hypothesis", "")))
            if verb == "hint":
                return self.journal.hint()
            if verb == "answer":
                return self.journal.answer(str(request["cause"]), str(request["evidence"]))
            if verb == "cure":
                return self._pull(levers.parse([str(word) for word in request["words"]]))
            if verb == "checked":
                return self._outcome_text
            if verb == "reveal":
                text = self._reveal()
                self._print(
                    f"Revealed in the second terminal: it was {self._names(' and ')}. The scene is taken down."
                )
                return text
        raise ValueError(verb)

    def _pull(self, pull: levers.Pull) -> str:
        """Pull a lever and begin its check; a check that is under way ends without an outcome."""
        assert self._levers is not None
        if self._task != CURE:
            raise UsageError(
                "this session asks for the cause only. Another one: bin/lab blind start --task cure."
            )
        if self.journal.cured:
            raise UsageError(
                f"the scene is cured already, by {self.journal.cured.lever}: bin/lab blind reveal."
            )
        at, baseline, needed = time.time(), self._baseline(), self._cure_was_needed()
        text = self._levers.pull(pull)
        self._samples_until = self._samples_until or len(self.observer.samples)
        self.journal.write(LEVER, pull.text)
        self._pulled, self._outcome_text = pull, ""
        self._check = CureCheck(pull.text, at, baseline, needed)
        return text

    def _baseline(self) -> Baseline:
        """Return the healthy figures that the check of a lever compares with, from the samples while all was well."""
        healthy_samples = list(self.observer.samples)[: self._samples_before]
        return Baseline(
            self.healthy,
            self.measured.cores,
            *pace(healthy_samples[0], healthy_samples[1:]),
            is_shown=self._level.figures,
        )

    def _cure_was_needed(self) -> bool:
        """Return whether users had a symptom in some of the samples before the first lever was pulled."""
        latest = self._readings_by_sample()[-REVEALED_SAMPLES:]
        return sum(each.symptom for each in latest) >= min(NEEDED_SAMPLES, len(latest))

    def _run_check(self) -> None:
        """Judge the newest sample by the check that is under way, and print its outcome if there is one."""
        with self._lock:
            if not (self._check and self._levers and self._pulled):
                return
            outcome = self._check.add(*list(self.observer.samples)[-2:])
            if outcome is None:
                return
            self._check = None
            if not outcome.cured:
                outcome = replace(outcome, text=outcome.text + self._levers.came_back(self._pulled))
            self._outcome_text = self.journal.add_outcome(outcome)
            self._print(self._outcome_text)

    def _require_begun(self) -> None:
        if not self.begun_at or len(self.observer.samples) <= self._samples_before:
            raise UsageError("the session is still starting: wait until its terminal lists the addresses.")

    def _users_text(self) -> str:
        samples = list(self.observer.samples)[self._samples_before :]
        return "\n".join([*(users_line(sample) for sample in samples[-20:]), self._healthy_line()])

    def _history_text(self) -> str:
        rows = []
        samples = list(self.observer.samples)
        for before, sample in pairwise(
            samples if self._level.figures else samples[self._samples_before - 1 :]
        ):
            now = compute_readings(before, [sample], self.healthy, self.measured.cores)
            rows.append(
                (
                    f"{datetime.fromtimestamp(sample.at):%H:%M:%S}", f"{now.seconds:.0f}",
                    f"{sample.page_ms:.1f}", f"{sample.get_ms:.1f}", sample.gets.total, f"{sample.oldest_s:.1f}",
                    f"{now.busy:.0%}", f"{now.evicted_per_s:,.0f}", f"{now.memory:.0%}",
                )
            )  # fmt: skip
        headings = (
            "at", "over s", "page p99 ms", "GET p99 ms", "GETs", "oldest change s", "main thread", "evicted/s",
            "memory of its limit",
        )  # fmt: skip
        note = "before, all was well" if self._level.figures else "at this level nothing before it is shown"
        began = f"The cause began at {datetime.fromtimestamp(self.begun_at):%H:%M:%S}; {note}.\n"
        return began + diagnostics.table(headings, rows[-HISTORY_ROWS:])

    def _reveal(self) -> str:
        now = self.readings()
        samples = self.timed_samples()
        facts = page.SessionFacts(
            self.causes, self.sealed, self.seed, self.begun_at, self.healthy, now, samples, self.journal
        )
        self.page = page.write(facts, self.folder / "page.html")
        if self.sealed:
            remember(self.folder.parent, self._names("+"))
        self._ended.set()
        return "\n".join([*reveal.lines(facts), f"page: {inside.as_seen(self.page)}"])

    def _names(self, between: str) -> str:
        return between.join(cause.id for cause in self.causes)

    def timed_samples(self) -> list[tuple[float, SessionSample]]:
        """Return every sample with its seconds since the cause began (negative: while all was well)."""
        samples = list(self.observer.samples)
        began = samples[self._samples_before - 1].at if self._samples_before else samples[0].at
        return [(sample.at - began, sample) for sample in samples]


def complaint(causes: Sequence[Cause]) -> Complaint:
    """Return the complaint of users while these causes are at work."""
    return causes[0].story if len(causes) == 1 else MORE_THAN_ONE


def users_line(sample: SessionSample) -> str:
    """Return the figures of users in one sample as a line."""
    return (
        f"{datetime.fromtimestamp(sample.at):%H:%M:%S}  p99 of a page {sample.page_ms:7.1f} ms   "
        f"of a bystander's GET {sample.get_ms:7.1f} ms   "
        f"oldest price change {sample.oldest_s:5.1f} s"
    )

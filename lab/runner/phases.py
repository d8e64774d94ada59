"""Walks a scenario's phases on a stack and fills a run folder."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from lab.claims.planned import keys_are_judged, keys_tolerance
from lab.claims.validity import FEWEST_EVENTS, why_lost
from lab.errors import StackError
from lab.results.folder import Mark, PhaseRecord, Run, RunFacts, RunWriter
from lab.results.schema import PlannedPhase
from lab.runner.calibration import Calibrator
from lab.runner.loads import LoadFigures, RunningLoad, arguments_of, await_abandoned, figure_of
from lab.runner.recorder import Recorder, SampleRow
from lab.runner.repetition import Repetition
from lab.scenarios.model import Pace, Phase, ProbeSpec, Scenario
from lab.server.http import Metrics, bucket_quantile
from lab.server.server_stats import Snapshot
from lab.stacks.base import LOAD_PREFIX, Probe, Stack

FILL_S = 600.0
SHORTEST_SAMPLE_S = 0.8
READY_S = 10.0
"""Seconds for probes to find a restarted server (if they do not, the run ends), and for loads to get under way."""
OTHERS_S = 0.5
"""Seconds for which other clients' GETs are counted before the run sends any."""
LOAD_S = 1800.0
"""Timeout for a load that ends by itself, seconds. No load of the catalogue takes this long at full pace."""
ABANDONED_S = 60.0
"""Seconds that a phase waits for the searches of an ended load."""
REPLIES_S = 60.0
"""Seconds that a phase waits at its end for the replies to its probes' requests."""
TAKEN = 0.01
"""Largest share of the filled entries that events may have removed when a phase begins."""
MAIN = ProbeSpec("main")


def too_many_to_begin(phase: Phase, planned: int, keys: int) -> bool:
    """Return True if an attempt would begin with more than half of the surplus keys that a phase may have.

    The previous attempt's reads added them. A server with few keys gains them quickly, so unless it is emptied every
    further attempt would have more keys than planned, and fail.
    """
    judged = keys_are_judged(planned, phase.strategy, bool(phase.loads))
    return judged and keys > planned + keys_tolerance(planned) / 2


def most_others(plan: Iterable[PlannedPhase]) -> float:
    """Return the most foreign keys with which a run may begin, by its smallest judged phase; infinite without one."""
    counted = [p.keys for p in plan if keys_are_judged(p.keys, p.strategy, bool(p.loads))]
    return keys_tolerance(min(counted)) / 2 if counted else math.inf


def too_few_to_begin(phase: Phase, filled: int, taken: float) -> bool:
    """Return True if events may have removed more than `TAKEN` of the filled entries. `taken`: an upper bound of these.

    An event removes a customer's entries until they are read again. Two phases are compared at the same keys, so
    each must begin with all of them, also after the events of a prediction.
    """
    judged = keys_are_judged(filled, phase.strategy, bool(phase.loads))
    return judged and taken > TAKEN * filled


class Display(Protocol):
    """A display of progress."""

    def say(self, text: str) -> None: ...
    def phase(self, number: int, total: int, phase: Phase, seconds: float) -> None: ...
    def row(self, row: SampleRow) -> None: ...
    def finished(self, record: PhaseRecord, p99_ms: dict[str, float | None]) -> None: ...
    def lost(self, why: str) -> None: ...


@dataclass
class _Counters:
    """All counters at one moment."""

    server: Snapshot
    metrics: Metrics


class Conductor:
    """The conductor of a run. `run` writes the facts of all finished phases, also when it is interrupted."""

    def __init__(
        self,
        scenario: Scenario,
        pace: Pace,
        stack: Stack,
        writer: RunWriter,
        facts: RunFacts,
        display: Display,
    ) -> None:
        self._scenario = scenario
        self._pace = pace
        self._stack = stack
        self._writer = writer
        self._facts = facts
        self._display = display
        self._recorder = Recorder(stack, writer, display.row)
        self._population = max(1, facts.keys // scenario.fragments_per_user)
        self._calibrator = Calibrator(stack, scenario, self._population, self._pause, self._drain)
        self._loads: list[RunningLoad] = []
        self._abandoned = False  # loads have ended, and the server may still execute their commands
        self._filled = 0  # entries of the last fill
        self._finished = 0.0  # events until then
        self._probed: tuple[float, list[str]] | None = (
            None  # the moment from which these probes must have no errors
        )

    def run(self) -> None:
        """Calibrate, then walk the phases. Raises `StackError` when the stack breaks."""
        try:
            self._run()
        except StackError:
            self._stack.check()  # a process that died explains a missing answer better
            raise
        finally:
            self._recorder.stop()
            self._writer.facts(self._facts)

    def _run(self) -> None:
        recorder, facts = self._recorder, self._facts
        recorder.start()
        facts.load["others_gets_per_second"] = self._gets_of_others()
        main = self._stack.start_probe(MAIN, self._scenario.probe_per_second)
        recorder.follow("main", main)
        if self._scenario.knee_at is None:
            facts.calibration = {"ping_floor_us": statistics.median(self._stack.server.ping_us())}
        else:
            self._calibrate(self._scenario.knee_at)
        repetition = Repetition(self._pace.attempts, self._pace.repeats * self._pace.plateau_s)
        phases, lost = self._scenario.phases, ""
        for number, phase in enumerate(phases, start=1):
            record, discarded = repetition.measure(
                partial(self._walk, number, len(phases), phase), self._not_fair
            )
            facts.discarded += discarded
            facts.phases.append(record)
            self._writer.facts(facts)
            if not lost and (lost := why_lost(Run(self._writer.folder), record)):
                self._display.lost(lost)
                repetition = Repetition(1, 0.0)  # a run without a verdict needs no repetition

    def _not_fair(self, record: PhaseRecord) -> None:
        self._display.say(f"  that was not fair, and is measured again: {', '.join(record.unfair)}")

    def _gets_of_others(self) -> float:
        """Return the GETs a second before the run sends any: of the scene's own probe, other programs or the warmer."""
        before = self._stack.server.snapshot()
        self._pause(OTHERS_S)
        after = self._stack.server.snapshot()
        calls = [snapshot.commands.get("GET", (0.0, 0.0))[0] for snapshot in (before, after)]
        return (calls[1] - calls[0]) / (after.at - before.at)

    def _calibrate(self, knee_at: float) -> None:
        facts = self._facts
        self._recorder.phase = "calibration"
        self._display.say("calibrating: idle server")
        window = max(2.0, min(self._pace.plateau_s, 6.0))
        found = self._calibrator.calibrate(round(knee_at * facts.keys), window, self._display.say)
        facts.calibration = found.as_dict()
        facts.load["events_per_second"] = found.events_per_second * self._scenario.load_share
        self._display.say(
            f"calibrated: {found.events_per_second:.1f} events a second saturate the server at "
            f"{found.planned_knee_keys:,.0f} keys"
        )
        self._empty("calibration ends", self._scenario.phases[0].shards)

    def _predict(self) -> float:
        window = max(SHORTEST_SAMPLE_S, min(self._pace.plateau_s / 4, 4.0))
        return self._calibrator.predict(self._facts.load["events_per_second"], window)

    def _events_of(self, phase: Phase) -> float:
        """Return the events a second that the phase offers."""
        load, source = self._facts.load["events_per_second"], phase.events_from
        return (figure_of(phase, source, self._figures()) if source else load) * phase.events

    def _figures(self) -> dict[str, LoadFigures]:
        return {record.id: record.figures for record in self._facts.phases}

    def _events(self, per_second: float) -> None:
        self._stack.locust.load(self._scenario.reads_per_second, per_second, self._population)

    def _drain(self) -> None:
        """Wait until no event is under way, so that a plateau's latencies are not those of the previous one.

        (Filling in keys during searches would take minutes on a saturated server.)
        """
        end = time.monotonic() + FILL_S
        while True:
            seen = self._stack.observe()
            if seen.pending + seen.in_flight == 0:
                return
            if time.monotonic() > end:
                raise StackError(
                    f"{seen.in_flight:.0f} events are in flight after {FILL_S:g} s without a new one."
                )
            self._pause(0.05)

    def _walk(self, number: int, total: int, phase: Phase, attempt: int) -> PhaseRecord:
        """Prepare the phase (strategy, keys, no event under way) and measure it."""
        stack, recorder = self._stack, self._recorder
        full = self._events_of(phase)
        seconds = self._pace.plateau_s * phase.weight
        if full:  # where events are few the plateau lasts until it has seen enough of them
            seconds = max(seconds, (FEWEST_EVENTS + 2) / full * min(1.0, phase.weight))
        self._display.phase(number, total, phase, seconds)
        recorder.phase, recorder.attempt, recorder.strategy = phase.id, attempt, phase.strategy
        extra = [
            (spec, stack.start_probe(spec, self._scenario.probe_per_second))
            for spec in phase.probes
            if stack.has_replica or not spec.replica
        ]
        for spec, probe in extra:
            recorder.follow(spec.name, probe)
        self._events(0.0)
        self._drain()
        if self._abandoned:
            await_abandoned(stack.server.snapshot, self._pause, ABANDONED_S)
            self._abandoned = False
        planned = round(phase.keys * self._facts.keys)
        surplus = attempt > 1 and too_many_to_begin(phase, planned, stack.server.snapshot().keys)
        if phase.empty or surplus:
            self._empty("restart" if stack.owns_server else "emptied", phase.shards)
        before = self._facts.phases[-1].strategy if self._facts.phases else ""
        if attempt == 1 and before != phase.strategy:
            self._note("switch", f"strategy {phase.strategy}")
        stack.web.use(phase.strategy, phase.scan_count or self._scenario.scan_count)
        self._fill(phase, planned, restart=phase.empty or surplus)
        forecasts = []
        if phase.predict:
            forecasts.append(self._predict())
            self._fill(phase, planned)
        before_events = self._calibrator.mark() if forecasts else None
        self._start_loads(phase, seconds, self_terminating=False)
        self._events(full)
        self._pause(self._pace.settle_s)
        end = time.monotonic() + READY_S
        names = ["main", *(spec.name for spec, _ in extra)]
        while (
            not (
                all(recorder.without_errors(name) for name in names)
                and all(load.begun for load in self._loads)
            )
            and time.monotonic() < end
        ):
            self._pause(0.05)
        record, p99 = self._measure(phase, seconds, extra)
        record.events["asked_per_s"] = full
        if before_events:
            cost = self._calibrator.event_cost(before_events, self._calibrator.mark())
            record.events["server_s"] = max(0.0, cost)
            record.forecasts = [*forecasts, self._predict()]
        for _, probe in extra:
            stack.forget(probe)
        self._display.finished(record, p99)
        return record

    def _measure(
        self, phase: Phase, seconds: float, extra: list[tuple[ProbeSpec, Probe]]
    ) -> tuple[PhaseRecord, dict[str, float | None]]:
        stack, recorder = self._stack, self._recorder
        names = ["main", *(spec.name for spec, _ in extra)]
        cpu = stack.meter()
        cpu.sample()
        stack.locust.reset()
        before = self._mark()
        self._probed = before.server.at, names
        self._start_loads(phase, seconds, self_terminating=True)
        if not self._await_ending(phase):
            end = before.server.at + seconds
            while (left := end - time.time()) > 0:
                self._pause(min(left, 0.25))
        tallies = stack.locust.tallies()
        shares, machine = cpu.sample()
        after = self._mark()
        figures = self._end_loads()
        self._events(0.0)
        self._await_replies(names, after.server.at)
        self._probed = None
        record = self._record(phase, before, after, tallies, shares, machine, names)
        counted = after.server.figures
        record.figures = {
            **{name: counted[name] - value for name, value in before.server.figures.items()},
            **figures,
        }
        return record, {name: recorder.p99_ms(name, record.t0, record.t1) for name in names}

    def _await_replies(self, probes: list[str], t1: float) -> None:
        """Wait for the replies to all requests of the probes that were due in the phase, which ended at `t1`.

        Raises `StackError` if they do not come: without them the phase's p99 would lack its longest waits.
        """
        end = time.monotonic() + REPLIES_S
        while late := [name for name in probes if not self._recorder.answered_until(name, t1)]:
            if time.monotonic() > end:
                raise StackError(f"probe {late[0]} has waited {REPLIES_S:g} s for a reply.")
            self._pause(0.05)

    def _start_loads(self, phase: Phase, seconds: float, self_terminating: bool) -> None:
        facts = self._facts
        values: dict[str, object] = {
            "keys": round(phase.keys * facts.keys),
            "seed": facts.seed,
            "seconds": seconds,
            "prefix": LOAD_PREFIX,
            "storefront": self._stack.key_prefix,
            "web": self._stack.web_url,
            "users": self._population,
            "beyond": self._population + 1,
            "each": self._scenario.fragments_per_user,
            **self._pace.sizes,
            **self._figures(),
        }
        for spec in [spec for spec in phase.loads if spec.self_terminating is self_terminating]:
            process = self._stack.start_load(spec, arguments_of(spec, values))
            self._loads.append(RunningLoad(spec, process, self._recorder.keep))
            if spec.cpu_bound and f"load-{spec.name}" not in facts.cpu_bound:
                facts.cpu_bound.append(f"load-{spec.name}")

    def _await_ending(self, phase: Phase) -> bool:
        """Wait for the loads that end by themselves. Returns True if there are any."""
        ending = [load for load in self._loads if load.spec.self_terminating]
        end = time.monotonic() + LOAD_S
        while not all(load.over for load in ending):
            if time.monotonic() > end:
                raise StackError(f"the loads of {phase.title} do not end within {LOAD_S:g} s.")
            self._pause(0.05)
        return bool(ending)

    def _end_loads(self) -> dict[str, float]:
        """End the phase's loads. Returns the figures of all in one dictionary; their names differ by the scenario."""
        figures: dict[str, float] = {}
        self._abandoned = bool(self._loads)
        for load in self._loads:
            self._stack.end_load(load.process)
            figures |= load.figures()
        self._loads.clear()
        return figures

    def _mark(self) -> _Counters:
        return _Counters(self._stack.server.snapshot(), self._stack.observe())

    def _record(
        self,
        phase: Phase,
        before: _Counters,
        after: _Counters,
        tallies: dict[str, Any],
        shares: dict[str, float],
        machine: dict[str, float],
        probes: list[str],
    ) -> PhaseRecord:
        t0, t1 = before.server.at, after.server.at
        utilisation = None
        if before.server.main_thread_s is not None and after.server.main_thread_s is not None:
            utilisation = (after.server.main_thread_s - before.server.main_thread_s) / (t1 - t0)
        active = None
        if before.server.active_s is not None and after.server.active_s is not None:
            active = (after.server.active_s - before.server.active_s) / (t1 - t0)
        commands = {}
        for name, (calls, usec) in after.server.commands.items():
            old_calls, old_usec = before.server.commands.get(name, (0.0, 0.0))
            if calls > old_calls:
                # The counters may have been reset (CONFIG RESETSTAT): there is no time below 0.
                commands[name] = {"calls": calls - old_calls, "usec": max(0.0, usec - old_usec)}
        covered = float(tallies["seconds"])  # almost, not exactly, the length of the phase
        # An open loop's load is what it sent in time; a request that still waits for its answer at the end was sent.
        events = tallies["events"]
        sent = events["due"] - events["missed"] - events["failures"]
        p99 = bucket_quantile(before.metrics.get_buckets, after.metrics.get_buckets, 0.99)
        return PhaseRecord(
            id=phase.id,
            arm=phase.arm,
            title=phase.title,
            strategy=phase.strategy,
            t0=t0,
            t1=t1,
            keys=(before.server.keys + after.server.keys) / 2,
            commands=commands,
            utilisation=utilisation,
            active=active,
            events={
                "offered_per_s": sent / covered,
                "finished_per_s": (after.metrics.finished - before.metrics.finished) / (t1 - t0),
                "in_flight_end": after.metrics.in_flight,
                "failures": float(events["failures"] + tallies["reads"]["failures"]),
                "due_per_s": events["due"] / covered,
            },
            slowlog=self._recorder.slow_since(t0),
            client_p99_ms={"app": p99 * 1000 if p99 else None, "locust": tallies["reads"]["p99_ms"]},
            probes={name: self._recorder.probed(name, t0, t1) for name in probes},
            machine=machine,
            processes=shares,
            memory_mb=self._stack.memory_mb(),
            params=dict(phase.params),
        )

    def _empty(self, why: str, shards: int) -> None:
        # Set the warmer's target to 0 first: else it would fill the emptied server.
        self._stack.web.warm(0, restart=False, seconds=FILL_S, check=self._check)
        self._note("restart", why)
        self._stack.empty(shards)
        self._filled = 0

    def _fill(self, phase: Phase, planned: int, restart: bool = False) -> None:
        """Fill in the missing ones of the planned entries. `restart`: begin at the first one in any case."""
        finished = self._stack.observe().finished
        taken = (finished - self._finished) * self._scenario.fragments_per_user
        again = restart or too_few_to_begin(phase, min(planned, self._filled), taken)
        if again or not self._filled:
            self._finished = finished
        self._stack.web.warm(planned, restart=again, seconds=FILL_S, check=self._check)
        self._filled = planned

    def _note(self, kind: str, text: str) -> None:
        self._facts.marks.append(Mark(time.time(), kind, text))

    def _pause(self, seconds: float) -> None:
        """Sleep; raise within a quarter of a second when something breaks."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.25))
            self._check()

    def _check(self) -> None:
        self._stack.check()
        for load in self._loads:
            load.check()
            if load.over and not load.spec.self_terminating:
                raise StackError(f"load {load.spec.name} ended before its phase did.")
        self._recorder.raise_if_broken()
        since, names = self._probed or (0.0, [])
        for name in names:
            if text := self._recorder.first_error(name, since):
                raise StackError(f"probe {name} failed during the measurement: {text}.")

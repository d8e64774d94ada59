"""Complete synthetic run folders of `key-growth` and `control`, healthy or doctored, without a server.

    run = build_run(tmp_path / "run")                                # every claim holds, every check is ok
    run = build_run(tmp_path / "run", cause="index")                 # a control: every claim is refuted
    run = build_run(tmp_path / "run", p99_ms={"grow-8": 3.0})        # main probe, by phase id or by arm
    run = build_run(tmp_path / "run", p99_ms={"turns:pool": 500.0})   # a second probe, PHASE:PROBE
    run = build_run(tmp_path / "run", slowlog=["GET"])               # one more entry of the slow log
    run = build_run(tmp_path / "run", filling=["SET"])               # one entry between two plateaus
    run = build_run(tmp_path / "run", said=[{"t": 1.0}])             # a line of loads.jsonl
    run = build_run(tmp_path / "run", without=["restart"])           # phases (or arms) never measured
    run = build_run(tmp_path / "run", doctor=change)                 # change(facts: RunFacts) before writing
    run = build_run(tmp_path / "run", judged=True)                   # result.json too

The numbers behave as on a real server: work grows with keys × events, waiting with the demand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.results.folder import Mark, PhaseRecord, Run, RunFacts, RunWriter
from lab.scenarios import control, key_growth
from lab.scenarios.model import Phase
from tests.lab.synthetic import INTERVAL_S, PROBES_PER_S, START, encode, facts_of, heavy_tail

PLATEAU_S, SETTLE_S, FILL_S = 3.0, 0.5, 1.0
READS_PER_S, EVENTS_PER_S = 40.0, 16.7
US_PER_KEY, IDLE = 0.105, 0.012
PLANNED_KNEE = (1 - IDLE) / (EVENTS_PER_S * 3 * US_PER_KEY * 1e-6)

Doctor = Callable[[RunFacts], None]


def build_run(
    folder: Path,
    cause: str = "scan",
    *,
    keys: int = 200_000,
    p99_ms: Mapping[str, float] | None = None,
    slowlog: Iterable[str] = (),
    filling: Iterable[str] = (),
    without: Iterable[str] = (),
    said: Iterable[dict[str, Any]] = (),
    doctor: Doctor | None = None,
    judged: bool = False,
    seed: int = 7,
) -> Run:
    """Write a run folder and read it back. `cause`: the strategy before the fix; ``index`` makes a control."""
    folder.mkdir(parents=True, exist_ok=True)
    world = _World(folder, cause, keys, dict(p99_ms or {}), set(without), np.random.default_rng(seed))
    world.live()
    for command in slowlog:
        world.writer.slow(world.facts.phases[-1].t0 + 1, command, 12_345)
    for command in filling:
        world.writer.slow(world.facts.phases[2].t0 - 0.9, command, 12_345)
    for line in said:
        world.writer.load(world.facts.phases[0].id, "any", line)
    if doctor:
        doctor(world.facts)
    world.writer.facts(world.facts)
    world.writer.close()
    run = Run(folder)
    if judged:
        from lab.claims.verdict import write_result
        from lab.runner.judging import reach

        write_result(run, reach(run))
    return run


class _World:
    """The clock, the server's state and the writer of one synthetic run."""

    def __init__(
        self,
        folder: Path,
        cause: str,
        keys: int,
        p99_ms: dict[str, float],
        without: set[str],
        rng: np.random.Generator,
    ) -> None:
        scenario = control.SCENARIO if cause == "index" else key_growth.SCENARIO
        self.writer = RunWriter(folder)
        self.rng = rng
        self.t = START
        self._cause = cause
        self._keys = keys
        self._p99_ms = p99_ms
        self._without = without
        self._rows_due = START
        self.facts = facts_of(scenario, keys, EVENTS_PER_S)
        self.facts.calibration |= {
            "base_utilisation": IDLE,
            "keys": 94_000,
            "cost_alone_us_per_key": 0.099,
            "cost_us_per_key": US_PER_KEY,
            "events_per_second": EVENTS_PER_S,
            "planned_knee_keys": PLANNED_KNEE,
            "seconds": 5.9,
        }

    def live(self) -> None:
        """Calibrate, then go through the scenario's phases."""
        self._stretch("calibration", "", self._keys * 0.47, 6.0, 0.4, 0.3)
        self._mark("restart", "calibration ends")
        before = ""
        held = 0.0
        for phase in key_growth.phases(self._cause):
            if {phase.id, phase.arm} & self._without:
                continue
            if phase.empty:
                self._mark("restart", "restart")
                self.t += 0.6  # the server does not answer
                held = 0.0
            if phase.strategy != before:
                self._mark("switch", f"strategy {phase.strategy}")
                before = phase.strategy
            target = phase.keys * self._keys * 0.995
            p99 = self._p99(phase)
            self._stretch(
                phase.id, phase.strategy, (held + target) / 2, FILL_S, p99, self._demand(phase, 0.5)
            )
            self._stretch(phase.id, phase.strategy, target, SETTLE_S, p99, self._demand(phase))
            self.facts.phases.append(self._measure(phase, target, p99))
            held = target

    def _demand(self, phase: Phase, share: float = 1.0) -> float:
        """Return the demand of the arriving commands on the main thread, as a share of it."""
        if phase.strategy != "scan":
            return IDLE + 0.01
        return IDLE + EVENTS_PER_S * 3 * phase.keys * self._keys * share * US_PER_KEY * 1e-6

    def _p99(self, phase: Phase) -> float:
        """Return the bystanders' p99 (ms): the doctored one, if the test gave one."""
        for name in (phase.id, phase.arm):
            if name in self._p99_ms:
                return self._p99_ms[name]
        if phase.strategy != "scan":
            return 1.08 if len(self.facts.phases) % 2 else 0.92
        event_ms = 3 * phase.keys * self._keys * US_PER_KEY / 1000
        backlog_ms = max(0.0, self._demand(phase) - 0.9) * PLATEAU_S * 1000 * 0.6
        return 0.8 + 1.05 * event_ms + backlog_ms

    def _measure(self, phase: Phase, keys: float, p99: float) -> PhaseRecord:
        t0, seconds = self.t, PLATEAU_S * phase.weight
        demand = self._demand(phase)
        probes = {}
        at = self.t
        for spec in phase.probes:
            self.t = at
            self._probe(spec.name, seconds, self._p99_ms.get(f"{phase.id}:{spec.name}", p99 * 1.03))
            probes[spec.name] = _probe_counts(seconds)
        self.t = at
        self._stretch(phase.id, phase.strategy, keys, seconds, p99, demand)
        probes["main"] = _probe_counts(seconds)
        calls = {name: rate * seconds for name, rate in self._rates(phase.strategy, demand).items()}
        cost = self._costs(keys)
        slow: dict[str, dict[str, float]] = {}
        if phase.strategy == "scan" and cost["SCAN"] > self.facts.slowlog_threshold_us:
            slow["SCAN"] = {"count": calls["SCAN"], "max_us": cost["SCAN"] * 1.4}
            for _ in range(round(calls["SCAN"])):
                self.writer.slow(math.ceil(t0), "SCAN", round(cost["SCAN"] * self.rng.uniform(1.0, 1.4)))
        return PhaseRecord(
            id=phase.id,
            arm=phase.arm,
            title=phase.title,
            strategy=phase.strategy,
            t0=t0,
            t1=self.t,
            keys=keys,
            commands={name: {"calls": n, "usec": n * cost[name]} for name, n in calls.items() if n},
            utilisation=min(0.985, demand),
            forecasts=[demand * 0.96, demand * 1.04] if phase.predict else [],
            events={
                "asked_per_s": EVENTS_PER_S,
                "offered_per_s": EVENTS_PER_S,
                "finished_per_s": EVENTS_PER_S / max(1.0, demand),
                "in_flight_end": max(0.0, demand - 1) * EVENTS_PER_S * seconds,
                "failures": 0.0,
            },
            slowlog=slow,
            client_p99_ms={"app": p99 * 1.1 + 1.2, "locust": p99 * 1.25 + 8.0},
            probes=probes,
            machine={"busy": 0.2 + min(1.0, demand), "steal": 0.0, "others": 0.05},
            processes={
                "store": min(0.985, demand), "web": 0.07, "invalidator": 0.03, "warmer": 0.006, "locust": 0.04,
                "lab": 0.03, "probe-main": 0.02,
            },
            memory_mb={
                "store": 8 + keys * 2.4e-4, "web": 104.0, "invalidator": 60.0, "warmer": 51.0, "locust": 58.0,
                "lab": 120.0, "probe-main": 17.7,
            },
        )  # fmt: skip

    def _rates(self, strategy: str, demand: float) -> dict[str, float]:
        """Calls a second of each command."""
        done = EVENTS_PER_S / max(1.0, demand)
        rates = {
            "GET": PROBES_PER_S + READS_PER_S,
            "SET": 38.0,
            "SADD": 38.0,
            "EXEC": 38.0,
            "UNLINK": done,
            "INFO": 6.0,
        }
        return rates | ({"SCAN": 3 * done} if strategy == "scan" else {"SSCAN": 6 * done, "SREM": done})

    @staticmethod
    def _costs(keys: float) -> dict[str, float]:
        """Mean execution time of each command, µs."""
        fixed = {
            "GET": 1.8,
            "SET": 6.6,
            "SADD": 4.6,
            "EXEC": 18.0,
            "UNLINK": 7.0,
            "INFO": 23.0,
            "SSCAN": 3.1,
            "SREM": 2.2,
        }
        return fixed | {"SCAN": keys * US_PER_KEY}

    def _stretch(
        self, phase: str, strategy: str, keys: float, seconds: float, p99: float, demand: float
    ) -> None:
        """Let time pass: write the main probe's intervals, and a row of samples for each second."""
        end = self.t + seconds
        self._probe("main", seconds, p99)
        while self._rows_due <= end:
            self.writer.sample(self._row(self._rows_due, phase, strategy, keys, p99, demand))
            self._rows_due += 1.0
        self.t = end

    def _probe(self, name: str, seconds: float, p99: float) -> None:
        count = round(seconds / INTERVAL_S)
        at = self.t
        for values in heavy_tail(self.rng, p99, count, round(PROBES_PER_S * INTERVAL_S)):
            at += INTERVAL_S
            self.writer.probe(
                name,
                {
                    "t": at,
                    "interval_s": INTERVAL_S,
                    "max_us": float(values.max()),
                    "intended": encode(values),
                    "service": encode(values * 0.97),
                },
            )

    def _row(
        self, t: float, phase: str, strategy: str, keys: float, p99: float, demand: float
    ) -> dict[str, float | str | None]:
        row: dict[str, float | str | None] = {"t": t, "phase": phase, "strategy": strategy, "keys": keys}
        row |= {
            "probe_p50_ms": p99 / 7,
            "probe_p99_ms": p99,
            "app_p99_ms": p99 * 1.1,
            "utilisation": min(0.985, demand),
        }
        rates, costs = self._rates(strategy or "scan", demand), self._costs(keys)
        for command in ("GET", "SET", "UNLINK", "SCAN", "KEYS", "SSCAN"):
            rate = rates.get(command, 0.0)
            row[f"{command.lower()}_per_s"] = rate
            row[f"{command.lower()}_exec_us"] = costs[command] if rate else None
        row |= {
            "events_finished_per_s": EVENTS_PER_S / max(1.0, demand),
            "events_in_flight": 0.0,
            "events_pending": 0.0,
        }
        row |= {"memory_mb": 8 + keys * 2.4e-4, "clients": 9.0}
        row |= {f"cpu_{name}": 0.04 for name in ("store", "web", "invalidator", "locust", "probe", "lab")}
        row |= {"machine_busy": 0.3, "machine_steal": 0.0, "machine_others": 0.05}
        return row

    def _mark(self, kind: str, text: str) -> None:
        self.facts.marks.append(Mark(self.t, kind, text))


def _probe_counts(seconds: float) -> dict[str, float]:
    sent = PROBES_PER_S * seconds
    return {
        "sent": sent,
        "received": sent,
        "errors": 0.0,
        "lag_p99_us": 300.0,
        "rate": PROBES_PER_S,
        "stalled_s": 0.0,
    }

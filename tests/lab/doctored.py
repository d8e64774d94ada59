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

The numbers behave as on a real server: work grows with keys × events, waiting with the demand. They are put into a
`tests.lab.plain.Plain`, which writes the folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.results.folder import Mark, PhaseRecord, Run, RunFacts
from lab.scenarios import control, key_growth
from tests.lab.plain import GAP_S, Plain
from tests.lab.synthetic import PROBES_PER_S, START

READS_PER_S, EVENTS_PER_S = 40.0, 16.7
US_PER_KEY, IDLE = 0.105, 0.012
PLANNED_KNEE = (1 - IDLE) / (EVENTS_PER_S * 3 * US_PER_KEY * 1e-6)
CALIBRATION_S = 6.0
"""Seconds of the calibration before the first phase."""

Doctor = Callable[[RunFacts], object]


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
) -> Run:
    """Write a run folder and read it back. `cause`: the strategy before the fix; ``index`` makes a control."""
    world = _World(cause, keys, dict(p99_ms or {}), set(without))
    plain, phases = world.plain, world.plain.facts.phases
    plain.slow_at += [(phases[-1].t0 + 1, command, 12_345) for command in slowlog]
    plain.slow_at += [(phases[2].t0 - 0.9, command, 12_345) for command in filling]
    plain.lines += [{**line, "phase": phases[0].id, "load": "any"} for line in said]
    run = plain.write(folder, doctor)
    if judged:
        from lab.claims.verdict import write_result
        from lab.runner.judging import reach

        write_result(run, reach(run))
    return run


class _World:
    """The server's state in one synthetic run. `plain` is the run, with the figures that such a server would give."""

    def __init__(self, cause: str, keys: int, p99_ms: dict[str, float], without: set[str]) -> None:
        scenario = control.SCENARIO if cause == "index" else key_growth.SCENARIO
        self.plain = Plain(scenario, keys)
        self._keys, self._doctored = keys, p99_ms
        facts = self.plain.facts
        facts.load["events_per_second"] = EVENTS_PER_S
        facts.calibration |= {
            "base_utilisation": IDLE,
            "keys": 94_000,
            "cost_alone_us_per_key": 0.099,
            "cost_us_per_key": US_PER_KEY,
            "events_per_second": EVENTS_PER_S,
            "planned_knee_keys": PLANNED_KNEE,
            "seconds": 5.9,
        }
        facts.phases[:] = [phase for phase in facts.phases if not {phase.id, phase.arm} & without]
        planned = {phase.id: phase for phase in scenario.phases}
        self._pass("calibration", "", START - CALIBRATION_S, CALIBRATION_S, keys * 0.47, 0.4, 0.3)
        self._mark(START, "restart", "calibration ends")
        before, held = "", 0.0
        for number, phase in enumerate(facts.phases):
            began = phase.t0 - GAP_S
            if planned[phase.id].empty:
                self._mark(began, "restart", "restart")
                began, held = phase.t0, 0.0  # until then the server does not answer
            if phase.strategy != before:
                self._mark(began, "switch", f"strategy {phase.strategy}")
                before = phase.strategy
            phase.keys = planned[phase.id].keys * keys * 0.995
            p99, demand = self._p99(phase, number), self._demand(phase.strategy, phase.keys)
            filling = (held + phase.keys) / 2
            if began < phase.t0:
                self._pass(phase.id, phase.strategy, began, GAP_S, filling, p99, demand / 2)
            self._rows(phase.id, phase.strategy, phase.t0, phase.seconds, phase.keys, p99, demand)
            self._measure(phase, p99, demand, planned[phase.id].predict)
            held = phase.keys

    def _demand(self, strategy: str, keys: float) -> float:
        """Return the demand of the arriving commands on the main thread, as a share of it."""
        return IDLE + (EVENTS_PER_S * 3 * keys * US_PER_KEY * 1e-6 if strategy == "scan" else 0.01)

    def _p99(self, phase: PhaseRecord, number: int) -> float:
        """Return the bystanders' p99 (ms): the doctored one, if the test gave one."""
        for name in (phase.id, phase.arm):
            if name in self._doctored:
                return self._doctored[name]
        if phase.strategy != "scan":
            return 1.08 if number % 2 else 0.92
        event_ms = 3 * phase.keys * US_PER_KEY / 1000
        backlog_ms = max(0.0, self._demand("scan", phase.keys) - 0.9) * 3.0 * 1000 * 0.6
        return 0.8 + 1.05 * event_ms + backlog_ms

    def _measure(self, phase: PhaseRecord, p99: float, demand: float, predicted: bool) -> None:
        """Put into the phase what was measured of it."""
        for probe in phase.probes:
            name = phase.id if probe == "main" else f"{phase.id}:{probe}"
            self.plain.p99_ms[name] = p99 if probe == "main" else self._doctored.get(name, p99 * 1.03)
            phase.probes[probe] = {**phase.probes[probe], "stalled_s": 0.0, "rate": PROBES_PER_S}
        calls = {name: rate * phase.seconds for name, rate in _rates(phase.strategy, demand).items()}
        cost = _costs(phase.keys)
        if phase.strategy == "scan" and cost["SCAN"] > self.plain.facts.slowlog_threshold_us:
            phase.slowlog["SCAN"] = {"count": calls["SCAN"], "max_us": cost["SCAN"] * 1.4}
            entries = round(calls["SCAN"])
            self.plain.slow_at += [
                (math.ceil(phase.t0), "SCAN", round(cost["SCAN"] * (1 + 0.4 * entry / entries)))
                for entry in range(entries)
            ]
        phase.commands = {name: {"calls": n, "usec": n * cost[name]} for name, n in calls.items() if n}
        phase.utilisation = min(0.985, demand)
        phase.forecasts = [demand * 0.96, demand * 1.04] if predicted else []
        phase.events = {
            "asked_per_s": EVENTS_PER_S,
            "offered_per_s": EVENTS_PER_S,
            "finished_per_s": EVENTS_PER_S / max(1.0, demand),
            "in_flight_end": max(0.0, demand - 1) * EVENTS_PER_S * phase.seconds,
            "failures": 0.0,
        }
        phase.client_p99_ms = {"app": p99 * 1.1 + 1.2, "locust": p99 * 1.25 + 8.0}
        phase.machine = {"busy": 0.2 + min(1.0, demand), "steal": 0.0, "others": 0.05}
        phase.processes = {
            "store": min(0.985, demand), "web": 0.07, "invalidator": 0.03, "warmer": 0.006, "locust": 0.04,
            "lab": 0.03, "probe-main": 0.02,
        }  # fmt: skip
        phase.memory_mb = {
            "store": 8 + phase.keys * 2.4e-4, "web": 104.0, "invalidator": 60.0, "warmer": 51.0, "locust": 58.0,
            "lab": 120.0, "probe-main": 17.7,
        }  # fmt: skip

    def _pass(
        self, phase: str, strategy: str, at: float, seconds: float, keys: float, p99: float, demand: float
    ) -> None:
        """Let time pass outside the phases."""
        self.plain.between.append((at, seconds, p99))
        self._rows(phase, strategy, at, seconds, keys, p99, demand)

    def _rows(
        self, phase: str, strategy: str, at: float, seconds: float, keys: float, p99: float, demand: float
    ) -> None:
        """Add a row of samples.csv for each whole second of this time."""
        rates, costs = _rates(strategy or "scan", demand), _costs(keys)
        for second in range(math.ceil(at), math.ceil(at + seconds)):
            row: dict[str, float | str | None] = {
                "t": float(second), "phase": phase, "strategy": strategy, "keys": keys, "probe_p50_ms": p99 / 7,
                "probe_p99_ms": p99, "app_p99_ms": p99 * 1.1, "utilisation": min(0.985, demand),
                "events_finished_per_s": EVENTS_PER_S / max(1.0, demand), "events_in_flight": 0.0,
                "events_pending": 0.0, "memory_mb": 8 + keys * 2.4e-4, "clients": 9.0, "machine_busy": 0.3,
                "machine_steal": 0.0, "machine_others": 0.05,
            }  # fmt: skip
            row |= {f"cpu_{name}": 0.04 for name in ("store", "web", "invalidator", "locust", "probe", "lab")}
            for command in ("GET", "SET", "UNLINK", "SCAN", "KEYS", "SSCAN"):
                rate = rates.get(command, 0.0)
                row[f"{command.lower()}_per_s"] = rate
                row[f"{command.lower()}_exec_us"] = costs[command] if rate else None
            self.plain.samples.append(row)

    def _mark(self, at: float, kind: str, text: str) -> None:
        self.plain.facts.marks.append(Mark(at, kind, text))


def _rates(strategy: str, demand: float) -> dict[str, float]:
    """Calls a second of each command."""
    done = EVENTS_PER_S / max(1.0, demand)
    rates = {
        "GET": PROBES_PER_S + READS_PER_S, "SET": 38.0, "SADD": 38.0, "EXEC": 38.0, "UNLINK": done, "INFO": 6.0,
    }  # fmt: skip
    return rates | ({"SCAN": 3 * done} if strategy == "scan" else {"SSCAN": 6 * done, "SREM": done})


def _costs(keys: float) -> dict[str, float]:
    """Mean execution time of each command, µs."""
    return {
        "GET": 1.8, "SET": 6.6, "SADD": 4.6, "EXEC": 18.0, "UNLINK": 7.0, "INFO": 23.0, "SSCAN": 3.1, "SREM": 2.2,
        "SCAN": keys * US_PER_KEY,
    }  # fmt: skip

"""Synthetic run folders of any scenario, without a server: phases as the scenario plans them, for tests to alter.

plain = Plain(scan_count.SCENARIO)                     # one phase for each of the scenario's, every p99 1 ms
plain.phase("count-10").figures["iteration_s"] = 4.0   # what its loads measured
plain.p99_ms["count-10"] = 30.0                        # main probe, by phase id
plain.p99_ms["keys-4:replica"] = 0.4                   # a second probe, PHASE:PROBE
plain.each_p99_ms["burst"] = [2.0, 2.0, 900.0]         # interval by interval
plain.slowlog.append(("KEYS", 25_000))                 # an entry of the slow log, µs
plain.slow_at.append((plain.phase("burst").t0, "GET", 25_000))      # the same, at a time
plain.between.append((START - 6, 6.0, 0.4))            # outside the phases: time, seconds, p99 in ms
plain.samples.append({"t": START, "keys": 10})         # rows of samples.csv; without any there is one a phase
plain.lines.append({"phase": "burst", "load": "crowd", "t": 1.0})   # a line of loads.jsonl
run = plain.write(tmp_path / "run")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lab.claims.planned import ASKS_FOR, PARTS
from lab.results.folder import Latencies, PhaseRecord, Run, RunFacts, RunWriter
from lab.results.schema import SAMPLES
from lab.scenarios.model import Scenario
from tests.lab.synthetic import INTERVAL_S, PROBES_PER_S, START, encode, facts_of, heavy_tail

PHASE_S, GAP_S, EVENTS_PER_S = 3.0, 1.0, 8.0
EACH = round(PROBES_PER_S * INTERVAL_S)
"""Requests of a probe in an interval."""


class Plain:
    """One synthetic run of a scenario; change what it holds, then `write` it."""

    def __init__(self, scenario: Scenario, keys: int = 100_000) -> None:
        self.scenario = scenario
        self.p99_ms: dict[str, float] = {}
        self.each_p99_ms: dict[str, list[float]] = {}
        self.slowlog: list[tuple[str, int]] = []
        self.slow_at: list[tuple[float, str, int]] = []
        self.between: list[tuple[float, float, float]] = []
        self.samples: list[dict[str, float | str | None]] = []
        self.lines: list[dict[str, Any]] = []
        events = EVENTS_PER_S if scenario.knee_at is not None else scenario.events_per_second
        self.facts = facts_of(scenario, keys, events)
        if scenario.knee_at is not None:
            self.facts.calibration["events_per_second"] = events / scenario.load_share
        plateau_s = scenario.paces["quick"].plateau_s
        at = START
        for phase in scenario.phases:
            at += GAP_S
            asked = phase.events * (EVENTS_PER_S if phase.events_from else events)
            self_terminating = any(load.self_terminating for load in phase.loads)
            wanted = PHASE_S if self_terminating else max(PHASE_S, plateau_s * phase.weight)
            seconds = math.ceil(wanted / INTERVAL_S) * INTERVAL_S
            command, each = ("", 0) if phase.strategy == "ttl" else ASKS_FOR[phase.strategy]
            asking = each * asked * seconds
            self.facts.phases.append(
                PhaseRecord(
                    id=phase.id,
                    arm=phase.arm,
                    title=phase.title,
                    strategy=phase.strategy,
                    t0=at,
                    t1=at + seconds,
                    keys=max(100.0, phase.keys * keys),
                    commands={
                        "GET": {"calls": 240.0 * seconds, "usec": 433.0 * seconds},
                        **({command: {"calls": asking, "usec": asking}} if asking else {}),
                    },
                    utilisation=0.3,
                    events={
                        "asked_per_s": asked,
                        "offered_per_s": asked,
                        "finished_per_s": asked,
                        "in_flight_end": 0.0,
                        "failures": 0.0,
                    },
                    client_p99_ms={"app": 2.0, "locust": 9.0},
                    probes={
                        name: {
                            "sent": PROBES_PER_S * seconds,
                            "received": PROBES_PER_S * seconds,
                            "errors": 0.0,
                            "lag_p99_us": 300.0,
                            "rate": 200.0,
                        }
                        for name in ("main", *(spec.name for spec in phase.probes))
                    },
                    machine={"busy": 0.5, "steal": 0.0, "others": 0.05},
                    processes=dict.fromkeys(PARTS, 0.05) | {"store": 0.3},
                    memory_mb={"store": 60.0},
                    params=dict(phase.params),
                    figures={"seconds": seconds} if phase.loads else {},
                )
            )
            at += seconds

    def phase(self, phase_id: str) -> PhaseRecord:
        """Return the phase with this id."""
        (found,) = [phase for phase in self.facts.phases if phase.id == phase_id]
        return found

    def arm(self, name: str) -> list[PhaseRecord]:
        """Return the phases of an arm."""
        return [phase for phase in self.facts.phases if phase.arm == name]

    def drop(self, phase_id: str) -> None:
        """Remove a phase, as if it had never been measured."""
        self.facts.phases.remove(self.phase(phase_id))

    def write(self, folder: Path, doctor: Callable[[RunFacts], object] | None = None) -> Run:
        """Write the folder and read it back. `doctor` alters run.json alone, after all other files are written."""
        folder.mkdir(parents=True, exist_ok=True)
        writer, rng = RunWriter(folder), np.random.default_rng(7)
        stretches: list[tuple[float, float, PhaseRecord | None]] = [
            *((at, p99_ms, None) for at, _, p99_ms in self.between),
            *((phase.t0, 0.0, phase) for phase in self.facts.phases),
        ]
        lengths = {at: seconds for at, seconds, _ in self.between}
        for at, p99_ms, phase in sorted(stretches, key=lambda stretch: stretch[0]):
            if phase is None:
                self._probe(
                    writer, "main", at, heavy_tail(rng, p99_ms, round(lengths[at] / INTERVAL_S), EACH)
                )
                continue
            for probe in phase.probes:
                name = phase.id if probe == "main" else f"{phase.id}:{probe}"
                latencies = heavy_tail(
                    rng, self.p99_ms.get(name, 1.0), round(phase.seconds / INTERVAL_S), EACH
                )
                if name in self.each_p99_ms:
                    latencies = [heavy_tail(rng, p99, 1, EACH)[0] for p99 in self.each_p99_ms[name]]
                phase.probes[probe]["sent"] = phase.probes[probe]["received"] = float(EACH * len(latencies))
                self._probe(writer, probe, at, latencies)
        for row in self.samples or [
            {"t": phase.t0 + 1, "phase": phase.id, "strategy": phase.strategy, "keys": phase.keys}
            for phase in self.facts.phases
        ]:
            writer.sample(dict.fromkeys(column.name for column in SAMPLES) | row)
        for command, duration in self.slowlog:
            writer.slow(START + 2, command, duration)
        for at, command, duration in self.slow_at:
            writer.slow(at, command, duration)
        for line in self.lines:
            writer.load(str(line.pop("phase")), str(line.pop("load")), line)
        if doctor:
            doctor(self.facts)
        writer.facts(self.facts)
        writer.close()
        return Run(folder)

    @staticmethod
    def _probe(writer: RunWriter, probe: str, at: float, latencies: list[Latencies]) -> None:
        for values in latencies:
            at += INTERVAL_S
            writer.probe(
                probe,
                {
                    "t": at,
                    "interval_s": INTERVAL_S,
                    "max_us": float(values.max()),
                    "intended": encode(values),
                    "service": encode(values * 0.97),
                },
            )

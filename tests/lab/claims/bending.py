"""Kept runs with some figures bent in memory: `bent("key-growth", {"p99 grow-7": 48})`.

A bend is a place in the run and what is put there. PHASE is the id of a phase or of an arm; `*` stands for all phases.

    PHASE.keys, PHASE.events.offered_per_s    a field of the phases in run.json
    PHASE                                     `remove` (it was never measured), `twice`, or `last` (moved to the end)
    run.load.reads_per_second                 any other field of run.json
    plan.PHASE.seconds                        a field of the plan
    lines PHASE.evicted                       a field of the lines that loads printed in these phases
    p99 PHASE, p99 PHASE:PROBE                a probe's p99 in ms, by default the main one's: latencies are scaled;
                                              a list has a p99 for each of the phases
    tail PHASE, floor PHASE                   the main probe's slowest 2 %, or its least latency, in ms
    slow log PHASE                            the entries of the slow log in these phases, `20 GET, 3 SCAN`;
                                              `slow log *` replaces the whole log

A value that begins with x multiplies (`x0.9`), one that begins with + is added, and `remove` takes away what is there.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lab.results.folder import PhaseRecord, Run

RECORDS = Path(__file__).resolve().parents[3] / "docs" / "runs"
Bends = Mapping[str, Any]


@cache
def recorded_run(record: str) -> Run:
    """Read a committed run, once. Nobody may change it."""
    return Run(RECORDS / record)


def bent(record: str, bends: Bends) -> Run:
    """Return a copy of a committed run with these bends; the files stay what they are."""
    return _Bent(recorded_run(record), bends)


class _Bent(Run):
    """A run that is altered in memory. Latencies are shared with the whole run where they are not bent."""

    def __init__(self, whole: Run, bends: Bends) -> None:
        self.folder, self.facts = whole.folder, copy.deepcopy(whole.facts)
        read: dict[str, Any] = self.__dict__  # what `Run` reads from files when it is first asked
        read["_log"], read["_intervals"] = whole._log, dict(whole._intervals)
        read["slowlog"], read["loads"] = list(whole.slowlog), copy.deepcopy(whole.loads)
        for place, value in bends.items():
            kind, _, where = place.rpartition(" ")
            match kind:
                case "p99" | "tail" | "floor":
                    self._bend_latencies(kind, where, value)
                case "slow log":
                    self._bend_slow_log(where, value)
                case "lines":
                    name, field = where.split(".", 1)
                    ids = {phase.id for phase in self._named(name)}
                    for line in [line for line in self.loads if line["phase"] in ids and field in line]:
                        _put(line, field, value)
                case _:
                    self._bend_facts(place, value)

    def _named(self, name: str) -> list[PhaseRecord]:
        found = [phase for phase in self.phases if name in ("*", phase.id, phase.arm)]
        assert found, f"the run has no phase {name}"
        return found

    def _bend_facts(self, place: str, value: Any) -> None:
        name, _, field = place.partition(".")
        if name == "run":
            _put(self.facts, field, value)
        elif name == "plan":
            name, _, field = field.partition(".")
            for planned in [planned for planned in self.facts.plan if name in ("*", planned.id, planned.arm)]:
                _put(planned, field, value)
        elif field:
            for phase in self._named(name):
                _put(phase, field, value)
        else:
            for phase in self._named(name):
                if value != "twice":
                    self.phases.remove(phase)
                if value != "remove":
                    self.phases.append(phase)

    def _bend_latencies(self, kind: str, where: str, value: Any) -> None:
        name, _, probe = where.partition(":")
        probe = probe or "main"
        phases = self._named(name)
        for phase, ms in zip(
            phases, value if isinstance(value, list) else [value] * len(phases), strict=True
        ):
            slowest = np.percentile(np.concatenate(self.latencies(phase, probe)), 98)
            factor = float(ms[1:]) if isinstance(ms, str) else ms / (self.p99_ms(phase, probe) or 0.0)
            tiles = list(self.recorded(probe))
            for number, tile in enumerate(tiles):
                if phase.t0 <= (tile.start + tile.end) / 2 < phase.t1:
                    us = tile.values
                    match kind:
                        case "p99":
                            us = us * factor
                        case "tail":
                            us = np.where(us >= slowest, ms * 1000, us)
                        case "floor":
                            us = np.maximum(us, ms * 1000)
                    tiles[number] = tile._replace(values=us)
            self._intervals[f"{probe}-intended"] = tiles

    def _bend_slow_log(self, name: str, entries: str) -> None:
        phases = self._named(name)
        added = [
            {"t": f"{phases[0].t0 + 1:.3f}", "command": command, "duration_us": "30000"}
            for count, command in re.findall(r"(\d+) (\w+)", entries)
            for _ in range(int(count))
        ]
        stretches = [(phase.t0, phase.t1) for phase in phases] if name != "*" else [(0.0, float("inf"))]
        self.slowlog[:] = [
            row for row in self.slowlog if not any(t0 <= float(row["t"]) + 0.5 < t1 for t0, t1 in stretches)
        ] + added


def _put(place: Any, path: str, value: Any) -> None:
    """Set, multiply or remove one field of an object or a dictionary."""
    *way, last = path.split(".")
    for step in way:
        place = place[step] if isinstance(place, dict) else getattr(place, step)
    held = place if isinstance(place, dict) else vars(place)
    if value == "remove":
        held.pop(last, None)
    elif isinstance(value, str) and re.fullmatch(r"[x+][\d.]+", value):
        held[last] = held[last] * float(value[1:]) if value[0] == "x" else held[last] + float(value[1:])
    else:
        held[last] = value


def removals(run: Run) -> Iterator[Bends]:
    """Yield a bend for each phase, figure and count of a run: the one that takes it away."""
    yield from ({phase.id: "remove"} for phase in run.phases)
    for part in ("figures", "params", "commands", "processes", "machine"):
        names = sorted({name for phase in run.phases for name in getattr(phase, part)})
        yield from ({f"*.{part}.{name}": "remove"} for name in names)
    for part in ("load", "calibration"):
        yield from ({f"run.{part}.{name}": "remove"} for name in getattr(run.facts, part))

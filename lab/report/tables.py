"""The tables of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from lab.claims.wording import sign
from lab.report.breakdown import p99_by_observer, parts
from lab.report.view import RunView
from lab.results.numbers import UNKNOWN, count, ms, number, percent, share, sig, us
from lab.results.numbers import setting as setting_of


@dataclass(frozen=True)
class Table:
    """A table with a caption. Columns in `figures` hold numbers and are set to the right."""

    caption: str
    headings: list[str]
    rows: list[list[str]]
    figures: frozenset[int] = field(default_factory=frozenset)


def _numeric(start: int, headings: Sequence[str]) -> frozenset[int]:
    return frozenset(range(start, len(headings)))


def phases(view: RunView) -> Table:
    """The p99 of each phase and its parts."""
    headings = [
        "phase",
        "keys",
        "p99 of a GET",
        "execution",
        "round trip",
        "probe late",
        "waiting",
        "waiting's share",
    ]
    rows = []
    for phase in view.run.phases:
        part = parts(view, phase)
        rows.append(
            [
                view.name(phase),
                count(phase.keys),
                ms(part.p99),
                ms(part.execution),
                ms(part.floor),
                ms(part.late),
                ms(part.waiting),
                share(part.share),
            ]
        )
    return Table("The p99 of a GET and its parts, phase by phase", headings, rows, _numeric(1, headings))


def observers(view: RunView) -> Table:
    """The p99 of each phase as each observer saw it."""
    headings = ["phase", "probe, intended", "probe, sent", "application", "Locust", "GETs probed"]
    rows = [
        [
            view.name(phase),
            *(ms(value) for value in p99_by_observer(view, phase)),
            count(len(view.latencies.phase(phase))),
        ]
        for phase in view.run.phases
    ]
    return Table("p99 by observer", headings, rows, _numeric(1, headings))


def slowlog(view: RunView) -> Table:
    """The slow log by command."""
    headings = ["command", "entries", "median", "longest"]
    durations: dict[str, list[float]] = {}
    for row in view.run.slowlog:
        if (duration := number(row.get("duration_us"))) is not None and row.get("command"):
            durations.setdefault(row["command"], []).append(duration)
    for victim in ("GET", "SET", "UNLINK"):
        durations.setdefault(victim, [])
    rows = [
        [
            name,
            count(len(values)),
            *((us(float(np.median(values))), us(max(values))) if values else (UNKNOWN, UNKNOWN)),
        ]
        for name, values in sorted(durations.items(), key=lambda item: -len(item[1]))
    ]
    return Table("Entries of the slow log in the whole run", headings, rows, _numeric(1, headings))


def validity(view: RunView) -> Table:
    """The conditions of a fair experiment, and whether they were fulfilled."""
    rows = [
        [f"{sign(check['ok'])} {'ok' if check['ok'] else 'not fulfilled'}", check["check"], check["detail"]]
        for check in (view.result or {}).get("validity", [])
    ]
    return Table("Validity: was it a fair experiment?", ["", "condition", "measured"], rows)


def key(view: RunView) -> Table:
    """Return the titles of the phases that have neutral names in the page."""
    rows = [
        [view.name(phase), phase.title, phase.strategy]
        for phase in view.run.phases
        if view.title(phase) != phase.title
    ]
    return Table("What the phases were", ["in this page", "what it was", "strategy"], rows)


def _events(per_second: float | None) -> str:
    """The storefront's events, for people: in some scenarios only a load of their own sends any."""
    return "no events to the storefront" if per_second == 0 else f"{sig(per_second)} invalidation events/s"


def setting(view: RunView) -> Table:
    """Return the run's scenario, server, host, load and calibration."""
    facts, host, found = view.facts, view.facts.host, view.facts.calibration
    load = facts.load
    known = {
        "scenario": f"{facts.scenario}: {facts.title}" if view.spoilers else facts.scenario,
        **({"source": facts.source} if view.spoilers else {}),
        "started": started(facts.started),
        "server": f"{facts.server} {facts.server_version}, {facts.stack}".strip(" ,"),
        "host": ", ".join(
            str(part)
            for part in (
                host.get("processor"),
                f"{host['cores']} cores" if "cores" in host else None,
                f"{host['memory_gb']} GB" if "memory_gb" in host else None,
                host.get("system"),
                f"Python {host['python']}" if "python" in host else None,
            )
            if part
        ),
        "pace and size": f"{facts.pace}, {count(facts.keys)} keys, seed {facts.seed}",
        "load": f"{_events(load.get('events_per_second'))}, "
        f"{load.get('reads_per_second', 0):g} page reads/s, {load.get('probe_per_second', 0):g} probe GETs/s",
        "SCAN": f"COUNT {count(facts.scan_count)}; slow log from {setting_of(facts.slowlog_threshold_us)}",
    }
    if found:
        known["calibration"] = f"round trip to the idle server {us(_get(found, 'ping_floor_us'))}"
    if "cost_us_per_key" in found:
        known["calibration"] += (
            f"; a scanned key costs {sig(_get(found, 'cost_us_per_key'))} µs under load "
            f"({sig(_get(found, 'cost_alone_us_per_key'))} alone), measured at {count(_get(found, 'keys'))} keys; "
            f"knee planned at {count(_get(found, 'planned_knee_keys'))} keys"
        )
    if facts.despite_noise:
        known["started despite noise"] = facts.despite_noise
    known |= {f"claim {name}": f"not applicable: {reason}" for name, reason in facts.cannot.items()}
    return Table(
        "The setting", ["what", "value"], [[name, value or UNKNOWN] for name, value in known.items()]
    )


def started(iso: str) -> str:
    """Return the start of a run, for people."""
    try:
        return f"{datetime.fromisoformat(iso):%d %B %Y, %H:%M %Z}"
    except ValueError:
        return iso


def _get(found: Mapping[str, object], name: str) -> float | None:
    value = found.get(name)
    return float(value) if isinstance(value, int | float) else None


def processes(view: RunView) -> Table:
    """CPU and memory of each process of the run."""
    names = sorted({name for phase in view.run.phases for name in (*phase.processes, *phase.memory_mb)})
    rows = []
    for name in names:
        seconds = sum(p.seconds for p in view.run.phases if name in p.processes)
        used = sum(p.processes[name] * p.seconds for p in view.run.phases if name in p.processes)
        busiest = max((p.processes[name] for p in view.run.phases if name in p.processes), default=None)
        memory = max((p.memory_mb[name] for p in view.run.phases if name in p.memory_mb), default=None)
        rows.append(
            [
                name,
                percent(used / seconds if seconds else None),
                percent(busiest),
                f"{sig(memory)} MB" if memory is not None else UNKNOWN,
            ]
        )
    headings = ["process", "CPU, mean", "CPU, busiest phase", "memory, largest"]
    return Table("Processes (CPU as a share of one core)", headings, rows, _numeric(1, headings))

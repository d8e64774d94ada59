"""Figures of a phase by name, as charts and tables of any scenario ask for them.

    keys             entries on the server          p99, p99:PROBE   p99 of a probe's GETs (``p99`` alone: the main one)
    max              the main probe's longest wait  figure:NAME      what the phase's loads measured
    param:NAME       the scenario's own label       rate:COMMAND     calls a second on the server
    exec:COMMAND     mean execution time            utilisation      busy share of the server's main thread
    demand           arriving work, in the same     title            the phase's title, as words
    memory           the server's resident memory   p50, p50:PROBE   the median of the same GETs
    foretold:COMMAND p99 of a GET by the guide's formula, from that command's execution time and the event rate alone

The end of a figure's or param's name gives its unit (see `UNITS`); the rest of the name is the label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.report.latencies import LatencyView
from lab.results import formulas, knee, numbers, operational
from lab.results.folder import PhaseRecord

Value = float | str | None

UNITS = {
    "_per_s": "/s",
    "_ms": "ms",
    "_us": "µs",
    "_s": "s",
    "_bytes": "bytes",
    "_kb": "kB",
    "_mb": "MB",
    "_percent": "%",
    "_share": "share",
    "_ratio": "×",
    "_x": "×",
}
"""Ends of names → units; the first that fits counts. A share is a fraction of one."""
LABELS = {"busy_us": ("thread's time for one request", "µs")}
"""Label and unit of names that would read like another one, `busy`, without their unit."""
MS_IN = {"ms": 1.0, "µs": 1e-3, "s": 1e3}
"""Units of time, in milliseconds."""
BYTES_IN = {"bytes": 1.0, "kB": 1e3, "MB": 1e6}
_PLAIN = {"keys", "max", "utilisation", "demand", "memory", "title", "p99", "p50"}
_WITH_NAME = {"p99", "p50", "figure", "param", "rate", "exec", "foretold"}


@dataclass(frozen=True)
class Quantity:
    """A quantity by its name: label and unit for axes, and how to read it from a phase (None: not measured)."""

    name: str
    label: str
    unit: str
    read: Callable[[PhaseRecord, LatencyView], Value]

    @property
    def axis(self) -> str:
        """Label and unit, for an axis or the head of a column."""
        return f"{self.label}, {self.unit}" if self.unit and self.unit not in ("share", "/s") else self.label

    def text(self, value: Value) -> str:
        """A value for people; a dash where nothing was measured."""
        if isinstance(value, str):
            return value
        if value is not None and self.unit in MS_IN:
            return numbers.ms(value * MS_IN[self.unit])
        if value is not None and self.unit in BYTES_IN:
            return numbers.size(value * BYTES_IN[self.unit])
        if self.unit == "share":
            return numbers.percent(value)
        if self.name == "keys":
            return numbers.count(value)
        return numbers.short(value) + (
            f" {self.unit}" if self.unit in ("×", "%") and value is not None else ""
        )


def quantity(name: str) -> Quantity:
    """The quantity of that name. Raises `ValueError` for one that is not in the list above."""
    kind, _, rest = name.partition(":")
    if (not rest and kind not in _PLAIN) or (rest and kind not in _WITH_NAME):
        raise ValueError(f"there is no quantity {name!r}")
    match kind:
        case "keys":
            return Quantity(name, "keys", "", lambda phase, _: phase.keys)
        case "p99" | "p50":
            probe, percentile = rest or "main", int(kind[1:])
            label = f"{kind} of a GET" if not rest else f"{kind} of a GET, probe “{rest}”"
            return Quantity(
                name, label, "ms", lambda phase, seen: seen.percentile_ms(phase, percentile, probe)
            )
        case "max":
            return Quantity(name, "longest wait of a GET", "ms", _longest)
        case "figure":
            return Quantity(name, *words(rest), lambda phase, _: phase.figures.get(rest))
        case "param":
            return Quantity(name, *words(rest), lambda phase, _: phase.params.get(rest))
        case "rate":
            return Quantity(name, f"{rest} calls a second", "/s", lambda phase, _: phase.rate(rest))
        case "exec":
            return Quantity(name, f"execution of a {rest}", "µs", lambda phase, _: phase.execution_us(rest))
        case "foretold":
            return Quantity(name, "S × (1 − 0.01 ÷ ρ)", "ms", lambda phase, _: _foretold(phase, rest))
        case "utilisation":
            return Quantity(name, "main thread busy", "share", lambda phase, _: phase.utilisation)
        case "demand":
            return Quantity(name, "demand on the main thread", "share", _demand)
        case "memory":
            return Quantity(name, "the server's memory", "MB", lambda phase, _: phase.memory_mb.get("store"))
        case _:
            return Quantity(name, "phase", "", lambda phase, _: phase.title)


def words(name: str) -> tuple[str, str]:
    """Label and unit of a figure or param."""
    if name in LABELS:
        return LABELS[name]
    for ending, unit in UNITS.items():
        stem = name.removesuffix(ending)
        if stem and stem != name:
            return stem.replace("_", " ") + (" a second" if unit == "/s" else ""), unit
    return name.replace("_", " "), ""


def _longest(phase: PhaseRecord, seen: LatencyView) -> float | None:
    values = seen.phase(phase)
    return float(values[-1]) / 1000 if len(values) else None


def _foretold(phase: PhaseRecord, command: str) -> float | None:
    """See `formulas.wait_of_absences`: the searches of one event are one absence."""
    offered, call_us = phase.events.get("offered_per_s", 0.0), phase.execution_us(command)
    if call_us is None or not offered:
        return None
    event_ms = knee.PATTERNS_PER_EVENT * call_us / 1000
    return formulas.wait_of_absences(event_ms, offered * event_ms / 1000)


def _demand(phase: PhaseRecord, seen: LatencyView) -> float | None:
    return operational.demand(phase, seen.run.facts)

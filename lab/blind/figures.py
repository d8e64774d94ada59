"""Reads figures from the evidence of an answer: `link.p50 = 42 ms; server.p50 = 0.1 ms`.

The names are those of `lab.blind.readings.READINGS`. Each command of the server has names of its own: `scan.calls`,
`scan.mean`, `scan.share`, `slowlog.scan`. `with_figures` replaces values of readings by such figures.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lab.blind.readings import READINGS, TAIL_TOLERANCE, Reading, Readings
from lab.errors import UsageError
from lab.server.figures import Spent

UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1, "us": 0.001, "µs": 0.001, "s": 1000},
    "s": {"s": 1, "ms": 0.001, "min": 60},
    "%": {"%": 1, "percent": 1},
    "/s": {"/s": 1, "/min": 1 / 60},
    "cores": {"cores": 1, "core": 1},
    "MB/s": {"MB/s": 1, "kB/s": 0.001, "GB/s": 1000},
}
"""Unit of a reading → units that an answer may use, each with its factor to that unit."""
CLAUSE = re.compile(
    r"([a-z][\w|-]*(?:\.[\w|-]+)+)(?:\s*[=:~≈]\s*|\s+(?:is|was|of|about)\s+|\s+(?=[0-9]))(.*)",
    re.IGNORECASE | re.DOTALL,
)
FIGURE = re.compile(r"(?:about\s+)?([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([^\s0-9]\S*)?\s*\Z")
OF_A_COMMAND = re.compile(r"([a-z]+(?:\|[a-z-]+)?)\.(calls|mean|share)")
OF_THE_SLOW_LOG = re.compile(r"slowlog\.([a-z]+(?:\|[a-z-]+)?)")
OF_COMMANDS = (
    ("COMMAND.calls", "/s", "calls of a command, as in scan.calls", "look commands"),
    ("COMMAND.mean", "ms", "mean time of a call", "look commands"),
    ("COMMAND.share", "%", "share of a core that all its calls took", "look commands"),
    ("slowlog.COMMAND", "ms", "longest entry of a command; 0 ms if it has none", "look slowlog"),
)
LOGGED = 3
"""Assumed number of slow log entries of a command, where an answer names its longest entry."""


class NamedFigure(NamedTuple):
    """A reading with the figure that an answer gave, in the reading's own unit."""

    reading: Reading
    value: float

    @property
    def text(self) -> str:
        """Name, figure and unit, in the form of evidence."""
        return f"{self.reading.name} = {self.value:.4g} {self.reading.unit}"


def find(name: str) -> Reading:
    """Return the reading with this name. Raises `UsageError`, with the nearest name, when there is none."""
    name = name.lower()
    if name in READINGS:
        return READINGS[name]
    if match := OF_THE_SLOW_LOG.fullmatch(name):
        command = match[1].upper()
        return Reading(
            name,
            "ms",
            tolerance=TAIL_TOLERANCE,
            read=lambda readings: readings.slow.get(command, (0, 0.0))[1],
        )
    if match := OF_A_COMMAND.fullmatch(name):
        command, part = match[1].upper(), match[2]
        if part == "calls":
            return Reading(name, "/s", read=lambda readings: readings.spent(command).per_s)
        if part == "mean":
            return Reading(name, "ms", read=lambda readings: readings.spent(command).mean_us / 1000)
        return Reading(name, "%", read=lambda readings: 100 * readings.spent(command).share)
    near = difflib.get_close_matches(name, READINGS, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no reading {name!r}.{hint} `bin/lab blind readings` lists them.")


def figures_in(evidence: str) -> list[NamedFigure]:
    """Return the readings that a text names, with their figures.

    Semicolons separate clauses; a clause without a name is free text. Raises `UsageError` when a name does not exist,
    or its figure is not a number with one of the reading's units.
    """
    figures = []
    for clause in map(str.strip, evidence.split(";")):
        match = CLAUSE.fullmatch(clause)
        if not match or not any(character.isdigit() for character in clause):
            continue
        reading = find(match[1])
        number = FIGURE.match(match[2])
        units = {unit.lower(): factor for unit, factor in UNITS[reading.unit].items()}
        if not number or (number[2] or "").lower() not in units:
            known = ", ".join(UNITS[reading.unit])
            example = f"{reading.name} = 12 {reading.unit}"
            raise UsageError(f"{reading.name} needs a number and a unit ({known}), as in {example}.")
        figures.append(NamedFigure(reading, float(re.sub("[_,]", "", number[1])) * units[number[2].lower()]))
    return figures


def with_figures(readings: Readings, figures: Iterable[NamedFigure]) -> Readings:
    """Return a copy of the readings in which these figures replace the earlier values."""
    commands, slow = dict(readings.commands), dict(readings.slow)
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, float]] = {}
    for reading, value in figures:
        if reading.field:
            fields[reading.field] = value / reading.factor
        elif match := OF_THE_SLOW_LOG.fullmatch(reading.name):
            command = match[1].upper()
            slow[command] = max(LOGGED, slow.get(command, (0, 0.0))[0]), value
            if not value:
                del slow[command]
        else:
            command, part = reading.name.split(".")
            parts.setdefault(command.upper(), {})[part] = value
    for command, values in parts.items():
        commands[command] = _spent(readings.spent(command), values)
    return replace(readings, commands=commands, slow=slow, **fields)


def _spent(spent: Spent, values: Mapping[str, float]) -> Spent:
    """Return the cost of a command with these figures put in; two of calls, mean and share give the third."""
    calls, mean, share = (values.get(part) for part in ("calls", "mean", "share"))
    if calls == 0 or share == 0:
        return Spent(0.0, 0.0, 0.0)
    if share is None and calls is not None and mean is not None:
        share = calls * mean / 10
    elif mean is None and calls is not None and share is not None:
        mean = 10 * share / calls
    elif calls is None and mean and share is not None:
        calls = 10 * share / mean
    return Spent(
        spent.per_s if calls is None else calls,
        spent.share if share is None else share / 100,
        spent.mean_us if mean is None else 1000 * mean,
    )

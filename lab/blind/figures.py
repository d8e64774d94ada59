"""Names readings for the evidence of an answer: `link.p50 = 42 ms; server.p50 = 0.1 ms`.

Each name has a unit and the command that shows it; its value can be read from and put into
`lab.blind.readings.Readings`. Each command of the server has names of its own: `scan.calls`, `scan.mean`,
`scan.share`, `slowlog.scan`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from lab.blind.evidence import Spent
from lab.blind.readings import Readings
from lab.errors import UsageError

UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1, "us": 0.001, "µs": 0.001, "s": 1000},
    "s": {"s": 1, "ms": 0.001, "min": 60},
    "%": {"%": 1, "percent": 1},
    "/s": {"/s": 1, "/min": 1 / 60},
    "cores": {"cores": 1, "core": 1},
    "MB/s": {"MB/s": 1, "kB/s": 0.001, "GB/s": 1000},
}
"""Unit in which a reading is kept → units that an answer may use, each with its factor to the kept unit."""
FLOOR = {"ms": 0.3, "s": 1.0, "%": 10.0, "/s": 3.0, "cores": 0.3, "MB/s": 1.0}
"""Unit → difference that two observers of the same minutes may have, whatever the size of the value."""
LIKE, LIKE_TAIL = 1.5, 3.0
"""Factor that they may differ by besides: for a mean, rate or median; for a p99 or a maximum, made by a few calls."""
CLAUSE = re.compile(
    r"([a-z][\w|-]*(?:\.[\w|-]+)+)(?:\s*[=:~≈]\s*|\s+(?:is|was|of|about)\s+|\s+(?=[0-9]))(.*)",
    re.IGNORECASE | re.DOTALL,
)
FIGURE = re.compile(r"(?:about\s+)?([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([^\s0-9]\S*)?\s*\Z")
OF_A_COMMAND = re.compile(r"([a-z]+(?:\|[a-z-]+)?)\.(calls|mean|share)")
OF_THE_SLOW_LOG = re.compile(r"slowlog\.([a-z]+(?:\|[a-z-]+)?)")


@dataclass(frozen=True)
class Reading:
    """One thing that can be measured. `of` reads its value; it returns None if this machine does not tell it."""

    name: str
    unit: str
    meaning: str
    shown_by: str
    of: Callable[[Readings], float | None]
    like: float = LIKE

    def may_be(self, value: float, lowest: float, highest: float) -> bool:
        """Return whether an observer may have seen `value` of something that the lab saw from `lowest` to `highest`."""
        slack = FLOOR[self.unit]
        return lowest / self.like - slack <= value <= highest * self.like + slack


class Named(NamedTuple):
    """A reading with the figure that an answer gave, in the reading's own unit."""

    reading: Reading
    value: float

    @property
    def text(self) -> str:
        """Name, figure and unit, as evidence is written."""
        return f"{self.reading.name} = {self.value:.4g} {self.reading.unit}"


FIXED = {
    reading.name: reading
    for reading in (
        Reading("page.p99", "ms", "p99 of a page", "look users", lambda of: of.seen.page_ms, LIKE_TAIL),
        Reading("get.p99", "ms", "p99 of a bystander's GET", "look users", lambda of: of.seen.get_ms, LIKE_TAIL),
        Reading(
            "change.oldest", "s", "age of the oldest price change", "look users",
            lambda of: of.seen.oldest_s, LIKE_TAIL,
        ),
        Reading("server.busy", "%", "busy share of the main thread", "look commands", lambda of: 100 * of.busy),
        Reading(
            "server.waited", "%", "share of the time that the main thread was ready and without a core",
            "look processes", lambda of: None if of.waited is None else 100 * of.waited,
        ),
        Reading("server.p50", "ms", "median of a PING to the server", "look ping", lambda of: of.direct_ms),
        Reading("link.p50", "ms", "median of a PING through the storefront's link", "look ping", lambda of: of.link_ms),
        Reading(
            "server.max", "ms", "longest of many PINGs to the server", "look waits",
            lambda of: of.direct_most_ms, LIKE_TAIL,
        ),
        Reading(
            "link.max", "ms", "longest of many PINGs through the storefront's link", "look waits",
            lambda of: of.link_most_ms, LIKE_TAIL,
        ),
        Reading(
            "storefront.max", "ms", "longest wait for a page that needs no cache", "look waits",
            lambda of: of.web_most_ms, LIKE_TAIL,
        ),
        Reading(
            "server.connects", "/s", "connections that the server accepted", "look memory",
            lambda of: of.connects_per_s,
        ),
        Reading(
            "server.sent", "MB/s", "what the server sent to its clients", "look memory", lambda of: of.sent_mb_per_s
        ),
        Reading("memory.used", "%", "largest share of maxmemory in use", "look memory", lambda of: 100 * of.memory),
        Reading("memory.evicted", "/s", "entries evicted", "look memory", lambda of: of.evicted_per_s, LIKE_TAIL),
        Reading(
            "memory.expired", "/s", "entries whose time to live was over", "look memory",
            lambda of: of.expired_per_s, LIKE_TAIL,
        ),
        Reading(
            "programs.cores", "cores", "cores that programs of other teams used", "look processes",
            lambda of: of.neighbours,
        ),
        Reading(
            "pages.past", "/s", "pages that went past the cache", "the storefront's /metrics",
            lambda of: of.past_cache_per_s,
        ),
    )
}  # fmt: skip
OF_COMMANDS = (
    ("COMMAND.calls", "/s", "calls of a command, as in scan.calls", "look commands"),
    ("COMMAND.mean", "ms", "mean time of a call", "look commands"),
    ("COMMAND.share", "%", "share of a core that all its calls took", "look commands"),
    ("slowlog.COMMAND", "ms", "longest entry of a command; 0 ms if it has none", "look slowlog"),
)


def find(name: str) -> Reading:
    """The reading with this name. Raises `UsageError` when there is none, and suggests the nearest."""
    name = name.lower()
    if name in FIXED:
        return FIXED[name]
    if match := OF_THE_SLOW_LOG.fullmatch(name):
        command = match[1].upper()
        return Reading(name, "ms", "", "", lambda of: of.slow.get(command, (0, 0.0))[1], LIKE_TAIL)
    if match := OF_A_COMMAND.fullmatch(name):
        command, part = match[1].upper(), match[2]
        if part == "calls":
            return Reading(name, "/s", "", "", lambda of: of.spent(command).per_s)
        if part == "mean":
            return Reading(name, "ms", "", "", lambda of: of.spent(command).mean_us / 1000)
        return Reading(name, "%", "", "", lambda of: 100 * of.spent(command).share)
    near = difflib.get_close_matches(name, FIXED, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no reading {name!r}.{hint} `bin/lab blind readings` lists them.")


def named_in(evidence: str) -> list[Named]:
    """The readings that a text names, with their figures. Semicolons separate clauses; one without a name is free text.

    Raises `UsageError` when a name does not exist, or its figure is not a number with one of the reading's units.
    """
    found = []
    for clause in map(str.strip, evidence.split(";")):
        match = CLAUSE.fullmatch(clause)
        if not match or not any(character.isdigit() for character in clause):
            continue
        reading = find(match[1])
        figure = FIGURE.match(match[2])
        units = {unit.lower(): factor for unit, factor in UNITS[reading.unit].items()}
        if not figure or (figure[2] or "").lower() not in units:
            known = ", ".join(UNITS[reading.unit])
            example = f"{reading.name} = 12 {reading.unit}"
            raise UsageError(f"{reading.name} needs a number and a unit ({known}), as in {example}.")
        found.append(Named(reading, float(re.sub("[_,]", "", figure[1])) * units[figure[2].lower()]))
    return found


def put(named: Iterable[Named], of: Readings) -> Readings:
    """Return a copy of the readings in which these figures replace the earlier values."""
    values = {each.reading.name: each.value for each in named}
    seen = replace(
        of.seen,
        page_ms=values.get("page.p99", of.seen.page_ms),
        get_ms=values.get("get.p99", of.seen.get_ms),
        oldest_s=values.get("change.oldest", of.seen.oldest_s),
    )
    commands, slow = dict(of.commands), dict(of.slow)
    for name in values:
        if match := OF_THE_SLOW_LOG.fullmatch(name):
            command = match[1].upper()
            times = max(3, slow.get(command, (0, 0.0))[0])
            slow[command] = (times, values[name])
            if not values[name]:
                del slow[command]
        elif name not in FIXED and (match := OF_A_COMMAND.fullmatch(name)):
            command = match[1]
            commands[command.upper()] = _spent(of.spent(command.upper()), command, values)
    return replace(
        of,
        seen=seen,
        busy=values.get("server.busy", 100 * of.busy) / 100,
        waited=values["server.waited"] / 100 if "server.waited" in values else of.waited,
        neighbours=values.get("programs.cores", of.neighbours),
        evicted_per_s=values.get("memory.evicted", of.evicted_per_s),
        memory=values.get("memory.used", 100 * of.memory) / 100,
        link_ms=values.get("link.p50", of.link_ms),
        direct_ms=values.get("server.p50", of.direct_ms),
        past_cache_per_s=values.get("pages.past", of.past_cache_per_s),
        link_most_ms=values.get("link.max", of.link_most_ms),
        direct_most_ms=values.get("server.max", of.direct_most_ms),
        web_most_ms=values.get("storefront.max", of.web_most_ms),
        expired_per_s=values.get("memory.expired", of.expired_per_s),
        sent_mb_per_s=values.get("server.sent", of.sent_mb_per_s),
        connects_per_s=values.get("server.connects", of.connects_per_s),
        commands=commands,
        slow=slow,
    )


def _spent(before: Spent, command: str, values: Mapping[str, float]) -> Spent:
    """The cost of a command with the named figures put in; two of calls, mean and share give the third."""
    calls, mean, share = (values.get(f"{command}.{part}") for part in ("calls", "mean", "share"))
    if calls == 0 or share == 0:
        return Spent(0.0, 0.0, 0.0)
    if share is None and calls is not None and mean is not None:
        share = calls * mean / 10
    elif mean is None and calls is not None and share is not None:
        mean = 10 * share / calls
    elif calls is None and mean and share is not None:
        calls = 10 * share / mean
    return Spent(
        before.per_s if calls is None else calls,
        before.share if share is None else share / 100,
        before.mean_us if mean is None else 1000 * mean,
    )

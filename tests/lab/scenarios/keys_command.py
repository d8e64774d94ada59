"""Proofs that the claims of `keys-command` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.scenarios.keys_command import CONTROL, SCENARIO
from lab.stacks.servers import SERVERS
from tests.lab.plain import EVENTS_PER_S, Change, Plain, Proofs

US_PER_KEY = 0.25
P99_MS = {"grow-1": 15.0, "grow-2": 25.0, "grow-3": 40.0, "grow-4": 60.0, "exact": 1.0, "scan": 3.0}
SCANS, SCAN_US = 300.0, 300.0
"""SCAN calls for one pattern, and the time of one call in µs."""
SEARCHES = 3 * EVENTS_PER_S
"""Searches a second: each event searches for three patterns."""


def searched(
    plain: Plain,
    phase_id: str,
    command: str,
    calls_per_s: float,
    each_us: float,
    busy: float,
    asking: float = 0.02,
) -> None:
    """Set the searches of a phase; `busy` is the main thread's share of a core, `asking` the invalidator's."""
    phase = plain.phase(phase_id)
    calls = calls_per_s * phase.seconds
    phase.commands[command] = {"calls": calls, "usec": calls * each_us}
    phase.utilisation = busy
    phase.processes["invalidator"] = asking


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    plain.p99_ms |= P99_MS
    plain.p99_ms["grow-4:replica"] = 0.6
    for phase in plain.arm("grow"):
        each_us = phase.keys * US_PER_KEY
        searched(plain, phase.id, "KEYS", SEARCHES, each_us, 0.03 + SEARCHES * each_us / 1e6)
    plain.slowlog += [("KEYS", 25_000)] * 90
    plain.phase("exact").utilisation = 0.03
    plain.phase("exact").processes["invalidator"] = 0.02
    searched(plain, "scan", "SCAN", SEARCHES * SCANS, SCAN_US, 0.95, 0.4)
    return plain


def control() -> Plain:
    """A run that deletes by exact key throughout."""
    plain = Plain(CONTROL)
    for i, phase in enumerate(plain.facts.phases):
        plain.p99_ms[phase.id] = 1.1 if i % 2 else 0.9
        phase.utilisation = 0.03
        phase.processes["invalidator"] = 0.02
    plain.p99_ms["grow-4:replica"] = 0.8
    plain.slowlog.append(("SET", 6_000))
    return plain


def waits(**p99_ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of phases; underscores stand for hyphens."""
    return lambda plain: plain.p99_ms.update({name.replace("_", "-"): ms for name, ms in p99_ms.items()})


def entries(command: str, count: int) -> Callable[[Plain], object]:
    """Add entries to the slow log."""
    return lambda plain: plain.slowlog.extend([(command, 9_000)] * count)


def others(**changed: float) -> Callable[[Plain], object]:
    """Change the events or keys in the phase of exact deletes."""

    def change(plain: Plain) -> None:
        phase = plain.phase("exact")
        phase.keys *= changed.get("keys", 1.0)
        phase.events["offered_per_s"] *= changed.get("events", 1.0)

    return change


def scan(calls_us: float = SCAN_US, busy: float = 0.95, asking: float = 0.4) -> Callable[[Plain], object]:
    """Change the time of a SCAN call, and the shares of a core of the main thread and the invalidator."""
    return lambda plain: searched(plain, "scan", "SCAN", SEARCHES * SCANS, calls_us, busy, asking)


KEYS_BUSY = SEARCHES * 100_000 * US_PER_KEY / 1e6
"""The share of the main thread that KEYS takes at the top plateau."""

PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "keys-fill-slowlog": [
            Change("nine in ten", entries("SET", 10)),
            Change("a log with hardly an entry", lambda plain: plain.slowlog.__delitem__(slice(9, None))),
        ],
        "exact-cures": [
            Change("hardly half", waits(exact=31.0)),
            Change("fewer keys", others(keys=0.9)),
            Change("fewer events", others(events=0.8)),
        ],
        "keys-follow-keyspace": [
            Change("1.9 times", waits(grow_1=20.0, grow_4=38.0, grow_3=36.0)),
            Change("in no order", waits(grow_1=25.0, grow_2=12.0, grow_3=70.0, grow_4=60.0)),
            Change("flat", waits(grow_1=20.0, grow_2=20.0, grow_3=20.0, grow_4=20.0)),
        ],
        "replica-unharmed": [
            Change(
                "a quarter of the primary's stall",
                lambda plain: plain.p99_ms.update({"grow-4:replica": 15.6}),
            ),
        ],
        "scan-stalls-less": [
            Change("bystanders wait as long", waits(scan=31.0)),
            Change("calls a ninth as long", scan(calls_us=2_800.0)),
            Change("nothing scanned", lambda plain: plain.phase("scan").commands.pop("SCAN")),
        ],
        "scan-works-more": [
            Change("the same work", scan(busy=0.03 + KEYS_BUSY, asking=0.02)),
            Change("1.4 times for both", scan(busy=0.03 + KEYS_BUSY, asking=0.02 + 0.4 * KEYS_BUSY)),
            Change("nothing scanned", lambda plain: plain.phase("scan").commands.pop("SCAN")),
        ],
    },
    bearing={
        "keys-fill-slowlog": [Change("just above nine in ten", entries("SET", 9))],
        "exact-cures": [
            Change("a bit more than half", waits(exact=29.0)),
            Change("a few keys and events fewer", others(keys=0.96, events=0.87)),
        ],
        "keys-follow-keyspace": [
            Change("two neighbours changed places", waits(grow_2=28.0, grow_3=26.0)),
            Change("2.1 times", waits(grow_1=20.0, grow_2=26.0, grow_3=34.0, grow_4=42.0)),
        ],
        "replica-unharmed": [
            Change("just below a quarter", lambda plain: plain.p99_ms.update({"grow-4:replica": 14.4})),
        ],
        "scan-stalls-less": [Change("bystanders wait almost half as long", waits(scan=28.0))],
        "scan-works-more": [
            Change("the invalidator's alone", scan(busy=0.03 + KEYS_BUSY, asking=0.02 + 0.6 * KEYS_BUSY)),
            Change("the server's alone", scan(busy=0.03 + 1.6 * KEYS_BUSY, asking=0.02)),
        ],
    },
)


def on_keydb(of: Callable[[], Plain]) -> Callable[[], Plain]:
    """The same run on KeyDB, where KEYS holds up nobody."""

    def made() -> Plain:
        plain = of()
        plain.facts.server, plain.facts.cannot = "keydb", dict(SERVERS["keydb"].cannot)
        plain.p99_ms |= {"grow-4": 1.2, "scan": 4.0 if plain.scenario is SCENARIO else 1.1}
        return plain

    return made


ELSEWHERE = {
    "keydb": Proofs(
        on_keydb(healthy),
        on_keydb(control),
        refuting={
            "keys-unfelt": [Change("four times", waits(grow_4=4.0))],
            "scan-works-more": PROOFS.refuting["scan-works-more"],
        },
        bearing={
            "keys-unfelt": [Change("2.7 times", waits(grow_4=2.7))],
            "scan-works-more": PROOFS.bearing["scan-works-more"],
        },
    )
}

"""Proofs that the claims of `cures` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.claims.cures import CAUSE, CURES, WAYS
from lab.scenarios.cures import CONTROL, SCENARIO
from tests.lab.plain import Change, Plain, Proofs

P99_MS = {"scan": 180.0, "keys": 120.0, "index": 2.0, "hash": 2.5, "generation": 3.0}
FIGURES = {
    "execution_per_event_us": {
        "scan": 170_000.0,
        "keys": 105_000.0,
        "index": 65.0,
        "hash": 22.0,
        "generation": 9.0,
    },
    "commands_per_event": {"scan": 6.0, "keys": 6.0, "index": 6.0, "hash": 1.0, "generation": 4.0},
    "stale_for_ms": {"scan": 190.0, "keys": 120.0, "index": 18.0, "hash": 17.0, "generation": 20.0},
    "stale_entries": dict.fromkeys(WAYS, 0.0),
    "race_tries": dict.fromkeys(WAYS, 9.0),
    "raced_values": {**dict.fromkeys(WAYS, 9.0), "generation": 0.0},
    "left_per_event": {**dict.fromkeys(WAYS, 0.0), "generation": 20.0},
    "memory_per_entry_bytes": {**dict.fromkeys(WAYS, 335.0), "hash": 280.0, "generation": 338.0},
}
GETS_PER_S = {"hash": 202.0, "generation": 282.0}
"""The probe's 200, the warmer's 2, and the storefront's 40 or 80; under hash those are HGETs."""


def gets(plain: Plain, way: str, per_s: float) -> None:
    """Set the GETs a second in the load phase of a way."""
    phase = plain.phase(f"{way}-load")
    phase.commands["GET"] = {"calls": per_s * phase.seconds, "usec": 2.0 * per_s * phase.seconds}


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    for way in WAYS:
        plain.p99_ms[f"{way}-load"] = P99_MS[way]
        plain.phase(f"{way}-cost").figures |= {name: values[way] for name, values in FIGURES.items()}
        gets(plain, way, GETS_PER_S.get(way, 242.0))
    plain.phase("hash-load").commands["HGET"] = {"calls": 120.0, "usec": 200.0}
    return plain


def control() -> Plain:
    """A run with the index in place of every way: nothing differs but by chance."""
    plain = Plain(CONTROL)
    for i, way in enumerate(WAYS):
        chance = 1.0 + 0.1 * (i % 2)
        plain.p99_ms[f"{way}-load"] = 2.0 * chance
        figures = {name: values["index"] * chance for name, values in FIGURES.items()}
        plain.phase(f"{way}-cost").figures |= figures | {
            "memory_per_entry_bytes": 335.0 + i, "race_tries": 9.0, "raced_values": 9.0 - i % 2
        }  # fmt: skip
        gets(plain, way, 242.0 + i)
    return plain


def waits(way: str, ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of a phase."""
    return lambda plain: plain.p99_ms.update({f"{way}-load": ms})


def figure(way: str, name: str, value: float) -> Callable[[Plain], object]:
    """Change a figure of a way's single events."""
    return lambda plain: plain.phase(f"{way}-cost").figures.update({name: value})


def read(way: str, per_s: float) -> Callable[[Plain], object]:
    """Change the rate of GETs of a way."""
    return lambda plain: gets(plain, way, per_s)


def less_load(way: str) -> Callable[[Plain], object]:
    """Let a way be offered fewer events."""
    return lambda plain: plain.phase(f"{way}-load").events.update(offered_per_s=6.0)


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        **{
            f"{way}-relieves": [
                Change(f"bystanders wait a third as long under {way}", waits(way, 60.0)),
                Change(f"{way} had it easier", less_load(way)),
                Change("nobody waits under SCAN", waits(CAUSE, 4.0)),
            ]
            for way in CURES
        },
        "keys-relieves-not": [
            Change("KEYS helps", waits("keys", 6.0)),
            Change("the index does no better", waits("index", 60.0)),
            Change("KEYS had more to do", less_load("index")),
        ],
        "work-ranked": [
            Change("a SCAN is cheap", figure("scan", "execution_per_event_us", 3_000.0)),
            Change("KEYS is cheap", figure("keys", "execution_per_event_us", 3_000.0)),
            Change("the hash costs what the index does", figure("hash", "execution_per_event_us", 60.0)),
            Change("a number costs more", figure("generation", "execution_per_event_us", 90.0)),
        ],
        "sooner-fresh": [
            Change("SCAN is as quick", figure("scan", "stale_for_ms", 30.0)),
            Change("the index takes long", figure("index", "stale_for_ms", 100.0)),
            Change("an old value under hash", figure("hash", "stale_entries", 1.0)),
            Change("an old value under KEYS", figure("keys", "stale_entries", 1.0)),
        ],
        "race-stays": [
            Change("generation serves one", figure("generation", "raced_values", 1.0)),
            Change("the hash serves none", figure("hash", "raced_values", 0.0)),
            Change("SCAN serves few", figure("scan", "raced_values", 4.0)),
            Change("generation was never tried", figure("generation", "race_tries", 0.0)),
            Change("the index was never tried", figure("index", "race_tries", 0.0)),
        ],
        "generation-leaves": [
            Change("generation deletes", figure("generation", "left_per_event", 0.0)),
            Change("a part of them stays", figure("generation", "left_per_event", 17.0)),
            Change("the hash leaves some too", figure("hash", "left_per_event", 3.0)),
            Change("the index takes more than there is", figure("index", "left_per_event", -3.0)),
        ],
        "generation-reads-twice": [
            Change("one GET is enough", read("generation", 242.0)),
            Change("the index reads twice too", read("index", 282.0)),
        ],
        "hash-leaner": [
            Change("a hash takes as much", figure("hash", "memory_per_entry_bytes", 330.0)),
            Change("keys of their own take little", figure("index", "memory_per_entry_bytes", 290.0)),
        ],
    },
    bearing={
        **{f"{way}-relieves": [Change("a stall of the machine's own", waits(way, 44.0))] for way in CURES},
        "keys-relieves-not": [Change("KEYS is half as bad", waits("keys", 9.0))],
        "work-ranked": [
            Change("cheap keys", figure("keys", "execution_per_event_us", 4_000.0)),
            Change("a dear hash", figure("hash", "execution_per_event_us", 42.0)),
            Change("a number costs as much as a hash", figure("generation", "execution_per_event_us", 22.0)),
        ],
        "sooner-fresh": [
            Change("a slow cure", figure("generation", "stale_for_ms", 90.0)),
            Change("cures quicker than can be seen", figure("index", "stale_for_ms", 0.0)),
        ],
        "race-stays": [
            Change("some expired", figure("index", "raced_values", 5.0)),
            Change("fewer tries", figure("generation", "race_tries", 1.0)),
        ],
        "generation-leaves": [
            Change("a read met an expiry", figure("generation", "left_per_event", 18.5)),
            Change("somebody else's read", figure("keys", "left_per_event", 0.3)),
        ],
        "generation-reads-twice": [Change("a probe that lags", read("index", 248.0))],
        "hash-leaner": [Change("larger fields", figure("hash", "memory_per_entry_bytes", 305.0))],
    },
)

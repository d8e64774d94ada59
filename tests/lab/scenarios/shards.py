"""Proofs that the claims of `shards` can fail."""

from __future__ import annotations

import math
from collections.abc import Callable

from lab.claims.shards import NODES, ONE, PROBES, THREE
from lab.scenarios.shards import CONTROL, KNEE_AT, SCENARIO
from tests.lab.plain import EVENTS_PER_S, Change, Plain, Proofs

KEYS = 100_000
KNEE = KNEE_AT * KEYS
BASE = 0.02
CALLS = 3
KEY_US = 1e6 * (1 - BASE) / (EVENTS_PER_S * CALLS * KNEE)
"""What a visited key costs a held node: so much that one node saturates at the knee."""
INDEX_P99 = 1.5
PAGES = {
    "slow_ms": 4.0,
    "tagged_slow_share": 0.33,
    "spread_slow_share": 0.97,
    "tagged_p50_ms": 0.8,
    "spread_p50_ms": 30.0,
    "tagged_p99_ms": 60.0,
    "spread_p99_ms": 65.0,
}
WHERE = {
    "users": 4000.0,
    "nodes": 3.0,
    "nodes_with_keys": 3.0,
    "nodes_per_user_most": 1.0,
    "slots_per_user_most": 1.0,
}


def search(plain: Plain, phase_id: str, nodes: int, knee: float = KNEE, work: float = 1.0) -> None:
    """Give a phase the counters of nodes on which each event searches: `knee` is that of one node.

    `work`: how many times as many calls an event makes as there are pages.
    """
    phase = plain.phase(phase_id)
    asked = BASE + (1 - BASE) * phase.keys / nodes / knee
    phase.utilisation = min(1.0, asked)
    calls = work * CALLS * nodes * math.ceil(phase.keys / nodes / SCENARIO.scan_count)
    events = EVENTS_PER_S * phase.seconds / max(1.0, asked)
    phase.events["finished_per_s"] = events / phase.seconds
    phase.commands["SCAN"] = {"calls": calls * events, "usec": KEY_US * CALLS * phase.keys * events}
    for node in range(1, nodes + 1):
        phase.figures[f"node_{node}_busy_s"] = phase.utilisation * phase.seconds
        phase.figures[f"node_{node}_scans"] = calls * events / nodes
        phase.figures[f"node_{node}_scan_us"] = KEY_US * CALLS * phase.keys * events / nodes
        phase.figures[f"node_{node}_periods"] = 150.0 * phase.seconds
        phase.figures[f"node_{node}_held"] = 150.0 * phase.seconds * phase.utilisation
    plain.p99_ms[phase_id] = 12.0 * (1 + 8 * max(0.0, asked - 0.9))


def base(plain: Plain) -> Plain:
    """Give all phases what they have with searches and without."""
    plain.facts.calibration |= {"base_utilisation": BASE}
    plain.phase("where").figures |= WHERE
    plain.phase("pages").figures |= PAGES
    return plain


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = base(Plain(SCENARIO, KEYS))
    for arm, nodes in ((ONE, 1), (THREE, NODES)):
        for phase in plain.arm(arm):
            search(plain, phase.id, nodes)
            if phase is plain.arm(arm)[-1]:
                plain.p99_ms |= {phase.id: 90.0, f"{phase.id}:node-2": 80.0, f"{phase.id}:node-3": 85.0}
    for probe in PROBES:
        plain.p99_ms["index" if probe == "main" else f"index:{probe}"] = INDEX_P99
    return plain


def control() -> Plain:
    """A run in which nothing is searched, keys have no tags, and no node is slow."""
    plain = base(Plain(CONTROL, KEYS))
    for phase in plain.facts.phases:
        phase.utilisation = 0.05
        phase.figures |= {f"node_{node}_scans": 0.0 for node in range(1, NODES + 1)}
    plain.phase("where").figures |= {"nodes_per_user_most": 3.0, "slots_per_user_most": 20.0}
    plain.phase("pages").figures |= {"tagged_slow_share": 0.01, "spread_slow_share": 0.02}
    return plain


def moved(times: float) -> Callable[[Plain], object]:
    """Another knee of three nodes: so many times that of one node, in keys, because events make more or fewer calls."""

    def change(plain: Plain) -> None:
        for phase in plain.arm(THREE):
            search(plain, phase.id, NODES, KNEE * times / NODES, NODES / times)

    return change


def drifted(speed: float) -> Callable[[Plain], object]:
    """A machine so many times as fast while three nodes are measured."""

    def change(plain: Plain) -> None:
        for phase in plain.arm(THREE):
            search(plain, phase.id, NODES, KNEE * speed)

    return change


def figure(phase_id: str, name: str, value: float) -> Callable[[Plain], object]:
    """Another figure of a phase."""
    return lambda plain: plain.phase(phase_id).figures.update({name: value})


def waits(name: str, p99_ms: float) -> Callable[[Plain], object]:
    """Another p99."""
    return lambda plain: plain.p99_ms.update({name: p99_ms})


def calls(times: float, nodes: tuple[int, ...] = (1, 2, 3)) -> Callable[[Plain], object]:
    """Another number of searches on some nodes."""

    def change(plain: Plain) -> None:
        for node in nodes:
            plain.phase("three-1").figures[f"node_{node}_scans"] *= times

    return change


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "search-goes-everywhere": [
            Change("a search that makes a third of the calls", calls(0.33)),
            Change("a search that makes three times as many", calls(3.0)),
            Change("a node that is hardly asked", calls(0.1, (3,))),
            Change("other keys", lambda plain: setattr(plain.phase("three-1"), "keys", 40_000.0)),
        ],
        "knee-moves": [
            Change("a knee that stays", moved(1.2)),
            Change("a knee a third too early", moved(2.0)),
            Change("a knee that is not reached", moved(9.0)),
            Change("a machine at half its speed meanwhile", drifted(0.5)),
        ],
        "knee-remains": [
            Change("no rise on three nodes", waits("three-4", 30.0)),
            Change("no rise on one", waits("one-4", 30.0)),
        ],
        "index-cures-every-shard": [
            Change("one node that stays slow", waits("index:node-3", 40.0)),
            Change("another that does", waits("index", 40.0)),
            Change("another load", lambda plain: plain.phase("index").events.update(offered_per_s=2.0)),
        ],
        "slow-shard-spreads": [
            Change("spread pages that suffer no more", figure("pages", "spread_slow_share", 0.33)),
            Change("no page that suffers", figure("pages", "tagged_slow_share", 0.01)),
            Change("all pages suffer alike", figure("pages", "tagged_slow_share", 0.97)),
        ],
        "tags-keep-together": [
            Change("a user on two nodes", figure("where", "nodes_per_user_most", 2.0)),
            Change("a user in two slots", figure("where", "slots_per_user_most", 2.0)),
            Change("all users on one node", figure("where", "nodes_with_keys", 1.0)),
            Change("hardly a user seen", figure("where", "users", 50.0)),
        ],
    },
    bearing={
        "search-goes-everywhere": [
            Change("a few calls fewer", calls(0.9)),
            Change("some calls more", calls(1.2)),
        ],
        "knee-moves": [
            Change("a tenth too early", moved(2.75)),
            Change("a tenth too late", moved(3.25)),
            Change("a machine that became faster meanwhile", drifted(1.25)),
            Change("a machine that became slower meanwhile", drifted(0.9)),
        ],
        "knee-remains": [Change("less of a rise", waits("three-4", 60.0))],
        "index-cures-every-shard": [Change("one node less relieved", waits("index:node-3", 15.0))],
        "slow-shard-spreads": [
            Change("fewer users on the slow node", figure("pages", "tagged_slow_share", 0.2)),
            Change("some pages that got through", figure("pages", "spread_slow_share", 0.85)),
        ],
        "tags-keep-together": [Change("fewer users", figure("where", "users", 200.0))],
    },
)

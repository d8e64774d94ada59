"""Proofs that the claims of `same-search` can fail: on a server that is held up, on one that is not, and on KeyDB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lab.scenarios.same_search import CONTROL, SCENARIO
from lab.stacks.servers import SERVERS
from tests.lab.plain import Change, Plain, Proofs

US_PER_KEY = 2.0
"""The server's CPU time for each key that an event searches, all patterns together."""
QUIET = 0.02
SLICE_MS = 3.0


def costs(us_per_key: float) -> Callable[[Plain], object]:
    """Set what a key costs at the most keys."""

    def change(plain: Plain) -> None:
        top = plain.phase("grow-4")
        top.processes["store"] = QUIET + top.events["finished_per_s"] * us_per_key * top.keys / 1e6

    return change


def healthy(server: str) -> Plain:
    """A run on this server, in which every claim holds that it can answer."""
    plain = Plain(SCENARIO)
    plain.facts.server = SERVERS[server].product
    plain.facts.cannot = dict(SERVERS[server].cannot)
    for phase in plain.facts.phases:
        event_s = 0.0 if phase.id == "index" else US_PER_KEY * phase.keys / 1e6
        phase.processes["store"] = QUIET + phase.events["finished_per_s"] * event_s
        held_up = server != "dragonfly-current" and not (server == "keydb" and phase.id == "keys")
        plain.p99_ms[phase.id] = max(1.0, 1000 * event_s) if held_up else SLICE_MS
    return plain


def control(server: str) -> Plain:
    """A run that searches nothing."""
    plain = Plain(CONTROL)
    plain.facts.server = SERVERS[server].product
    plain.facts.cannot = dict(SERVERS[server].cannot)
    for i, phase in enumerate(plain.facts.phases):
        phase.processes["store"] = QUIET + 0.001 * i
        plain.p99_ms[phase.id] = 1.1 if i % 2 else 0.9
    return plain


def waits(**p99_ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of phases; underscores stand for hyphens."""
    return lambda plain: plain.p99_ms.update({name.replace("_", "-"): ms for name, ms in p99_ms.items()})


WORK_FAILS = [
    Change("a key costs a third", costs(US_PER_KEY / 3)),
    Change("a key costs three times as much", costs(3 * US_PER_KEY)),
]
WORK_HOLDS = [Change("a key costs 1.8 times as much", costs(1.8 * US_PER_KEY))]

PROOFS = Proofs(
    partial(healthy, "embedded"),
    partial(control, "embedded"),
    refuting={
        "waits-follow-keys": [
            Change("in no order", waits(grow_1=90.0, grow_2=20.0, grow_3=200.0, grow_4=100.0)),
            Change("3.5 times", waits(grow_1=20.0, grow_2=30.0, grow_3=50.0, grow_4=70.0)),
        ],
        "work-stays": WORK_FAILS,
    },
    bearing={
        "waits-follow-keys": [Change("5 times", waits(grow_1=20.0, grow_2=30.0, grow_3=60.0, grow_4=100.0))],
        "work-stays": WORK_HOLDS,
    },
)
ELSEWHERE = {
    "dragonfly-current": Proofs(
        partial(healthy, "dragonfly-current"),
        partial(control, "dragonfly-current"),
        refuting={
            "waits-stay": [
                Change("3.5 times", waits(grow_1=SLICE_MS, grow_4=3.5 * SLICE_MS)),
                Change("a third of an event", waits(grow_1=60.0, grow_4=70.0)),
            ],
            "work-stays": WORK_FAILS,
        },
        bearing={"waits-stay": [Change("2.5 times", waits(grow_4=2.5 * SLICE_MS))], "work-stays": WORK_HOLDS},
    ),
    "keydb": Proofs(
        partial(healthy, "keydb"),
        partial(control, "keydb"),
        refuting={
            "waits-follow-keys": [
                Change("3.5 times", waits(grow_1=20.0, grow_2=30.0, grow_3=50.0, grow_4=70.0))
            ],
            "work-stays": WORK_FAILS,
            "keys-harmless": [
                Change("KEYS holds up others as SCAN does", waits(keys=180.0)),
                Change("SCAN holds up nobody", waits(grow_4=SLICE_MS)),
            ],
        },
        bearing={
            "waits-follow-keys": [
                Change("5 times", waits(grow_1=20.0, grow_2=30.0, grow_3=60.0, grow_4=100.0))
            ],
            "work-stays": WORK_HOLDS,
            "keys-harmless": [Change("KEYS makes wait a bit", waits(keys=30.0))],
        },
    ),
}

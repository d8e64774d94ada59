"""`one-slot`: a hash tag before the first wildcard. In cluster mode a search then visits one slot and not the keyspace.

A server in cluster mode has 16,384 slots, also where it is the only node. Since Redis 8 and Valkey 8 it keeps the keys
of each slot apart, and a SCAN or KEYS whose pattern can match in one slot only visits that one. All keys of a user have
the user's id as their hash tag here (the layout `tagged`). What differs is the pattern: behind a wildcard the tag helps
nobody, before it an event costs next to nothing. But if one user has very many keys in a slot, every search of this
slot visits them, also that of another user.

Nothing of the application changes but names, so this is a cure for a team that has to go on searching. It is none
without cluster mode (the control), on Dragonfly, on KeyDB, and on releases before; the lab says so before it measures.
"""

from __future__ import annotations

from lab.claims import slots
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

FEW, MANY = 10_000, 100_000
"""Entries of the neighbour in the slot."""
LOADS_MB = 120.0
"""Memory of the neighbour's entries in the server, and of their names in the processes that put and invalidate them."""


def events(neighbour: int = 0) -> LoadSpec:
    """A load of events one by one, of a user of its own whose neighbour has that many entries."""
    words = ("--storefront", "{web}", "--first-user", "{beyond}", "--each", "{each}", "--rounds", "{rounds}")
    return LoadSpec("events", "slots", (*words, "--neighbour", str(neighbour)), self_terminating=True)


PHASES = (
    Phase("late-cost", "cost", "tag behind a wildcard: event by event", "scan-tagged", 1.0, events=0.0,
          loads=(events(),), neutral="way 1: event by event"),
    Phase("late-load", "load", "tag behind a wildcard: under load", "scan-tagged", 1.0, neutral="way 1: under load"),
    Phase("slot-cost", "cost", "tag first: event by event", "slot", 1.0, events=0.0,
          loads=(events(),), neutral="way 2: event by event"),
    Phase("slot-load", "load", "tag first: under load", "slot", 1.0, neutral="way 2: under load"),
    *(
        Phase(f"shared-{entries}", "shared", f"tag first, {entries:,} entries beside", "slot", 1.0, events=0.0,
              loads=(events(entries),), params={"neighbour": float(entries)}, neutral=f"way 2, setting {number}")
        for number, entries in enumerate((FEW, MANY), start=1)
    ),
)  # fmt: skip

CLAIMS = (
    slots.tag_first_costs_little(times=30),
    slots.slot_relieves(times=4),
    slots.shared_slot_costs(times=20, few=FEW, many=MANY, growth=3),
)

SCENARIO = Scenario(
    id="one-slot",
    title="A hash tag before the wildcard",
    story="In cluster mode a search whose pattern begins with the user's hash tag visits one of 16,384 slots. The same "
    "search with a wildcard before the tag visits every key, and so do they all without cluster mode.",
    source="an optimisation of Redis 8 and Valkey 8 (redis/redis #12536 and #12754)",
    phases=PHASES,
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=4.0, settle_s=0.3, keys=120_000, sizes={"rounds": 5}, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=15.0, settle_s=1.0, keys=200_000, sizes={"rounds": 10}, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=3.0, keys=2_000_000, sizes={"rounds": 10}, loads_mb=LOADS_MB),
    },
    knee_at=1.0,
    load_share=0.8,
    scan_count=20_000,
    searching="scan-tagged",
    own_server=True,
    server_settings={"cluster-enabled": "yes"},
    charts=(
        Chart("waiting", "What a bystander waits under load", "bars", "title", "p99", arm="load"),
        Chart(
            "work",
            "What an event costs the server",
            "bars",
            "title",
            "figure:execution_per_event_us",
            arm="cost",
            note="Execution time by the server's own counters, for single events on an otherwise quiet server.",
        ),
        Chart(
            "neighbour",
            "What the same event costs beside a neighbour in its slot",
            "bars",
            "title",
            "figure:execution_per_event_us",
            arm="shared",
        ),
    ),
    fixes=(("late-load", "slot-load"),),
    symptom="events search the keyspace, the server drowns, and the search cannot be given up",
    cause="a wildcard stands before the hash tag, so the server cannot know the one slot to visit",
    headline="tag-first-costs-little",
)

CONTROL = control_of(
    SCENARIO,
    "The same names, patterns and phases on a server that is not in cluster mode: it has no slots, every search "
    "visits all keys, and every claim must be refuted.",
    title="one-slot without cluster mode",
    own_server=False,
    server_settings={},
)

"""`cures`: five strategies side by side in one run: bystanders' waits, the cost of an event, and leftover entries.

Each strategy first gets single events on users of their own (`loadtest.incidents.freshness`). They measure an event's
cost to the server, for how long old values are served after it, the keys left behind, and whether a value is served
that was computed before it and put after it. Then it gets the same load as all others; under SCAN that load takes most
of the server's time. A strategy with a layout of its own begins with an empty server, so that memory and key count are
its own; scan, keys and index share a layout.

COUNT is larger than the keyspace, so that SCAN makes as many calls as KEYS does, and both are compared by their work.
The event rate is close to what the server can do under SCAN, so that bystanders wait for whole events.
"""

from __future__ import annotations

from lab.claims import cures, planned
from lab.results.folder import Run
from lab.scenarios.model import Chart, Listing, LoadSpec, Pace, Phase, Scenario, control_of

COMMANDS = {
    "scan": "SCAN,UNLINK",
    "keys": "KEYS,UNLINK",
    "index": "SSCAN,MULTI,UNLINK,SREM,EXEC",
    "hash": "UNLINK",
    "generation": "MULTI,INCRBY,PEXPIREAT,EXEC",
}
"""Strategy → the commands of an event. Nothing else sends these commands while no entries are put."""
LOADS_MB = 90.0
"""Memory of the program that invalidates user by user, and of the one that looks for old values."""
LATE_PUT = "a value computed before an event and put after it"
STALE = {
    "scan": (LATE_PUT, "one TTL", "members in the index sets, until one TTL after their entries'"),
    "keys": (LATE_PUT, "one TTL", "members in the index sets, until one TTL after their entries'"),
    "index": (
        f"{LATE_PUT}; an entry that another program put without its membership (there is a back-fill); an "
        "entry whose index set the server evicted (not under noeviction and volatile-ttl)",
        "one TTL; that entry's own TTL; one TTL",
        "members of entries that ended by their TTL, for one TTL more at most",
    ),
    "hash": (
        LATE_PUT,
        "one TTL",
        "nothing; but a field that has ended stays until its user is left alone for one TTL",
    ),
    "generation": ("nothing", "–", "all entries of earlier generations, until their TTL ends"),
}
"""Strategy → what may be served although a finished event made it stale, for how long at most, and what takes memory in
vain; from app/strategies and app/layouts.py. tests/app/test_layout_machine.py tests these statements."""


def single_events(strategy: str) -> LoadSpec:
    """A load of events one by one, on users of its own."""
    where = ("--storefront", "{web}", "--first-user", "{beyond}", "--users", "3", "--each", "{each}")
    what = ("--entries", "{keys}", "--base-mb", "{base[memory_mb]}", "--commands", COMMANDS[strategy])
    return LoadSpec("events", "freshness", (*where, *what), self_terminating=True)


def phases(strategies: dict[str, str]) -> tuple[Phase, ...]:
    """Return two phases for each strategy. `strategies` maps each to the one used in its place."""
    look = LoadSpec(
        "look", "freshness",
        ("--storefront", "{web}", "--first-user", "{beyond}", "--users", "0", "--seconds", "{seconds}"),
        self_terminating=True,
    )  # fmt: skip
    first = strategies[cures.CAUSE]
    found = [Phase("base", "base", "nothing cached", first, 0.0, 0.25, events=0.0, loads=(look,))]
    for number, (named, strategy) in enumerate(strategies.items(), start=1):
        name = named if named == strategy else f"{strategy} in place of {named}"
        found += [
            Phase(
                f"{named}-cost", "cost", f"{name}: event by event", strategy, 1.0,
                empty=named in planned.OWN_LAYOUT, events=0.0, loads=(single_events(strategy),),
                neutral=f"way {number}: event by event",
            ),
            Phase(
                f"{named}-load", "load", f"{name}: under load", strategy, 1.0,
                neutral=f"way {number}: under load",
            ),
        ]  # fmt: skip
    return tuple(found)


def staleness(run: Run) -> list[list[str]]:
    """The rows of `STALE` for the strategies of a run."""
    used = dict.fromkeys(phase.strategy for phase in run.phases)
    return [[strategy, *STALE[strategy]] for strategy in used if strategy in STALE]


CLAIMS = (
    *(cures.relieves(named, times=4) for named in cures.CURES),
    cures.keys_relieves_not(times=4),
    cures.work_ranked(search_times=50, rank_times=1.5),
    cures.sooner_fresh(times=2),
    cures.race_stays(share=0.5),
    cures.generation_leaves(share=0.1, each=20),
    cures.generation_reads_twice(times=1.5),
    cures.hash_leaner(share=0.92),
)

SCENARIO = Scenario(
    id="cures",
    title="Five ways to invalidate, side by side",
    story="scan, keys, index, hash and generation at the same entries and the same load: what bystanders wait, what an "
    "event costs the server, what it leaves in memory, and for how long old values are served.",
    source="the cures of key-growth, named or taken in 'Debugging Redis Latency', and the field's others",
    phases=phases({named: named for named in cures.STRATEGIES}),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=4.0, settle_s=0.3, keys=120_000, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=15.0, settle_s=1.0, keys=200_000, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=3.0, keys=2_000_000, loads_mb=LOADS_MB),
    },
    knee_at=1.0,
    load_share=0.8,
    scan_count=4_000_000,
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
            "commands",
            "How many commands an event takes",
            "bars",
            "title",
            "figure:commands_per_event",
            arm="cost",
        ),
        Chart(
            "memory", "Memory for each entry", "bars", "title", "figure:memory_per_entry_bytes", arm="cost"
        ),
        Chart(
            "left",
            "Keys that an event leaves behind",
            "bars",
            "title",
            "figure:left_per_event",
            arm="cost",
            note="After the event all was read, and so cached, again. What is left behind stays until its TTL ends.",
        ),
        Chart(
            "stale",
            "How long old values are served after an event was accepted",
            "bars",
            "title",
            "figure:stale_for_ms",
            arm="cost",
        ),
    ),
    listings=(
        Listing("Measured side by side", ("strategy", *cures.HEADINGS), cures.side_by_side),
        Listing(
            "What can go stale, by each strategy's own account",
            (
                "strategy",
                "can be served after the event is done",
                "for how long at most",
                "takes memory in vain",
            ),
            staleness,
        ),
    ),
    fixes=(("scan-load", "index-load"), ("scan-load", "hash-load"), ("scan-load", "generation-load")),
    symptom="the search has to go, and every cure looks alike until it is measured",
    cause="how entries are named and laid out decides what an invalidation costs, and whom",
    headline="index-relieves",
)

CONTROL = control_of(
    SCENARIO,
    "The same phases and load, but every way is the index: nothing differs, and every claim must be refuted.",
    title="cures with one strategy in all places",
    source="no-difference control of cures",
    phases=phases(dict.fromkeys(cures.STRATEGIES, "index")),
)

"""`empty-slowlog`: with the default COUNT no call is ever slow, yet the calls saturate the server.

The storefront's search, with COUNT 10: tens of thousands of calls for one event. The storefront's own invalidator would
saturate long before the server (a call costs asyncio many times what it costs the server). So the events come from
`loadtest.incidents.scanners`, which shares connections among them as multiplexing clients do.

Keys grow, and on each plateau enough events at once keep the server busy. The load measures how many calls an event
makes, and for how many events per second the server has calls. The rate that the fewest keys allowed is then offered at
the top, where it is several times what the server can do. Then the same rate of events comes through the storefront,
which invalidates by index.
"""

from __future__ import annotations

from dataclasses import replace

from lab.claims import smallcalls
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

PLATEAUS = (0.125, 0.35, 1.0)
LOADS_MB = 80.0
"""Memory of the program that searches."""
RATE = "look-1[capacity_per_s]"
SEARCH = (
    *(word for area in ("page", "cart", "offer") for word in ("--match", f"{{storefront}}:user:@:{area}-*")),
    "--users", "{users}", "--seed", "{seed}", "--count", "10",
)  # fmt: skip


def _scanners(*arguments: str, cpu_bound: bool = False) -> tuple[LoadSpec, ...]:
    return (LoadSpec("scanners", "scanners", (*SEARCH, *arguments), cpu_bound=cpu_bound),)


def _by_index(phase: Phase) -> Phase:
    """The same phase without a search: its events come through the storefront, at the rate of the others."""
    return replace(phase, loads=(), events=1.0, events_from=RATE)


def phases(searched: bool) -> tuple[Phase, ...]:
    """The story. Not `searched` (the control): nothing is searched once the rate is known."""
    looks = [
        Phase(
            f"look-{number}",
            "look",
            "what one event takes",
            "index",
            share,
            0.4,
            loads=_scanners("--most", "24", cpu_bound=True),
            events=0.0,
        )
        for number, share in enumerate(PLATEAUS, start=1)
    ]
    storm = Phase(
        "storm",
        "storm",
        "the events that few keys allowed",
        "index",
        1.0,
        loads=_scanners("--rate", f"{{{RATE}}}"),
        events=0.0,
    )
    cure = Phase(
        "cure",
        "cure",
        "the cure: invalidate by index",
        "index",
        1.0,
        events_from=RATE,
        neutral="after the change",
    )
    if not searched:
        looks[1:], storm = map(_by_index, looks[1:]), _by_index(storm)
    return (*looks, storm, cure)


CLAIMS = (
    smallcalls.drowns(busy=0.7, done=0.5, times=2),
    smallcalls.slowlog_empty(one_in=100_000, busy=0.7),
    smallcalls.calls_are_short(share=0.01),
    smallcalls.calls_per_event(at_least=1_000, within=0.25),
    smallcalls.time_in_scan(share=0.9),
    smallcalls.index_cures(busy_times=2, p99_times=2),
)

SCENARIO = Scenario(
    id="empty-slowlog",
    title="A saturated server with an empty slow log",
    story="Each event searches the keyspace with COUNT 10: tens of thousands of calls of a few microseconds, none of "
    "them slow, and the server has time for nothing else.",
    source="public reports: COUNT 10 over 150 000 keys, 15 000 round trips a search, nothing in the slow log",
    phases=phases(searched=True),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=8.0, settle_s=0.3, keys=60_000, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=20.0, settle_s=1.0, keys=150_000, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=60.0, settle_s=3.0, keys=150_000, loads_mb=LOADS_MB),
    },
    knee_at=None,
    scan_count=10,
    server_core=True,
    charts=(
        Chart("calls", "Calls that one event makes", "lines", "keys", "figure:calls_per_event", arm="look"),
        Chart(
            "capacity", "Events that the server can do", "lines", "keys", "figure:capacity_per_s", arm="look"
        ),
        Chart("call", "How long one of the calls takes", "lines", "keys", "exec:SCAN", arm="look"),
        Chart("wait", "What a bystander waits", "bars", "title", "p99"),
        Chart("busy", "How busy the server is", "bars", "title", "utilisation"),
    ),
    fixes=(("storm", "cure"),),
    symptom="the server has no time left, its slow log is empty",
    cause="SCAN with COUNT 10: every call is short, an event makes tens of thousands",
    headline="slow-log-empty",
)

CONTROL = control_of(
    SCENARIO,
    "The same rate of events over the same keys, but they are invalidated by index from the beginning, and "
    "nothing is searched: all claims must be refuted.",
    phases=phases(searched=False),
)

"""`scan-count`: the cost of COUNT and of many iterations at once, for the clients that iterate and all others.

A bystander load sends GETs as fast as they are answered, beside a sweep of COUNT × clients that walk the whole keyspace
with SCAN, over and over. The original had 50 million keys, COUNT 100, 1 000 and 10 000, up to 1 000 iterations at once
and memtier's 200 connections; `--pace full` has 5 million keys and as many iterations (``--keys`` takes it to 50).
COUNT means something different to each server, so servers are compared by work: an iteration returns every key once,
and the keys visited per second are counted beside the GETs left to the bystanders.
"""

from __future__ import annotations

from lab.claims import sweep
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

COUNTS = (100, 1_000, 10_000)
"""COUNTs of the sweep. COUNT 10, Redis's default, is tried by one client alone: more clients would limit themselves."""
AT_ONCE = {"one": "one iteration", "several": "several at once", "many": "many at once"}
"""Numbers of clients that iterate at once. The pace sets them: {one}, {several} and {many} are among its sizes."""
BYSTANDERS = LoadSpec(
    "bystanders",
    "bystanders",
    ("--connections", "4", "--pipeline", "32", "--prefix", "{prefix}"),
    cpu_bound=True,
    reports_ready=True,
)
STRATEGY = "ttl"
"""Nothing is invalidated here, so there are only keys, as in the original. Without an index, filling five million takes
little more than half the time."""
REPLIES_MB = 450.0
"""Memory at full pace, where a thousand replies of 10 000 keys wait in the server to be read."""
PING = ("--command", "ping", "--rest-ms", "50")
"""In the control nothing is walked: an iteration is ten PINGs, followed by a rest."""


def phases(*more: str) -> tuple[Phase, ...]:
    """The sweep, with `more` arguments for the clients that iterate. The steps of one COUNT follow one another."""

    def alone(name: str, title: str) -> Phase:
        return Phase(name, "alone", title, STRATEGY, 1.0, loads=(BYSTANDERS,))

    def cell(number: int, count: int, at_once: str) -> Phase:
        arguments = ("--count", str(count), "--concurrent", f"{{{at_once}}}", *more)
        return Phase(
            f"{at_once}-{count}",
            "sweep",
            f"COUNT {count:,}, {AT_ONCE[at_once]}",
            STRATEGY,
            1.0,
            loads=(
                BYSTANDERS,
                LoadSpec("iterations", "iterations", arguments, cpu_bound=True, reports_ready=True),
            ),
            params={"count": float(count)},
            neutral=f"exports, setting {number}",
        )

    settings = [(10, "one"), *((count, at_once) for count in COUNTS for at_once in AT_ONCE)]
    return (
        alone("alone", "bystanders alone"),
        *(cell(number, *setting) for number, setting in enumerate(settings, start=1)),
        alone("alone-again", "bystanders alone, again"),
    )


CHARTS = (
    Chart(
        "left",
        "GETs a second that are left to the bystanders",
        "heat",
        "param:count",
        "rate:GET",
        "figure:concurrent",
        note="Each step up, to more iterations at once, takes from everybody else. So does each step to the right, "
        "where a client gets more done.",
    ),
    Chart(
        "waits",
        "p99 of a bystander's GET",
        "heat",
        "param:count",
        "p99",
        "figure:concurrent",
        note="From the moment each GET of the open-loop probe was due.",
    ),
    Chart(
        "iteration",
        "Time of one full iteration",
        "lines",
        "param:count",
        "figure:iteration_s",
        "figure:concurrent",
        note="Where not every client finished one, it is what one would take at the pace that was seen.",
    ),
    Chart(
        "stall",
        "The server's time for one call: nobody else is served meanwhile",
        "lines",
        "param:count",
        "exec:SCAN",
        "figure:concurrent",
    ),
    Chart(
        "longest",
        "The longest single call in the typical iteration, as its client saw it",
        "lines",
        "param:count",
        "figure:longest_in_iteration_ms",
        "figure:concurrent",
        note="It waits for the other iterations' calls too.",
    ),
    Chart(
        "crowd",
        "What more iterations at once leave to the bystanders",
        "lines",
        "figure:concurrent",
        "rate:GET",
        "param:count",
    ),
    Chart(
        "work",
        "Equal work: keys visited a second, and what is left to the bystanders",
        "lines",
        "figure:visited_per_s",
        "rate:GET",
        "param:count",
        note="COUNT means something else to each server; a visited key does not. Compare servers at the same place of "
        "the axis below.",
    ),
)

SCENARIO = Scenario(
    id="scan-count",
    title="What COUNT and concurrent SCANs cost",
    story="Full iterations with a small COUNT take many times as long; with a large one each call is a longer stall; "
    "and whatever COUNT, the more of them run at once, the less everybody else gets done.",
    source="'The Effects of Redis SCAN on Performance and How KeyDB Improved It': 50 million keys, COUNT 100 to "
    "10 000, up to 1 000 iterations at once",
    phases=phases(),
    claims=(
        sweep.small_count_is_slow(times=5, share=0.25),
        sweep.call_grows(times=20),
        sweep.throughput_falls(step=0.85, counts=COUNTS, whole=0.85),
        sweep.waits_grow(times=3),
    ),
    paces={
        "quick": Pace(2.0, 0.2, 100_000, {"one": 1, "several": 4, "many": 16}),
        "standard": Pace(6.0, 1.0, 500_000, {"one": 1, "several": 8, "many": 64}),
        "full": Pace(15.0, 2.0, 5_000_000, {"one": 1, "several": 32, "many": 1_000}, REPLIES_MB),
    },
    knee_at=None,
    scan_count=1_000,
    server_core=True,
    reads_per_second=10.0,
    charts=CHARTS,
    symptom="throughput of everybody collapses while exports or clean-ups walk the keyspace",
    cause="concurrent full SCANs share the one thread; COUNT only chooses between slow iterations and long stalls",
    headline="throughput-falls",
)

CONTROL = control_of(
    SCENARIO,
    "The same bystanders, and as many clients beside them, but they walk nothing: every claim must be refuted.",
    phases=phases(*PING),
)

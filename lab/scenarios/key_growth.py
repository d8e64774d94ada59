"""`key-growth`: SCAN invalidation over a growing keyspace, the lab's main incident.

Why the keys stay below COUNT: a bystander waits for one call of each SCAN in flight. On Redis and Valkey a call takes
COUNT times the cost of a key, or the whole keyspace where that is smaller. So p99 grows with the keys up to COUNT and
stands still from there to the knee. COUNT is the one that services are configured to send (`lab.server.servers`), and
the server holds at most 0.95 of it, with the index sets. On Dragonfly COUNT is of matches and makes no difference here.
(Smaller counts have a scenario of their own, `empty-slowlog`.)

Events take keys away until they are read again. With few users that is a percent of them in a second, so plateaus
are short at every pace; the events of one are many.
"""

from __future__ import annotations

from lab.claims import latency, server
from lab.scenarios.model import Arms, Chart, Pace, Phase, ProbeSpec, Scenario

ARMS = Arms(rising="grow", cured="index")
GROW = ARMS.rising
PLATEAUS = (0.025, 0.15, 0.30, 0.50, 0.65, 0.80, 1.0)
INDEX_PLATEAUS = (0.025, 0.30, 0.60, 1.0)
PREDICTED_FROM = 0.50
"""From this share of the keys on, a plateau's demand is predicted. These make the line that crosses the capacity."""
KNEE_AT = 0.85
"""Share of the keys at which the knee is planned. The speed of memory was seen to change within a run, but by less than
the distance to the largest plateau. So the knee is observed."""
EDGE = 0.78
"""Share of the keys just below the knee: as much trouble as the server can bear without a backlog that outlives the
phase."""
WRONG_TURNS_AT = 0.65
"""The plateau, below the knee, on which the wrong turns are tried. Beyond the knee no connection can pass the queue."""


def phases(cause: str) -> tuple[Phase, ...]:
    """The story with `cause` as the strategy before the fix: ``scan``, or ``index`` for the control.

    The titles do not name the strategies: the terminal shows them while a learner still looks for the cause.
    """
    grow = [
        Phase(f"{GROW}-{i}", GROW, "keys grow", cause, share, predict=share >= PREDICTED_FROM)
        for i, share in enumerate(PLATEAUS, start=1)
    ]
    pool = ProbeSpec("pool", connections=50)
    fresh = ProbeSpec("fresh", reconnect_seconds=1.0)
    index = [
        Phase(f"{ARMS.cured}-{i}", ARMS.cured, "keys grow after the fix", "index", share, empty=i == 1)
        for i, share in enumerate(INDEX_PLATEAUS, start=1)
    ]
    tried = PLATEAUS.index(WRONG_TURNS_AT) + 1
    turns = Phase(
        "turns",
        "turns",
        "wrong turns: a pool of 50, fresh connections",
        cause,
        WRONG_TURNS_AT,
        2.0,
        probes=(pool, fresh),
    )
    return (
        *grow[:tried],
        turns,
        *grow[tried:],
        Phase("restart", "restart", "the server is restarted: few keys", cause, PLATEAUS[0], empty=True),
        Phase("return", "return", "the keys come back", cause, EDGE),
        Phase("fix", "fix", "the fix", "index", EDGE, 0.5),
        *index,
    )


CLAIMS = (
    # Among seven plateaus two pairs of neighbours may change places (0.93). One run of ten had that: events overlapped
    # on one plateau, and two plateaus lay at the knee. By chance 17 of 5,040 orders are as good.
    latency.follows_keys("p99-follows-keys", "p99 of bystanders rises with the key count", GROW, rank=0.9),
    latency.rises(GROW, times=5),
    latency.is_one_search(GROW, low=0.7, high=2),
    latency.cures("index-cures", "SCAN", "the index", GROW, ARMS.cured, times=12.5),
    latency.flat_under_index(GROW, ARMS.cured, share=0.10, times=5),
    latency.restart_restores(GROW, share=0.9, times=5),
    latency.wrong_turn(
        "pool", GROW, "turns", "pool", "a pool of 50 connections instead of 1", within=0.20, times=5
    ),
    latency.wrong_turn(
        "fresh-connections", GROW, "turns", "fresh", "fresh connections", within=0.20, times=5
    ),
    server.execution_steady(GROW, server_times=2, client_times=5),
    server.victims_never_slow(GROW, times=5),
    server.knee_predicted(GROW, within=0.25),
)

CHARTS = (
    Chart(
        "scatter",
        "Does p99 follow the key count?",
        "plateaus",
        note="Each point is one phase; filled points are plateaus of growing keys, hollow ones the other phases. "
        "Lines: Theil–Sen fits through the plateaus below the knee (demand up to 90 % of the server's capacity). A "
        "line below the knee: what a bystander waits for grows in step with the keys. Past the knee more work arrives "
        "than the server can do, the queue grows as long as that lasts, and no line describes it.",
    ),
    Chart(
        "percentiles",
        "Not only the tail",
        "percentiles",
        note="Latency at each percentile. The axis stretches towards the tail: as much room from 90 to 99 as from 99 "
        "to 99.9. A phase has some hundred to some thousand requests, so the last piece of a curve stands for very "
        "few of them. A curve that is high on the left too says that the typical request suffers, not only the "
        "unlucky one.",
    ),
    Chart(
        "utilisation",
        "The knee",
        "demand",
        note="Demand: the work that arrivals bring, as a share of the time of the server's one main thread. Where it "
        "crosses the upper line the queue no longer drains. The prediction needs one product: events a second × "
        "patterns for each event × keys × time for each scanned key. Measured in a few seconds at part of the load, it "
        "tells at how many keys a service will fall over.",
    ),
)

SCENARIO = Scenario(
    id="key-growth",
    title="SCAN invalidation over a growing keyspace",
    story="Every invalidation event scans the keyspace; p99 of every command climbs with the key count, "
    "a restart cures it for a while, a SET index cures it for good.",
    source="'Debugging Redis Latency', April 2025: a Node.js service on Dragonfly",
    phases=phases("scan"),
    claims=CLAIMS,
    charts=CHARTS,
    paces={
        "quick": Pace(plateau_s=2.5, settle_s=0.3, keys=90_000),
        "standard": Pace(plateau_s=5.0, settle_s=1.0, keys=90_000),
        "full": Pace(plateau_s=10.0, settle_s=1.0, keys=90_000),
    },
    knee_at=KNEE_AT,
    scan_count=0,
    arms=ARMS,
    fixes=((ARMS.rising, ARMS.cured),),
    symptom="p99 of every command climbs for hours; a restart cures it for a while",
    cause="each invalidation SCANs the whole keyspace",
    headline="index-cures",
)

"""`keys-command`: all of a user's entries are deleted by pattern, with KEYS.

Keys grow under KEYS; at the top a probe asks a replica too. Then, at the top: deletes by exact key (the cure that was
deployed first), and SCAN in place of KEYS (the one planned next: shorter stalls, more work).

The event rate is calibrated so that the most expensive of these, SCAN, takes about a fifth of the server's time: the
subject is not saturation. A single KEYS blocks every client, on a server that is idle most of the time. A higher
rate would not do: a SCAN of COUNT 100 costs the invalidator twice what it costs the server, and the invalidator must
not saturate first, even where other programs make its work half as expensive again.
"""

from __future__ import annotations

from lab.claims import blocking, latency
from lab.scenarios.model import Arms, Chart, Pace, Phase, ProbeSpec, Scenario, control_of

GROW = "grow"
PLATEAUS = (0.08, 0.3, 0.6, 1.0)
LOADS_MB = 130.0
"""Memory of the replica without its keys, of its buffers at the primary, and of a probe."""
REPLICA = ProbeSpec("replica", replica=True)


def phases(cause: str, planned: str) -> tuple[Phase, ...]:
    """The story with `cause` as the first strategy (``keys``), and `planned` as the last one (``scan``)."""
    grow = [
        Phase(
            f"{GROW}-{number}",
            GROW,
            f"keys grow under {cause}",
            cause,
            share,
            probes=(REPLICA,) if share == PLATEAUS[-1] else (),
            neutral="keys grow",
        )
        for number, share in enumerate(PLATEAUS, start=1)
    ]
    return (
        *grow,
        Phase("exact", "exact", "the fix: delete by exact key", "exact", 1.0, neutral="after change 1"),
        Phase("scan", "scan", f"{planned} in its place", planned, 1.0, neutral="after change 2"),
    )


CLAIMS = (
    blocking.fills_slowlog(GROW, share=0.9),
    latency.cures("exact-cures", "KEYS", "deletes by exact key", GROW, "exact", times=2),
    latency.follows_keys(
        "keys-follow-keyspace",
        "p99 of bystanders grows with the number of keys that KEYS has to visit",
        GROW,
        rank=0.8,
        times=2,
    ),
    blocking.replica_unharmed(GROW, share=0.25),
    blocking.scan_stalls_less(GROW, call_times=10, p99_times=2),
    blocking.scan_works_more(GROW, times=1.5),
    blocking.keys_unfelt(GROW, times=3),
)

SCENARIO = Scenario(
    id="keys-command",
    title="KEYS for pattern deletes",
    story="Whenever a customer's data changes, KEYS looks for the customer's entries among all there are; every GET "
    "that comes meanwhile waits, on the primary only.",
    source="'Too Fast For Our Own Good', a shop on Grails: now and then 200 to 1 000 ms for a GET, on the primary only",
    phases=phases("keys", "scan"),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=3.0, settle_s=0.3, keys=60_000, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=10.0, settle_s=1.0, keys=100_000, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=3.0, keys=2_000_000, loads_mb=LOADS_MB),
    },
    knee_at=1.0,
    load_share=0.21,
    scan_count=100,
    slowlog_threshold_us=2_000,  # a walk over the fewest keys takes 4 ms where memory is fast
    replica=True,
    charts=(
        Chart("growth", "What a bystander waits, by keys", "lines", "keys", "p99", arm=GROW),
        Chart("call", "How long one KEYS holds the server", "lines", "keys", "exec:KEYS", arm=GROW),
        Chart("strategies", "The strategies at the top", "bars", "title", "p99"),
        Chart("work", "How busy they keep the server", "bars", "title", "utilisation"),
    ),
    arms=Arms(rising=GROW),
    fixes=((GROW, "exact"),),
    symptom="now and then a GET takes hundreds of times as long, on the primary only",
    cause="KEYS blocks the server for a walk over all keys, to find a few",
    headline="exact-cures",
)

CONTROL = control_of(
    SCENARIO,
    "The same keys, events, reads and phases, but entries are deleted by exact key from the beginning, and "
    "nothing is searched: all claims must be refuted.",
    phases=phases("exact", "exact"),
)

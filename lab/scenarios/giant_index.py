"""`giant-index`: the cure's second act. One user has a hundred thousand entries, and one event stalls everybody.

The index made invalidation independent of the keyspace. But with one SMEMBERS, one DEL and one SREM, an invalidation
takes as long as the user's set is large. So one user (of a kind that no test has: a crawler, an agency, a health
check) is enough. The same set in chunks of 500, by SSCAN and UNLINK, costs the server rather more work, and bystanders
next to nothing.

Ordinary events go on in all phases. Beside them one user is cached and invalidated again and again, with the number of
entries that the phase names; the smallest is that of an ordinary user.
"""

from __future__ import annotations

from lab.claims import giant
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

ORDINARY = 20
SIZES = (ORDINARY, 1_000, 10_000, 100_000)
ARMS = {"naive": ("index-naive", "at once"), "chunked": ("index", "in chunks")}
LOADS_MB = 100.0
"""Memory of the giant's entries in the server, and of their names in the processes that put and invalidate them."""
LONG, SHORT = 2.0, 1.0
"""Weights of the phases. A phase that a claim expects to be harmless is long, so that its p99 tolerates one hiccup."""


def phases(with_giant: bool = True) -> tuple[Phase, ...]:
    """The story. Without a giant (the control), all sizes are an ordinary user's."""
    return tuple(
        Phase(
            f"{arm}-{size}",
            arm,
            f"{size:,} entries {how}",
            strategy,
            1.0,
            LONG if f"{arm}-{size}" in ("naive-20", "chunked-100000") else SHORT,
            loads=(
                LoadSpec(
                    "giant",
                    "giant",
                    (
                        "--storefront", "{web}", "--user", "{beyond}",
                        "--entries", str(size if with_giant else ORDINARY),
                        "--rounds", "{rounds}", "--seconds", "{seconds}", "--every", "1.5",
                    ),
                    self_terminating=True,
                ),
            ),
            params={"entries": float(size)},
            neutral=f"way {arm_number}, setting {setting}",
        )
        for arm_number, (arm, (strategy, how)) in enumerate(ARMS.items(), start=1)
        for setting, size in enumerate(SIZES, start=1)
    )  # fmt: skip


CLAIMS = (
    giant.giant_stalls(times=5),
    giant.ordinary_harmless(times=5),
    giant.stall_follows_size(times=3),
    giant.slowlog_names_them(share=0.25),
    giant.same_work(most=2, times=5),
)

SCENARIO = Scenario(
    id="giant-index",
    title="One user's index set is a giant",
    story="Under the index every invalidation is cheap, until it meets the one user with a hundred thousand entries: "
    "one SMEMBERS, one DEL and one SREM stall everybody, and chunks of 500 do not.",
    source="public reports of the incident's second act: an index set whose one call blocked for 40 ms",
    phases=phases(),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=3.0, settle_s=0.3, keys=20_000, sizes={"rounds": 2}, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=10.0, settle_s=1.0, keys=100_000, sizes={"rounds": 5}, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=2.0, keys=2_000_000, sizes={"rounds": 10}, loads_mb=LOADS_MB),
    },
    knee_at=None,
    scan_count=1_000,
    events_per_second=10.0,
    fragments_per_user=ORDINARY,
    charts=(
        Chart("stall", "What bystanders wait, by size and way", "bars", "title", "p99"),
        Chart("own-time", "How long the user's own invalidation takes", "bars", "title", "figure:invalidation_s",
              note="Two round trips at once, hundreds in chunks."),
    ),
    fixes=(("naive", "chunked"),),
    symptom="now and then all commands wait at once, though nobody searches any more",
    cause="one user's index set has 100 000 members, read and deleted at once",
    headline="giant-stalls",
)  # fmt: skip

CONTROL = control_of(
    SCENARIO,
    "The same events, strategies and phases, but the user has as many entries as everybody: all claims must be "
    "refuted.",
    title="giant-index without its giant",
    phases=phases(with_giant=False),
)

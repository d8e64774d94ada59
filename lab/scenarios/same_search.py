"""`same-search`: the same keys, searches and bystander on any server. Who can cure it in the server, at what price?

Nothing is calibrated: every server gets the same events, so few that none of them comes near saturation. COUNT is
larger than the keyspace, so that a search is one call on servers whose COUNT is of visited keys. (Dragonfly's is of
matches, and its calls end by the clock, whatever COUNT is.)
"""

from __future__ import annotations

from lab.claims import blocking, latency, samesearch
from lab.scenarios.model import Arms, Chart, Pace, Phase, Scenario, control_of

ARMS = Arms(rising="grow", cured="index")
GROW = ARMS.rising
PLATEAUS = (0.1, 0.4, 0.7, 1.0)


def phases(search: str, other: str) -> tuple[Phase, ...]:
    """Keys grow under `search`; then, with all of them, `other` and the index in its place."""
    grow = [
        Phase(f"{GROW}-{number}", GROW, f"keys grow under {search}", search, share, neutral="keys grow")
        for number, share in enumerate(PLATEAUS, start=1)
    ]
    return (
        *grow,
        Phase("keys", "keys", f"{other} in its place", other, 1.0, neutral="after change 1"),
        Phase(ARMS.cured, ARMS.cured, "the index in its place", "index", 1.0, neutral="after change 2"),
    )


SCENARIO = Scenario(
    id="same-search",
    title="The same search on another server",
    story="Events search all keys, at the same rate on every server. Where a search is carried out in one piece, p99 "
    "of everybody follows the keys; where the server lets others in, it does not, and the search costs its CPU anyway.",
    source="'Debugging Redis Latency', April 2025, and 'The Effects of Redis SCAN on Performance and How KeyDB "
    "Improved It', August 2020: may another server, or another version, cure it?",
    phases=phases("scan", "keys"),
    claims=(
        latency.follows_keys(
            "waits-follow-keys", "p99 of bystanders follows the number of keys", GROW, rank=0.8, times=4
        ),
        samesearch.waits_stay(GROW, share=0.25, times=3),
        samesearch.work_stays(GROW, within=2, times=2),
        blocking.keys_harmless(times=3),
    ),
    paces={
        "quick": Pace(plateau_s=7.0, settle_s=0.3, keys=60_000),
        "standard": Pace(plateau_s=10.0, settle_s=1.0, keys=60_000),
        "full": Pace(plateau_s=20.0, settle_s=1.0, keys=60_000),
    },
    knee_at=None,
    events_per_second=2.0,
    scan_count=100_000,
    charts=(
        Chart("growth", "What a bystander waits, by keys", "lines", "keys", "p99", arm=GROW),
        Chart("busy", "How busy the searches keep the server", "bars", "title", "utilisation"),
    ),
    arms=ARMS,
    fixes=((ARMS.rising, ARMS.cured),),
    symptom="somebody says that the next version, or another server, does not have this trouble",
    cause="a server can let others in while it searches, but a search visits every key on any server",
    headline="work-stays",
)

CONTROL = control_of(
    SCENARIO,
    "The same keys, events and phases under the index from the beginning: every claim must be refuted.",
    phases=phases("index", "index"),
)

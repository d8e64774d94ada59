"""`shards`: "we scaled out". The keys of one server are shared by three, and the events search as before.

The server is a cluster of the lab's own (`lab.stacks.cluster`): first one node that has all slots, then three that
share them. Each is held to a quarter of a core, so that three of them can do three times as much as one on a machine of
two cores. All keys of a user have the user's id as hash tag (the layout `tagged`), so a user's transactions stay on one
node. A search has a wildcard before the tag: its matches may be on any node, so it goes to every node.

An event then costs as much as before, a third on each node. So the nodes saturate at three times the keys: the knee
moves, and beyond it all is as before. The index asks one node, and there is no knee on any. At the end one node is kept
busy by somebody else's searches, and pages of twenty entries are read: from one node, or from all.

Six nodes are said to be beyond this machine: with six probes and the storefront they would not be held by their quotas
but by the cores.
"""

from __future__ import annotations

from dataclasses import replace

from lab.claims import shards
from lab.scenarios.model import Chart, Listing, LoadSpec, Pace, Phase, ProbeSpec, Scenario, control_of

SHARE = 0.25
"""The share of a core that each node may use."""
KNEE_AT = 0.23
"""The share of the keys that saturates one node by the calibration. On the plateaus a key is cheaper, so there it is
some 0.3. Three times as many saturate three."""
ONE, THREE = (0.11, 0.17, 0.24, 0.40), (0.17, 0.50, 0.75, 1.0)
"""Shares of the keys on the plateaus. The last of each lies beyond the knee."""
LOADS_MB = 80.0
"""Memory of the pages' entries on the nodes, and of all keys' names in the process that reads them."""
SEARCHES = 6
"""Searches at once that keep the slow node busy: as many as two events have."""


def grow(arm: str, strategy: str, nodes: int, keys: tuple[float, ...]) -> tuple[Phase, ...]:
    """Growing keys on so many nodes. Each node has a probe of its own."""
    probes = tuple(ProbeSpec(f"node-{node}", node=node) for node in range(2, nodes + 1))
    title = "one node" if nodes == 1 else f"{nodes} nodes"
    return tuple(
        Phase(f"{arm}-{step}", arm, f"{title}, {share:.0%} of the keys", strategy, share, empty=step == 1 and nodes > 1,
              probes=probes, params={"shards": float(nodes)}, shards=nodes)
        for step, share in enumerate(keys, start=1)
    )  # fmt: skip


def phases(search: str, cure: str, searches: int) -> tuple[Phase, ...]:
    """Return phases on one node, on three, under the cure, of the keys' places, and of pages with one busy node."""
    three = grow(shards.THREE, search, shards.NODES, THREE)
    where = LoadSpec(
        "where",
        "whereabouts",
        ("--storefront", "{storefront}", "--least", "{each}"),
        self_terminating=True,
        cpu_bound=True,  # it reads the names of all keys, as fast as it can
    )
    pages = LoadSpec(
        "pages",
        "spread",
        (
            "--prefix",
            "{prefix}",
            "--entries",
            "{each}",
            "--seconds",
            "{seconds}",
            "--searches",
            str(searches),
        ),
        self_terminating=True,
    )
    return (
        *grow(shards.ONE, search, 1, ONE),
        *three,
        replace(three[-1], id="index", arm="index", title="3 nodes, the user's index", strategy=cure,
                empty=False, params={}, neutral="3 nodes, another way"),
        Phase("where", "where", "where a user's keys are", cure, 1.0, events=0.0, loads=(where,), shards=3),
        Phase("pages", "pages", "pages while one node is kept busy", cure, 1.0, weight=2.0, events=0.0,
              loads=(pages,), shards=3, neutral="pages"),
    )  # fmt: skip


CLAIMS = (
    shards.search_goes_everywhere(low=0.8, high=1.6),
    shards.knee_moves(within=0.15),
    shards.knee_remains(times=3),
    shards.slow_shard_spreads(most=0.8, tagged=(0.15, 0.5)),
    shards.index_cures_every_shard(times=4),
    shards.tags_keep_together(least_users=100),
)

SCENARIO = Scenario(
    id="shards",
    title="We scaled out",
    story="The keys of one server are shared by a cluster of three, each held to the same share of a core. Every event "
    "searches every node, so the knee comes at three times the keys, and is as before.",
    source="the advice to shard, and an operator's question: where is the knee of a cluster?",
    phases=phases("scan-tagged", "index-tagged", SEARCHES),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=4.0, settle_s=0.5, keys=200_000, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=14.0, settle_s=1.0, keys=300_000, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=3.0, keys=1_000_000, loads_mb=LOADS_MB),
    },
    knee_at=KNEE_AT,
    scan_count=4000,
    searching="scan-tagged",
    own_server=True,
    server_settings={"cluster-enabled": "yes"},
    node_share=SHARE,
    charts=(
        Chart("knees", "p99 of a bystander over the keys, on one node and on three", "lines", "keys", "p99",
              by="param:shards"),
        Chart("busy", "How busy the nodes are, of what they may use", "lines", "keys", "utilisation",
              by="param:shards", note="The mean of the nodes. 1 is a node's whole share of a core."),
    ),
    listings=(Listing("The nodes: busy share of what each may use, and share of its periods in which it was held",
                      shards.HEADINGS, shards.node_rows),),
    fixes=(("three-4", "index"),),
    symptom="three servers instead of one, and some months later the same slow answers",
    cause="every event searches every shard, so each shard has the work of all events",
    headline="knee-moves",
)  # fmt: skip

CONTROL = control_of(
    SCENARIO,
    "The same nodes, keys and events, but nothing is searched: entries live until their time ends. They have no "
    "hash tags, and no node is kept busy. So every claim must be refuted.",
    phases=phases("ttl", "ttl", 0),
)

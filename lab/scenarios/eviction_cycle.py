"""`eviction-cycle`: bursts of eviction that feed themselves, in a cache at its memory limit.

How the scene was scaled down. The original had dozens of gigabytes, thousands of clients and 25 000 requests a second,
most of them small; its climbs took 7 to 15 minutes and its bursts 6 to 8 seconds. A proportion makes the cycle, and the
scene keeps it: what the clients of a stalled server have in flight needs far more memory than is inserted meanwhile,
and evicting that much costs far more time than answering. So:

- The limit is hundreds of megabytes.
- A request writes a page of 150 small entries, or reads two pages, 16 kB. One read(2) of the server does not hold it,
  so a waiting client costs 20 to 50 kB: hundreds of entries to evict.
- A quarter of the requests are writes, so that memory climbs in seconds.
- The server samples 64 keys for each that it evicts, not 5. This makes small entries as expensive to evict as larger
  ones.
- Clients ask nothing while they wait, and a client that waited a quarter of a second stays away for a few seconds. The
  original's clients stalled with their answers, too.

The rate is calibrated where it matters, at the limit, with too few clients to feed a burst. Answering the requests and
evicting what they insert asks for a little more than the main thread has. Without evictions the same rate leaves it
time, and a climb needs no more than that. The cost of an eviction relative to an answer differs from server to server,
which is why neither cost alone would do. The number of clients follows the rate, so that a burst lasts as long on a
slow machine as on a fast one. At full pace they are 3,000: beside 5,000 a burst lasted so long that reads of the
storefront found no answer within the ten seconds that customers wait.

Sizes take the servers' hash tables into account. A table that grows in the middle of a phase takes memory at a stroke,
and every lookup costs several times as much until it has moved. Redis's table doubles at 2^n keys, Valkey's at 7 * 2^n;
the fills of the phases, less the 20 or 30 MB that new connections take at first, stay clear of both. So does the time
to live: live entries fill a third of the limit, and Redis keeps a third more, expired ones that it has not met yet.
"""

from __future__ import annotations

from lab.claims import eviction
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

BUSY = 1.15
"""Share of the main thread that the load asks for at the limit, including the evictions that its inserts need.

It exceeds 1 by the possible error of calibration, and by the few clients still away when memory is full again.
"""
PART_OF_LOAD = 0.12
"""Share of that load in the phase in which the main thread is to have time to spare.

A stalled client needs hundreds of evictions, a few milliseconds. Few requests arrive meanwhile, so a hiccup dies away.
"""
FEW = 16
LIMIT = ("--limit-mb", "{limit_mb}")
SHORT = ("--ttl-seconds", "{calibrate[fitting_ttl_s]}")
SETTLED = ("--settle-seconds", "4.5")
"""Without it buffers of new connections shrink during the phase and make room for a while (Redis: by half a second)."""
COMMON = (
    "--prefix", "{prefix}", "--seed", "{seed}", "--write-every", "4", "--away-seconds", "3.4", "--fits", "0.33",
)  # fmt: skip


def crowd(*arguments: str) -> LoadSpec:
    """The load: the crowd of clients, with the common arguments and these."""
    return LoadSpec("crowd", "crowd", (*COMMON, *arguments), self_terminating=True)


def measured(
    phase_id: str,
    title: str,
    weight: float,
    before: str,
    *changes: str,
    empty: bool = False,
    fill: str = "0.98",
    neutral: str = "the load as it is",
) -> Phase:
    """A phase at the calibrated rate, which follows the phase `before`. `changes` override the crowd's arguments."""
    words = ["--clients", "{clients}", "--asks-every", "{asks_s}", *LIMIT]
    words += ["--rate", "{calibrate[rate]}", "--fill", fill]
    words += ["--first-page", f"{{{before}[next_page]:.0f}}", "--seconds", "{seconds}", *changes]
    loads = (crowd(*words),)
    return Phase(phase_id, "scene", title, "index", 0.0, weight, empty=empty, loads=loads, neutral=neutral)


def phases(short: bool) -> tuple[Phase, ...]:
    """The story. `short` (the control): entries have a short time to live from the beginning."""
    calibrate = ("--clients", str(FEW), *LIMIT, "--find-utilisation", str(BUSY), "--fill", "0.99")
    ttl, full = (SHORT, "0.55") if short else ((), "0.98")
    return (
        Phase(
            "calibrate",
            "calibration",
            "calibration: the rate that asks a little too much of the main thread at the limit",
            "index",
            0.0,
            0.7,
            loads=(crowd(*calibrate, "--seconds", "{seconds}"),),
            neutral="calibration",
        ),
        measured(
            "cycle", "memory full, CPU nearly full, many clients", 8.0, "calibrate", *ttl, empty=short,
            fill="0.55" if short else "0.9",
        ),
        measured(
            "few-clients", "few clients", 0.5, "cycle", "--clients", str(FEW), *ttl, fill=full,
            neutral="after change 1",
        ),
        measured(
            "spare-cpu", "CPU to spare", 0.6, "few-clients", "--share", str(PART_OF_LOAD), *SETTLED, *ttl,
            fill="0.55" if short else "0.99", neutral="after change 2",
        ),
        measured(
            "spare-memory", "memory to spare", 0.5, "spare-cpu", "--limit-mb", "{roomy_mb}", *ttl,
            empty=True, fill="0.2" if short else "0.49", neutral="after change 3",
        ),
        measured(
            "short-ttl", "the fix: entries live shortly", 0.8, "spare-memory", *SHORT, empty=True, fill="0.62",
            neutral="after change 4",
        ),
    )  # fmt: skip


CLAIMS = (
    eviction.three_phases(),
    eviction.burst_p99(times=10),
    eviction.coincide(share=0.8, times=10),
    eviction.responses_drop(share=0.75),
    eviction.more_than_needed(),
    eviction.displaced(keys=0.05, clients=0.20),
    eviction.ends_cycle(
        "needs-many-clients", "few-clients", f"{FEW} clients with the same load", 10, at_limit=True
    ),
    eviction.ends_cycle("needs-cpu", "spare-cpu", f"{PART_OF_LOAD:.0%} of the load", 10, at_limit=True),
    eviction.ends_cycle("needs-full-memory", "spare-memory", "twice the memory", 10, no_eviction=True),
    eviction.ends_cycle(
        "ttl-cures", "short-ttl", "a shorter time to live, and nothing else", 10, no_eviction=True
    ),
)

SCENARIO = Scenario(
    id="eviction-cycle",
    title="Eviction bursts that feed themselves",
    story="A cache at its memory limit, its main thread nearly busy: evicting tips it over, waiting clients' buffers "
    "take memory, and that evicts more, until the clients stall; then memory falls and all begins again.",
    source="'How we diagnosed and resolved Redis latency spikes with BPF and other tools', GitLab, November 2022: "
    "Redis 6.2 as an LRU cache. Scaled down: hundreds of MB instead of dozens of GB, about 1,100 clients with requests "
    "of 16 kB, cycles of seconds instead of minutes; the rate is calibrated",
    phases=phases(short=False),
    claims=CLAIMS,
    paces={
        "quick": Pace(
            5.0,
            0.2,
            1_500_000,
            {"limit_mb": 180, "roomy_mb": 360, "clients": 1150, "asks_s": 0.46},
            most_mb=180,
        ),
        "standard": Pace(
            12.0,
            1.0,
            2_400_000,
            {"limit_mb": 340, "roomy_mb": 680, "clients": 2000, "asks_s": 0.75},
            most_mb=340,
        ),
        "full": Pace(
            60.0,
            2.0,
            5_000_000,
            {"limit_mb": 700, "roomy_mb": 1400, "clients": 3000, "asks_s": 1.2},
            loads_mb=230.0,  # the crowd and its buffers, and what the server takes of the roomier limit
            most_mb=700,
        ),
    },
    knee_at=None,
    scan_count=10,
    reads_per_second=20.0,
    own_server=True,
    server_settings={"maxmemory-policy": "allkeys-lru", "maxmemory-samples": "64"},
    charts=(
        Chart(
            "cycle",
            "The cycle, moment by moment",
            "moments",
            "cycle",
            "used_mb clients_mb evicted answered p99_ms",
            by="evicted",
        ),
        Chart("waits", "What the crowd waits", "bars", "title", "figure:p99_ms", arm="scene"),
        Chart(
            "buffers", "Memory of clients at its most", "bars", "title", "figure:most_clients_mb", arm="scene"
        ),
        Chart("answers", "Answers a second", "bars", "title", "figure:answered_per_s", arm="scene"),
    ),
    fixes=(("cycle", "short-ttl"),),
    symptom="again and again some seconds of very slow answers, then all is well",
    cause="evictions at the memory limit, multiplied by waiting clients' buffers",
    headline="burst-p99",
)

CONTROL = control_of(
    SCENARIO,
    "The same load, limit and clients, but entries live shortly from the beginning, so that memory never fills: "
    "every claim of eviction-cycle must be refuted.",
    phases=phases(short=True),
)

"""`pipelined-delete`: the cost of a round trip for each key, and the cost to bystanders of saving all of them.

First all ways at one added round-trip time after the other (a relay that models latency and nothing else, see
`loadtest.incidents.delay`), with everything in one pipeline or one call. Then, on loopback, chunks of several sizes,
for their effect on bystanders. The ways take turns within a phase, in the same client, so a drift of the machine
affects all alike. Where each key takes a round trip, one DEL after the other is measured on fewer keys: its rate is
compared, not its time.
"""

from __future__ import annotations

from lab.claims import deletes
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

RTTS_MS = {"rtt-0": 0.0, "rtt-half": 0.5, "rtt-1": 1.0, "rtt-5": 5.0}
"""Phase → added round-trip time. The phase's name with underscores is also the pace's size for its one-by-one part."""
LOADS_MB = 120.0
"""Memory of a hundred thousand keys in the server, and of the same keys as commands in the client."""
LONG, SHORT = 2.0, 0.6
"""Weights of the phases of chunks. A phase that must *not* stall bystanders is long: one bad second is one of many."""
CHUNKS = (
    ("variadic", 100, SHORT, "UNLINKs of 100"),
    ("variadic", 1_000, LONG, "UNLINKs of 1,000"),
    ("variadic", 10_000, SHORT, "UNLINKs of 10,000"),
    ("variadic", 0, SHORT, "one UNLINK of all"),
    ("pipelined", 1_000, SHORT, "DELs in pipelines of 1,000"),
    ("pipelined", 0, LONG, "DELs in one pipeline"),
    ("transaction", 1_000, SHORT, "DELs in transactions of 1,000"),
    ("transaction", 0, SHORT, "DELs in one transaction"),
)
"""Way, keys per chunk (0: all of them in one), weight, title."""


def _load(*arguments: str) -> tuple[LoadSpec, ...]:
    return (
        LoadSpec(
            "deletes", "deletes", (*arguments, "--prefix", "{prefix}"), self_terminating=True, cpu_bound=True
        ),
    )


def phases(keys: str, chunk_keys: str, in_one: int = 0, largest: int | None = None) -> tuple[Phase, ...]:
    """The story.

    `keys`: how many keys the many-at-once ways delete at each round-trip time; `{size}` stands for the size of the
    phase's one-by-one part. `in_one`: how many of them at once (0: all). `chunk_keys`: how many keys are deleted in the
    arm of chunks. `largest` replaces the size of every chunk.
    """
    found = [
        Phase(
            name,
            "rtt",
            f"{rtt:g} ms of added round trip",
            "index",
            1.0,
            loads=_load(
                "--ways", "one_by_one,pipelined,variadic",
                "--keys", keys.replace("{size}", f"{{{name.replace('-', '_')}}}"),
                "--one-by-one-keys", f"{{{name.replace('-', '_')}}}",
                "--chunk", str(in_one), "--rtt-ms", str(rtt), "--rounds", "{rounds}",
            ),
            params={"rtt_ms": rtt},
            neutral=f"setting {number}",
        )
        for number, (name, rtt) in enumerate(RTTS_MS.items(), start=1)
    ]  # fmt: skip
    for number, (method, chunk, weight, title) in enumerate(CHUNKS, start=1):
        size = chunk if largest is None else largest
        found.append(
            Phase(
                f"{method}-{chunk or 'all'}",
                "chunks",
                title,
                "index",
                1.0,
                weight,
                loads=_load(
                    "--ways", method, "--keys", chunk_keys, "--chunk", str(size),
                    "--rounds", "{rounds}", "--seconds", "{seconds}",
                ),
                params={"chunk": float(chunk)},
                neutral=f"way {number}",
            )
        )  # fmt: skip
    return tuple(found)


CLAIMS = (
    deletes.pipelining_pays(times=5),
    deletes.gain_grows(step=1.2),
    deletes.variadic_first(times=1.1),
    deletes.stalls("whole-stalls", "variadic-all", "variadic-1000", times=5),
    deletes.stalls("transaction-stalls", "transaction-all", "pipelined-all", times=5),
    deletes.chunks_keep_the_speed("variadic-1000", "variadic-all", share=0.5, times=5),
)

SCENARIO = Scenario(
    id="pipelined-delete",
    title="A hundred thousand deletes, one round trip each or all in one",
    story="A clean-up deletes key by key and waits for the network each time; pipelined or variadic it is many times "
    "as fast, and in one huge call it stalls everybody else.",
    source="'Redis pipelines to the rescue', a benchmark of 100 000 DELs: 5.06 s one by one, 1.10 s pipelined",
    phases=phases("{deletes}", "{deletes}"),
    claims=CLAIMS,
    paces={
        "quick": Pace(
            plateau_s=2.5,
            settle_s=0.3,
            keys=20_000,
            loads_mb=LOADS_MB,
            sizes={"deletes": 100_000, "rtt_0": 10_000, "rtt_half": 600, "rtt_1": 300, "rtt_5": 80, "rounds": 3},
        ),
        "standard": Pace(
            plateau_s=6.0,
            settle_s=1.0,
            keys=100_000,
            loads_mb=LOADS_MB,
            sizes={
                "deletes": 100_000, "rtt_0": 50_000, "rtt_half": 4_000, "rtt_1": 2_000, "rtt_5": 400, "rounds": 6,
            },
        ),
        "full": Pace(
            plateau_s=20.0,
            settle_s=2.0,
            keys=200_000,
            loads_mb=LOADS_MB,
            sizes={
                "deletes": 100_000, "rtt_0": 100_000, "rtt_half": 20_000, "rtt_1": 10_000, "rtt_5": 2_000,
                "rounds": 6,
            },
        ),
    },
    knee_at=None,
    scan_count=1_000,
    charts=(
        Chart("pipeline-gain", "What a pipeline gains, by round-trip time", "lines", "param:rtt_ms",
              "figure:pipelined_gain_x", arm="rtt", note="Against one DEL after the other, at the same time."),
        Chart("variadic-gain", "What one variadic UNLINK gains", "lines", "param:rtt_ms",
              "figure:variadic_gain_x", arm="rtt"),
        Chart("stall", "What bystanders wait meanwhile, by way and chunk", "bars", "title", "p99", arm="chunks"),
        Chart("speed", "Keys deleted a second, by way and chunk", "bars", "title", "figure:keys_per_s",
              arm="chunks"),
    ),
    fixes=(("variadic-all", "variadic-1000"),),
    symptom="deleting 100 000 keys takes seconds, and minutes over a network",
    cause="a round trip for each key",
    headline="pipeline-pays",
)  # fmt: skip

CONTROL = control_of(
    SCENARIO,
    "The same deletes and phases, but each way waits for the reply to every key: all claims must be refuted.",
    phases=phases("{size}", "{rtt_0}", in_one=1, largest=1),
)
"""Every way waits for every reply, so nothing is gained and nothing stalls."""

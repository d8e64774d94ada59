"""`key-browser`: the tool with which people look at the keys is what the server is busy with.

Some windows of a tool that browses keys are open, and each looks for keys of a type by a pattern that few keys match:
SCAN with MATCH, COUNT 500 and TYPE, call after call, until the cursor is 0, and again. TYPE is applied to the keys that
a call has visited, so it saves no visit. Every call is short, and none is in the slow log.

Keys grow under the open windows; at the top their filter is taken away, which changes nothing. Then each look ends
after a few calls, and a new one begins once a second: what a limit in the tool would do.
"""

from __future__ import annotations

from dataclasses import replace

from lab.claims import smallcalls, tools
from lab.scenarios.model import Chart, LoadSpec, Pace, Phase, Scenario, control_of

PLATEAUS = (0.125, 0.35)
WINDOWS = 48
"""Windows, dashboards and assistants that look at once. Each has one call at the server, and a GET waits for those
ahead of it."""
LOADS_MB = 60.0
LOOK = ("--match", "production:*", "--client", "key-browser", "--count", "500", "--seed", "{seed}")


def _looks(*arguments: str, cpu_bound: bool = True) -> tuple[LoadSpec, ...]:
    return (LoadSpec("browser", "scanners", (*LOOK, *arguments), cpu_bound=cpu_bound),)


def phases(browsed: bool) -> tuple[Phase, ...]:
    """The story. Not `browsed` (the control): nobody looks at the keys."""
    always = _looks("--type", "hash", "--most", str(WINDOWS))
    looks = [
        Phase(
            f"look-{number}",
            "look",
            "the tool looks for keys",
            "index",
            share,
            0.4,
            loads=always,
            neutral="keys grow",
        )
        for number, share in enumerate(PLATEAUS, start=1)
    ]
    found = (
        Phase("before", "before", "nobody looks at the keys", "index", 1.0, neutral="before"),
        Phase("storm", "look", "the tool looks for keys", "index", 1.0, loads=always, neutral="keys grow"),
        Phase(
            "untyped", "untyped", "it looks without TYPE", "index", 1.0,
            loads=_looks("--most", str(WINDOWS)), neutral="after change 1",
        ),
        Phase(
            "limited", "limited", "a look a second, ten calls each", "index", 1.0,
            loads=_looks("--type", "hash", "--calls", "10", "--rate", "1", cpu_bound=False), neutral="after change 2",
        ),
    )  # fmt: skip
    story = [replace(phase, events=0.0) for phase in (*looks, *found)]
    return tuple(story if browsed else (replace(phase, loads=()) for phase in story))


CLAIMS = (
    tools.makes_wait(times=3),
    smallcalls.slowlog_empty(one_in=10_000, busy=0.7),
    smallcalls.calls_are_short(share=0.1),
    smallcalls.calls_per_event(at_least=40, within=0.25),
    smallcalls.time_in_scan(share=0.9),
    tools.type_saves_nothing(within=0.1),
    tools.limit_cures(busy_times=3, wait_times=3),
)

SCENARIO = Scenario(
    id="key-browser",
    title="The tool that looks is the load",
    story="A tool that browses keys looks for some of a type, window by window: thousands of short SCAN calls a "
    "second, and every GET waits for some of them.",
    source="public reports: RedisInsight issue 6202 (SCAN with MATCH, COUNT 500 and TYPE, over and over, in 2 million "
    "keys); assistants that scan a whole keyspace in batches",
    phases=phases(browsed=True),
    claims=CLAIMS,
    paces={
        "quick": Pace(plateau_s=5.0, settle_s=0.5, keys=60_000, loads_mb=LOADS_MB),
        "standard": Pace(plateau_s=15.0, settle_s=1.0, keys=150_000, loads_mb=LOADS_MB),
        "full": Pace(plateau_s=30.0, settle_s=3.0, keys=2_000_000, loads_mb=LOADS_MB),
    },
    knee_at=None,
    scan_count=500,
    server_core=True,
    charts=(
        Chart("wait", "What the median GET waits", "bars", "title", "p50"),
        Chart("busy", "How busy the server is", "bars", "title", "utilisation"),
        Chart("calls", "Calls that one look makes", "lines", "keys", "figure:calls_per_event", arm="look"),
    ),
    fixes=(("storm", "limited"),),
    symptom="GETs wait while somebody looks at the keys",
    cause="a tool that browses keys: SCAN with MATCH and TYPE, over and over",
    headline="tool-makes-wait",
)

CONTROL = control_of(
    SCENARIO,
    "The same keys, events and phases, and nobody looks at the keys: all claims must be refuted.",
    phases=phases(browsed=False),
)

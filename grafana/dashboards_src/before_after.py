"""*Before and after*: the same load and the same number of keys under two strategies."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import KEY_GROWTH, SECOND_ACT, board
from grafana.panels import COMMANDS, Query, lines, number, states
from grafana.plots import scatter
from grafana.promql import (
    SCOPE,
    by_strategy,
    per_second,
    quantile,
    while_strategy,
    zero,
    zero_by,
    zero_reported,
)

BYSTANDER = f"server:probe_latency:p99_10s{{{SCOPE}}}"
KEYS = f"server:store_keys:sum{{{SCOPE}}}"
NOW = f"last_over_time({KEYS}[$__range] @ end())"
AS_NOW = f"{KEYS} > 0.8 * {NOW} < 1.25 * {NOW}"
"""Selects the moments with about as many keys as now, because a fair comparison needs the same key count. It does not
compare with the largest count of the time shown, which may be that of the calibration: it fills the server at
once. Now is the last known value, because a recording has an end.
"""

DONE = f'outcome="done", {SCOPE}'
IN_FORCE = f'max by (strategy) (cache_invalidation_strategy{{job="invalidator", {SCOPE}}})'
PER_EVENT = (
    " / on (server, strategy) ("
    + per_second("cache_invalidation_events_total", DONE, "server, strategy", "[1m]")
    + " > 0)"
)


def typical(strategy: str) -> str:
    """The median p99 over the time shown, while ``strategy`` was in force and there were as many keys as now."""
    moments = f"({while_strategy(BYSTANDER, strategy)}) and on (server) ({AS_NOW})"
    return f"quantile_over_time(0.5, ({moments})[$__range:5s])"


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "before-after",
        "The same keys, the same events, another way to find what to remove. What changed, and what did not?",
        [
            number(
                "p99 under SCAN, keys as now",
                "The typical p99 of a bystander while **scan** was in force and there were about as many keys as now "
                "(four fifths to five quarters), in the time shown. Only equal key counts may be compared.",
                [Query(zero(typical("scan")), "scan")],
                unit="s",
                width=6,
                at_once=True,
                zero_means="not tried yet",
                steps=((None, "red"),),
            ),
            number(
                "p99 under the index, keys as now",
                "The same for **index**. Switch the strategy on the control page, wait half a minute, and it "
                "appears.",
                [Query(zero(typical("index")), "index")],
                unit="s",
                width=6,
                at_once=True,
                zero_means="not tried yet",
                steps=((None, "green"),),
            ),
            number(
                "SCAN against index",
                "How many times longer the slowest hundredth of reads took under SCAN, at the same key count. The "
                "original team saw 12.5: peaks of 500 ms before, 40 ms after.",
                [Query(zero(f"({typical('scan')}) / on (server) ({typical('index')})"), "times")],
                unit="suffix:×",
                width=6,
                at_once=True,
                zero_means="needs both",
            ),
            number(
                "Cached keys now",
                "A comparison at few keys shows nothing: with few keys SCAN is harmless too, which is why no test "
                "had found it.",
                [Query(KEYS, "cached keys")],
                unit="short",
                width=6,
            ),
            states(
                "What was in force",
                "Read the panels below against this bar. Nothing else was changed at those moments: no restart, no "
                "other load, no fewer keys.",
                [
                    Query(
                        f"{IN_FORCE} and on (strategy) (max_over_time({IN_FORCE}[$__range:2s]) == 1)",
                        "{{strategy}}",
                    )
                ],
                on="in force",
                off="not in force",
                good=None,
            ),
            lines(
                "p99 of a bystander, and the number of keys",
                "At the switch from scan to index p99 drops within seconds while the keys stay. That, not the "
                "restart, is the proof: a restart also took the keys away.",
                [
                    Query(by_strategy(BYSTANDER), "under {{strategy}}"),
                    Query(KEYS, "cached keys", right="short"),
                ],
                unit="s",
                width=24,
                height=11,
                log=True,
                bottom=0.0002,
                limit=0.01,
                phases=True,
            ),
            scatter(
                "p99 against the number of keys, under both",
                "The two clouds are the two strategies. Under SCAN p99 follows the keys; under the "
                "index it does not know how many there are. This one picture is the case.",
                Query(KEYS, "cached keys"),
                [Query(by_strategy(BYSTANDER), "under {{strategy}}")],
                y_label="bystander's p99",
                x_unit="short",
                unit="s",
            ),
            lines(
                "Calls to the server for one event",
                "The index trades one long walk for a few short look-ups. If its calls per event grew with the "
                "number of keys, it would be no cure.",
                [
                    Query(
                        zero_by(
                            per_second(
                                "cache_invalidation_store_calls_total", by="server, strategy", window="[1m]"
                            )
                            + PER_EVENT,
                            strategy="no events",
                        ),
                        "{{strategy}}",
                    )
                ],
                unit="short",
                log=True,
            ),
            lines(
                "Commands under way at once, for events and for reads",
                "The mean number of commands of which the server is in the middle (Little's law), of those that only "
                "events need and of reads. Redis has one thread: 1 is all of it, and more there cannot be. On "
                "Dragonfly commands take turns, and those who wait for one count: above the number of threads it is a "
                "crowd. Under SCAN the crowd grows with the keys; under the index there is none.",
                [
                    Query(
                        zero_reported(
                            "sum by (server) (server_cmd:store_execution:rate10s"
                            f'{{cmd=~"scan|keys|sscan|unlink|srem", {SCOPE}}})'
                        ),
                        "for events",
                    ),
                    Query(
                        zero_reported(
                            f'sum by (server) (server_cmd:store_execution:rate10s{{cmd="get", {SCOPE}}})'
                        ),
                        "for reads",
                    ),
                ],
                unit=COMMANDS,
            ),
            lines(
                "How long one event takes, p99",
                "Also the events' own business gets better: under SCAN a user may see a stale page for seconds.",
                [
                    Query(
                        zero_by(
                            quantile(
                                0.99,
                                "cache_invalidation_duration_seconds",
                                by="server, strategy",
                                window="[30s]",
                            )
                            + " >= 0",
                            strategy="no events",
                        ),
                        "{{strategy}}",
                    )
                ],
                unit="s",
                log=True,
            ),
            lines(
                "The price: what a write costs",
                "The index is not free: each write also notes its key in the user's set. Look at p99 of SET before "
                "and after, and at the memory on the server's own dashboard. (The lab writes the index under every "
                "strategy, so that a switch needs no back-fill; the price shows under both.)",
                [
                    Query(
                        zero(
                            f'sum by (server) (server_operation:store_call:p99_30s{{db_operation_name="SET", {SCOPE}}})'
                        ),
                        "SET, p99",
                    ),
                    Query(
                        zero(
                            f'sum by (server) (server_operation:store_call:p99_30s{{db_operation_name="GET", {SCOPE}}})'
                        ),
                        "GET, p99",
                    ),
                ],
                unit="s",
                log=True,
            ),
            lines(
                "Every server at once",
                "p99 of the bystander of each server, whatever is chosen above. Leave one under SCAN as a control: "
                "what happens to both has another cause.",
                [Query("server:probe_latency:p99_10s", "{{server}}")],
                unit="s",
                log=True,
                bottom=0.0002,
                limit=0.01,
            ),
        ],
        question="The same keys, the same events, another way to find what to remove. What changed with the switch, "
        "and what stayed as it was?",
        chapters=(KEY_GROWTH, SECOND_ACT),
        then="the-lab",
    )

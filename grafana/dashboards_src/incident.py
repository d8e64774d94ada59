"""*The incident*: what the original team had on its screens, on one time axis."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import board
from grafana.panels import Query, lines, number
from grafana.plots import scatter
from grafana.promql import HERE, per_second, quantile, zero, zero_by, zero_told

BY_COMMAND = "server, db_operation_name"
P99_BY_COMMAND = quantile(0.99, "db_client_operation_duration_seconds", by=BY_COMMAND, window="[30s]")
BYSTANDER = f"server:probe_latency:p99_10s{{{HERE}}}"
KEYS = f"server:store_keys:sum{{{HERE}}}"


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "incident",
        "Latency of every command rises. What rises with it, and what does not?",
        [
            number(
                "Strategy in force",
                "How an event removes a user's cached fragments. **scan** walks the whole keyspace for each; "
                "**index** looks up a set per user. Switch it on the control page and watch the row below.",
                [
                    Query(
                        f'max by (strategy) (cache_invalidation_strategy{{job="invalidator", {HERE}}}) == 1',
                        "{{strategy}}",
                    )
                ],
                unit="none",
                names=True,
                at_once=True,
            ),
            number(
                "Cached keys",
                "All keys the store holds. Nobody touches most of them; ask yourself why their number should "
                "matter to a GET of one key.",
                [Query(KEYS, "cached keys")],
                unit="short",
                width=4,
            ),
            number(
                "p99 of a bystander's GET",
                "A probe outside the application GETs one of its own few keys 200 times a second, on schedule "
                "whether or not earlier answers have come. The objective is 10 ms.",
                [Query(BYSTANDER, "p99")],
                unit="s",
                width=5,
                steps=((None, "green"), (0.005, "orange"), (0.01, "red")),
            ),
            number(
                "Correlation of keys and p99",
                "Pearson's, over five minutes, of the key count and the logarithm of the bystander's p99. Near 1 "
                "while keys grow under SCAN; near 0 under the index, or while the key count stands still. A "
                "correlation is a clue, not a cause: what experiment would tell?",
                [Query(zero(f"server:keys_to_p99:correlation_5m{{{HERE}}}"), "r")],
                unit="none",
                width=5,
                steps=((None, "green"), (0.5, "orange"), (0.8, "red")),
            ),
            number(
                "Alerts firing",
                "Alerts are on symptoms only: reads beyond their objective, reads that mostly wait, events that "
                "pile up. None of them knows about SCAN.",
                [Query(zero(f'count by (server) (ALERTS{{alertstate="firing", {HERE}}})'), "firing")],
                unit="short",
                width=6,
                steps=((None, "green"), (1, "red")),
            ),
            lines(
                "p99 of every command as the application saw it, and the number of keys",
                "Look for **which** commands get slower: if GET of one key slows down with SCAN, they share "
                "something. Then compare the shape with the key count (right axis) and with the marks of "
                "restarts: p99 falls with the keys and climbs back with them. Dots are single calls: click one "
                "and go to its trace.",
                [
                    Query(P99_BY_COMMAND, "{{db_operation_name}}", exemplars=True),
                    Query(KEYS, "cached keys", right="short"),
                ],
                unit="s",
                width=24,
                height=12,
                log=True,
            ),
            scatter(
                "Every moment as a point: p99 against the number of keys",
                "Time is taken out: each point is one moment. A cloud without shape means no relation. A line, "
                "or a line that bends upwards at some number of keys, means a relation, and the bend is the knee: "
                "there the store has no time left.",
                Query(KEYS, "cached keys"),
                [Query(BYSTANDER, "bystander's p99")],
                x_unit="short",
                unit="s",
            ),
            lines(
                "How many commands a second",
                "Reads and events come as before while p99 climbs, so load is not the explanation. On Redis SCAN is "
                "rare among the commands, which is why nobody suspected it: the next panels show what one costs. On "
                "Dragonfly its calls multiply: each ends after 50 ms by the clock, so the more walk at once, the less "
                "each gets done and the more calls an event needs. A gap: the store was too busy to be asked.",
                [
                    Query(
                        zero_told(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd=~"scan|keys", {HERE}}})'
                        ),
                        "SCAN or KEYS",
                    ),
                    Query(
                        zero_told(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd="get", {HERE}}})'
                        ),
                        "GET",
                    ),
                    Query(
                        zero_told(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd=~"unlink|del", {HERE}}})'
                        ),
                        "UNLINK",
                    ),
                    Query(zero(per_second("cache_invalidation_events_total")), "events"),
                ],
                unit="ops",
                log=True,
            ),
            lines(
                "Slow log: entries a second by command",
                "The store writes down commands that **execute** longer than 10 ms. The victims wait, they do not "
                "execute, so on Redis they hardly ever appear here; who does appear is a suspect. Empty under the "
                "index. (The lab reads the log's 512 entries every two seconds: a flat top near 250 means more.)",
                [
                    Query(
                        zero_by(
                            per_second("lab_slowlog_entries_total", by="server, command"), command="none"
                        ),
                        "{{command}}",
                    )
                ],
                unit="ops",
            ),
            lines(
                "Slow log: time in slow commands, seconds a second",
                "Not how often but how long. 0.5 means that half of each second went into commands of that kind "
                "that took longer than 10 ms each; while one of them runs on a single thread, nothing else does. "
                "Dragonfly's clock runs on while a command waits for its turn, so there it can be far above 1.",
                [
                    Query(
                        zero_by(
                            per_second("lab_slowlog_duration_seconds_total", by="server, command"),
                            command="none",
                        ),
                        "{{command}}",
                    )
                ],
                unit="none",
            ),
            lines(
                "The same reads, measured from two moments",
                "**From when it was due** is what a user waits; **from when it was sent** is what many tools report. "
                "This probe sends on schedule whatever is still unanswered, so the two should be one line: where they "
                "part, the probe itself was late. A client that waits for each answer before it asks again would "
                "show the lower line only, and far fewer slow reads: coordinated omission.",
                [
                    Query(BYSTANDER, "from when it was due"),
                    Query(f"server:probe_latency_from_send:p99_10s{{{HERE}}}", "from when it was sent"),
                ],
                unit="s",
                log=True,
                limit=0.01,
            ),
            lines(
                "How fast the allowance of slow reads is used up",
                "One read in a hundred may take longer than 10 ms. 1 uses that up exactly, 100 means every read "
                "is late. The alert needs both lines above 2: the long one is sure, the short one ends soon.",
                [
                    Query(f"server:p99_objective:burn_1m{{{HERE}}}", "over one minute"),
                    Query(f"server:p99_objective:burn_15s{{{HERE}}}", "over fifteen seconds"),
                ],
                unit="short",
                limit=2,
            ),
        ],
    )

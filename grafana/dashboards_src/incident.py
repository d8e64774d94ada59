"""*The incident*: what the original team had on its screens, on one time axis."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import KEY_GROWTH, READING, board
from grafana.panels import COMMANDS, Query, in_words, lines, number, phase_bars, phase_number, phase_words
from grafana.plots import actions, scatter
from grafana.promql import SCOPE, by_phase, per_second, quantile, zero, zero_by, zero_reported

BY_COMMAND = "server, db_operation_name"
P99_BY_COMMAND = quantile(0.99, "db_client_operation_duration_seconds", by=BY_COMMAND, window="[30s]")
BYSTANDER = f"server:probe_latency:p99_10s{{{SCOPE}}}"
KEYS = f"server:store_keys:sum{{{SCOPE}}}"
SATURATED = f"max by (server) (lab_knee_keys{{{SCOPE}}} > 0) < on (server) 2 * {KEYS}"
"""Not drawn while it is twice as many keys as there are, or more: it would press the curve of the keys to the axis."""
HEALTHY = f"max by (server) (lab_healthy_p99_seconds{{{SCOPE}}} > 0)"
STRATEGY = f'max by (strategy) (cache_invalidation_strategy{{job="invalidator", {SCOPE}}}'
STORY = "healthy|growing|level|over_the_edge|cured|stale"
"""The phases that count as moments of the incident."""


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
                [Query(f"{STRATEGY}) == 1", "{{strategy}}")],
                unit="none",
                names=True,
                at_once=True,
            ),
            number(
                "Phase of the story",
                "The lab times one search, plans visits and events once, measures the healthy p99 with few keys, and "
                "lets customers come until the planned number of keys is there (*keys level*). From then on only a "
                "person changes anything. *Cured*: a strategy is in force that searches nothing. *Stale*: nothing is "
                "deleted at all.",
                [Query(phase_number(SCOPE), "phase")],
                unit="none",
                words=phase_words(),
                none_means="not recorded",
            ),
            number(
                "Cached keys",
                "All keys the server holds. Nobody touches most of them; ask yourself why their number should "
                "matter to a GET of one key.",
                [Query(KEYS, "cached keys")],
                unit="short",
            ),
            number(
                "p99 of a bystander's GET",
                "A probe outside the application GETs one of its own few keys 100 times a second, on schedule "
                "whether or not earlier answers have come. The objective is 10 ms. On `dragonfly-current` it hardly "
                "rises under the same load; *5 Dragonfly* says why.",
                [Query(BYSTANDER, "p99")],
                unit="s",
                steps=((None, "green"), (0.005, "orange"), (0.01, "red")),
            ),
            number(
                "Correlation of keys and p99",
                "Spearman's rank correlation since the growth began; calibration and idle time do not count. 1: each "
                "moment with more keys is a moment with a longer p99, whatever the shape of the curve. About 0: the "
                "two have nothing to do with each other. Coloured from 0.6, because then it is a clue. A correlation "
                "is not a cause: what experiment would tell?",
                [Query(f"max by (server) (lab_keys_p99_rank_correlation{{{SCOPE}}})", "r")],
                unit="none",
                decimals=2,
                steps=((None, "text"), (0.6, "orange"), (0.8, "red")),
                none_means="too early",
            ),
            number(
                "Alerts firing",
                "Alerts are on symptoms only: reads beyond their objective, reads that mostly wait, events that "
                "pile up. None of them knows about SCAN.",
                [Query(zero(f'count by (server) (ALERTS{{alertstate="firing", {SCOPE}}})'), "firing")],
                unit="short",
                steps=((None, "green"), (1, "red")),
            ),
            lines(
                "p99 of every command as the application saw it, and the number of keys",
                "Look for **which** commands get slower: if GET of one key slows down with SCAN, they share "
                "something. Then compare the shape with the key count (right axis) and with the marks of "
                "restarts: p99 falls with the keys and climbs back with them. A dashed line, where it is "
                "not far, is saturation: with so many keys the searches of a second take all the server's time. p99 "
                "climbs long before. The background is the phase, as in the bars below. Dots are single calls: "
                "click one and go to its trace.",
                [
                    Query(P99_BY_COMMAND, "{{db_operation_name}}", exemplars=True),
                    Query(KEYS, "cached keys", right="short"),
                    Query(SATURATED, "saturation, in keys", right="short", dashed=True),
                ],
                unit="s",
                width=24,
                height=12,
                log=True,
                bottom=0.0005,
                phases=True,
            ),
            phase_bars(
                "The story so far, on every server",
                "One bar a server, in the colours of the background above: what the lab was doing at that moment. "
                "Compare the servers: the same story, in each at its own pace.",
            ),
            actions(
                "Done in the last minute",
                "What people and the lab did to this server within the last minute, and how often. Each is a mark on "
                "the panels, too. Before you explain a change by the server, look here: was a setting changed?",
                width=6,
            ),
            number(
                "Keys gained in a minute",
                "Cached keys now, less those of a minute ago. Constant while new customers come, below 0 after a "
                "restart, about 0 when all have come: events remove keys, and the next visits bring them back.",
                [Query(zero_reported(f"{KEYS} - {KEYS} offset 1m"), "gained")],
                unit="short",
                height=5,
            ),
            number(
                "Events a second",
                "What is sent now, and what was planned once, from what a search costs here (or what a person set "
                "since). The two are one number unless three times the events are sent for a minute.",
                [
                    Query(zero(f"max by (server) (lab_events_per_second{{{SCOPE}}})"), "asked"),
                    Query(zero(f"max by (server) (lab_events_planned_per_second{{{SCOPE}}})"), "planned"),
                ],
                unit="none",
                decimals=2,
                height=5,
            ),
            number(
                "Strategy, a minute ago and now",
                "The same name twice: it was not switched. Two names: a deploy happened within the minute, and p99 "
                "beside it says what came of it.",
                [
                    Query(f"{STRATEGY} offset 1m) == 1", "before: {{strategy}}"),
                    Query(f"{STRATEGY}) == 1", "now: {{strategy}}"),
                ],
                unit="none",
                names=True,
                at_once=True,
                width=6,
                height=5,
            ),
            number(
                "p99 against healthy",
                "How many times longer the slowest hundredth of reads takes than before the growth began (the median "
                "of that time). With all keys it is 20 and more; 15 seconds after a cure it is below 2.",
                [Query(f"{BYSTANDER} / on (server) {HEALTHY}", "times")],
                unit="suffix:×",
                decimals=1,
                steps=((None, "green"), (2, "orange"), (10, "red")),
                none_means="not measured",
                height=5,
            ),
            scatter(
                "Every moment as a point: p99 against the number of keys",
                "Time is taken out: each point is one moment, in the colour of its phase; calibration and idle time "
                "do not count. A cloud without shape means no relation. A line, or a line that bends upwards at some "
                "number of keys, means a relation. It needs no overload: a read that meets a search waits for it, and "
                "a search is as long as there are keys.",
                Query(KEYS, "cached keys"),
                [Query(in_words(by_phase(BYSTANDER, STORY)), "{{phase}}")],
                y_label="bystander's p99",
                x_unit="short",
                unit="s",
            ),
            lines(
                "How many commands a second",
                "Reads and events come as before while p99 climbs, so load is not the explanation. On Redis SCAN is "
                "rare among the commands, which is why nobody suspected it: the next panels show what one costs. On "
                "Dragonfly each of its calls ends by the clock, after 100 ms (`dragonfly-current`: 50 ms), and an "
                "event that was not done needs one more. A gap: the server was too busy to be asked.",
                [
                    Query(
                        zero_reported(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd=~"scan|keys", {SCOPE}}})'
                        ),
                        "SCAN or KEYS",
                    ),
                    Query(
                        zero_reported(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd="get", {SCOPE}}})'
                        ),
                        "GET",
                    ),
                    Query(
                        zero_reported(
                            f'sum by (server) (server_cmd:store_commands:rate10s{{cmd=~"unlink|del", {SCOPE}}})'
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
                "The server writes down commands that **execute** longer than 10 ms. The victims wait, they do not "
                "execute, so on Redis they hardly ever appear here; who does appear is a suspect. Empty under the "
                "index. (The lab reads what is new every two seconds, 512 entries at most.)",
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
                "Slow log: slow commands under way at once",
                "Not how often but how long: the seconds of all entries of a second are the mean number of slow "
                "commands under way (Little's law). On Redis 0.5 means that half of each second went into them, and "
                "meanwhile nothing else ran; more than 1 there cannot be. On Dragonfly calls take turns and their "
                "clocks run while they wait: 30 means thirty slow searches at once, each of which gets a thirtieth. "
                "(Of what the log had room for, so rather too low.)",
                [
                    Query(
                        zero_by(
                            per_second("lab_slowlog_duration_seconds_total", by="server, command"),
                            command="none",
                        ),
                        "{{command}}",
                    )
                ],
                unit=COMMANDS,
            ),
            lines(
                "The same reads, measured from two moments",
                "**From when it was due** is what a user waits; **from when it was sent** is what many tools report. "
                "This probe sends on schedule whatever is still unanswered, so the two should be one line: where they "
                "part, the probe itself was late. A client that waits for each answer before it asks again would "
                "show the lower line only, and far fewer slow reads: coordinated omission.",
                [
                    Query(BYSTANDER, "from when it was due"),
                    Query(f"server:probe_latency_from_send:p99_10s{{{SCOPE}}}", "from when it was sent"),
                ],
                unit="s",
                log=True,
                bottom=0.0002,
                limit=0.01,
                phases=True,
            ),
            lines(
                "How fast the allowance of slow reads is used up",
                "One read in a hundred may take longer than 10 ms. 1 uses that up exactly, 100 means every read "
                "is late. The alert needs both lines above 2: the long one is sure, the short one ends soon.",
                [
                    Query(f"server:p99_objective:burn_1m{{{SCOPE}}}", "over one minute"),
                    Query(f"server:p99_objective:burn_15s{{{SCOPE}}}", "over fifteen seconds"),
                ],
                unit="short",
                limit=2,
            ),
        ],
        question="Every command gets slower. Nothing was deployed, the load is the same, the server answers PING. What "
        "rises with p99, and what does not?",
        chapters=(KEY_GROWTH, READING),
        then="where-time-goes",
    )

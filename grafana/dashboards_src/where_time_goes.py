"""*Where did the time go*: the client's p99 against what the server says it spent."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import EMPTY_SLOWLOG, KEY_GROWTH, READING, board
from grafana.panels import COMMANDS, CORES, Query, lines, number
from grafana.plots import heat, service_graph, slow_traces
from grafana.promql import SCOPE, WINDOW, per_second, quantile, zero, zero_before, zero_by, zero_reported

P99 = f"server:probe_latency:p99_10s{{{SCOPE}}}"
FLOOR = f"server:probe_latency:floor_1h{{{SCOPE}}}"
EXECUTION = f'sum by (server) (server_cmd:store_execution:mean_10s{{cmd="get", {SCOPE}}})'
DONE = f'outcome="done", {SCOPE}'
ASIDE = "auth|client.*|command.*|config.*|dbsize|debug.*|hello|info|latency.*|memory.*|ping|replconf|select|slowlog.*"
SHOWN = f'cmd!~"{ASIDE}", {SCOPE}'
"""Every command but those of connecting, watching and settings, so that a new scenario's commands appear by themselves.
"""
BUSY = f"max by (server) (lab_store_busy_cores{{{SCOPE}}})"
THREADS = f"max by (server) (lab_store_threads{{{SCOPE}}} > 0)"
BEYOND_FLOOR = f"clamp_min({EXECUTION} - on (server) {FLOOR}, 0) or on (server) 0 * {FLOOR}"
"""The waiting that the part *execution* contains already, and that must not be counted twice. On Dragonfly, whose
clocks run while a call waits, the server's mean for GET can be longer than a whole read at the quietest of times.
"""
SPANS = (
    "histogram_quantile(0.99, sum by (server, span_name, le) (label_replace("
    'rate(traces_spanmetrics_latency_bucket{app_store_server="$server", span_name!~".*/settings/.*|PING"}[30s]), '
    '"server", "$1", "app_store_server", "(.*)"))) >= 0'
)
KNEE = f"max by (server) (lab_knee_keys{{{SCOPE}}} > 0)"


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "where-time-goes",
        "A read takes far longer than the server needs to carry it out. Who has the rest?",
        [
            number(
                "Share of a read that is waiting",
                "Of the mean read: what exceeds the quietest ten seconds of the last hour. Near 100 % there is "
                "nothing to gain from faster commands, a faster network or a bigger client.",
                [Query(f"server:waiting:share{{{SCOPE}}}", "waiting")],
                unit="percentunit",
                width=6,
                steps=((None, "green"), (0.5, "orange"), (0.8, "red")),
            ),
            number(
                "Processor of the server that is used",
                "What the server used lately, as a share of its threads that execute commands: Redis has one, "
                "Dragonfly as many as it was given. Near 100 % there is no time left. p99 climbs far below that: "
                "from a hundredth on, one read in a hundred meets a search.",
                [Query(f"{BUSY} / on (server) {THREADS}", "used")],
                unit="percentunit",
                width=6,
                none_means="not recorded",
                steps=((None, "green"), (0.7, "orange"), (0.9, "red")),
            ),
            number(
                "Keys, as a share of saturation",
                "The control page measured what one key costs a SCAN and computed the key count at which the "
                "events of a second need a second of the server. At 100 % waiting has no upper limit. Nothing is shown "
                "under a strategy that searches nothing: the index does not care.",
                [
                    Query(
                        zero_reported(f"server:store_keys:sum{{{SCOPE}}} / on (server) {KNEE}"),
                        "of saturation",
                    )
                ],
                unit="percentunit",
                width=6,
                steps=((None, "green"), (0.7, "orange"), (1, "red")),
            ),
            number(
                "A new event waits",
                "Events not yet done, at the pace at which the last minute's were done. Past the knee it grows "
                "as long as you look.",
                [Query(zero(f"server:invalidation_events:drain_seconds{{{SCOPE}}}"), "to wait")],
                unit="s",
                width=6,
                steps=((None, "green"), (2, "orange"), (5, "red")),
            ),
            lines(
                "p99 of a bystander's GET, taken apart",
                "**Execution**: the server's own mean for GET. **Network and loops**: what a read takes at the "
                "quietest of times, less execution. **Waiting**: all the rest. Watch which of the three grows. "
                "The three together are the p99. (On Dragonfly the server's clock starts before a command is "
                "scheduled, so a part of the waiting shows as execution: compare it with that of the healthy phase.)",
                [
                    Query(zero_reported(EXECUTION), "execution"),
                    Query(
                        zero_reported(f"clamp_min({FLOOR} - on (server) ({EXECUTION}), 0)"),
                        "network and loops",
                    ),
                    Query(
                        f"clamp_min({P99} - on (server) {FLOOR} - on (server) ({BEYOND_FLOOR}), 0)", "waiting"
                    ),
                ],
                unit="s",
                width=24,
                height=10,
                stacked=True,
                phases=True,
            ),
            lines(
                "GET: what clients see against what the server says",
                "The same command from three sides, on a logarithmic scale: a distance of one line is a factor of "
                "ten. When the upper lines climb and the lowest stays, the command did not become slower: it "
                "stood in a queue.",
                [
                    Query(
                        quantile(
                            0.99,
                            "db_client_operation_duration_seconds",
                            f'db_operation_name="GET", {SCOPE}',
                            window="[30s]",
                        ),
                        "application's p99",
                        exemplars=True,
                    ),
                    Query(P99, "bystander's p99"),
                    Query(zero_reported(EXECUTION), "execution on the server, mean"),
                ],
                unit="s",
                width=8,
                log=True,
            ),
            lines(
                "Processor of the server, and its threads",
                "In cores: what the server used lately, and the threads that execute its commands. Where the two meet "
                "the queue has no end. True on every server, whatever its clocks count.",
                [
                    Query(BUSY, "used"),
                    Query(THREADS, "threads"),
                ],
                unit=CORES,
                width=8,
            ),
            lines(
                "Commands under way at once, by command",
                "The mean number of commands of which the server is in the middle (seconds of its clocks a second, "
                "Little's law). A few SCANs a second can be nearly all of it, because each walks every key; under the "
                "index the same events hardly show. On Redis 1 is the whole of its thread, and each command's part is "
                "its share of the time. On Dragonfly commands that wait for a turn count too: 400 means that four "
                "hundred calls share the threads, not that anything takes 400 seconds.",
                [Query(f"sum by (server, cmd) (server_cmd:store_execution:rate10s{{{SHOWN}}})", "{{cmd}}")],
                unit=COMMANDS,
                width=8,
                stacked=True,
            ),
            lines(
                "Mean execution by command",
                "The server's own view, without anybody's queue on Redis. Does GET get slower, or only those who "
                "scan? On Dragonfly waiting for a shard is included: the victims seem guilty.",
                [
                    Query(
                        f"avg by (server, cmd) (server_cmd:store_execution:mean_10s{{{SHOWN}}})",
                        "{{cmd}}",
                    )
                ],
                unit="s",
                log=True,
            ),
            lines(
                "Events: in work and not yet done",
                "Each event starts when it arrives, however many are running, as in the original service. If the "
                "server keeps up, there are few; if not, each new one slows all others and the line has no top. "
                "(The control page sends no more events while over 600 are in flight.)",
                [
                    Query(
                        zero(
                            "max by (server) (cache_invalidation_events_in_flight"
                            f'{{job="invalidator", {SCOPE}}})'
                        ),
                        "in work",
                    ),
                    Query(zero(f"server:invalidation_events:pending{{{SCOPE}}}"), "accepted, not yet done"),
                ],
                unit="short",
            ),
            heat(
                "All reads, not only the slowest hundredth",
                "Each column is a moment, each cell how many reads took that long. Two bands mean two kinds of "
                "luck: those who met a SCAN and those who did not. An average would lie between them, where "
                "nobody is.",
                f'sum by (le) (rate(probe_latency_seconds_bucket{{from="intended", {SCOPE}}}{WINDOW}))',
            ),
            lines(
                "What one event costs: calls to the server",
                "Calls to the server per event, over a minute. Under SCAN with a small COUNT hundreds, with a large "
                "one few but long; under the index a handful, whatever the number of keys. On Dragonfly a SCAN ends "
                "by the clock, waiting included, after 100 ms (`dragonfly-current`: 50 ms): in a crowd the same walk "
                "takes more calls.",
                [
                    Query(
                        zero_by(
                            per_second(
                                "cache_invalidation_store_calls_total",
                                by="server, db_operation_name",
                                window="[1m]",
                            )
                            + " / on (server) group_left () ("
                            + per_second("cache_invalidation_events_total", DONE, window="[1m]")
                            + " > 0)",
                            db_operation_name="no events",
                        ),
                        "{{db_operation_name}}",
                    )
                ],
                unit="short",
                stacked=True,
            ),
            lines(
                "How long an event takes",
                "From its start to its end, retries included, of the events that ended. Users see stale pages that "
                "long. A gap: in half a minute not one came to its end. The traces below show every call of one "
                "event.",
                [
                    Query(
                        zero_before(
                            quantile(q, "cache_invalidation_duration_seconds", window="[30s]") + " >= 0",
                            "cache_invalidation_duration_seconds_count",
                        ),
                        name,
                    )
                    for q, name in ((0.5, "half of them within"), (0.99, "99 of 100 within"))
                ],
                unit="s",
                log=True,
            ),
            lines(
                "p99 of spans, by name",
                "Tempo makes these numbers from the traces: a span around **all** of an event (*invalidate user*), and "
                "one around each call. When the calls of an event are short and many, only the sum hurts; when they "
                "are long, look at which.",
                [Query(zero_by(SPANS, span_name="none"), "{{span_name}}", exemplars=True)],
                unit="s",
                log=True,
            ),
            slow_traces(
                "Events as traces",
                "Newest first. Sort by duration and open one: web, invalidator and server in one picture. Count the "
                "SCAN spans, and look at how long each GET next to them took. From a span, a link leads back to "
                "the numbers of that minute.",
                '{ resource.service.name = "shop-invalidator" && resource.app.store.server = "$server" '
                '&& name = "invalidate user" }',
            ),
            service_graph(
                "Who calls whom",
                "Drawn from the traces: the storefront accepts an event, the invalidator carries it out, both call "
                "the server. The numbers on a node are mean time and calls a second.",
            ),
        ],
        question="A read takes many times as long as the server needs to carry it out. Who has the rest?",
        chapters=(KEY_GROWTH, READING, EMPTY_SLOWLOG),
        then="before-after",
    )

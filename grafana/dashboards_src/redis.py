"""*Redis*: what Redis, Valkey and KeyDB report of themselves, through redis_exporter."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import EMPTY_SLOWLOG, KEY_GROWTH, KEYS_COMMAND, board
from grafana.panels import Query, lines, number
from grafana.promql import SCOPE, WINDOW, per_second, zero_by, zero_reported

SCANNED = f'cmd=~"get|set|scan|keys|unlink|sscan", {SCOPE}'
TURNS = f"(sum by (server) (rate(redis_eventloop_cycles_total{{{SCOPE}}}{WINDOW})) > 0)"
SHOWN = f'cmd=~"get|set|scan|keys|unlink|sscan|sadd|srem|exec|info", {SCOPE}'


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "redis",
        "Redis, Valkey and KeyDB from the inside: one thread carries out all commands, one after another.",
        [
            number(
                "Answers",
                "Whether the exporter reached the server. It asks like any client: while the server is stalled it "
                "waits in the same queue, so in the incident this says *no* although nothing is broken.",
                [
                    Query(
                        f'min by (server) (redis_up{{{SCOPE}}} or on (server) up{{job="redis", {SCOPE}}})',
                        "up",
                    )
                ],
                unit="bool_yes_no",
                steps=((None, "red"), (1, "green")),
            ),
            number(
                "Keys",
                "All databases together. Remember the value at which p99 begins to climb.",
                [Query(f"server:store_keys:sum{{{SCOPE}}}", "keys")],
                unit="short",
            ),
            number(
                "Main thread busy",
                "Seconds of execution in each second. Redis carries out commands on one thread, one after another, so "
                "these add up to a share: at 100 % every further command only makes the queue longer.",
                [Query(f"sum by (server) (server_cmd:store_execution:rate10s{{{SCOPE}}})", "of one thread")],
                unit="percentunit",
                steps=((None, "green"), (0.7, "orange"), (0.9, "red")),
            ),
            number(
                "Memory",
                "What the keys take, index sets included. The lab's servers may use 1 GB and evict nothing.",
                [Query(f"redis_memory_used_bytes{{{SCOPE}}}", "used")],
                unit="bytes",
            ),
            number(
                "Clients",
                "Connections. The invalidator opens one for each command in flight, so a climb follows the "
                "backlog; it does not cause it.",
                [Query(f"redis_connected_clients{{{SCOPE}}}", "connected")],
                unit="short",
            ),
            number(
                "Slow log's length",
                "How many entries are in it, at most 512. A full slow log stays full: look at the rate below, not "
                "at this.",
                [Query(f"redis_slowlog_length{{{SCOPE}}}", "entries")],
                unit="short",
            ),
            lines(
                "Commands a second",
                "SCAN is rare. With a large COUNT one call may visit every key; the number of calls says nothing "
                "about the work.",
                [Query(f"sum by (server, cmd) (server_cmd:store_commands:rate10s{{{SHOWN}}})", "{{cmd}}")],
                unit="ops",
                log=True,
            ),
            lines(
                "Main thread's time by command",
                "Who takes the thread? The stack's height is the share of a second that is gone. When it reaches "
                "100 %, p99 of **all** commands is decided by the queue.",
                [Query(f"sum by (server, cmd) (server_cmd:store_execution:rate10s{{{SHOWN}}})", "{{cmd}}")],
                unit="percentunit",
                stacked=True,
            ),
            lines(
                "Mean execution by command",
                "Without the wait for the thread. GET stays where it is, microseconds, through the whole "
                "incident: Redis is right to say that GET is fast, and the user is right to say that it is not.",
                [Query(f"sum by (server, cmd) (server_cmd:store_execution:mean_10s{{{SHOWN}}})", "{{cmd}}")],
                unit="s",
                log=True,
            ),
            lines(
                "p99 of execution, from LATENCY HISTOGRAM",
                "The server's own histogram, in powers of two. Again without the wait: the victims look healthy. "
                "(KeyDB has no such histogram and shows 0.)",
                [
                    Query(
                        zero_by(
                            "histogram_quantile(0.99, sum by (server, cmd, le) "
                            f"(rate(redis_commands_latencies_usec_bucket{{{SCANNED}}}[30s]))) / 1e6 >= 0",
                            cmd="none",
                        ),
                        "{{cmd}}",
                    )
                ],
                unit="s",
                log=True,
            ),
            lines(
                "Event loop: one turn, and commands in it",
                "A turn reads what clients have sent, carries it out and answers. Its length is what a newcomer "
                "waits at least. When commands are nearly all of it, commands are the problem; else look at "
                "network and connections. (KeyDB does not report it and shows 0.)",
                [
                    Query(
                        zero_reported(
                            f"sum by (server) (rate(redis_eventloop_duration_sum_usec_total{{{SCOPE}}}{WINDOW}))"
                            f" / 1e6 / {TURNS}"
                        ),
                        "one turn",
                    ),
                    Query(
                        zero_reported(
                            f"sum by (server) (rate(redis_eventloop_duration_cmd_sum_usec_total{{{SCOPE}}}{WINDOW}))"
                            f" / 1e6 / {TURNS}"
                        ),
                        "commands in a turn",
                    ),
                ],
                unit="s",
            ),
            lines(
                "Processor of the server",
                "User and system time, in cores. One whole core is the main thread at its end, whatever the machine "
                "has besides. A gap: the server did not answer when asked.",
                [
                    Query(zero_reported(per_second("redis_cpu_user_seconds_total")), "user"),
                    Query(zero_reported(per_second("redis_cpu_sys_seconds_total")), "system"),
                ],
                unit="percentunit",
                stacked=True,
            ),
            lines(
                "Slow log: entries a second by command",
                "Commands that executed longer than 10 ms. Execution only: who waited is not in it.",
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
                "The exporter's own patience",
                "How long one round of questions to the server took. The exporter is a bystander too: it SCANs nothing "
                "and still gets slow. At 2 s it gives up, and the panels fed by it have a gap: **the worse the "
                "incident, the less the server says of it.** An exporter that counted keys by SCAN would be part of "
                "the incident.",
                [Query(f'max by (server) (scrape_duration_seconds{{job="redis", {SCOPE}}})', "one scrape")],
                unit="s",
                log=True,
                limit=2,
            ),
            lines(
                "Hits and misses",
                "Does the cache still do its job? Misses after a restart or a burst of events are work for the "
                "database, a second incident in waiting.",
                [
                    Query(zero_reported(per_second("redis_keyspace_hits_total")), "hits"),
                    Query(zero_reported(per_second("redis_keyspace_misses_total")), "misses"),
                ],
                unit="ops",
            ),
            lines(
                "Keys that leave by themselves",
                "Expired: their time was over. Evicted: the memory was full; in this incident it never is, so "
                "eviction can be ruled out at a glance.",
                [
                    Query(zero_reported(per_second("redis_expired_keys_total")), "expired"),
                    Query(zero_reported(per_second("redis_evicted_keys_total")), "evicted"),
                ],
                unit="ops",
            ),
        ],
        question="One thread carries out every command, one after another. Who takes it, and would the slow log say "
        "so?",
        chapters=(KEY_GROWTH, EMPTY_SLOWLOG, KEYS_COMMAND),
        then="where-time-goes",
        servers="label_values(redis_up, server)",
        first="redis",
    )

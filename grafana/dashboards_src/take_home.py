"""*Who has the server's time?*: a dashboard for any other Grafana, which `bin/lab export` writes.

It needs only what redis_exporter reports of any server, nothing of the lab. `lab.diagnose.export` fills in what stands
in ``<<`` and ``>>``: the job, and the label by which that Prometheus distinguishes its servers.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import PROMETHEUS, Query, lines, number
from grafana.plots import words
from grafana.promql import WINDOW

JOB = 'job="<<job>>"'
SCOPE = f'{JOB}, <<label>>="$server"'
CALLS = f"sum by (cmd) (rate(redis_commands_total{{{SCOPE}}}{WINDOW}))"
TIME = f"sum by (cmd) (rate(redis_commands_duration_seconds_total{{{SCOPE}}}{WINDOW}))"
LIMIT = f"(max(redis_memory_max_bytes{{{SCOPE}}}) > 0)"
MAIN = "redis_cpu_{}_main_thread_seconds_total{{" + SCOPE + "}}"


def per_second(metric: str) -> str:
    """A counter's rate."""
    return f"sum(rate({metric}{{{SCOPE}}}{WINDOW}))"


def build() -> Dashboard:
    """The dashboard."""
    panels: list[Any] = [
        words(
            "**Who has the server's time?** Redis and Valkey carry out commands on one thread. Read from the left: is "
            "it taken, by which command, and are its calls many or long? `bin/lab diagnose` asks the same once, from "
            "outside.\n",
            title="The question",
            teaches="What this dashboard is for. It shows the server's side only: what clients wait is on their side.",
            width=24,
            height=3,
        ),
        number(
            "Answers",
            "Whether the exporter reached the server. It asks like any client and waits in the same queue.",
            [Query(f"min(redis_up{{{SCOPE}}} or on (<<label>>) up{{{SCOPE}}})", "up")],
            unit="bool_yes_no",
            steps=((None, "red"), (1, "green")),
        ),
        number(
            "Time taken by commands",
            "Seconds of execution in each second. From 80 % on, what users wait is decided by the queue.",
            [Query(f"sum({TIME})", "of one thread")],
            unit="percentunit",
            steps=((None, "green"), (0.7, "orange"), (0.9, "red")),
        ),
        number(
            "Main thread's processor time",
            "By the system's account. Much more than the commands take: connections, large replies, expiry.",
            [
                Query(
                    f"sum(rate({MAIN.format('user')}{WINDOW})) + sum(rate({MAIN.format('sys')}{WINDOW}))",
                    "of one core",
                )
            ],
            unit="percentunit",
        ),
        number(
            "Keys",
            "All databases together. What SCAN and KEYS cost grows with them.",
            [Query(f"sum(redis_db_keys{{{SCOPE}}})", "keys")],
            unit="short",
        ),
        number(
            "Memory, of its limit",
            "At 100 % every write pays for an eviction. A server without a limit shows 0 %.",
            [Query(f"max(redis_memory_used_bytes{{{SCOPE}}}) / {LIMIT} or vector(0)", "used")],
            unit="percentunit",
            steps=((None, "green"), (0.95, "orange")),
        ),
        number(
            "Connections, of their limit",
            "At 100 % new clients are refused.",
            [
                Query(
                    f"max(redis_connected_clients{{{SCOPE}}}) / max(redis_config_maxclients{{{SCOPE}}})",
                    "connected",
                )
            ],
            unit="percentunit",
            steps=((None, "green"), (0.9, "red")),
        ),
        lines(
            "Thread's time by command",
            "Who takes the thread? The stack's height is the share of each second that is gone.",
            [Query(f"topk(8, {TIME})", "{{cmd}}")],
            unit="percentunit",
            stacked=True,
        ),
        lines(
            "Mean execution by command",
            "Without the wait for the thread. A long call delays every client, however rare it is.",
            [Query(f"topk(8, {TIME} / ({CALLS} > 0))", "{{cmd}}")],
            unit="s",
            log=True,
        ),
        lines(
            "Commands a second",
            "Many calls or long ones? Deletes by the thousand want a pipeline; a storm of SCANs wants an index.",
            [Query(f"topk(8, {CALLS})", "{{cmd}}")],
            unit="ops",
            log=True,
        ),
        lines(
            "What the exporter waits",
            "One scrape waits for its turn some three times: a client's view, every scrape interval. When it climbs "
            "and no command has the time, look outside of the server: a core, the network.",
            [Query(f"max(redis_exporter_last_scrape_duration_seconds{{{SCOPE}}})", "one scrape")],
            unit="s",
            log=True,
        ),
        lines(
            "Evicted and expired keys a second",
            "Evictions at the limit of memory come in bursts, each while a write waits.",
            [
                Query(per_second("redis_evicted_keys_total"), "evicted"),
                Query(per_second("redis_expired_keys_total"), "expired"),
            ],
            unit="ops",
        ),
        lines(
            "Slow log entries a second",
            "What took longer than slowlog-log-slower-than, ten milliseconds by default. An empty slow log "
            "does not clear a command whose calls are many and short.",
            [Query(per_second("redis_slowlog_last_id"), "entries")],
            unit="ops",
        ),
        lines(
            "Connections",
            "New ones each second cost a handshake each; refused ones are errors that clients see.",
            [
                Query(per_second("redis_connections_received_total"), "new a second"),
                Query(per_second("redis_rejected_connections_total"), "refused a second"),
                Query(f"max(redis_connected_clients{{{SCOPE}}})", "connected", right="short"),
            ],
            unit="ops",
        ),
        lines(
            "Network",
            "Large replies take the thread as well as the wire.",
            [
                Query(per_second("redis_net_input_bytes_total"), "in"),
                Query(per_second("redis_net_output_bytes_total"), "out"),
            ],
            unit="Bps",
        ),
    ]
    made = (
        builders.Dashboard("Redis: who has the server's time?")
        .uid("redis-who-has-the-time")
        .description(
            "The figures of redis_exporter on one server, in the order in which an investigation asks."
        )
        .tags(["redis", "latency"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(
            builders.QueryVariable("server")
            .label("Server")
            .description("By the label <<label>>")
            .datasource(PROMETHEUS)
            .query(f"label_values(redis_up{{{JOB}}}, <<label>>)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
        )
    )
    for index, panel in enumerate(panels, start=1):
        made = made.with_panel(panel.id(index))
    return made.build()

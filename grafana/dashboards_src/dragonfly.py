"""*Dragonfly*: its own metrics, and the pipeline panels that looked healthy to the original team."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import KEY_GROWTH, board
from grafana.panels import COMMANDS, Query, lines, number
from grafana.plots import words
from grafana.promql import SCOPE, per_second, zero_by, zero_reported

SHOWN = f'cmd=~"get|set|scan|keys|unlink|sscan|sadd|srem|exec|info", {SCOPE}'
PIPELINED = per_second("dragonfly_pipeline_commands_total")
ALL_COMMANDS = per_second("dragonfly_commands_processed_total")
BYSTANDER = f"server:probe_latency:p99_10s{{{SCOPE}}}"

PIPELINE = """### The wrong turn: "pipeline latency"

The original team saw *Average pipeline length* near 0 and *Pipeline latency* below 10 ms, took them for the time that
the server spends on a command, and concluded that the server was well.

What they count are commands that Dragonfly found **queued behind others on the same connection**. A client that waits
for each answer never makes such a queue, however long it waits. Here reads are of that kind; the write of an entry is a
transaction that goes out at once, from MULTI to EXEC, and is counted.

*Ask of every panel: whose time is it, and would it move if my clients were slow?*
"""

TWO_VERSIONS = """Both get the same visits, and events whose searches take the same share of their time. On `dragonfly`
(1.28.1) a SCAN visits up to 10,000 buckets of keys before it lets anybody in, and with one thread nobody gets in until
the call ends, after 100 ms at the latest. A GET waits for a search, and a search is as long as there are keys: p99
climbs.

On `dragonfly-current` (1.40.1) a SCAN lets others in after about 30 µs and ends after 50 ms. A GET waits for a slice of
a search: p99 does not climb. The maker took the wait away, and not the work. Each event still visits every key, so this
server saturates too, with more events or more keys, and the cure is the same: no search.
"""


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "dragonfly",
        "Dragonfly from the inside: many threads, each with its share of the keys, and fibers that take turns.",
        [
            number(
                "Keys",
                "All databases together. Remember the value at which p99 begins to climb.",
                [Query(f"sum by (server) (dragonfly_db_keys{{{SCOPE}}})", "keys")],
                unit="short",
            ),
            number(
                "Commands under way at once",
                "How many calls are at the server at a time (Little's law), those that wait for their turn included: "
                "Dragonfly's clock starts before a command is scheduled. Well above the number of threads there is a "
                "crowd. It says nothing of the processor: that is on *Where did the time go*.",
                [Query(f"sum by (server) (server_cmd:store_execution:rate10s{{{SCOPE}}})", "commands")],
                unit="none",
                decimals=1,
                steps=((None, "green"), (1, "orange"), (2, "red")),
            ),
            number(
                "Memory",
                "What the keys take, index sets included. The lab's servers may use 1 GB and evict nothing.",
                [Query(f"dragonfly_memory_used_bytes{{{SCOPE}}}", "used")],
                unit="bytes",
            ),
            number(
                "Clients",
                "Connections. The invalidator opens one for each command in flight, so a climb follows the "
                "backlog; it does not cause it.",
                [
                    Query(
                        f'sum by (server) (dragonfly_connected_clients{{listener="main", {SCOPE}}})',
                        "connected",
                    )
                ],
                unit="short",
            ),
            number(
                "Transactions in the queue",
                "Commands that wait for their turn on a shard at the moment of asking. It is short although everybody "
                "waits: the answer is given between two turns.",
                [Query(zero_reported(f"sum by (server) (dragonfly_tx_queue_len{{{SCOPE}}})"), "waiting")],
                unit="short",
            ),
            number(
                "Running for",
                "Time since the start. A restart empties the server: if p99 falls with it, was it the restart or "
                "the keys?",
                [Query(f"dragonfly_uptime_in_seconds{{{SCOPE}}}", "uptime")],
                unit="s",
            ),
            words(
                TWO_VERSIONS,
                title="Why the same load shows no climb on dragonfly-current",
                teaches="What the maker of Dragonfly has changed since the incident, and what has stayed. The second "
                "server is there with `docker compose --profile current up -d`.",
                width=24,
                height=7,
            ),
            lines(
                "Commands a second",
                "Watch SCAN. On Dragonfly COUNT counts **matches**, so a pattern that matches little walks on until "
                "its time is up: 100 ms, or 50 ms on `dragonfly-current`. With few events that is a rare and long "
                "call. Where others are let in meanwhile their time counts, too: in a crowd each call walks less, and "
                "the same walk takes more calls.",
                [Query(f"sum by (server, cmd) (server_cmd:store_commands:rate10s{{{SHOWN}}})", "{{cmd}}")],
                unit="ops",
                log=True,
            ),
            lines(
                "Commands under way at once, by command",
                "By Little's law: how many of each kind are at the server at a time. Dragonfly's clocks run while a "
                "call waits for its turn, so those count too.",
                [Query(f"sum by (server, cmd) (server_cmd:store_execution:rate10s{{{SHOWN}}})", "{{cmd}}")],
                unit=COMMANDS,
                stacked=True,
            ),
            lines(
                "Mean time by command",
                "Includes the wait for the shard. GET gets slower here although it does no more than before: on "
                "Dragonfly the victims look guilty, and their slow-log entries do too.",
                [Query(f"sum by (server, cmd) (server_cmd:store_execution:mean_10s{{{SHOWN}}})", "{{cmd}}")],
                unit="s",
                log=True,
            ),
            lines(
                "Slow log: entries a second by command",
                "Commands that took longer than 10 ms. The original team set 100 ms, and reports SCAN alone, of 50 to "
                "200 ms: the first clue that pointed the right way.",
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
            words(
                PIPELINE,
                title="About the pipeline panels",
                teaches="What the panels beside and below count, and why they look healthy while everything is slow.",
                height=9,
            ),
            lines(
                "Pipeline latency (the panel that misled), beside p99",
                "Mean time of a pipelined command, and what a bystander's GET really takes. 0 where nothing was "
                "pipelined. A dashboard with the lower line alone says that all is well.",
                [
                    Query(
                        zero_reported(
                            per_second("dragonfly_pipeline_commands_duration_seconds")
                            + f" / on (server) ({PIPELINED} > 0)"
                        ),
                        "pipeline latency",
                    ),
                    Query(BYSTANDER, "bystander's p99"),
                ],
                unit="s",
            ),
            lines(
                "Pipeline length, and how many commands are pipelined at all",
                "How many commands stand in connections' queues, and the share of all commands that did "
                "(right axis). Large while entries are written, for the calibration and for new customers, and small "
                "when all keys are there: p99 does not fall with it.",
                [
                    Query(
                        zero_reported(f"sum by (server) (dragonfly_pipeline_queue_length{{{SCOPE}}})"),
                        "pipeline length",
                    ),
                    Query(
                        zero_reported(f"{PIPELINED} / on (server) ({ALL_COMMANDS} > 0)"),
                        "share of commands that were pipelined",
                        right="percentunit",
                    ),
                ],
                unit="short",
            ),
            lines(
                "Fibers: how long one waits for its turn",
                "Each thread runs many fibers in turn. The mean delay of a switch is the crowd on the threads, "
                "and closer to the cause than any pipeline: it grows with the SCANs in flight.",
                [
                    Query(
                        zero_reported(
                            per_second("dragonfly_fiber_switch_delay_seconds_total")
                            + " / on (server) ("
                            + per_second("dragonfly_fiber_switch_total")
                            + " > 0)"
                        ),
                        "mean delay",
                    )
                ],
                unit="s",
            ),
            lines(
                "Fibers that ran long without a break",
                "Turns longer than 1 ms by the clock, and how long such a turn is (right axis). On `dragonfly` these "
                "are the SCANs, which all others wait for. On `dragonfly-current` a SCAN gives way about every 30 µs, "
                "so it makes none by itself. The clock is the wall's: on a machine short of processor, or at the "
                "container's limit, the system takes the thread away in the middle of a turn, and that counts.",
                [
                    Query(zero_reported(per_second("dragonfly_fiber_longrun_total")), "long runs a second"),
                    Query(
                        zero_reported(
                            per_second("dragonfly_fiber_longrun_seconds")
                            + " / on (server) ("
                            + per_second("dragonfly_fiber_longrun_total")
                            + " > 0)"
                        ),
                        "one long run",
                        right="s",
                    ),
                ],
                unit="ops",
            ),
            lines(
                "Sending answers",
                "Mean time to write one reply. It would rise if the network or slow readers were the cause. It rises "
                "here too, with small replies to readers next door: the fiber that writes waits for its turn as "
                "well. Compare the shape with *Fibers*: one more panel that climbs because everything does.",
                [
                    Query(
                        zero_reported(
                            per_second("dragonfly_reply_duration_seconds")
                            + " / on (server) ("
                            + per_second("dragonfly_reply_total")
                            + " > 0)"
                        ),
                        "one reply",
                    )
                ],
                unit="s",
            ),
            lines(
                "Bytes in and out",
                "Traffic. High while the server is filled for the calibration; it hardly changes during the incident, "
                "so the network can be ruled out.",
                [
                    Query(zero_reported(per_second("dragonfly_net_input_bytes_total")), "in"),
                    Query(zero_reported(per_second("dragonfly_net_output_bytes_total")), "out"),
                ],
                unit="Bps",
            ),
            lines(
                "Hits and misses",
                "Does the cache still do its job? Misses after a restart or a burst of events are work for the "
                "database, a second incident in waiting.",
                [
                    # Dragonfly reports each twice: in total, and by database.
                    Query(
                        zero_reported(per_second("dragonfly_keyspace_hits_total", f'db="", {SCOPE}')),
                        "hits",
                    ),
                    Query(
                        zero_reported(per_second("dragonfly_keyspace_misses_total", f'db="", {SCOPE}')),
                        "misses",
                    ),
                ],
                unit="ops",
            ),
        ],
        question="Many threads, and calls that take turns. Which of these panels could move p99, and which only move "
        "with it?",
        chapters=(KEY_GROWTH,),
        then="where-time-goes",
        servers="label_values(dragonfly_uptime_in_seconds, server)",
        first="dragonfly",
    )

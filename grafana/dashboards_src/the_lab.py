"""*The lab itself*: whether the instruments work. Look here before you believe anything else."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.dashboards_src.board import READING, board
from grafana.panels import Query, lines, number, states
from grafana.promql import SCOPE, per_second, quantile, zero, zero_by

FAILED = f'outcome="failed", {SCOPE}'
GROUPS = 'label_replace(prometheus_rule_group_last_duration_seconds, "group", "$1", "rule_group", ".*;(.*)")'
STEADY = "[30s]"
"""Window for processor time: processes count it in hundredths of a second, too coarse for a window of a few scrapes."""


def build() -> Dashboard:
    """The dashboard."""
    return board(
        "the-lab",
        "An instrument that has stopped shows no trouble. Is everything measured, is the load delivered, is anybody "
        "but the server short of processor?",
        [
            number(
                "Targets that answer",
                "Of all that Prometheus scrapes. A target down for a few seconds after a restart is as it should "
                "be; one that stays down makes its panels lie.",
                [
                    Query("sum(up)", "up"),
                    Query("count(up)", "of"),
                ],
                unit="short",
                width=6,
            ),
            number(
                "Spans lost on the way",
                "Given up by the service because Tempo did not take them, in the time shown. Above 0, traces have "
                "holes: do not count spans then.",
                [
                    Query(
                        zero(f"sum by (server) (increase(otel_spans_dropped_total{{{SCOPE}}}[$__range]))"),
                        "lost",
                    )
                ],
                unit="short",
                width=6,
                at_once=True,
                steps=((None, "green"), (1, "red")),
            ),
            number(
                "Requests that failed",
                "Locust's requests that came back with an error, in the time shown. The storefront stays up even "
                "without its server, so this should be 0; errors answered quickly would make p99 look better.",
                [
                    Query(
                        zero(f"sum by (server) (increase(locust_requests_total{{{FAILED}}}[$__range]))"),
                        "failed",
                    )
                ],
                unit="short",
                width=6,
                at_once=True,
                steps=((None, "green"), (1, "red")),
            ),
            number(
                "Events a second, as ordered",
                "What the customers are asked to do now: planned once, from what a search costs on this machine, so "
                "that searches take the planned share of the server's time when all keys are there.",
                [Query(zero(f"max by (server) (lab_events_per_second{{{SCOPE}}})"), "events")],
                unit="ops",
                width=6,
                decimals=2,
            ),
            states(
                "Scrapes",
                "One bar a target. Gaps of a server's exporter during the incident are a symptom (it waits like any "
                "client), not a fault of the lab.",
                [Query("min by (job, server) (up)", "{{job}} {{server}}")],
                on="up",
                off="down",
                good=True,
                height=12,
            ),
            lines(
                "How long scrapes take",
                "The limit is 2 s. A process that answers late is short of processor, or its server is stalled and "
                "it asks the server when scraped.",
                [Query("max by (job) (scrape_duration_seconds)", "{{job}}")],
                unit="s",
                log=True,
                limit=2,
            ),
            lines(
                "Processor by job",
                "In cores, all servers together. A Python process at 1 is at its end, and then **it** makes the "
                "latency, not the server: the experiment would be void. The servers themselves are on their own "
                "dashboards.",
                [
                    Query(f"sum by (job) (rate(process_cpu_seconds_total{STEADY}))", "{{job}}"),
                ],
                unit="percentunit",
            ),
            lines(
                "Memory by job",
                "Resident, all servers together. The whole lab fits in 2 GB when idle.",
                [Query("sum by (job) (process_resident_memory_bytes)", "{{job}}")],
                unit="bytes",
                stacked=True,
            ),
            lines(
                "Spans: made, sent, lost",
                "Made by web and invalidator of this server, accepted by Tempo, given up. Made and sent should be "
                "one line (sent comes in steps, a batch every two seconds).",
                [
                    Query(zero(per_second("otel_spans_ended_total", window=STEADY)), "made"),
                    Query(zero(per_second("otel_spans_exported_total", window=STEADY)), "sent"),
                    Query(zero(per_second("otel_spans_dropped_total", window=STEADY)), "lost"),
                ],
                unit="ops",
            ),
            lines(
                "Tempo: spans received and refused",
                "Of all services. Refused means: over a limit in tempo.yaml, or too late for the metrics made from "
                "them.",
                [
                    Query(
                        f"sum(rate(tempo_distributor_spans_received_total{STEADY})) or vector(0)", "received"
                    ),
                    Query(f"sum(rate(tempo_discarded_spans_total{STEADY})) or vector(0)", "refused"),
                ],
                unit="ops",
            ),
            lines(
                "Exemplars kept by Prometheus",
                "The dots on latency panels. A ring: when it is full the oldest go; a dot's trace is kept longer.",
                [Query("sum(prometheus_tsdb_exemplar_exemplars_in_storage) or vector(0)", "exemplars")],
                unit="short",
            ),
            lines(
                "Load as Locust delivers it",
                "Requests a second. The line must stay flat through the incident: if the load fell when answers "
                "came late, before and after could not be compared.",
                [
                    Query(
                        zero_by(
                            per_second("locust_requests_total", by="server, request", window=STEADY),
                            request="none",
                        ),
                        "{{request}}",
                    ),
                    Query(zero(per_second("locust_missed_total", window=STEADY)), "missed their time"),
                ],
                unit="reqps",
            ),
            lines(
                "p99 as Locust sees it",
                "The third p99: of HTTP requests, from a load generator. Compare with the application's and the "
                "bystander's: each is right about something else.",
                [
                    Query(
                        zero_by(
                            quantile(
                                0.99, "locust_request_duration_seconds", by="server, request", window=STEADY
                            )
                            + " >= 0",
                            request="none",
                        ),
                        "{{request}}",
                    )
                ],
                unit="s",
                log=True,
            ),
            lines(
                "Customers",
                "Users that Locust keeps running. They wait for answers; there must be enough of them that the "
                "rate does not depend on it.",
                [Query(zero(f"sum by (server) (locust_users{{{SCOPE}}})"), "users")],
                unit="short",
            ),
            lines(
                "Prometheus: the time its rules take",
                "Per evaluation; they are due every two seconds. Near the limit, alerts and the panels made from "
                "rules come late.",
                [
                    Query(f"sum by (group) ({GROUPS})", "{{group}}"),
                ],
                unit="s",
                log=True,
                limit=2,
            ),
        ],
        question="An instrument that has stopped shows no trouble. May you believe the other five dashboards?",
        chapters=(READING,),
        then="incident",
    )

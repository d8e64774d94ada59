"""The control page's own metrics: actions on each server, and counts from its slow log.

Every action appears as a step of `lab_actions_total`, from which dashboards draw annotations. All actions start at 0,
because a counter that begins at 1 has no step. The switches to a strategy appear once the storefront has named it.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from console.plan import Plan

SWITCH, SWITCH_LATE = "strategy_", "strategy_late_"
"""Prefixes of an action; the name of the strategy follows."""
ACTIONS = (
    "restart",
    "growth_start",
    "growth_stop",
    "over_the_edge",
    "back_to_the_edge",
    "plan",
    "rate",
    "count",
    "pause",
    "resume",
    "stop",
    "story",
)
PHASES = (
    "waiting",
    "calibrating",
    "healthy",
    "growing",
    "level",
    "over_the_edge",
    "cured",
    "stale",
    "stopped",
    "leased",
)


class ControlMetrics:
    """Metrics in a registry of their own."""

    def __init__(self, servers: Iterable[str]) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.slow_entries = Counter(
            "lab_slowlog_entries", "Slow log entries seen.", ["server", "command"], registry=registry
        )
        self.slow_seconds = Counter(
            "lab_slowlog_duration_seconds",
            "Execution time of the slow log entries seen.",
            ["server", "command"],
            registry=registry,
        )
        self.actions = Counter(
            "lab_actions",
            "What was done to a server, by a person or by the story.",
            ["server", "action"],
            registry=registry,
        )
        self.up = self._gauge("lab_store_up", "1 while the server answers.")
        self.events = self._gauge("lab_events_per_second", "Events a second asked for now; 0 while paused.")
        self.planned = self._gauge(
            "lab_events_planned_per_second",
            "Events a second as planned, or as a person set them; over the edge three times as many are sent.",
        )
        self.knee = self._gauge(
            "lab_knee_keys",
            "Keys at which the wanted events' searches take all the server's time.",
        )
        self.phase = Gauge(
            "lab_phase", "1 for the phase that the scene is in.", ["server", "phase"], registry=registry
        )
        self.correlation = self._gauge(
            "lab_keys_p99_rank_correlation",
            "Spearman's rank correlation of keys and a bystander's p99 since the growth began.",
        )
        self.healthy = self._gauge(
            "lab_healthy_p99_seconds", "Median of a bystander's ten-second p99 before the growth."
        )
        self.busy = self._gauge("lab_store_busy_cores", "Processor cores that the server uses.")
        self.threads = self._gauge("lab_store_threads", "Threads of the server that execute commands.")
        self.cost = self._gauge("lab_calibrated_cost_seconds", "The server's time per key scanned.")
        self.keys = self._gauge("lab_keys", "Cached entries.")
        self.in_flight = self._gauge("lab_events_in_flight", "Events accepted and not finished.")
        self.growing = self._gauge("lab_growth", "1 while all customers come, so that keys are added.")
        self.paused = self._gauge(
            "lab_events_paused", "1 while no events are sent because very many are in flight."
        )
        self.plan = Gauge(
            "lab_plan_timestamp_seconds",
            "When the load was planned: what one search takes here, and the rate of events that follows.",
            ["server", "keys", "scan_count", "search_seconds", "events_per_second", "utilisation"],
            registry=registry,
        )
        for server in servers:
            for action in ACTIONS:
                self.actions.labels(server, action)
            self.slow_entries.labels(server, "SCAN")
            self.slow_seconds.labels(server, "SCAN")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["server"], registry=self.registry)

    def show_plan(self, server: str, plan: Plan) -> None:
        """Set a server's plan, for the dashboards' annotation."""
        self.plan.labels(
            server,
            f"{plan.keys}",
            f"{plan.scan_count}",
            f"{plan.search_s:.3g}",
            f"{plan.events_per_second:g}",
            f"{plan.utilisation:.2f}",
        ).set_to_current_time()

    def slow(self, server: str, command: str, seconds: float) -> None:
        """Count one entry of a slow log."""
        self.slow_entries.labels(server, command).inc()
        self.slow_seconds.labels(server, command).inc(seconds)

    def show_phase(self, server: str, current: str) -> None:
        """Set the current phase to 1 and all others to 0. Does nothing for an absent server, whose phase is ''."""
        if not current:
            return
        for phase in PHASES:
            self.phase.labels(server, phase).set(phase == current)

    def expect_strategies(self, server: str, names: Iterable[str]) -> None:
        """Start the counters of switches to these strategies, which the server's storefront has named, at 0."""
        for name in names:
            for action in (SWITCH + name, SWITCH_LATE + name):
                self.actions.labels(server, action)

    def act(self, server: str, action: str) -> None:
        """Count one action."""
        self.actions.labels(server, action).inc()

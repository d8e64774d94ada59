"""The control page's own metrics: what was done to each server, and what its slow log says.

Every action appears as a step of `lab_actions_total`, from which dashboards draw annotations:
`increase(lab_actions_total[4s]) > 0`. All actions start at 0, because a counter that begins at 1 has no increase.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

ACTIONS = (
    "strategy_scan",
    "strategy_keys",
    "strategy_index",
    "restart",
    "growth_start",
    "growth_stop",
    "rate",
    "pause",
    "resume",
    "story",
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
            "What was done to a server, by a person or by the director.",
            ["server", "action"],
            registry=registry,
        )
        self.up = self._gauge("lab_store_up", "1 while the store answers.")
        self.events = self._gauge("lab_events_per_second", "Events a second asked for now; 0 while paused.")
        self.knee = self._gauge("lab_knee_keys", "Keys at which the asked events saturate the store.")
        self.cost = self._gauge("lab_calibrated_cost_seconds", "The store's time per key scanned.")
        self.keys = self._gauge("lab_keys", "Cached entries.")
        self.in_flight = self._gauge("lab_events_in_flight", "Events accepted and not finished.")
        self.growing = self._gauge("lab_growth", "1 while keys are being added.")
        self.paused = self._gauge("lab_events_paused", "1 while the director holds events back.")
        for server in servers:
            for action in ACTIONS:
                self.actions.labels(server, action)
            self.slow_entries.labels(server, "SCAN")
            self.slow_seconds.labels(server, "SCAN")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["server"], registry=self.registry)

    def slow(self, server: str, command: str, seconds: float) -> None:
        """An entry of a slow log."""
        self.slow_entries.labels(server, command).inc()
        self.slow_seconds.labels(server, command).inc(seconds)

    def act(self, server: str, action: str) -> None:
        """Something was done."""
        self.actions.labels(server, action).inc()

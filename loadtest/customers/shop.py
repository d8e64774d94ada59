"""The storefront's settings and metrics, as a scenario needs them, over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

ANSWER_S = 30.0
CALLS, COMMAND = "db_client_operation_duration_seconds_bucket", "GET"
Buckets = dict[float, float]
"""Upper bound in seconds → how many calls took no longer."""


class NoAnswer(Exception):
    """The storefront is gone, or refuses; the text is one line."""


class Shop:
    """A client of the storefront. Methods raise `NoAnswer`."""

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/")

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        """Send a request; returns the body of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                content: bytes = answer.read()
                return content
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{method} {self._base}{path}: {error}") from None

    def strategy(self) -> str:
        """The strategy in force."""
        try:
            return str(json.loads(self.ask("GET", "/settings/invalidation"))["strategy"])
        except (ValueError, KeyError, TypeError):
            raise NoAnswer(f"{self._base}/settings/invalidation names no strategy") from None

    def use(self, strategy: str) -> None:
        """Change the strategy."""
        self.ask("PUT", "/settings/invalidation", {"strategy": strategy})

    def gets(self) -> Buckets:
        """The storefront's own histogram of its GETs since it began."""
        text = self.ask("GET", "/metrics").decode(errors="replace")
        found: Buckets = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == CALLS and sample.labels.get("db_operation_name") == COMMAND:
                    bound = float(sample.labels["le"])
                    found[bound] = found.get(bound, 0.0) + sample.value
        return found


def between(before: Buckets, after: Buckets) -> Buckets:
    """Return the calls of a window; only those since the restart if the storefront was restarted in it."""
    newer = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    return after if min(newer.values(), default=0.0) < 0 else newer


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the quantile `share` of the durations in seconds, as Prometheus's histogram_quantile finds it.

    None without calls.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (share * total - below) / (buckets[bound] - below)
        lower, below = bound, buckets[bound]
    return lower

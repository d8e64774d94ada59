"""HTTP clients of the storefront and of the load generator. The lab uses both by their HTTP interfaces only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lab.errors import StackError

CLEARING = "index"
"""The strategy that clears a backlog at once: every accepted event is carried out, none is dropped."""
REFUSED_S = 15.0
"""Seconds for which the server may refuse to be filled (it may be restarting) before the run ends."""

Buckets = dict[float, float]
"""Upper bound in seconds → cumulative count."""


class Http:
    """JSON over HTTP with one-line errors, each request within `timeout_s`."""

    def __init__(self, name: str, base_url: str, timeout_s: float = 10.0) -> None:
        self.name = name
        self.base_url = base_url
        self._client = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=False)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON answer. Raises `StackError` if there is none, or its status is 400 or above."""
        try:
            answer = self._client.request(method, path, json=body)
            content = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise StackError(
                f"{self.name} at {self.base_url} does not answer {method} {path}: {error}"
            ) from error
        if answer.status_code >= 400:
            detail = content.get("detail") or content.get("title") if isinstance(content, dict) else content
            raise StackError(f"{self.name} refuses {method} {path}: {detail}")
        return content

    def text(self, path: str) -> str:
        """Return the body of a page. Raises `StackError` if the request fails."""
        try:
            answer = self._client.get(path, headers={"Accept": "text/plain"})
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise StackError(f"{self.name} at {self.base_url} does not answer GET {path}: {error}") from error
        return answer.text

    def ready(self, path: str) -> bool:
        """Return True if a GET of `path` is answered with a status below 400."""
        try:
            return self._client.get(path).status_code < 400
        except httpx.HTTPError:
            return False

    def wait(self, path: str, seconds: float, check: Callable[[], None]) -> None:
        """Wait until `path` answers; `check` may raise meanwhile. Raises `StackError` after `seconds`."""
        end = time.monotonic() + seconds
        while not self.ready(path):
            check()
            if time.monotonic() > end:
                raise StackError(f"{self.name} is not ready at {self.base_url}{path} after {seconds:g} s.")
            time.sleep(0.05)

    def close(self) -> None:
        """Close connections."""
        self._client.close()


class Storefront(Http):
    """The service under observation."""

    def use(self, strategy: str, scan_count: int, late: bool = False) -> None:
        """Switch the invalidation strategy in all processes (they follow within a second).

        Events under way are abandoned and repeated under the new strategy, as by a deploy. With `late` they finish
        under the old one.
        """
        body: dict[str, Any] = {"strategy": strategy, "scan_count": scan_count}
        self.ask("PUT", "/settings/invalidation", {**body, "under_way": "finish"} if late else body)

    def fill(self, keys: int, per_second: float | None = None, restart: bool = False) -> None:
        """Start the warmer, which caches `keys` entries, at most `per_second` a second. Does not wait for it."""
        self.ask(
            "PUT",
            "/settings/warming",
            {"target_keys": keys, "keys_per_second": per_second, "restart": restart},
        )

    def warm(self, keys: int, restart: bool, seconds: float, check: Callable[[], None]) -> None:
        """Cache `keys` entries through the storefront's own cache code, and wait until they are there.

        Raises `StackError` when that takes longer than `seconds`, or the server refuses entries for `REFUSED_S`.
        """
        self.fill(keys, restart=restart)
        end = time.monotonic() + seconds
        refused_since: float | None = None
        while True:
            answer = self.ask("GET", "/settings/warming")
            if answer["state"] == "idle":
                return
            check()
            now = time.monotonic()
            refused_since = (refused_since or now) if answer["error"] else None
            if refused_since and now - refused_since > REFUSED_S:
                raise StackError(f"the server does not take {keys:,} keys: {answer['error']}")
            if now > end:
                raise StackError(
                    f"filling {keys:,} keys took longer than {seconds:g} s ({answer['keys']:,} keys so far)."
                )
            time.sleep(0.05)


class Locust(Http):
    """The load generator's own control interface."""

    def load(self, reads_per_second: float, events_per_second: float, population: int) -> None:
        """Set the rates; they hold from the next second on."""
        self.ask(
            "PUT",
            "/load",
            {
                "reads_per_second": reads_per_second,
                "events_per_second": events_per_second,
                "users_population": population,
            },
        )

    def visit(self, visits_per_second: float, events_per_second: float, customers: int) -> None:
        """Set the load of `loadtest/key_growth.py`; it holds from the next second on."""
        self.ask(
            "PUT",
            "/load",
            {
                "visits_per_second": visits_per_second,
                "events_per_second": events_per_second,
                "users_population": customers,
            },
        )

    def reset(self) -> None:
        """Set its tallies to zero."""
        self.ask("POST", "/load/reset")

    def tallies(self) -> dict[str, Any]:
        """Return counts and percentiles since the last reset."""
        return dict(self.ask("GET", "/load"))


@dataclass
class Metrics:
    """The figures that the lab uses from one scrape of the storefront's processes."""

    get_buckets: Buckets
    finished: float
    in_flight: float
    pending: float


def scrape(texts: list[str]) -> Metrics:
    """Read the Prometheus texts of web and invalidator, in that order."""
    seen = Metrics({}, 0.0, 0.0, 0.0)
    for index, text in enumerate(texts):
        for family in text_string_to_metric_families(text):
            if family.name == "db_client_operation_duration_seconds" and index == 0:
                for sample in family.samples:
                    if sample.name.endswith("_bucket") and sample.labels.get("db_operation_name") == "GET":
                        bound = float(sample.labels["le"])
                        seen.get_buckets[bound] = seen.get_buckets.get(bound, 0.0) + sample.value
            elif family.name == "cache_invalidation_events":
                seen.finished += sum(s.value for s in family.samples if s.labels.get("outcome") == "done")
            elif family.name == "cache_invalidation_events_in_flight":
                seen.in_flight += sum(s.value for s in family.samples)
            elif family.name == "cache_invalidation_events_pending" and index == 0:
                seen.pending = sum(s.value for s in family.samples)
    return seen


def bucket_quantile(before: Buckets, after: Buckets, q: float) -> float | None:
    """Return a quantile in seconds of a Prometheus histogram's counts between two scrapes; None without counts.

    Linear within the bucket, as PromQL's histogram_quantile. A quantile above the last finite bound is that bound.
    """
    bounds = sorted(after)
    counts = [after[b] - before.get(b, 0.0) for b in bounds]
    if not counts or counts[-1] <= 0:
        return None
    rank, low, below = q * counts[-1], 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below) if count > below else bound
        low, below = bound, count
    return low

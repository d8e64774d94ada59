"""Clients of one server and the processes around it, and `SceneSample`: the reports of these processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from prometheus_client import samples as prometheus
from prometheus_client.parser import text_string_to_metric_families

from console.config import Config, ServerAddresses
from lab.errors import StackError
from lab.server.http import Buckets, Http, Locust, Storefront
from lab.server.server_stats import ServerObserver

PROBE_BUCKET = "probe_latency_seconds_bucket"
FINISHED = "cache_invalidation_events_total"
IN_FLIGHT = "cache_invalidation_events_in_flight"
PENDING = "cache_invalidation_events_pending"
ANSWER_S = 3.0
"""Timeout for one answer: settings, metrics and rates do not queue behind requests that wait for the server."""


@dataclass(frozen=True)
class SceneSample:
    """The reports of the processes around one server, at about the same moment.

    `strategies`: the storefront's strategies, each with a line on its cost. `searching`: those whose events visit
    all keys. `keys`: all keys of the server, index sets included.
    """

    strategy: str
    strategies: dict[str, str]
    searching: list[str]
    scan_count: int
    keys: int
    finished: float
    in_flight: float
    probe: Buckets


UNSEEN = SceneSample("", {}, [], 0, 0, 0.0, 0.0, {})


class Clients:
    """Clients for all addresses of one server. Methods raise `StackError` with one line if a part does not answer."""

    def __init__(self, addresses: ServerAddresses, config: Config) -> None:
        self.addresses = addresses
        self.server = ServerObserver(addresses.server, config.store_timeout_seconds)
        name = addresses.name
        self.web = Storefront(f"the storefront on {name}", addresses.web, ANSWER_S)
        self.invalidator = Http(f"the invalidator on {name}", addresses.invalidator, ANSWER_S)
        self.locust = Locust(f"Locust on {name}", addresses.locust, ANSWER_S)
        self.probe = Http(f"the probe on {name}", addresses.probe, ANSWER_S)

    def known(self) -> bool:
        """Return True if the server's host name resolves. Under Compose a service whose profile is off has none."""
        parts = urlsplit(self.addresses.server)
        try:
            socket.getaddrinfo(parts.hostname, parts.port or 6379, type=socket.SOCK_STREAM)
        except OSError:
            return False
        return True

    def ready(self) -> None:
        """Raise `StackError` naming the first thing that does not answer yet."""
        if not self.web.ready("/readyz"):
            raise StackError(f"{self.web.name} is not ready.")
        for client, path in (
            (self.invalidator, "/metrics"),
            (self.locust, "/load"),
            (self.probe, "/metrics"),
        ):
            if not client.ready(path):
                raise StackError(f"{client.name} does not answer.")

    def sample(self, before: SceneSample | None = None) -> tuple[SceneSample, str]:
        """Sample everything but the server itself, which may be slow to answer.

        Returns the sample, and a sentence about the first part that did not answer (or ''). Such a part has the values
        of `before`. Raises `StackError` if a part does not answer and there is no `before`.
        """
        sample, trouble = before or UNSEEN, ""
        for read in (self._settings, self._warming, self._events, self._probe):
            try:
                sample = read(sample)
            except StackError as error:
                if before is None:
                    raise
                trouble = trouble or str(error)
        return sample, trouble

    def _settings(self, sample: SceneSample) -> SceneSample:
        mode = self.web.ask("GET", "/settings/invalidation")
        return replace(
            sample,
            strategy=str(mode["strategy"]),
            strategies=mode["strategies"],
            searching=mode["searching"],
            scan_count=int(mode["scan_count"]),
        )

    def _warming(self, sample: SceneSample) -> SceneSample:
        return replace(sample, keys=int(self.web.ask("GET", "/settings/warming")["keys"]))

    def _events(self, sample: SceneSample) -> SceneSample:
        finished = in_flight = pending = 0.0
        for one in samples(self.invalidator.text("/metrics"), FINISHED, IN_FLIGHT, PENDING):
            if one.name == FINISHED:
                finished += one.value if one.labels.get("outcome") == "done" else 0.0
            elif one.name == IN_FLIGHT:
                in_flight += one.value
            elif one.value == one.value:  # not a number when the outbox could not be read
                pending += one.value
        return replace(sample, finished=finished, in_flight=max(in_flight, pending))

    def _probe(self, sample: SceneSample) -> SceneSample:
        return replace(sample, probe=probe_buckets(self.probe.text("/metrics")))

    def load(self) -> tuple[float, float, int]:
        """Return the visits and events a second, and the number of customers, that Locust was last set to."""
        found = self.locust.tallies()
        return (
            float(found["visits_per_second"]),
            float(found["events_per_second"]),
            int(found["users_population"]),
        )

    def close(self) -> None:
        """Close all connections."""
        for client in (self.web, self.invalidator, self.locust, self.probe):
            client.close()
        self.server.close()


def samples(text: str, *names: str) -> Iterator[prometheus.Sample]:
    """Yield the samples of these names in Prometheus text. Other lines are not parsed: that would cost far more."""
    wanted = "".join(
        line + "\n" for line in text.splitlines() if line.startswith(names) and _name(line) in names
    )
    for family in text_string_to_metric_families(wanted):
        yield from family.samples


def _name(line: str) -> str:
    return line.split("{", 1)[0].split(" ", 1)[0]


def probe_buckets(text: str) -> Buckets:
    """Return the probe's latencies from the intended time: upper bound in seconds → cumulative count."""
    found: Buckets = {}
    for one in samples(text, PROBE_BUCKET):
        if one.labels.get("from") == "intended":
            bound = float(one.labels["le"])
            found[bound] = found.get(bound, 0.0) + one.value
    return found

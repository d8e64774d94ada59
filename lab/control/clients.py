"""Clients of one server's part of the scene, and what one look at it tells."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from lab.control.config import Config, ServerAddresses
from lab.errors import StackError
from lab.service import Buckets, Http, Locust, Storefront
from lab.store import Store

PROBE_BUCKET = "probe_latency_seconds_bucket"
FINISHED = "cache_invalidation_events_total"
IN_FLIGHT = "cache_invalidation_events_in_flight"
PENDING = "cache_invalidation_events_pending"


@dataclass(frozen=True)
class Look:
    """What the processes around a server said of themselves, about now."""

    strategy: str
    scan_count: int
    keys: int
    target_keys: int
    filling: bool
    warming_error: str | None
    finished: float
    in_flight: float
    probe: Buckets


class Clients:
    """All addresses of one server. Methods raise `StackError` with one line when something does not answer."""

    def __init__(self, addresses: ServerAddresses, config: Config) -> None:
        self.addresses = addresses
        self.store = Store(addresses.store, config.store_timeout_seconds)
        self.web = Storefront(f"the storefront on {addresses.name}", addresses.web)
        self.invalidator = Http(f"the invalidator on {addresses.name}", addresses.invalidator)
        self.locust = Locust(f"Locust on {addresses.name}", addresses.locust)
        self.probe = Http(f"the probe on {addresses.name}", addresses.probe)

    def known(self) -> bool:
        """Whether the store's host name resolves: under Compose a service whose profile is off has none."""
        parts = urlsplit(self.addresses.store)
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

    def look(self) -> Look:
        """One look at everything but the store itself, which may be slow to answer: that is the subject here."""
        mode = self.web.ask("GET", "/settings/invalidation")
        warming = self.web.ask("GET", "/settings/warming")
        finished = in_flight = pending = 0.0
        for sample in samples(self.invalidator.text("/metrics"), FINISHED, IN_FLIGHT, PENDING):
            if sample.name == FINISHED:
                finished += sample.value if sample.labels.get("outcome") == "done" else 0.0
            elif sample.name == IN_FLIGHT:
                in_flight += sample.value
            elif sample.value == sample.value:  # not a number when the outbox could not be read
                pending += sample.value
        return Look(
            strategy=str(mode["strategy"]),
            scan_count=int(mode["scan_count"]),
            keys=int(warming["keys"]),
            target_keys=int(warming["target_keys"]),
            filling=warming["state"] == "filling",
            warming_error=warming["error"],
            finished=finished,
            in_flight=max(in_flight, pending),
            probe=probe_buckets(self.probe.text("/metrics")),
        )

    def asked_rates(self) -> tuple[float, float]:
        """(reads, events) a second that Locust was last asked for."""
        found: dict[str, Any] = self.locust.tallies()
        return float(found["reads_per_second"]), float(found["events_per_second"])

    def close(self) -> None:
        """Close all connections."""
        for client in (self.web, self.invalidator, self.locust, self.probe):
            client.close()
        self.store.close()


def samples(text: str, *names: str) -> Iterator[Sample]:
    """The samples of these names in Prometheus text. Other lines are not parsed: that would cost far more."""
    wanted = "".join(
        line + "\n" for line in text.splitlines() if line.startswith(names) and _name(line) in names
    )
    for family in text_string_to_metric_families(wanted):
        yield from family.samples


def _name(line: str) -> str:
    return line.split("{", 1)[0].split(" ", 1)[0]


def probe_buckets(text: str) -> Buckets:
    """The probe's latencies from the intended time: upper bound in seconds → cumulative count."""
    found: Buckets = {}
    for sample in samples(text, PROBE_BUCKET):
        if sample.labels.get("from") == "intended":
            bound = float(sample.labels["le"])
            found[bound] = found.get(bound, 0.0) + sample.value
    return found

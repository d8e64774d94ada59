"""Makes span metrics and edges of the service graph, as Tempo's metrics-generator does, under the same names."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Span = dict[str, Any]
Labels = tuple[tuple[str, str], ...]
Exemplar = tuple[str, float]

DATABASE = ("db.namespace", "db.name", "db.system", "db.system.name")


class Histogram:
    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplar: Exemplar | None = None

    def add(self, seconds: float, trace: str) -> None:
        self.counts[sum(seconds > bound for bound in self.bounds)] += 1
        self.sum += seconds
        self.exemplar = (trace, seconds)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        total = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            yield "_bucket", {"le": bound}, total
        yield "_sum", {}, self.sum
        yield "_count", {}, total


class Generator:
    def __init__(self, bounds: list[float], dimensions: list[str], wait: float) -> None:
        self.counters: dict[tuple[str, Labels], float] = defaultdict(float)
        self.histograms: dict[tuple[str, Labels], Histogram] = defaultdict(lambda: Histogram(bounds))
        self.dimensions = dimensions
        self.wait = wait
        self.halves: dict[str, tuple[str, str, float, float]] = {}

    def add(self, span: Span) -> None:
        service = span["resource"].get("service.name", "")
        seconds = max(0, span["end"] - span["start"]) / 1e9
        labels = {
            "service": service,
            "span_name": span["name"],
            "span_kind": f"SPAN_KIND_{span['kind']}",
            "status_code": "STATUS_CODE_ERROR" if span["error"] else "STATUS_CODE_UNSET",
        }
        for dimension in self.dimensions:
            value = span["attributes"].get(dimension, span["resource"].get(dimension, ""))
            labels[dimension.replace(".", "_")] = str(value)
        key = tuple(labels.items())
        self.counters["traces_spanmetrics_calls_total", key] += 1
        self.counters["traces_spanmetrics_size_total", key] += 300
        self.histograms["traces_spanmetrics_latency", key].add(seconds, span["trace"])
        if span["kind"] in ("CLIENT", "PRODUCER"):
            attributes = span["attributes"]
            if any(name in attributes for name in DATABASE):
                peer = attributes.get("peer.service") or attributes.get("server.address") or "database"
                self.edge(service, str(peer), "database", seconds, seconds, span)
            else:
                self.pair(span["trace"] + span["id"], "client", service, seconds, span)
        elif span["kind"] in ("SERVER", "CONSUMER") and span["parent"]:
            self.pair(span["trace"] + span["parent"], "server", service, seconds, span)

    def pair(self, key: str, side: str, service: str, seconds: float, span: Span) -> None:
        now = time.monotonic()
        half = self.halves.pop(key, None)
        if half is None or half[0] == side:
            self.halves[key] = (side, service, seconds, now)
        else:
            ends = {side: (service, seconds), half[0]: (half[1], half[2])}
            (client, c), (server, s) = ends["client"], ends["server"]
            queued = span["kind"] in ("PRODUCER", "CONSUMER")
            self.edge(client, server, "messaging_system" if queued else "", c, s, span)
        if len(self.halves) > 10_000:
            self.halves = {k: v for k, v in self.halves.items() if now - v[3] < self.wait}

    def edge(
        self, client: str, server: str, kind: str, client_seconds: float, server_seconds: float, span: Span
    ) -> None:
        key = (("client", client), ("server", server), ("connection_type", kind))
        self.counters["traces_service_graph_request_total", key] += 1
        self.counters["traces_service_graph_request_failed_total", key] += span["error"]
        self.histograms["traces_service_graph_request_client_seconds", key].add(client_seconds, span["trace"])
        self.histograms["traces_service_graph_request_server_seconds", key].add(server_seconds, span["trace"])

    def samples(self) -> Iterator[tuple[str, dict[str, str], float, Exemplar | None]]:
        """Yield (name, labels, value, exemplar) of every counter and histogram."""
        for (name, key), value in self.counters.items():
            yield name, dict(key), value, None
        for (name, key), histogram in self.histograms.items():
            for suffix, more, value in histogram.samples():
                exemplar = histogram.exemplar if more.get("le") == "+Inf" else None
                yield name + suffix, {**dict(key), **more}, value, exemplar

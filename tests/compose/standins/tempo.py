#!/usr/bin/python3
"""Stands in for Tempo: takes spans over OTLP/HTTP, keeps the newest, answers by trace id and by search, and writes
span metrics to Prometheus. It reads Tempo's own configuration and, like Tempo, refuses keys it does not know.

    /tempo -config.file=FILE        /tempo -health
    GET /ready   /metrics   /api/traces/ID   /api/search?limit=20   (port of the configuration)
"""

import base64
import gzip
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

sys.path.insert(0, "/usr/local/lib/tempo")
import otlp
import remotewrite
from spanmetrics import Generator

TOP_LEVEL = {
    "stream_over_http_enabled", "server", "distributor", "query_frontend", "live_store", "metrics_generator",
    "storage", "overrides", "usage_report", "querier", "backend_worker", "backend_scheduler", "memberlist",
}  # fmt: skip
MOST_SPANS = 200_000

Answer = tuple[int, str, bytes]
Routes = Callable[[SplitResult, bytes], Answer]


class Store:
    def __init__(self, generator: Generator) -> None:
        self.traces: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self.kept = self.received = self.bytes = 0
        self.lock = threading.Lock()
        self.generator = generator

    def take(self, body: bytes) -> None:
        found = list(otlp.spans(body))
        with self.lock:
            self.bytes += len(body)
            self.received += len(found)
            self.kept += len(found)
            for span in found:
                self.traces.setdefault(span["trace"], []).append(span)
                self.generator.add(span)
            while self.kept > MOST_SPANS:
                self.kept -= len(self.traces.popitem(last=False)[1])

    def trace(self, wanted: str) -> dict[str, Any] | None:
        """A trace in the form of Tempo's JSON answer, or None."""
        with self.lock:
            found = list(self.traces.get(wanted.zfill(32), ()))
        batches = []
        for span in found:
            code = base64.b64encode
            batches.append(
                {
                    "resource": {"attributes": attributes(span["resource"])},
                    "scopeSpans": [
                        {
                            "spans": [
                                {
                                    "traceId": code(bytes.fromhex(span["trace"])).decode(),
                                    "spanId": code(bytes.fromhex(span["id"])).decode(),
                                    "parentSpanId": code(bytes.fromhex(span["parent"])).decode(),
                                    "name": span["name"],
                                    "kind": f"SPAN_KIND_{span['kind']}",
                                    "startTimeUnixNano": str(span["start"]),
                                    "endTimeUnixNano": str(span["end"]),
                                    "attributes": attributes(span["attributes"]),
                                }
                            ]
                        }
                    ],
                }
            )
        return {"batches": batches} if batches else None

    def search(self, limit: int) -> dict[str, Any]:
        with self.lock:
            newest = [(trace, list(spans)) for trace, spans in list(self.traces.items())[-limit:]]
        rows = []
        for trace, spans in reversed(newest):
            root = next((span for span in spans if not span["parent"]), spans[0])
            start, end = min(s["start"] for s in spans), max(s["end"] for s in spans)
            rows.append(
                {
                    "traceID": trace,
                    "rootServiceName": root["resource"].get("service.name", ""),
                    "rootTraceName": root["name"],
                    "startTimeUnixNano": str(start),
                    "durationMs": (end - start) // 1_000_000,
                    "spanCount": len(spans),
                }
            )
        return {"traces": rows}

    def exposition(self) -> str:
        return "\n".join(
            [
                "# TYPE tempo_build_info gauge",
                'tempo_build_info{version="standin"} 1',
                "# TYPE tempo_distributor_spans_received_total counter",
                f'tempo_distributor_spans_received_total{{tenant="single-tenant"}} {self.received}',
                "# TYPE tempo_distributor_bytes_received_total counter",
                f'tempo_distributor_bytes_received_total{{tenant="single-tenant"}} {self.bytes}',
                "# TYPE tempo_discarded_spans_total counter",
                'tempo_discarded_spans_total{reason="trace_too_large",tenant="single-tenant"} 0',
                "# TYPE tempo_metrics_generator_spans_received_total counter",
                f'tempo_metrics_generator_spans_received_total{{tenant="single-tenant"}} {self.received}',
                "",
            ]
        )


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": str(value)}} for key, value in values.items()]


def handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            url = urlsplit(self.path)
            status, kind, answer = routes(url, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _do

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def serve(endpoint: str, routes: Routes) -> None:
    host, _, port = endpoint.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), handler(routes))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()


def write_metrics(store: Store, every: float, targets: list[dict[str, Any]]) -> None:
    while True:
        time.sleep(every)
        now = int(time.time() * 1000)
        with store.lock:
            samples = list(store.generator.samples())
        rows = [remotewrite.series(n, labels, v, now, exemplar) for n, labels, v, exemplar in samples]
        for target in targets if rows else ():
            try:
                remotewrite.send(target["url"], rows)
            except OSError as error:
                print(f"remote write: {error}", file=sys.stderr, flush=True)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def main(path: str) -> None:
    import yaml

    config = yaml.safe_load(Path(path).read_text())
    unknown = set(config) - TOP_LEVEL
    if unknown:
        sys.exit(f"failed parsing config: field {', '.join(sorted(unknown))} not found in type app.Config")
    if config["usage_report"]["reporting_enabled"]:
        sys.exit("usage_report.reporting_enabled must be false: this would report usage to Grafana Labs")
    for folder in (config["storage"]["trace"]["wal"]["path"], config["storage"]["trace"]["local"]["path"]):
        Path(folder).mkdir(parents=True, exist_ok=True)
    made = config.get("metrics_generator", {})  # a cold case has none, and then no metrics are written
    processor = made.get("processor", {})
    spans = processor.get("span_metrics", {})
    generator = Generator(
        spans.get("histogram_buckets", [0.002 * 2**n for n in range(14)]),
        spans.get("dimensions", []),
        seconds(processor.get("service_graphs", {}).get("wait", "10s")),
    )
    store = Store(generator)

    def receive(url: SplitResult, body: bytes) -> Answer:
        if url.path != "/v1/traces":
            return 404, "text/plain", b"not found\n"
        try:
            store.take(body)
        except (ValueError, IndexError, KeyError) as error:
            return 400, "text/plain", f"{error!r}\n".encode()
        return 200, "application/x-protobuf", b""

    def query(url: SplitResult, _body: bytes) -> Answer:
        if url.path == "/ready":
            return 200, "text/plain", b"ready\n"
        if url.path == "/metrics":
            return 200, "text/plain; version=0.0.4", store.exposition().encode()
        if url.path == "/api/search":
            limit = int(parse_qs(url.query).get("limit", ["20"])[0])
            return 200, "application/json", json.dumps(store.search(limit)).encode()
        for prefix in ("/api/traces/", "/api/v2/traces/"):
            if url.path.startswith(prefix):
                found = store.trace(url.path.removeprefix(prefix))
                if found is None:
                    return 404, "text/plain", b"trace not found\n"
                answer = {"trace": found} if "v2" in prefix else found
                return 200, "application/json", json.dumps(answer).encode()
        return 404, "text/plain", b"not found\n"

    receivers = config["distributor"]["receivers"]["otlp"]["protocols"]
    serve(receivers["http"]["endpoint"], receive)
    serve(f"0.0.0.0:{config['server']['http_listen_port']}", query)
    registry, storage = made.get("registry", {}), made.get("storage", {})
    write_metrics(store, seconds(registry.get("collection_interval", "15s")), storage.get("remote_write", []))


if __name__ == "__main__":
    if "-health" in sys.argv:
        with urllib.request.urlopen("http://127.0.0.1:3200/ready", timeout=4) as ready:
            sys.exit(ready.status != 200)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    main(next(a.partition("=")[2] for a in sys.argv if a.startswith("-config.file=")))

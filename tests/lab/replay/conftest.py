"""A real Prometheus on a free port, and a small stand-in for Tempo, for tests of recordings."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from google.protobuf import json_format  # type: ignore[import-untyped] # no types
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lab.stacks.preflight import ROOT

READY_S = 30.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


@pytest.fixture(scope="session")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty Prometheus with the configuration and the options of the replay."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on the PATH (Debian: apt install prometheus)")
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    command = [
        "prometheus",
        f"--config.file={ROOT / 'prometheus' / 'prometheus.replay.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--enable-feature=exemplar-storage",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + READY_S
            while True:
                try:
                    if httpx.get(f"{url}/-/ready", trust_env=False).is_success:
                        break
                except httpx.HTTPError:
                    assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(10)


class TempoStandin:
    """Takes spans over OTLP and gives traces back as Tempo does: by search, by id, as protobuf or as JSON."""

    def __init__(self, protobuf: bool = True) -> None:
        self.traces: dict[str, TracesData] = {}
        self.protobuf = protobuf
        self.lose: Callable[[str, int], bool] = lambda trace_id, times_seen: False
        """True for a trace that Tempo is to lose, given its id and how many times it has arrived."""
        self.searchable = True
        self.asked: list[str] = []
        self._arrived: Counter[str] = Counter()
        standin = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path != "/v1/traces":
                    self.answer(429, "text/plain", b"ingestion rate limit exceeded")
                    return
                standin.take(content)
                self.answer(200, "application/x-protobuf", b"")

            def do_GET(self) -> None:
                self.answer(*standin.give(urlsplit(self.path).path))

            def answer(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, content: bytes) -> None:
        """Keep the spans of an export request, trace by trace."""
        for resource in TracesData.FromString(content).resource_spans:
            trace_id = resource.scope_spans[0].spans[0].trace_id.hex()
            self._arrived[trace_id] += 1
            if self.lose(trace_id, self._arrived[trace_id]):
                continue
            self.traces.setdefault(trace_id, TracesData()).resource_spans.append(resource)

    def give(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and content of an answer."""
        self.asked.append(path)
        if path == "/api/status/buildinfo":
            return 200, "application/json", b'{"version": "stand-in"}'
        if path == "/api/search":
            rows = [
                {"traceID": trace_id.lstrip("0"), "durationMs": number}
                for number, trace_id in enumerate(self.traces if self.searchable else ())
            ]
            return 200, "application/json", json.dumps({"traces": rows}).encode()
        found = self.traces.get(path.removeprefix("/api/traces/"))
        if found is None:
            return 404, "text/plain", b"trace not found"
        if self.protobuf:
            return 200, "application/protobuf", found.SerializeToString()
        batches: Any = json_format.MessageToDict(found).get("resourceSpans", [])
        return 200, "application/json", json.dumps({"batches": batches}).encode()


@pytest.fixture
def tempo() -> Iterator[TempoStandin]:
    """An empty stand-in for Tempo."""
    standin = TempoStandin()
    yield standin
    standin.close()


@pytest.fixture(scope="session")
def cold_case() -> Path:
    """The recording that comes with the workshop."""
    return ROOT / "workshop" / "cold-case"

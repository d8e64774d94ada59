"""A real Prometheus on a free port, and a small stand-in for Tempo, for tests of recordings."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import json_format  # type: ignore[import-untyped] # no types
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lab import ROOT
from tests.app.servicekit import free_port
from tests.httpkit import Answer, HttpStandIn, Request

READY_S = 30.0


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


class TempoStandin(HttpStandIn):
    """Takes spans over OTLP and gives traces back as Tempo does: by search, by id, as protobuf or as JSON."""

    def __init__(self, protobuf: bool = True) -> None:
        self.traces: dict[str, TracesData] = {}
        self.protobuf = protobuf
        self.lose: Callable[[str, int], bool] = lambda trace_id, times_seen: False
        """True for a trace that Tempo is to lose, given its id and how many times it has arrived."""
        self.searchable = True
        self.asked: list[str] = []
        self._arrived: Counter[str] = Counter()
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Take spans, or give traces."""
        if request.method != "POST":
            return self.give(request.path)
        if request.path != "/v1/traces":
            return Answer("ingestion rate limit exceeded", 429)
        self.take(request.content)
        return Answer()

    def take(self, content: bytes) -> None:
        """Keep the spans of an export request, trace by trace."""
        for resource in TracesData.FromString(content).resource_spans:
            trace_id = resource.scope_spans[0].spans[0].trace_id.hex()
            self._arrived[trace_id] += 1
            if self.lose(trace_id, self._arrived[trace_id]):
                continue
            self.traces.setdefault(trace_id, TracesData()).resource_spans.append(resource)

    def give(self, path: str) -> Answer:
        """The answer to a GET."""
        self.asked.append(path)
        if path == "/api/status/buildinfo":
            return _as_json({"version": "stand-in"})
        if path == "/api/search":
            rows = [
                {"traceID": trace_id.lstrip("0"), "durationMs": number}
                for number, trace_id in enumerate(self.traces if self.searchable else ())
            ]
            return _as_json({"traces": rows})
        found = self.traces.get(path.removeprefix("/api/traces/"))
        if found is None:
            return Answer("trace not found", 404)
        if self.protobuf:
            return Answer(found.SerializeToString(), headers={"Content-Type": "application/protobuf"})
        return _as_json({"batches": json_format.MessageToDict(found).get("resourceSpans", [])})


def _as_json(content: Any) -> Answer:
    return Answer(content, headers={"Content-Type": "application/json"})


@pytest.fixture
def tempo() -> Iterator[TempoStandin]:
    """An empty stand-in for Tempo."""
    with TempoStandin() as standin:
        yield standin


@pytest.fixture(scope="session")
def cold_case() -> Path:
    """The recording that comes with the workshop."""
    return ROOT / "workshop" / "cold-case"

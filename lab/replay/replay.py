"""`bin/lab replay`: serves a recording in Prometheus, Tempo and Grafana, as if it had ended a moment ago."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import ROOT
from lab.errors import Interrupted, LabError, StackError, UsageError
from lab.replay import prometheus as metrics
from lab.replay.deliver import deliver
from lab.replay.docker import Docker, rows
from lab.replay.prometheus import Prometheus
from lab.replay.recording import Recording
from lab.replay.tempo import Receiver, Tempo, shifted, spans
from lab.scene import engine
from lab.scene.preflight import read_env_file
from lab.server.checks import ID_LENGTH, MEMORY, memory_by_id

PROJECT = "redis-latency-lab-replay"
FILES = ("--project-name", PROJECT, "--file", "compose.replay.yaml")
UP_S = 900.0
"""Timeout for docker compose, seconds: the first start has to fetch the images."""
HEALTHY_S = 120
AGO_S = 5.0
OTLP_PORT = 4318
MARGIN_S = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Served:
    """The served data and its period (unix seconds). `missing`: ids of traces that cannot be found."""

    start: float
    end: float
    samples: int
    traces: int
    spans: int
    missing: list[str]


def settings() -> dict[str, str]:
    """Return ports and images from .env; the environment overrides it."""
    return {**(read_env_file(ROOT / ".env") or {}), **os.environ}


def address(port: str) -> str:
    """Return the URL of a published port named in .env. Raises `UsageError` when .env does not name it."""
    number = settings().get(port, "")
    if not number.isdigit():
        raise UsageError(f".env does not set {port}: git checkout .env brings it back.")
    return f"http://127.0.0.1:{number}"


def replay(recording: Recording, docker: Docker, say: Say) -> tuple[Served, dict[str, int]]:
    """Start the three services and fill them. Returns the served data, and each service's bytes of memory.

    Raises `UsageError` if a replay is running already. After any other error, Ctrl-C included, the services are taken
    down again.
    """
    say("asking Docker whether a replay runs")
    if running(docker):
        raise UsageError("a replay is running already: `bin/lab replay --down` ends it.")
    try:
        say("starting Prometheus, Tempo and Grafana")
        with left_out(docker) as more:
            words = ("up", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S))
            docker.ask("compose", *FILES, *more, *words, seconds=UP_S)
        otlp = docker.ask("compose", *FILES, "port", "tempo", str(OTLP_PORT)).strip()
        with (
            Prometheus(address("PROMETHEUS_PORT")) as prometheus,
            Tempo(address("TEMPO_PORT")) as tempo,
            Receiver(f"http://{otlp}") as receiver,
        ):
            served = fill(recording, prometheus, tempo, receiver, say)
        say("asking how much memory it takes")
        return served, memory(docker)
    except BaseException as error:
        say("taking everything down again")
        why = error if isinstance(error, LabError) else None
        if isinstance(error, KeyboardInterrupt):
            why = Interrupted("interrupted; nothing is served.")
        elif isinstance(error, StackError) and "port is already allocated" in str(error):
            why = StackError(f"{error}. If that is the scene: make down, then try again.")
        try:
            down(docker)
        except LabError as second:
            why = StackError(f"{why or repr(error)} And it could not be taken down: {second}")
        if why:
            raise why from error
        raise


@contextmanager
def left_out(docker: Docker) -> Iterator[list[str]]:
    """Yield the options of `docker compose` for an overlay without the settings that this engine refuses.

    Empty if it refuses none. The file is removed at the end. Raises `StackError` when docker fails.
    """
    found = engine.detect()
    text = ""
    if found:
        config = docker.ask("compose", *FILES, "config", "--format", "json")
        text = engine.overlay(found, json.loads(config)["services"])
    if not text:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as overlay:
        overlay.write(text)
        overlay.flush()
        yield ["--file", overlay.name]


def fill(
    recording: Recording,
    prometheus: Prometheus,
    tempo: Tempo,
    receiver: Receiver,
    say: Say,
    now: float | None = None,
) -> Served:
    """Write a recording into a Prometheus and a Tempo, moved in time so that it ends a moment before `now`."""
    meta = recording.meta
    by_s = round((now if now is not None else time.time()) - AGO_S - meta.end)
    by_ms, end_ms, step_ms = by_s * 1000, round(meta.end * 1000), round(meta.step_s * 1000)
    moved = [metrics.shifted(series, by_ms, end_ms, step_ms) for series in recording.series]
    try:
        traces = [shifted(trace, by_ms) for trace in recording.traces]
    except ValueError:
        raise UsageError("traces.gz is damaged: copy the recording again, or make a new one.") from None
    prometheus.version()
    samples = metrics.push(moved, prometheus, lambda share: say(f"samples: {share:.0%}"))
    missing = deliver(traces, tempo, receiver, say)
    number = sum(1 for trace in traces for _ in spans(trace))
    return Served(meta.start + by_s, meta.end + by_s, samples, len(traces), number, missing)


def running(docker: Docker) -> bool:
    """Return True if containers of a replay exist."""
    return bool(rows(docker.ask("compose", *FILES, "ps", "--all", "--format", "json")))


def down(docker: Docker) -> None:
    """Remove a replay's containers, volumes and network."""
    docker.ask("compose", *FILES, "down", "--volumes", "--remove-orphans", seconds=UP_S)


def memory(docker: Docker) -> dict[str, int]:
    """Return the bytes of memory in use by service."""
    service = {
        str(row["ID"])[:ID_LENGTH]: str(row["Service"])
        for row in rows(docker.ask("compose", *FILES, "ps", "--format", "json"))
    }
    output = docker.ask("stats", "--no-stream", "--format", MEMORY, *service)
    return {service[id_]: taken for id_, taken in memory_by_id(output).items()}


def dashboards(served: Served, root: Path = ROOT) -> list[tuple[str, str]]:
    """Return title and address of every dashboard. The address has the recording's period, and so stays valid."""
    begin, end = round((served.start - MARGIN_S) * 1000), round(served.end * 1000)
    grafana = address("GRAFANA_PORT")
    found = [
        json.loads(path.read_text()) for path in sorted((root / "grafana" / "dashboards").glob("*.json"))
    ]
    return [
        (str(board["title"]), f"{grafana}/d/{board['uid']}?from={begin}&to={end}&refresh=") for board in found
    ]

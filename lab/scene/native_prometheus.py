"""Prometheus for a native scene: the compose stack's configuration with the native addresses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT

FOLDER = ROOT / "prometheus"
EXPORTERS = ("redis_exporter", "prometheus-redis-exporter")
"""Names of the exporter's program: its own, and Debian's."""
COPIED = ("job_name", "honor_labels", "metrics_path")
"""Settings of a job that are copied. Those that find and name its targets apply to Docker only."""


def find_prometheus() -> str | None:
    """Return the path of the program, or None."""
    return shutil.which("prometheus")


def find_exporter() -> str | None:
    """Return the path of the exporter that Redis, Valkey and KeyDB need, or None: they serve no Prometheus metrics."""
    return next((path for name in EXPORTERS if (path := shutil.which(name))), None)


def configuration(server: str, targets: dict[str, str], url: str) -> str:
    """Return the text of a prometheus.yml with those jobs of prometheus/prometheus.yml that have a target here.

    `targets` are addresses (host:port) by job. The target of the job ``redis`` is the exporter, whose scrapes name
    the server at `url`. The rule files are the same.
    """
    found: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    jobs = [
        _job(job, server, targets[job["job_name"]], url)
        for job in found["scrape_configs"]
        if job["job_name"] in targets
    ]
    rules = [str(FOLDER / path) for path in found["rule_files"]]
    return yaml.safe_dump({**found, "rule_files": rules, "scrape_configs": jobs}, sort_keys=False)


def _job(job: dict[str, Any], server: str, target: str, url: str) -> dict[str, Any]:
    settings = {name: job[name] for name in COPIED if name in job}
    group: dict[str, Any] = {"targets": [target]}
    if any("server" in static.get("labels", {}) for static in job["static_configs"]):
        group["labels"] = {"server": server}
    if (
        "metrics_path" in job
    ):  # the exporter's job: each scrape names the server as its target, as on the compose stack
        settings["params"] = {"target": [url]}
        group["labels"]["instance"] = server
    return {**settings, "static_configs": [group]}


def command(binary: str, folder: Path, port: int) -> list[str]:
    """Return the command that serves the configuration in `folder`, and keeps its data there."""
    return [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        "--storage.tsdb.retention.time=12h",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]


def exporter_command(binary: str, port: int) -> list[str]:
    """Return the command that starts the exporter. It connects to no server until a scrape names one."""
    return [binary, f"-web.listen-address=127.0.0.1:{port}", "-redis.addr=", "-connection-timeout=2s"]

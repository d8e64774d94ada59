"""Prometheus beside a native scene: the configuration of the scene on Docker, with the native addresses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "prometheus"
EXPORTERS = ("redis_exporter", "prometheus-redis-exporter")
"""Its own name, and Debian's."""
KEPT = ("job_name", "honor_labels", "metrics_path")
"""Of a job. How its targets are found, and what they are called, is of Docker."""


def find_prometheus() -> str | None:
    """Path of the program, or None."""
    return shutil.which("prometheus")


def find_exporter() -> str | None:
    """Path of what translates for Redis, Valkey and KeyDB, which speak no Prometheus; or None."""
    return next((path for name in EXPORTERS if (path := shutil.which(name))), None)


def configuration(server: str, targets: dict[str, str], store: str) -> str:
    """The text of a prometheus.yml: of the jobs in prometheus/prometheus.yml those that have a target here.

    `targets` are addresses (host:port) by job. The job ``redis`` has the exporter's, which is told to ask `store`. The
    rules are the same files.
    """
    found: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    jobs = [
        _job(job, server, targets[job["job_name"]], store)
        for job in found["scrape_configs"]
        if job["job_name"] in targets
    ]
    rules = [str(FOLDER / path) for path in found["rule_files"]]
    return yaml.safe_dump({**found, "rule_files": rules, "scrape_configs": jobs}, sort_keys=False)


def _job(job: dict[str, Any], server: str, target: str, store: str) -> dict[str, Any]:
    kept = {name: job[name] for name in KEPT if name in job}
    group: dict[str, Any] = {"targets": [target]}
    if any("server" in static.get("labels", {}) for static in job["static_configs"]):
        group["labels"] = {"server": server}
    if (
        "metrics_path" in job
    ):  # the exporter's: its requests name the store, as that of the scene on Docker do
        kept["params"] = {"target": [store]}
        group["labels"]["instance"] = server
    return {**kept, "static_configs": [group]}


def command(binary: str, folder: Path, port: int) -> list[str]:
    """The command that serves the configuration in `folder`, and keeps its data there."""
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
    """The command that starts the exporter, which asks nobody until it is told whom."""
    return [binary, f"-web.listen-address=127.0.0.1:{port}", "-redis.addr=", "-connection-timeout=2s"]

"""`bin/lab doctor --scene`: checks that a workshop could begin, by requesting everything once as a browser does.

It checks containers, scrapes, each panel of each dashboard for each server, a trace by its exemplar, the control page's
actions (which are undone) and Locust's pages. If there is a Chromium, the page shows a picture of each dashboard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import StackError, UsageError
from lab.scene import dashboards
from lab.scene.dashboards import SHOWN_S, prometheus
from lab.scene.preflight import read_env_file
from lab.scene.up import complaints, containers
from lab.server.checks import CheckResult, guarded
from lab.server.http import Http
from lab.server.servers import IN_COMPOSE
from lab.templates import templates

RETRY_S = 2.0
"""Seconds between two attempts at a check."""
STARTING, STARTING_S = ": starting", 45.0
"""A container whose health is not known yet, such as a server that was just restarted, and the seconds to wait for it:
its start period and one more health check (compose.yaml)."""
FILLING_S = 90.0
"""Seconds for which a check, or all dashboards together, is retried: a new scene has not had every phase yet."""
SPAWNING = "spawning"  # Locust's state in its first seconds, while its customers come one by one
TRACE_S = 40.0
"""Seconds for which an exemplar's trace may be missing in Tempo: spans are sent in batches."""
EXEMPLARS = "db_client_operation_duration_seconds_bucket"


@dataclass
class Rehearsal:
    """Results of all checks. `pictures`: dashboard and server → file in the folder of the page."""

    results: list[CheckResult] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)

    @property
    def may_begin(self) -> bool:
        """True if every result is ok."""
        return all(result.ok for result in self.results)


def rehearse(folder: Path, say: Callable[[CheckResult], None]) -> Rehearsal:
    """Check the scene that `make up` started, pass each result to `say`, and write `doctor.html` to `folder`.

    Takes half a minute, a minute longer if the scene has just begun, and some seconds for each picture. Raises
    `StackError` when its ports are unknown, and `UsageError` when the folder cannot be written.
    """
    settings = {**(read_env_file(ROOT / ".env") or {}), **os.environ}
    missing = sorted({"GRAFANA_PORT", "CONTROL_PORT"} - set(settings))
    if missing:
        raise StackError(
            f".env does not name {missing[0]}: take the file that the project has (git checkout .env)."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}. Choose another --out.") from None
    found = Rehearsal()
    grafana = Http("Grafana", _address(settings, "GRAFANA_PORT"), timeout_s=30)
    control = Http("control", _address(settings, "CONTROL_PORT"), timeout_s=30)
    try:
        for results in (
            _containers(),
            _targets(grafana),
            _dashboards(grafana),
            _trace(grafana),
            _actions(control),
            _locusts(partial(_locust_addresses, settings)),
            dashboards.pictures(grafana, folder, found.pictures),
        ):
            for result in results:
                found.results.append(result)
                say(result)
    finally:
        grafana.close()
        control.close()
    page = templates(Path(__file__).parent).get_template("rehearsal.html.j2")
    (folder / "doctor.html").write_text(
        page.render(rehearsal=found, when=time.strftime("%Y-%m-%d %H:%M")), encoding="utf-8"
    )
    return found


def _address(settings: dict[str, str], port: str) -> str:
    return f"http://127.0.0.1:{settings[port]}"


def _patiently(
    name: str,
    check: Callable[[], CheckResult],
    seconds: float | None = None,
    may_recover: Callable[[CheckResult], bool] = lambda _: True,
) -> CheckResult:
    """Repeat a check until it is ok, for at most `seconds` (else `FILLING_S`): a scene may have just begun.

    A failed result for which `may_recover` returns False is returned at once.
    """
    end = time.monotonic() + (FILLING_S if seconds is None else seconds)
    while True:
        result = guarded(name, check)
        if result.ok or not may_recover(result) or time.monotonic() >= end:
            return result
        time.sleep(RETRY_S)


# --- containers and scrapes


def _containers() -> Iterator[CheckResult]:
    def check() -> CheckResult:
        count = len(containers())
        unhealthy = complaints()
        if not count:
            return CheckResult("containers", False, "none runs: make up")
        return CheckResult("containers", not unhealthy, "; ".join(unhealthy) or f"all {count} healthy")

    yield _patiently("containers", check, STARTING_S, lambda result: STARTING in result.detail)


def _targets(grafana: Http) -> Iterator[CheckResult]:
    def check() -> CheckResult:
        rows = prometheus(grafana, "query", query="up")["result"]
        down = [
            f"{row['metric']['job']} {row['metric']['instance']}" for row in rows if row["value"][1] != "1"
        ]
        return CheckResult(
            "scrapes", bool(rows) and not down, f"down: {', '.join(down)}" if down else f"all {len(rows)} up"
        )

    yield _patiently("scrapes", check)


def _dashboards(grafana: Http) -> Iterator[CheckResult]:
    return dashboards.check_dashboards(grafana, FILLING_S, RETRY_S)


# --- from a point on a panel to its trace


def _trace(grafana: Http) -> Iterator[CheckResult]:
    yield guarded("exemplar to trace", partial(_by_exemplar, grafana))


def _by_exemplar(grafana: Http) -> CheckResult:
    end = time.monotonic() + TRACE_S
    ids: list[str] = []
    while time.monotonic() < end:
        now = time.time()
        rows = prometheus(
            grafana, "query_exemplars", query=EXEMPLARS, start=f"{now - SHOWN_S:.3f}", end=f"{now:.3f}"
        )
        points = [point for row in rows for point in row["exemplars"]]
        points.sort(key=lambda point: -float(point["timestamp"]))
        ids = [point["labels"]["trace_id"] for point in points[:20]]
        for trace in ids:
            try:
                found = grafana.ask("GET", f"/api/datasources/proxy/uid/tempo/api/traces/{trace}")
            except StackError:  # not there yet
                continue
            spans = sum(len(s["spans"]) for b in found.get("batches", ()) for s in b["scopeSpans"])
            if spans:
                return CheckResult("exemplar to trace", True, f"{trace} has {spans} spans in Tempo")
        time.sleep(1)
    why = (
        f"none of the {len(ids)} latest leads to a trace in Tempo"
        if ids
        else "no exemplar in the last quarter of an hour"
    )
    return CheckResult("exemplar to trace", False, why)


# --- the control page and the load


def _actions(control: Http) -> Iterator[CheckResult]:
    try:
        servers = control.ask("GET", "/api/state")["servers"]
    except (StackError, KeyError, TypeError) as error:
        yield CheckResult("control page", False, str(error))
        return
    if not servers:
        yield CheckResult("control page", False, "it has no server yet")
    for server in servers:
        name = f"control page, {server.get('name')}"
        yield _patiently(name, partial(_pull_levers, control, server, name))


def _pull_levers(control: Http, server: dict[str, Any], name: str) -> CheckResult:
    """Switch the strategy and the growth, and back again."""
    place = f"/api/servers/{server['name']}"
    own = server["strategy"]
    other = "index" if own != "index" else "scan"
    pulls = [("strategy", {"strategy": other}), ("strategy", {"strategy": own})]
    pulls += [("growth", {"on": not server["growth"]}), ("growth", {"on": server["growth"]})]
    failed = []
    for lever, body in pulls:
        answer = control.ask("POST", f"{place}/{lever}", body)
        failed += [f"{lever}: {part['part']} {part['said']}" for part in answer["parts"] if not part["done"]]
    return CheckResult(
        name, not failed, "; ".join(failed) or f"{other} and back to {own}, growth switched over and back"
    )


def _locust_addresses(settings: dict[str, str]) -> dict[str, str]:
    """Return the addresses of the running loads by the server's title."""
    try:
        running = {container["Service"] for container in containers()}
    except (OSError, StackError):  # there is no docker, or it does not answer: `_containers` reports it
        return {}
    return {
        server.title: f"http://127.0.0.1:{settings.get(server.locust_port, 0)}"
        for server in IN_COMPOSE
        if f"locust-{server.name}" in running
    }


def _locusts(addresses: Callable[[], Mapping[str, str]]) -> Iterator[CheckResult]:
    for title, address in addresses().items():
        name = f"Locust, {title}"
        yield _patiently(
            name, partial(_locust, address, name), may_recover=lambda found: found.detail == SPAWNING
        )


def _locust(address: str, name: str) -> CheckResult:
    locust = Http("Locust", address)
    try:
        state = locust.ask("GET", "/stats/requests")["state"]
        page = "<html" in locust.text("/").lower()
    finally:
        locust.close()
    return CheckResult(name, state == "running" and page, state if page else "its page is not there")

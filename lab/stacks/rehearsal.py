"""`bin/lab doctor --scene`: checks that a workshop could begin, by asking once for everything shown, as a browser asks.

It checks containers, scrapes, each panel of each dashboard for each server, a trace by its exemplar, the control page's
actions (which are undone) and Locust's pages. If there is a Chromium, the page shows a picture of each dashboard.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import StackError, UsageError
from lab.stacks.asking import Finding
from lab.stacks.http import Http
from lab.stacks.preflight import read_env_file
from lab.stacks.servers import IN_COMPOSE
from lab.stacks.up import complaints, containers
from lab.templates import templates

SHOWN_S = 900
"""The dashboards' time range in seconds: the last quarter of an hour."""
STEP_MS = 2_000
RETRY_S = 2.0
"""Seconds between two attempts at a check."""
STARTING, STARTING_S = ": starting", 45.0
"""A container whose health is not known yet, such as a server that was just restarted, and the seconds to wait for it:
its start period and one more health check (compose.yaml)."""
FILLING_S = 90.0
"""Seconds for which a check, or all dashboards together, may be retried: a new scene has not had every phase yet."""
SPAWNING = "spawning"  # what Locust says of itself in its first seconds, while its customers come one by one
TRACE_S = 40.0
"""Seconds for which an exemplar's trace may be missing in Tempo: spans are sent in batches."""
PICTURE_S = 60
WIDE, HIGH = 1500, 2300
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
EXEMPLARS = "db_client_operation_duration_seconds_bucket"
CALLS = "sum by (client, server) (traces_service_graph_request_total)"
"""Grafana's query to Prometheus for a panel that shows which service calls which."""


@dataclass
class Rehearsal:
    """The findings. `pictures` are files in the folder of the page, by dashboard and server."""

    findings: list[Finding] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)

    @property
    def may_begin(self) -> bool:
        """True if every finding is ok, so that a participant misses nothing."""
        return all(finding.ok for finding in self.findings)


@dataclass(frozen=True)
class Pages:
    """The addresses of a running scene's pages. `locusts`: those of the loads, by the server's title.

    `grafana` is empty where the dashboards are those of a room, `control` in the room itself.
    """

    control: str
    grafana: str
    locusts: Callable[[], Mapping[str, str]]


def rehearse(folder: Path, say: Callable[[Finding], None]) -> Rehearsal:
    """Check the scene that `make up` started: see `look_at`. Raises `StackError` when its ports are unknown."""
    settings = {**(read_env_file(ROOT / ".env") or {}), **os.environ}
    missing = sorted({"GRAFANA_PORT", "CONTROL_PORT"} - set(settings))
    if missing:
        raise StackError(
            f".env does not name {missing[0]}: take the file that the project has (git checkout .env)."
        )
    pages = Pages(
        _address(settings, "CONTROL_PORT"),
        _address(settings, "GRAFANA_PORT"),
        partial(_locust_addresses, settings),
    )
    return look_at(pages, _containers(), folder, say)


def look_at(
    pages: Pages, first: Iterable[Finding], folder: Path, say: Callable[[Finding], None]
) -> Rehearsal:
    """Check a running scene, say each finding as it comes, and write `doctor.html` with its pictures to `folder`.

    `first`: findings on what the pages stand on. Takes half a minute, a minute longer if the scene has just begun, and
    some seconds for each picture. Raises `UsageError` when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}. Choose another --out.") from None
    found = Rehearsal()

    def note(finding: Finding) -> None:
        found.findings.append(finding)
        say(finding)

    grafana = Http("Grafana", pages.grafana, timeout_s=30)
    control = Http("control", pages.control, timeout_s=30)
    shown = (_targets, _dashboards, _trace) if pages.grafana else ()
    try:
        for findings in (
            first,
            *(look(grafana) for look in shown),
            _actions(control) if pages.control else (),
            _locusts(pages.locusts),
            _pictures(grafana, folder, found.pictures) if pages.grafana else (),
        ):
            for finding in findings:
                note(finding)
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


def _guarded(what: str, check: Callable[[], Finding]) -> Finding:
    """Run a check. If it gets no answer, or one that cannot be read, the finding says so and is not ok."""
    try:
        return check()
    except StackError as error:
        return Finding(what, False, str(error))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return Finding(what, False, f"an answer that cannot be read: {error!r}")


def _patiently(
    what: str,
    check: Callable[[], Finding],
    seconds: float | None = None,
    may_mend: Callable[[Finding], bool] = lambda _: True,
) -> Finding:
    """Repeat a check until it is ok, for at most `seconds` (else `FILLING_S`): a scene may have just begun.

    A finding that cannot mend by itself, by `may_mend`, is returned at once.
    """
    end = time.monotonic() + (FILLING_S if seconds is None else seconds)
    while True:
        finding = _guarded(what, check)
        if finding.ok or not may_mend(finding) or time.monotonic() >= end:
            return finding
        time.sleep(RETRY_S)


# --- containers and scrapes


def _containers() -> Iterator[Finding]:
    def check() -> Finding:
        count = len(containers())
        ill = complaints()
        if not count:
            return Finding("containers", False, "none runs: make up")
        return Finding("containers", not ill, "; ".join(ill) or f"all {count} healthy")

    yield _patiently("containers", check, STARTING_S, lambda finding: STARTING in finding.detail)


def _prometheus(grafana: Http, path: str, **parameters: str) -> Any:
    """An answer of Prometheus, through Grafana."""
    query = urllib.parse.urlencode(parameters)
    return grafana.ask("GET", f"/api/datasources/proxy/uid/prometheus/api/v1/{path}?{query}")["data"]


def _targets(grafana: Http) -> Iterator[Finding]:
    def check() -> Finding:
        rows = _prometheus(grafana, "query", query="up")["result"]
        down = [
            f"{row['metric']['job']} {row['metric']['instance']}" for row in rows if row["value"][1] != "1"
        ]
        return Finding(
            "scrapes", bool(rows) and not down, f"down: {', '.join(down)}" if down else f"all {len(rows)} up"
        )

    yield _patiently("scrapes", check)


# --- dashboards


def _dashboards(grafana: Http) -> Iterator[Finding]:
    try:
        boards = _boards(grafana)
    except (StackError, KeyError, TypeError) as error:
        yield Finding("dashboards", False, str(error))
        return
    yield Finding("dashboards", bool(boards), f"{len(boards)}")
    end = time.monotonic() + FILLING_S
    for board in boards:
        for server in _servers(grafana, board):
            what = f"dashboard {board['title']}, {server}"
            yield _guarded(what, partial(_board, grafana, board, server, what, end))


def _boards(grafana: Http) -> list[dict[str, Any]]:
    """The dashboards that have a choice of servers: the lab's. Anybody may have saved others beside them."""
    listed = grafana.ask("GET", "/api/search?type=dash-db")
    found = [grafana.ask("GET", f"/api/dashboards/uid/{row['uid']}")["dashboard"] for row in listed]
    return sorted((board for board in found if _choices(board)), key=lambda board: str(board["title"]))


def _choices(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The dashboard's variable `server`; none if it has no such variable."""
    return [v for v in board.get("templating", {}).get("list") or () if v["name"] == "server"]


def _servers(grafana: Http, board: dict[str, Any]) -> list[str]:
    """The values that the dashboard's variable `server` offers; if it offers none, its current value."""
    variable = _choices(board)[0]
    query = variable["query"]
    metric = (
        (query["query"] if isinstance(query, dict) else query).removeprefix("label_values(").partition(",")[0]
    )
    try:
        now = time.time()
        values = _prometheus(
            grafana,
            "label/server/values",
            start=f"{now - SHOWN_S:.0f}",
            end=f"{now:.0f}",
            **{"match[]": metric},
        )
    except StackError:
        values = []
    return list(values) or [str(variable["current"]["value"])]


def _panels(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in rows:
        if panel["type"] == "row":
            yield from _panels(panel.get("panels", []))
        elif panel.get("targets"):
            yield panel


def _board(grafana: Http, board: dict[str, Any], server: str, what: str, end: float) -> Finding:
    """Check every panel of a dashboard. Those without data are retried until `end`, on the monotonic clock."""
    panels = list(_panels(board["panels"]))
    faults = {number: _panel_fault(grafana, panel, server) for number, panel in enumerate(panels)}
    while any(faults.values()) and time.monotonic() < end:
        time.sleep(RETRY_S)
        faults |= {
            number: _panel_fault(grafana, panels[number], server) for number, fault in faults.items() if fault
        }
    wrong = [f"{panels[number]['title']}: {fault}" for number, fault in faults.items() if fault]
    return Finding(what, not wrong, "; ".join(wrong) or f"{len(panels)} panels have data")


def _panel_fault(grafana: Http, panel: dict[str, Any], server: str) -> str:
    """What a participant would see instead of data; empty if there is data, or the panel has a text for having none."""
    says_none = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue")
    targets = [
        json.loads(json.dumps(target).replace("$server", server))
        for target in panel["targets"]
        if not target.get("hide")
    ]
    empty = True
    for target in targets:
        source = (target.get("datasource") or panel["datasource"])["uid"]
        try:
            if source == "tempo" and target["queryType"] == "traceql":
                query = urllib.parse.urlencode({"q": target["query"], "limit": 5})
                empty &= not grafana.ask("GET", f"/api/datasources/proxy/uid/tempo/api/search?{query}").get(
                    "traces"
                )
                continue
            if source == "tempo":
                target = {"refId": "A", "expr": CALLS, "datasource": {"uid": "prometheus"}, "instant": True}
            empty &= not _values(grafana, target)
        except StackError as error:
            return str(error)
    return "No data" if empty and not says_none else ""


def _values(grafana: Http, target: dict[str, Any]) -> int:
    """The number of values that a panel's query gives. Raises `StackError` with the data source's error."""
    now = int(time.time() * 1000)
    asked = {**target, "intervalMs": STEP_MS, "maxDataPoints": SHOWN_S * 1000 // STEP_MS}
    answer = grafana.ask(
        "POST", "/api/ds/query", {"from": str(now - SHOWN_S * 1000), "to": str(now), "queries": [asked]}
    )
    [result] = answer["results"].values()
    if result.get("error"):
        raise StackError(str(result["error"]))
    columns = (frame["data"]["values"] for frame in result.get("frames") or ())
    return sum(len(values[-1]) for values in columns if values)


# --- from a point on a panel to its trace


def _trace(grafana: Http) -> Iterator[Finding]:
    yield _guarded("exemplar to trace", partial(_by_exemplar, grafana))


def _by_exemplar(grafana: Http) -> Finding:
    end = time.monotonic() + TRACE_S
    ids: list[str] = []
    while time.monotonic() < end:
        now = time.time()
        rows = _prometheus(
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
                return Finding("exemplar to trace", True, f"{trace} has {spans} spans in Tempo")
        time.sleep(1)
    why = (
        f"none of the {len(ids)} latest leads to a trace in Tempo"
        if ids
        else "no exemplar in the last quarter of an hour"
    )
    return Finding("exemplar to trace", False, why)


# --- the control page and the load


def _actions(control: Http) -> Iterator[Finding]:
    try:
        servers = control.ask("GET", "/api/state")["servers"]
    except (StackError, KeyError, TypeError) as error:
        yield Finding("control page", False, str(error))
        return
    if not servers:
        yield Finding("control page", False, "it has no server yet")
    for server in servers:
        what = f"control page, {server.get('name')}"
        yield _patiently(what, partial(_pull_levers, control, server, what))


def _pull_levers(control: Http, server: dict[str, Any], what: str) -> Finding:
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
    return Finding(
        what, not failed, "; ".join(failed) or f"{other} and back to {own}, growth switched over and back"
    )


def _locust_addresses(settings: dict[str, str]) -> dict[str, str]:
    """The addresses of the loads that run, by the server's title."""
    try:
        running = {container["Service"] for container in containers()}
    except (OSError, StackError):  # there is no docker, or it does not answer: `_containers` has told this
        return {}
    return {
        server.title: f"http://127.0.0.1:{settings.get(server.locust_port, 0)}"
        for server in IN_COMPOSE
        if f"locust-{server.name}" in running
    }


def _locusts(addresses: Callable[[], Mapping[str, str]]) -> Iterator[Finding]:
    for title, address in addresses().items():
        what = f"Locust, {title}"
        yield _patiently(
            what, partial(_locust, address, what), may_mend=lambda found: found.detail == SPAWNING
        )


def _locust(address: str, what: str) -> Finding:
    locust = Http("Locust", address)
    try:
        state = locust.ask("GET", "/stats/requests")["state"]
        page = "<html" in locust.text("/").lower()
    finally:
        locust.close()
    return Finding(what, state == "running" and page, state if page else "its page is not there")


# --- pictures


def _pictures(grafana: Http, folder: Path, pictures: dict[str, str]) -> Iterator[Finding]:
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if program is None:
        yield Finding("pictures", True, "none: there is no Chromium on this machine")
        return
    try:
        boards = _boards(grafana)
    except (StackError, KeyError, TypeError):  # `_dashboards` has told this
        return
    failed = []
    for board in boards:
        for server in _servers(grafana, board):
            name = f"{board['uid']}-{server}.png"
            address = f"{grafana.base_url}/d/{board['uid']}?kiosk&from=now-15m&to=now&var-server={server}"
            if _photograph(program, address, folder / name):
                pictures[f"{board['title']}, {server}"] = name
            else:
                failed.append(name)
    yield Finding(
        "pictures", not failed, f"not taken: {', '.join(failed)}" if failed else f"{len(pictures)} dashboards"
    )


def _photograph(program: str, address: str, file: Path) -> bool:
    """Save a page as a browser shows it, as PNG. Returns True if that worked."""
    command = [
        program,
        "--headless",
        "--hide-scrollbars",
        f"--window-size={WIDE},{HIGH}",
        "--virtual-time-budget=20000",
    ]
    command += [f"--screenshot={file}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--no-sandbox")  # as root Chromium refuses to start with its sandbox
    file.unlink(missing_ok=True)
    try:
        subprocess.run([*command, address], capture_output=True, timeout=PICTURE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return file.is_file()

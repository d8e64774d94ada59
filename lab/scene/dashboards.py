"""Checks each panel of each dashboard for each server, by a browser's own queries, and takes pictures of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lab.errors import StackError
from lab.server.checks import CheckResult, guarded
from lab.server.http import Http

SHOWN_S = 900
"""The dashboards' time range in seconds: the last quarter of an hour."""
STEP_MS = 2_000
CALLS = "sum by (client, server) (traces_service_graph_request_total)"
"""Grafana's query to Prometheus for a panel that shows which service calls which."""
WATCHED = "lab_store_up"
"""The console's series of each server that the scene has."""
PICTURE_S = 60
WIDE, HIGH = 1500, 2300
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def prometheus(grafana: Http, path: str, **parameters: str) -> Any:
    """Return an answer of Prometheus, asked through Grafana."""
    query = urllib.parse.urlencode(parameters)
    return grafana.ask("GET", f"/api/datasources/proxy/uid/prometheus/api/v1/{path}?{query}")["data"]


def check_dashboards(grafana: Http, seconds: float, pause: float) -> Iterator[CheckResult]:
    """Check each dashboard for each server.

    Panels without data are tried again every `pause` seconds, for `seconds` in all. A dashboard whose server the scene
    does not have is left out, and its result says so.
    """
    try:
        boards = _boards(grafana)
    except (StackError, KeyError, TypeError) as error:
        yield CheckResult("dashboards", False, str(error))
        return
    yield CheckResult("dashboards", bool(boards), f"{len(boards)}")
    end = time.monotonic() + seconds
    for board in boards:
        servers = _servers(grafana, board)
        if not servers:
            yield CheckResult(
                f"dashboard {board['title']}", True, f"not looked at: no {_current(board)} in this scene"
            )
        for server in servers:
            name = f"dashboard {board['title']}, {server}"
            yield guarded(name, partial(_board, grafana, board, server, name, (end, pause)))


def _boards(grafana: Http) -> list[dict[str, Any]]:
    """Return the dashboards with a choice of servers. Others were saved by users: the lab's all have the choice."""
    listed = grafana.ask("GET", "/api/search?type=dash-db")
    found = [grafana.ask("GET", f"/api/dashboards/uid/{row['uid']}")["dashboard"] for row in listed]
    return sorted((board for board in found if _choices(board)), key=lambda board: str(board["title"]))


def _choices(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the dashboard's variable `server`; empty if it has none."""
    return [v for v in board.get("templating", {}).get("list") or () if v["name"] == "server"]


def _current(board: dict[str, Any]) -> str:
    """Return the server that the dashboard shows by default."""
    return str(_choices(board)[0]["current"]["value"])


def _servers(grafana: Http, board: dict[str, Any]) -> list[str]:
    """Return the servers that the dashboard's variable `server` offers.

    If it offers none, its default is returned, unless the console watches other servers only.
    """
    query = _choices(board)[0]["query"]
    query_text = query["query"] if isinstance(query, dict) else query
    offered = _named(grafana, query_text.removeprefix("label_values(").partition(",")[0])
    current = _current(board)
    watched = _named(grafana, WATCHED) if not offered else []
    return offered or ([current] if not watched or current in watched else [])


def _named(grafana: Http, metric: str) -> list[str]:
    """Return the values of a metric's label `server` in the time range; empty if Prometheus does not answer."""
    now = time.time()
    shown = {"start": f"{now - SHOWN_S:.0f}", "end": f"{now:.0f}"}
    try:
        return list(prometheus(grafana, "label/server/values", **shown, **{"match[]": metric}))
    except StackError:
        return []


def _panels(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in rows:
        if panel["type"] == "row":
            yield from _panels(panel.get("panels", []))
        elif panel.get("targets"):
            yield panel


def _board(
    grafana: Http, board: dict[str, Any], server: str, name: str, patience: tuple[float, float]
) -> CheckResult:
    """Check every panel of a dashboard. Those without data are retried.

    `patience`: until when, on the monotonic clock, and the seconds between two attempts.
    """
    end, pause = patience
    panels = list(_panels(board["panels"]))
    faults = {number: _panel_fault(grafana, panel, server) for number, panel in enumerate(panels)}
    while any(faults.values()) and time.monotonic() < end:
        time.sleep(pause)
        faults |= {
            number: _panel_fault(grafana, panels[number], server) for number, fault in faults.items() if fault
        }
    wrong = [f"{panels[number]['title']}: {fault}" for number, fault in faults.items() if fault]
    return CheckResult(name, not wrong, "; ".join(wrong) or f"{len(panels)} panels have data")


def _panel_fault(grafana: Http, panel: dict[str, Any], server: str) -> str:
    """Return the text shown in place of data; empty if there is data, or the panel has a text for no data."""
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
    """Return the number of values that a panel's query gives. Raises `StackError` with the data source's error."""
    now = int(time.time() * 1000)
    query = {**target, "intervalMs": STEP_MS, "maxDataPoints": SHOWN_S * 1000 // STEP_MS}
    answer = grafana.ask(
        "POST", "/api/ds/query", {"from": str(now - SHOWN_S * 1000), "to": str(now), "queries": [query]}
    )
    [result] = answer["results"].values()
    if result.get("error"):
        raise StackError(str(result["error"]))
    columns = (frame["data"]["values"] for frame in result.get("frames") or ())
    return sum(len(values[-1]) for values in columns if values)


def pictures(grafana: Http, folder: Path, taken: dict[str, str]) -> Iterator[CheckResult]:
    """Take a picture of each dashboard for each server into a folder; `taken` gets the files by their titles."""
    program = browser()
    if program is None:
        yield CheckResult("pictures", True, "none: there is no Chromium on this machine")
        return
    try:
        boards = _boards(grafana)
    except (StackError, KeyError, TypeError):  # `check_dashboards` reported this
        return
    failed = []
    for board in boards:
        for server in _servers(grafana, board):
            name = f"{board['uid']}-{server}.png"
            address = f"{grafana.base_url}/d/{board['uid']}?kiosk&from=now-15m&to=now&var-server={server}"
            if photograph(program, address, folder / name, (WIDE, HIGH)):
                taken[f"{board['title']}, {server}"] = name
            else:
                failed.append(name)
    yield CheckResult(
        "pictures", not failed, f"not taken: {', '.join(failed)}" if failed else f"{len(taken)} dashboards"
    )


def browser() -> str | None:
    """Return the path of this machine's Chromium, or None."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def photograph(program: str, address: str, file: Path, size: tuple[int, int], after_s: int = 20) -> bool:
    """Save a page as a browser shows it in a window of `size` pixels, as PNG. Returns True if that worked.

    The page's clock stands at `after_s` seconds then. It runs faster than ours while the page waits for nothing.
    """
    command = [
        program,
        "--headless",
        "--hide-scrollbars",
        f"--window-size={size[0]},{size[1]}",
        f"--virtual-time-budget={after_s * 1000}",
    ]
    command += [f"--screenshot={file}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--no-sandbox")  # as root Chromium refuses to start with its sandbox
    file.unlink(missing_ok=True)
    # Chromium does not remove the profile that it creates.
    with tempfile.TemporaryDirectory(prefix="latency-lab-", ignore_cleanup_errors=True) as profile:
        command.append(f"--user-data-dir={profile}")
        try:
            subprocess.run(
                [*command, address],
                capture_output=True,
                timeout=PICTURE_S,
                check=False,
                env={**os.environ, "TMPDIR": profile},
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return file.is_file()

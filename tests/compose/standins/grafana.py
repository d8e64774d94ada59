#!/usr/bin/python3
"""Stands in for Grafana: reads what is provisioned, refuses what Grafana would refuse, and answers about it.

GET /api/health   /metrics   /api/datasources   /api/search   /api/dashboards/uid/UID   /d/UID
GET /api/datasources/proxy/uid/UID/...   POST /api/ds/query (of Prometheus)
"""

import json
import os
import signal
import sys
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

PROVISIONING = Path("/etc/grafana/provisioning")


def provisioned(kind: str, field: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((PROVISIONING / kind).glob("*.y*ml")):
        # Grafana also fills in variables that begin with "$" here ("$$" is a dollar); the stand-in does not.
        content = yaml.safe_load(path.read_text())
        if content.get("apiVersion") != 1:
            sys.exit(f"{path}: apiVersion must be 1")
        found += content.get(field) or []
    return found


def datasources() -> list[dict[str, Any]]:
    found = provisioned("datasources", "datasources")
    for field in ("uid", "name"):
        values = [source[field] for source in found]
        if len(set(values)) < len(values):
            sys.exit(f"data sources share a {field}: {values}")
    if sum(bool(source.get("isDefault")) for source in found) > 1:
        sys.exit("only one data source may be the default")
    return found


def dashboards() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for provider in provisioned("dashboards", "providers"):
        folder = Path(provider["options"]["path"])
        if not folder.is_dir():
            sys.exit(f"{folder} of dashboard provider {provider['name']} is not there")
        for path in sorted(folder.rglob("*.json")):
            # As Grafana does: in a volume that Kubernetes made of ConfigMaps, each file is a link into a hidden folder.
            if any(part.startswith(".") for part in path.relative_to(folder).parent.parts):
                continue
            dashboard = json.loads(path.read_text())
            if not dashboard.get("title") or not dashboard.get("uid"):
                sys.exit(f"{path}: a dashboard needs a title and a uid")
            if dashboard["uid"] in found:
                sys.exit(f"{path}: uid {dashboard['uid']} is taken")
            found[dashboard["uid"]] = dashboard
    return found


SOURCES = datasources()
DASHBOARDS = dashboards()
HOME = os.environ.get("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH")
if HOME and not Path(HOME).is_file():
    print(f"home dashboard {HOME} is not there", file=sys.stderr, flush=True)
Path("/var/lib/grafana/grafana.db").touch()


def url_of(uid: str) -> str:
    [url] = [str(source["url"]) for source in SOURCES if source["uid"] == uid]
    return url.rstrip("/")


def asked(url: str) -> Any:
    """The JSON that a data source answers with; None if it gives none."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def queried(query: dict[str, Any], start_ms: int, end_ms: int) -> dict[str, Any]:
    """The data source's answer to a panel's query, in Grafana's form: one frame per series."""
    seconds = (end_ms - start_ms) // 1000
    expr = query["expr"].replace("$__rate_interval", "8s").replace("$__range", f"{seconds}s")
    told = {"query": expr, "time": end_ms / 1000}
    kind = "query"
    if not query.get("instant"):
        kind, told = "query_range", {"query": expr, "start": start_ms / 1000, "end": end_ms / 1000, "step": 2}
    answer = asked(f"{url_of(query['datasource']['uid'])}/api/v1/{kind}?{urllib.parse.urlencode(told)}")
    if answer is None:
        return {"error": f"not answered: {expr}", "status": 400}
    rows = [row.get("values") or [row["value"]] for row in answer["data"]["result"]]
    frames = [{"data": {"values": [[t for t, _ in row], [float(value) for _, value in row]]}} for row in rows]
    return {"status": 200, "frames": frames}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answer: Any = None
        kind = "application/json"
        if path == "/api/health":
            answer = {"database": "ok", "version": "standin", "commit": ""}
        elif path == "/api/datasources":
            answer = SOURCES
        elif path == "/api/search":
            answer = [{"uid": uid, "title": d["title"], "type": "dash-db"} for uid, d in DASHBOARDS.items()]
        elif path.startswith("/api/dashboards/uid/") and path.rpartition("/")[2] in DASHBOARDS:
            answer = {"dashboard": DASHBOARDS[path.rpartition("/")[2]], "meta": {"provisioned": True}}
        elif path == "/metrics":
            kind = "text/plain; version=0.0.4"
            answer = (
                '# TYPE grafana_build_info gauge\ngrafana_build_info{version="standin"} 1\n'
                f"# TYPE grafana_stat_totals_dashboard gauge\ngrafana_stat_totals_dashboard {len(DASHBOARDS)}\n"
            )
        elif path == "/" or path.startswith("/d/"):
            kind, answer = "text/html", "<title>Grafana (stand-in)</title>\n"
        elif path.startswith("/api/datasources/proxy/uid/"):
            uid, _, rest = self.path.removeprefix("/api/datasources/proxy/uid/").partition("/")
            answer = asked(f"{url_of(uid)}/{rest}")
        self._answer(answer, kind)

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: Any = None
        if self.path == "/api/ds/query":
            answer = {
                "results": {
                    q["refId"]: queried(q, int(said["from"]), int(said["to"])) for q in said["queries"]
                }
            }
        self._answer(answer, "application/json")

    def _answer(self, answer: Any, kind: str) -> None:
        body = (
            answer if isinstance(answer, str) else json.dumps(answer or {"message": "Not found"})
        ).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
ThreadingHTTPServer(("0.0.0.0", 3000), Handler).serve_forever()

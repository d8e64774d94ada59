"""`make pictures GRAFANA=URL CONTROL=URL` photographs a running scene and a report, by a headless Chromium.

Each picture goes to docs/pictures/, with a row in pictures.json: its size in pixels, the day, the versions it shows.
A picture stays as it is if the scene lacks its server, or its address is not given.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.pages.records import Record
from lab import ROOT
from lab.errors import LabError, UsageError
from lab.report import write_report
from lab.scene.dashboards import browser, photograph
from lab.server.http import Http

FOLDER = ROOT / "docs" / "pictures"
LIST = "pictures.json"
RECORD = "key-growth-standard"
WIDE = 1500
ROW, MARGIN = 38, 30
"""Pixels of a row of Grafana's grid, and around the dashboard."""


@dataclass(frozen=True)
class Picture:
    """A picture to be taken: its file, the page's address, the window's size in pixels, and the versions it shows."""

    name: str
    address: str
    size: tuple[int, int]
    versions: dict[str, str]
    after_s: int = 20
    """Seconds of the page's own clock after which it is photographed."""


def dashboard_pictures(grafana: Http, server: str, versions: dict[str, str]) -> Iterator[Picture]:
    """Yield each dashboard, of the server that it is about, or else of `server`, over the last ten minutes."""
    shown = {"grafana": str(grafana.ask("GET", "/api/health")["version"]), **versions}
    for file in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
        board = json.loads(file.read_text(encoding="utf-8"))
        uid = board["uid"]
        chosen = {"dragonfly": "dragonfly", "redis": "redis"}.get(uid, server)
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
        address = f"{grafana.base_url}/d/{uid}?kiosk&from=now-10m&to=now&var-server={chosen}"
        yield Picture(f"{uid}.png", address, (WIDE, rows * ROW + MARGIN), shown)


def servers(control: Http) -> dict[str, str]:
    """The servers that the control page shows, with their versions."""
    return {
        row["name"]: row["product"].rpartition(" ")[2] for row in control.ask("GET", "/api/state")["servers"]
    }


def take(pictures: Iterable[Picture], folder: Path = FOLDER) -> None:
    """Take the pictures and renew their rows in pictures.json. Raises `LabError` when one could not be taken."""
    program = browser()
    if program is None:
        raise UsageError("there is no Chromium on this machine (Debian: apt install chromium).")
    rows: dict[str, Any] = json.loads((folder / LIST).read_text(encoding="utf-8"))
    for picture in pictures:
        file = folder / picture.name
        if not photograph(program, picture.address, file, picture.size, picture.after_s):
            raise LabError(f"{picture.name} could not be taken of {picture.address}.")
        size = struct.unpack(">II", file.read_bytes()[16:24])
        rows[picture.name] = {
            "size": list(size),
            "taken": time.strftime("%Y-%m-%d"),
            "versions": picture.versions,
        }
        print(f"pictures: {picture.name}, {size[0]} x {size[1]} pixels, {file.stat().st_size // 1024} KB")
    text = json.dumps(dict(sorted(rows.items())), indent=1) + "\n"
    (folder / LIST).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Entry point. Returns 0, or an error's exit code with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="make pictures", description="Photograph a running scene and a report."
    )
    parser.add_argument(
        "--grafana", metavar="URL", help="where the scene's Grafana is, such as http://127.0.0.1:3000"
    )
    parser.add_argument(
        "--control", metavar="URL", help="where the control page is, such as http://127.0.0.1:8080"
    )
    parser.add_argument(
        "--server", default="dragonfly", help="the server that the dashboards show (%(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            take(_wanted(options, Path(folder)))
    except LabError as error:
        print(f"pictures: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _wanted(options: argparse.Namespace, folder: Path) -> Iterator[Picture]:
    """Yield the scene's pictures first: drawing a report takes a core, and the curves of the scene would show it."""
    present: dict[str, str] = {}
    if options.control:
        control = Http("the control page", options.control)
        present = servers(control)
        yield Picture("control.png", control.base_url, (WIDE, 1300), present, after_s=3)
    if options.grafana:
        yield from dashboard_pictures(Http("Grafana", options.grafana), options.server, present)
    record = Record(ROOT / "docs" / "runs" / RECORD)
    versions = {record.facts.server: record.facts.server_version}
    page = write_report(record, spoilers=True).rename(folder / "report.html")
    yield Picture("report.png", page.as_uri(), (1200, 1500), versions)
    yield Picture("social.png", (FOLDER / "social.html").as_uri(), (1280, 640), versions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

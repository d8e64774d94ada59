"""Pictures: what is committed is described, small enough, and of the scene as it is."""

from __future__ import annotations

import html
import json
import re
import struct

import yaml

from tests.docs.pagekit import ROOT, read

FOLDER = ROOT / "docs" / "pictures"
LARGEST = 6_000_000
"""Bytes of all pictures together."""


def test_every_picture_is_described() -> None:
    """pictures.json has each photograph with its size and what it shows, and all of them are small enough."""
    described = json.loads((FOLDER / "pictures.json").read_text())
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.png")}
    sizes = {name: list(struct.unpack(">II", data[16:24])) for name, data in found.items()}
    assert {name: row["size"] for name, row in described.items()} == sizes
    assert [name for name, row in described.items() if not row["versions"]] == []
    assert sum(map(len, found.values())) <= LARGEST


def test_every_picture_is_shown() -> None:
    """Each photograph is on a page; social.png is for the page of the repository itself."""
    shown = {link.rpartition("/")[2] for page in read() for _, link in page.links}
    assert {path.name for path in FOLDER.glob("*.png")} - shown == {"social.png"}


def test_the_drawing_has_every_container() -> None:
    """The boxes of the drawing, and of its source, are the services that `docker compose up` starts."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    started = {name for name, service in services.items() if not service.get("profiles")}
    svg = html.unescape((ROOT / "console" / "static" / "containers.svg").read_text())
    drawn = re.findall(r'class="node">\n<title>(\S+)</title>', svg)
    source = re.findall(r'"([a-z-]+)"', (FOLDER / "containers.dot").read_text())
    assert sorted(drawn) == sorted(started)
    assert set(source) == started

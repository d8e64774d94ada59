"""Links and addresses that lead nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from docs.pages import fromcode
from tests.docs.pagekit import ROOT, Page

LOCAL = re.compile(r"https?://(?:127\.0\.0\.1|localhost):(\d+)")


def broken(pages: Iterable[Page], root: Path = ROOT) -> list[str]:
    """Links to missing files and headings, and local addresses with a port that no setting has."""
    known = {page.name: page for page in pages}
    ports = {value for name, (value, _) in fromcode.settings(root).items() if name.endswith("_PORT")}
    found = []
    for page in known.values():
        for number, link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (root / page.name).parent / target if target else root / page.name
            if target and not path.exists():
                found.append(f"{page.name}:{number}: there is no {target}")
            elif anchor and anchor not in _anchors(known, path, root):
                found.append(f"{page.name}:{number}: there is no heading #{anchor} in {target or page.name}")
        for number, line in enumerate(page.lines, start=1):
            if number in page.code:  # the lab's own processes listen on other ports each time
                continue
            lost = [port for port in LOCAL.findall(line) if port not in ports]
            found += [f"{page.name}:{number}: nothing listens on port {port}" for port in lost]
    return found


def _anchors(known: dict[str, Page], path: Path, root: Path) -> set[str]:
    name = os.path.relpath(path, root)
    return known[name].anchors if name in known else Page(name, path.read_text()).anchors


def lost_runbooks(pages: Iterable[Page], root: Path = ROOT) -> list[str]:
    """Alerts whose runbook_url leads to a missing heading."""
    known = {page.name: page for page in pages}
    found = []
    for rule in fromcode.alerts(root):
        name, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        if name not in known or anchor not in known[name].anchors:
            found.append(f"{rule['alert']} leads to {name}#{anchor}, which there is not")
    return found

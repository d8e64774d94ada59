"""Tools for tests of pages: a parsed page, the text visible before anything is unfolded, judged runs."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

from lab.claims.verdict import write_result
from lab.report import write_report
from lab.results.folder import Run
from lab.runner.judging import reach
from tests.lab.claims.bending import RECORDS, recorded_run
from tests.lab.claims.test_bends import TABLES

SECTIONS = [
    "story",
    "timeline",
    "pictures",
    "phases",
    "rates",
    "parts",
    "slowlog",
    "observers",
    "follows",
    "validity",
]
"""The sections of a report, in their order."""
INCIDENTS = sorted(name for name in TABLES if recorded_run(name).facts.scenario == name)
"""The incidents, each with a committed run of its name."""


class Page(HTMLParser):
    """A parsed page: sections, text outside of scripts, addresses that a browser would fetch, tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.tables: list[list[str]] = []
        self.text = ""
        self.scripts = 0
        self._silent = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "section":
            self.ids.append(found.get("id") or "")
        if tag in ("script", "style"):
            self._silent = tag
            self.scripts += tag == "script"
        self.fetched += [
            v for k in ("src", "href") if (v := found.get(k)) and not v.startswith(("data:", "#"))
        ]
        if tag == "table":
            self.tables.append([])
        if tag in ("th", "td") and self.tables:
            self.tables[-1].append(f"{tag}:{found.get('scope', '')}")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = ""

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data


def page_of(run: Run) -> Page:
    """Write the report of a run, and read it."""
    path = write_report(run)
    assert path == run.folder / "report.html"
    return Page(path.read_text())


def words(page: Page) -> str:
    """Return the text of a page on one line."""
    return " ".join(page.text.split())


def unfolded(html: str) -> str:
    """Return a page without what is folded."""
    return re.sub(r"(<details>\s*<summary>.*?</summary>).*?</details>", r"\1", html, flags=re.DOTALL)


def proved(incident: str, folder: Path) -> Run:
    """Copy the committed run of an incident, in which every claim holds, and judge it."""
    run = Run(Path(shutil.copytree(RECORDS / incident, folder)))
    write_result(run, reach(run))
    return run

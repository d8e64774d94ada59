"""The guide's marked sentences on a run that was just made."""

from __future__ import annotations

from pathlib import Path

from docs.pages.pages import pages
from docs.pages.records import FOLDER, Records
from docs.pages.sentences import Sentence, sentences
from lab.report.view import RunView
from lab.results.folder import Run
from tests.docs.pagekit import ROOT


def marked() -> list[tuple[str, Sentence]]:
    """Every mark of the guide, with its page."""
    return [
        (str(path.relative_to(ROOT)), mark) for path in pages(ROOT) for mark in sentences(path.read_text())
    ]


def untrue(folder: Path) -> list[str]:
    """The marked sentences about a run's scenario that do not hold in that run."""
    view, records = RunView(Run(folder)), Records(ROOT / FOLDER)
    return [
        f"{page}:{mark.line}: {broken}"
        for page, mark in marked()
        if records.view(mark.record).facts.scenario == view.facts.scenario
        if (broken := mark.broken(view))
    ]

"""A judged run with its page, and a fixture for tests that read only words: drawing the charts takes two seconds."""

from __future__ import annotations

import pytest

from lab.report import comparison, page, style
from lab.report.page import Drawing
from lab.report.view import RunView
from lab.results.folder import Run
from tests.lab.doctored import build_run
from tests.lab.report.reportkit import Page, page_of


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each chart of a page by an empty one with the same name and description."""
    real = page.pictures

    def empty(_view: RunView) -> style.Chart:
        blank: style.Chart = style.chart([]).mark_point()
        return blank

    monkeypatch.setattr(page, "pictures", lambda view: [(name, empty, said) for name, _, said in real(view)])
    monkeypatch.setattr(comparison, "draw", lambda name, _drawing, _said: Drawing(name, "{}"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A judged run in which every claim holds."""
    return build_run(tmp_path_factory.mktemp("healthy") / "run", judged=True)


@pytest.fixture(scope="module")
def healthy_page(healthy: Run) -> Page:
    """The report of the healthy run."""
    return page_of(healthy)

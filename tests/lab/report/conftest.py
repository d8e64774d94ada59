"""A fixture for tests that read only the words of a report: drawing its charts takes two seconds."""

from __future__ import annotations

import pytest

from lab.report import page, style
from lab.report.view import RunView


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each chart of a page by an empty one with the same name and description."""
    real = page.pictures

    def empty(_view: RunView) -> style.Chart:
        blank: style.Chart = style.chart([]).mark_point()
        return blank

    monkeypatch.setattr(page, "pictures", lambda view: [(name, empty, said) for name, _, said in real(view)])

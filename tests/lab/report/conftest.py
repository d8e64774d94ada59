"""A report for tests that read its words only: drawing its charts takes two seconds."""

from __future__ import annotations

import pytest

from lab.report import page, style
from lab.report.view import RunView


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chart of a page is an empty one, with the name and the description of the real one."""
    real = page.pictures

    def empty(_view: RunView) -> style.Chart:
        blank: style.Chart = style.chart([]).mark_point()
        return blank

    monkeypatch.setattr(page, "pictures", lambda view: [(name, empty, said) for name, _, said in real(view)])

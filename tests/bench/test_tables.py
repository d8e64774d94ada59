"""The tables in the pages agree with the stored figures of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import blind_table, cost_tables, exam, history, repeat
from bench.kit import ROOT, Evidence, write_table
from lab.errors import UsageError

EVERY = {
    "cost": cost_tables.EVIDENCE,
    "exam": exam.EVIDENCE,
    "sessions": blind_table.EVIDENCE,
    "trust": repeat.EVIDENCE,
    "histories": history.EVIDENCE,
}
MARKS = "# x\n\n<!-- table: t -->\nof yesterday\n<!-- /table -->\n\nafter\n"


@pytest.mark.parametrize("name", EVERY)
def test_the_pages_show_what_is_kept(name: str) -> None:
    """Figures in a page and stored figures are the same."""
    of = EVERY[name]
    shown = {
        (page, table): made
        for page, tables in of.tables.items()
        for table, make in tables.items()
        if (made := make(of.records())) is not None
    }
    assert shown
    for (page, table), made in shown.items():
        assert f"<!-- table: {table} -->\n{made}\n<!-- /table -->" in (ROOT / page).read_text()


def test_the_plots_are_what_is_kept() -> None:
    """The same, of what has a shape of its own."""
    for name, plot in cost_tables.PLOTS.items():
        assert plot(cost_tables.EVIDENCE.records()) == (ROOT / "docs/plots" / f"{name}.svg").read_text()


def test_figures_are_kept_and_their_table_is_renewed(tmp_path: Path) -> None:
    """Other parts stay, and what stands outside the marks; a table that was not measured is left alone."""
    (tmp_path / "page.md").write_text(MARKS)
    of = Evidence(
        "kept.json",
        {"page.md": {"t": lambda kept: ", ".join(f"{part}: {kept[part]['x']}" for part in kept), "u": lambda _: None}},
        tmp_path,
    )  # fmt: skip
    of.keep("b", "bench.x", x=1)
    of.keep("a", "bench.x", x=2)
    assert (tmp_path / "page.md").read_text() == MARKS.replace("of yesterday", "a: 2, b: 1")
    assert {"command", "date", "machine", "x"} == set(of.records()["a"])


@pytest.mark.parametrize(
    "text", ["", "<!-- table: t -->\nwithout an end\n", MARKS.replace("table: t", "table: u")]
)
def test_a_page_without_the_marks_is_named(text: str, tmp_path: Path) -> None:
    """Nothing is written."""
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(UsageError, match="has no marks for the table 't'"):
        write_table(page, "t", "new")
    assert page.read_text() == text

"""The page of a run: sections, tables and charts in one file that needs nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.errors import StackError, UsageError
from lab.report import story, style, write_report
from lab.report.page import pictures
from lab.report.picture import named
from lab.report.view import RunView
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.numbers import ms, percent
from tests.lab.doctored import build_run
from tests.lab.report.reportkit import SECTIONS, Page, page_of, words


def test_sections_stand_in_the_promised_order(healthy_page: Page) -> None:
    """The sections of a report always stand in the same order."""
    assert healthy_page.ids == SECTIONS


def test_nothing_is_fetched(healthy_page: Page, healthy: Run) -> None:
    """The file needs no other file and no network: no src, no href, no stylesheet import, no url()."""
    styles = re.findall(r"<style>(.*?)</style>", (healthy.folder / "report.html").read_text(), re.DOTALL)

    assert healthy_page.fetched == []
    assert styles
    assert not any("url(" in style or "@import" in style for style in styles)


def test_the_figures_are_those_of_the_run(healthy_page: Page, healthy: Run) -> None:
    """The story's p99s are the ones that claims are judged by."""
    p99s = [p99 for phase in healthy.phases if (p99 := healthy.p99_ms(phase)) is not None]

    assert f"{min(p99s) * 1000:.0f} µs" in words(healthy_page) or f"{min(p99s):.3f} ms" in words(healthy_page)
    assert f"{max(p99s):.0f} ms" in words(healthy_page)
    assert "Every claim holds." in words(healthy_page)
    assert healthy.facts.command in words(healthy_page)


def test_every_claim_is_there_and_every_check_in_a_table_with_headers(
    healthy_page: Page, healthy: Run
) -> None:
    """Every claim and check is in the page; tables have headers for columns and rows, as screen readers need."""
    result = healthy.result()
    assert result
    for claim in result["claims"]:
        assert claim["statement"] in words(healthy_page) and claim["measured"] in words(healthy_page)
    for check in result["validity"]:
        assert check["check"] in words(healthy_page)
    assert all("th:col" in table and "th:row" in table for table in healthy_page.tables)


def test_charts_are_valid_vega_lite(healthy: Run) -> None:
    """Every chart satisfies the schema, has a description, and puts numbers in JSON that a browser can read."""
    view = RunView(healthy)
    names = []
    for name, make, description in pictures(view):
        document = style.spec(make(view), description, validate=True)
        assert document["description"]
        json.dumps(document, allow_nan=False)
        names.append(name)

    assert names == [
        "timeline", "stalls", "rates", "parts", "eyes",
        "picture-scatter", "picture-percentiles", "picture-utilisation",
    ]  # fmt: skip


def test_what_is_folded_is_printed(healthy_page: Page, healthy: Run) -> None:
    """On paper nothing can be unfolded, so the style for print shows it."""
    html = (healthy.folder / "report.html").read_text()
    printed = html[html.index("@media print") : html.index("</style>")]

    assert "details::details-content { content-visibility: visible; }" in printed


def test_the_arithmetic_of_a_plateau_stands_in_one_row(tmp_path: Path) -> None:
    """*Phase by phase* has a search's mean execution time beside keys, busy share and p99; a control has no search."""
    run = build_run(tmp_path / "run")
    table, plateau = story.figures_by_phase(RunView(run))[0], run.arm("grow")[3]
    row = dict(zip(table.headings, table.rows[run.phases.index(plateau)], strict=True))

    assert row["execution of a SCAN"] == ms((plateau.execution_us("SCAN") or 0.0) / 1000)
    assert row["main thread busy"] == percent(plateau.utilisation)
    assert row["p99 of a GET"] == ms(run.p99_ms(plateau))
    control = build_run(tmp_path / "control", cause="index")
    assert not any("SCAN" in heading for heading in story.figures_by_phase(RunView(control))[0].headings)


def test_a_command_that_takes_the_servers_time_has_a_row(tmp_path: Path) -> None:
    """Any command that takes the server's time has a row, whatever its name; one that takes hardly any has none."""
    run = build_run(tmp_path / "run", without=["index"])
    path = run.folder / "samples.csv"
    head, *rows = path.read_text().splitlines()
    names, cells = "smembers_per_s,smembers_exec_us,multi_per_s,multi_exec_us", "5.0,40000.0,900.0,0.1"
    path.write_text("\n".join([f"{head},{names}", *(f"{row},{cells}" for row in rows)]) + "\n")

    from lab.report.timeline import _commands

    shown = _commands(RunView(Run(run.folder)))
    assert "smembers" in shown and "multi" not in shown and shown.index("scan") == 0


def test_what_the_run_says_is_text_and_not_markup(tmp_path: Path) -> None:
    """A server's name or a command cannot put markup or a script into the page."""

    def hostile(facts: RunFacts) -> None:
        facts.server = "<script>alert(1)</script>"
        facts.command = "</script><img src=x>"
        facts.phases = [PhaseRecord(**{**vars(p), "arm": "</script><b>"}) for p in facts.phases]

    run = build_run(tmp_path / "run", doctor=hostile)
    page = page_of(run)

    assert page.fetched == []
    assert page.scripts == 2


def test_the_report_is_written_in_one_piece(healthy: Run, tmp_path: Path) -> None:
    """A report that cannot be written leaves the old one and no draft, and says so in one line."""
    run = build_run(tmp_path / "run", without=["index", "fix", "return"])
    (run.folder / "report.html").mkdir()

    with pytest.raises(StackError, match="cannot write"):
        write_report(run)
    assert not list(run.folder.glob(".report*"))


def test_the_timeline_alone_is_a_picture(healthy: Run) -> None:
    """A chart alone is an SVG of at most 900 pixels with a description; an unknown one is refused with the nearest."""
    svg, said = named(RunView(healthy), "timeline")
    width = re.search(r'<svg[^>]* width="(\d+)', svg)

    assert width and int(width[1]) <= 900
    assert all(label in svg for label in ("grow", "fix", "restart", "p99 of a GET"))
    assert said
    with pytest.raises(UsageError, match="did you mean 'timeline'"):
        named(RunView(healthy), "timelime")

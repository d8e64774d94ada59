"""A page reveals nothing of the cause under --quiet-cause before it is unfolded; else all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab import scenarios
from lab.claims.verdict import write_result
from lab.report import style, write_comparison, write_report, write_summary
from lab.report.comparison import side_by_side
from lab.report.page import pictures
from lab.report.terminal import show_series, show_verdict
from lab.report.view import RunView
from lab.results.folder import Run
from lab.results.schema import Mark
from lab.runner.judging import reach
from lab.runner.series import Entry, RunSeries
from tests.lab.report.reportkit import INCIDENTS, Page, page_of, proved, unfolded, words
from tests.lab.runner.test_opening import TELLING

RECORDS = Path(__file__).resolve().parents[3] / "docs" / "runs"


def unfolded_head(run: Run) -> str:
    """Return what a reader sees of a report before anything is unfolded, down to the claims."""
    html = write_report(run).read_text()
    head = html[html.index("<body>") : html.index("</section>")]
    seen = unfolded(head)
    assert seen.count("<details>") == 2
    return words(Page(seen)).replace(run.facts.scenario, "")


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_head_tells_what_people_saw_and_folds_the_cause(incident: str, tmp_path: Path) -> None:
    """A report begins with the symptom; story, claims and titles, which give the cause away, are folded."""
    run = proved(incident, tmp_path / "run")
    scenario = RunView(run).scenario
    assert scenario
    head = unfolded_head(run)

    if incident == "key-growth":
        assert "COUNT" not in head
        assert "COUNT" in write_report(run, spoilers=True).read_text().split("<h1>")[0]
    assert f"What people saw: {scenario.symptom}" in head
    assert TELLING.search(head) is None, head
    assert run.facts.story in words(page_of(run))


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("incident", INCIDENTS)
def test_no_heading_and_no_phase_tells_the_cause(incident: str, tmp_path: Path) -> None:
    """Unfolded parts have neutral names of phases and no heading with a command; a fold lists the phases' titles."""
    run = proved(incident, tmp_path / "run")
    view = RunView(run)
    assert view.scenario and view.scenario.cause
    html = write_report(run).read_text()
    seen = unfolded(html)
    headings = " ".join(re.findall(r"<(?:h[123]|summary).*?</(?:h[123]|summary)>", seen))

    assert "In pictures" in headings and "What follows from it" in headings
    assert TELLING.search(headings.replace(view.scenario.symptom, "")) is None
    told = {phase.id: phase.title for phase in view.scenario.phases if phase.neutral}
    text = words(Page(seen))
    assert not [title for title in told.values() if f">{title}" in seen or f"“{title}" in seen]
    assert view.facts.title not in text.replace(view.facts.scenario, "")
    assert view.facts.source not in text
    assert view.scenario.cause[1:] not in text
    captions = [listing.caption for listing in view.scenario.listings]
    for folded in (
        *(claim.statement for claim in view.scenario.claims),
        *(c.title for c in view.charts if TELLING.search(c.title)),
        *captions,
    ):
        assert folded not in text
    assert ("What the phases were" in html) == bool(told)
    assert view.scenario.cause[1:] in words(Page(html))


def test_charts_of_a_report_name_phases_neutrally(tmp_path: Path) -> None:
    """Bars, bands and switches have the neutral names; with spoilers, and on other pages, those of the run."""
    run = proved("keys-command", tmp_path / "run")
    run.facts.marks.append(Mark(run.phases[-1].t0, "strategy", "strategy exact"))
    drawn = {
        spoilers: "".join(
            json.dumps(style.spec(make(view), said))
            for view in [RunView(run, spoilers)]
            for _, make, said in pictures(view)
        )
        for spoilers in (False, True)
    }

    for name in ("after change 1", "part 2"):
        assert name in drawn[False] and name not in drawn[True]
    for name in ("the fix: delete by exact key", '\\"text\\": \\"exact\\"'):
        assert name in drawn[True] and name not in drawn[False], name


@pytest.mark.parametrize("record", ["keys-command", "cures", "eviction-cycle", "giant-index"])
def test_a_run_of_the_past_gets_neutral_titles_too(record: str) -> None:
    """A record keeps the titles that it was made with; the page takes neutral ones from the scenario of today."""
    run = Run(RECORDS / record)
    view = RunView(run, spoilers=False)
    assert view.scenario
    told = {phase.id: phase.neutral for phase in view.scenario.phases if phase.neutral}

    assert {phase.id: view.title(phase) for phase in run.phases if phase.id in told} == told
    assert [RunView(run).title(phase) for phase in run.phases] == [phase.title for phase in run.phases]


@pytest.mark.usefixtures("words_only")
def test_with_spoilers_nothing_is_folded(tmp_path: Path) -> None:
    """With spoilers the page has titles, and nothing to unfold."""
    run = proved("keys-command", tmp_path / "run")
    html = write_report(run, spoilers=True).read_text()

    assert "<details>" not in html and "<details open>" in html
    assert "after change 1" not in html and "the fix: delete by exact key" in html
    assert "What the phases were" not in html


def on_a_terminal(show: Callable[[Console], object]) -> str:
    """Return what is printed on a terminal where nothing is folded."""
    console = Console(width=4000, record=True, file=StringIO(), highlight=False)
    show(console)
    return console.export_text()


@pytest.mark.first(3)
@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("incident", INCIDENTS)
def test_a_comparison_tells_no_cause(incident: str, tmp_path: Path) -> None:
    """Terminal and page of two runs name no cause, command, claim or phase that tells it; with spoilers they do."""
    run = proved(incident, tmp_path / "run")
    scenario = RunView(run).scenario
    assert scenario

    def terminal(spoilers: bool) -> str:
        return on_a_terminal(lambda console: side_by_side(console, [run, run], spoilers))

    page = unfolded(write_comparison([run, run], tmp_path / "compare.html").read_text())
    for seen in (terminal(spoilers=False), words(Page(page[page.index("<body>") :]))):
        seen = seen.replace(run.facts.scenario, "")
        assert TELLING.search(seen) is None, seen
        assert run.facts.title not in seen
        assert not [claim.statement for claim in scenario.claims if claim.statement in seen]
        assert not [phase.title for phase in scenario.phases if phase.neutral and f"{phase.title} " in seen]
    whole = write_comparison([run, run], tmp_path / "compare.html", spoilers=True).read_text()
    for told in (" ".join(terminal(spoilers=True).split()), words(Page(whole))):
        assert all(f"{claim.statement} ({claim.bound})" in told for claim in scenario.claims)
    assert "<details>" not in whole and run.facts.story in words(Page(whole))


@pytest.mark.parametrize("incident", ["key-growth", "keys-command", "eviction-cycle", "pipelined-delete"])
def test_a_verdict_tells_no_cause_where_it_should_not(incident: str, tmp_path: Path) -> None:
    """Under `--quiet-cause` the terminal has the verdict and no claim; else it begins with the headline."""
    record = Run(Path(shutil.copytree(RECORDS / incident, tmp_path / "run")))
    write_result(record, reach(record))
    scenario = RunView(record).scenario
    assert scenario
    quiet, whole = (
        on_a_terminal(partial(show_verdict, folder=record.folder, spoilers=spoilers))
        for spoilers in (False, True)
    )
    assert TELLING.search(quiet) is None, quiet
    assert "quality checks passed" in quiet
    assert quiet.splitlines()[-1] == whole.splitlines()[-1]
    [headline] = [claim for claim in scenario.claims if claim.id == scenario.headline]
    assert whole.startswith(headline.statement)


def whole_series() -> dict[str, Any]:
    """Return the summary of a series of all scenarios, in which every claim came out as it should."""
    series = RunSeries(
        Path(), "bin/lab run all", "embedded", "native", "quick", 1, [], "2026-11-25T09:00:00+00:00"
    )
    for scenario in scenarios.catalogue().values():
        claims = [
            {
                "id": claim.id,
                "statement": claim.statement,
                "bound": claim.bound,
                "measured": f"7.0 × under the cause of {scenario.title}",
                "holds": not scenario.refutes,
            }
            for claim in scenario.claims
        ]
        headline = next(claim for claim in claims if claim["id"] == scenario.headline)
        series.planned.append(scenario.id)
        series.entries.append(
            Entry(
                scenario.id, scenario.title, scenario.symptom, scenario.cause, scenario.refutes, 0, 90.0, True,
                "valkey 9.1.2", claims, headline, report=f"{scenario.id}/report.html",
            )
        )  # fmt: skip
    return series.summary()


def test_a_summary_tells_no_cause(tmp_path: Path) -> None:
    """Terminal and page of a series have each scenario's symptom and verdict, and its cause only with spoilers."""
    summary = whole_series()
    html = write_summary(tmp_path, summary).read_text()
    seen = {
        "page": words(Page(unfolded(html[html.index("<body>") :]))),
        "terminal": on_a_terminal(lambda console: show_series(console, summary, Path("summary.html"))),
    }
    for where, text in seen.items():
        for scenario in sorted(scenarios.catalogue(), key=len, reverse=True):
            assert scenario in text, where
            text = text.replace(scenario, "")
        assert TELLING.search(text) is None, text
        assert "7.0 ×" not in text
    told = write_summary(tmp_path, summary, spoilers=True).read_text()
    assert "<details>" not in told
    for run in summary["runs"]:
        assert run["symptom"] in seen["page"]
        for told_only in (
            run["title"],
            run["cause"],
            run["headline"]["statement"],
            run["headline"]["measured"],
        ):
            assert told_only in words(Page(told))
    assert "7.0 ×" in on_a_terminal(
        lambda console: show_series(console, summary, Path("summary.html"), spoilers=True)
    )


def test_why_a_run_has_no_verdict_is_no_secret(tmp_path: Path) -> None:
    """An error, and what made a run not valid, are told without spoilers."""
    summary = whole_series()
    broke, invalid = summary["runs"][:2]
    broke |= {"error": "the server does not answer.", "said": "the server does not answer.", "claims": []}
    invalid |= {"invalid": ["the machine was quiet"], "said": "not fulfilled: the machine was quiet"}
    html = unfolded(write_summary(tmp_path, summary).read_text())
    text = on_a_terminal(lambda console: show_series(console, summary, Path("summary.html")))

    for seen in (words(Page(html)), text):
        assert "the server does not answer." in seen and "not fulfilled: the machine was quiet" in seen

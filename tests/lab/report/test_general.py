"""The report of an invented scenario: its claims, its charts, what its loads measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import scenarios
from lab.report import charts, story, style, write_report
from lab.report.page import pictures
from lab.report.quantities import quantity
from lab.report.view import RunView
from lab.results.folder import Run
from lab.scenarios.model import Chart, Listing
from tests.lab.invented import CONTROL, SWEEP, judged, sweep, with_catalogue
from tests.lab.plain import Plain
from tests.lab.report.reportkit import SECTIONS, Page, words


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab know the invented scenario and its control, and no others."""
    with_catalogue(monkeypatch, SWEEP, CONTROL)


def page_of(run: Run) -> Page:
    return Page(write_report(run).read_text())


def documents(run: Run) -> dict[str, dict[str, Any]]:
    """Return every chart of a run, checked against the schema of Vega-Lite."""
    view = RunView(run)
    return {name: style.spec(make(view), said, validate=True) for name, make, said in pictures(view)}


def values(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows that a chart holds."""
    return [row for rows in document["datasets"].values() for row in json.loads(rows)]


def scales(document: object) -> list[str]:
    """The types of all scales in a chart."""
    if isinstance(document, dict):
        scale = document.get("scale")
        own = [scale["type"]] if isinstance(scale, dict) and "type" in scale else []
        return own + [kind for part in document.values() for kind in scales(part)]
    return [kind for part in document for kind in scales(part)] if isinstance(document, list) else []


def test_the_story_is_the_claims(tmp_path: Path) -> None:
    """The page has title, story, verdict and every claim with what was measured, but nothing of the main incident."""
    page = page_of(judged(sweep(), tmp_path / "run"))
    text = words(page)

    assert page.ids == SECTIONS
    assert page.fetched == []
    assert "What <COUNT> costs" in text
    assert "Every claim holds." in text
    assert "an iteration gets faster with COUNT (≥ 5 ×): holds." in text
    assert text.count("66.0 ×") >= 2
    assert "knee" not in text and "wrong turn" not in text
    assert "× SCAN" in text


@pytest.mark.usefixtures("words_only")
def test_the_headline_and_the_extremes_stand_at_the_head(tmp_path: Path) -> None:
    """The page begins with the headline claim's ratio and the bystander's best and worst p99 with their phases."""
    run = judged(sweep(), tmp_path / "run")
    head = words(page_of(run)).split("What was claimed")[0]
    worst, best = run.phase("c1000-n64"), run.phase("c10-n1")

    assert worst and best
    assert f"{run.p99_ms(worst):.0f} ms" in head
    assert f"{run.p99_ms(best):.3f} ms" in head
    assert "COUNT 1000, 64 at a time" in head
    assert "×" in head


@pytest.mark.usefixtures("words_only")
def test_what_the_loads_measured_is_in_tables(tmp_path: Path) -> None:
    """Tables show each figure and parameter of each phase in readable units; what was not measured is a dash."""
    plain = sweep()
    del plain.phase("c10-n8").figures["done_per_s"]
    rows = re.findall(r"<tr.*?</tr>", write_report(judged(plain, tmp_path / "run")).read_text(), re.DOTALL)
    cells = [
        [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]

    assert ["phase", "COUNT", "crowd", "iteration", "done a second", "errors"] in cells
    assert ["COUNT 10, 1 at a time", "10", "1", "4.00 s", "90,000", "0"] in cells
    assert ["COUNT 10, 8 at a time", "10", "8", "4.92 s", "–", "80"] in cells


def test_every_chart_is_drawn_and_described(tmp_path: Path) -> None:
    """The scenario's charts are valid, show their phases, and say in words what they show."""
    found = documents(judged(sweep(), tmp_path / "run"))

    assert list(found) == [
        "timeline", "stalls", "rates", "parts", "eyes", "picture-curves", "picture-map", "picture-tail", "picture-few",
    ]  # fmt: skip
    assert found["picture-curves"]["description"] == (
        "Time of an iteration. iteration, s over COUNT, for each crowd. "
        "From 40.0 ms (COUNT 1000, 1 at a time) to 6.06 s (COUNT 10, 64 at a time)."
    )
    assert {row["said"] for row in values(found["picture-map"])} == {"90,000", "11,250", "1,410"}


def test_wide_axes_are_logarithmic_and_narrow_ones_are_not(tmp_path: Path) -> None:
    """Values over more than two decades get a log axis, or a symlog axis if there are zeros among them."""
    found = documents(judged(sweep(), tmp_path / "run"))

    assert "log" in scales(found["picture-curves"])
    assert "log" in scales(found["picture-tail"])
    assert "symlog" in scales(found["picture-few"])
    narrow = charts.draw(
        RunView(judged(sweep(), tmp_path / "two")), Chart("x", "x", "lines", "param:crowd", "utilisation")
    )
    assert set(scales(style.spec(narrow, "", validate=True))) == {"linear"}


def test_a_chart_that_nothing_was_measured_for_says_so(tmp_path: Path) -> None:
    """A chart without data is a sentence, not empty axes."""
    text = words(page_of(judged(sweep(), tmp_path / "run")))

    assert "What no load ever said Nothing was measured for this chart." in text


@pytest.mark.usefixtures("words_only")
def test_a_scenarios_own_tables_stand_before_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables come before the charts, with captions and numbers set to the right; one without a row is left out."""
    listed = replace(
        SWEEP,
        listings=(
            Listing(
                "How fast",
                ("phase", "rate", "why"),
                lambda run: [[p.id, "12 ms", "w" * 40] for p in run.phases],
            ),
            Listing("Empty listing", ("phase", "rate"), lambda run: []),
        ),
    )
    with_catalogue(monkeypatch, listed)
    run = judged(sweep(listed), tmp_path / "run")
    page = page_of(run)
    assert page.ids == [*SECTIONS[:1], "listings", *SECTIONS[1:]]
    assert "How fast" in words(page)
    assert "Empty listing" not in words(page)
    [table] = story.listings(RunView(run))
    assert table.figures == {1}
    assert [row[0] for row in table.rows] == [phase.id for phase in run.phases]


@pytest.mark.parametrize("kept", (0, 1, len(SWEEP.phases) - 1))
@pytest.mark.usefixtures("words_only")
def test_a_partial_run_draws_what_it_has(kept: int, tmp_path: Path) -> None:
    """After any number of phases, none included, there is a report, and every chart in it is valid."""
    plain = sweep()
    plain.facts.interrupted = True
    del plain.facts.phases[kept:]
    run = plain.write(tmp_path / "run")
    text = words(page_of(run))
    documents(run)

    assert f"interrupted after {kept} phase" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


@pytest.mark.usefixtures("words_only")
def test_a_server_that_counts_nothing_leaves_dashes(tmp_path: Path) -> None:
    """Without utilisation, commands or calibration the report has dashes and sentences, never zeros."""
    plain = sweep()
    plain.facts.calibration, plain.facts.host = {}, {}
    for phase in plain.facts.phases:
        phase.utilisation, phase.commands, phase.figures, phase.params = None, {}, {}, {}
        phase.client_p99_ms, phase.processes, phase.memory_mb = {}, {}, {}
    run = plain.write(tmp_path / "run")
    text = words(page_of(run))
    documents(run)

    assert "it cannot be split" in text
    assert "Commands that the server executed in all phases: nothing was recorded." in text


@pytest.mark.usefixtures("words_only")
def test_a_control_reads_as_it_should(tmp_path: Path) -> None:
    """A refuted claim of a control is as it should be; one that held is not."""
    plain = sweep(CONTROL)
    for phase in plain.facts.phases:
        phase.figures["iteration_s"] = 1.0
    text = words(page_of(judged(plain, tmp_path / "run")))

    assert "The control is not as it should be: 1 of 2 claims held without the cause." in text
    assert "(≥ 5 ×): not shown, as it should be." in text


def test_titles_that_come_twice_are_told_apart(tmp_path: Path) -> None:
    """Phases with the same title are told apart by keys or else by id, so that rows of charts do not coincide."""
    plain = sweep()
    for phase in plain.facts.phases:
        phase.title = "the same"
    plain.facts.phases[0].keys = 7000
    view = RunView(plain.write(tmp_path / "run"))
    names = [view.name(phase) for phase in view.run.phases]

    assert len(set(names)) == len(names)
    assert names[0] == "the same, 7 k keys"
    assert names[1] == "the same (c10-n8)"


def test_a_scenario_that_is_gone_can_still_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose scenario is gone still has a report, which says that the scenario's own charts are missing."""
    run = judged(sweep(), tmp_path / "run")
    missing = "This lab does not know the scenario sweep: its own charts and tables are missing here."
    assert missing not in words(page_of(run))
    with_catalogue(monkeypatch)

    page = page_of(run)
    assert "pictures" not in page.ids
    assert missing in words(page)


@pytest.mark.parametrize("name", ["figure", "p98", "figure:", "keys:x", "", "title:x"])
def test_a_quantity_that_does_not_exist_is_refused(name: str) -> None:
    """A misspelt quantity raises `ValueError` instead of giving an empty chart."""
    with pytest.raises(ValueError, match="there is no quantity"):
        quantity(name)


@pytest.mark.parametrize(
    ("name", "value", "axis", "text"),
    [
        ("figure:stall_ms", 1250.0, "stall, ms", "1.25 s"),
        ("figure:iteration_s", 0.5, "iteration, s", "500 ms"),
        ("figure:done_per_s", 12_345.6, "done a second", "12,300"),
        ("figure:buffers_bytes", 2.5e8, "buffers, bytes", "250 MB"),
        ("figure:hit_share", 0.25, "hit", "25 %"),
        ("figure:gain_ratio", 5.0, "gain, ×", "5 ×"),
        ("figure:pages", 12_345.0, "pages", "12,345"),
        ("param:rtt_ms", 0.5, "rtt, ms", "0.500 ms"),
        ("keys", 99_999.6, "keys", "100,000"),
        ("utilisation", None, "main thread busy", "–"),
    ],
)
def test_a_quantity_knows_its_label_unit_and_words(
    name: str, value: float | None, axis: str, text: str
) -> None:
    """A figure's unit comes from the end of its name."""
    assert quantity(name).axis == axis
    assert quantity(name).text(value) == text


def test_quantities_read_a_phase(tmp_path: Path) -> None:
    """Each kind of quantity gives the phase's figure."""
    run = judged(sweep(), tmp_path / "run")
    view, phase = RunView(run), run.phases[0]

    def read(name: str) -> object:
        return quantity(name).read(phase, view.latencies)

    assert read("keys") == phase.keys
    assert read("p99") == run.p99_ms(phase)
    assert read("p99:second") == run.p99_ms(phase, "second")
    assert read("max") == max(float(part.max()) for part in run.latencies(phase)) / 1000
    assert read("figure:iteration_s") == phase.figures["iteration_s"]
    assert read("param:COUNT") == 10
    assert read("rate:SCAN") == 900 / phase.seconds
    assert read("exec:SCAN") == 100
    assert read("exec:KEYS") is None
    assert read("utilisation") == 0.3
    assert read("memory") == 60
    assert read("title") == phase.title
    assert read("figure:nothing") is None


def test_charts_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    """A chart of an unknown kind raises `ValueError`."""
    view = RunView(judged(sweep(), tmp_path / "run"))

    with pytest.raises(ValueError, match="no kind 'pie'"):
        charts.draw(view, replace(SWEEP.charts[0], kind="pie"))


@pytest.mark.whole
def test_the_catalogues_charts_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chart of every scenario names quantities and a kind that exist, and has an id of its own."""
    monkeypatch.undo()
    for scenario in scenarios.catalogue().values():
        view = RunView(Plain(scenario).write(tmp_path / scenario.id))
        assert len({chart.id for chart in scenario.charts}) == len(scenario.charts)
        for chart in scenario.charts:
            style.spec(charts.draw(view, chart), charts.description(view, chart), validate=True)

"""The report of complete, partial, doctored and control runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lab.claims.verdict import write_result
from lab.errors import StackError, UsageError
from lab.report import story, style, write_report
from lab.report.page import pictures
from lab.report.picture import named
from lab.report.view import RunView
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.numbers import ms, percent
from lab.results.schema import Mark
from lab.runner.judging import reach, validate
from tests.lab.claims import altered
from tests.lab.doctored import build_run
from tests.lab.invented import judged
from tests.lab.runner.test_opening import TELLING
from tests.lab.scenarios import proofs

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
    path = write_report(run)
    assert path == run.folder / "report.html"
    return Page(path.read_text())


def words(page: Page) -> str:
    return " ".join(page.text.split())


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A judged run in which every claim holds."""
    yield build_run(tmp_path_factory.mktemp("healthy") / "run", judged=True)


@pytest.fixture(scope="module")
def healthy_page(healthy: Run) -> Page:
    """The report of the healthy run."""
    return page_of(healthy)


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


PROOFS = proofs()
RECORDS = Path(__file__).resolve().parents[3] / "docs" / "runs"


def unfolded_head(run: Run) -> str:
    """Return what a reader sees of a report before anything is unfolded, down to the claims."""
    html = write_report(run).read_text()
    head = html[html.index("<body>") : html.index("</section>")]
    seen = unfolded(head)
    assert seen.count("<details>") == 2
    return words(Page(seen)).replace(run.facts.scenario, "")


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("module", ["key_growth", *PROOFS])
def test_the_head_tells_what_people_saw_and_folds_the_cause(module: str, tmp_path: Path) -> None:
    """A report begins with the symptom; story, claims and titles, which give the cause away, are folded."""
    run = proved(module, tmp_path / "run")
    scenario = RunView(run).scenario
    assert scenario
    head = unfolded_head(run)

    assert f"What people saw: {scenario.symptom}" in head
    assert TELLING.search(head) is None, head
    assert run.facts.story in words(page_of(run))


def proved(module: str, folder: Path) -> Run:
    """Return the judged run of a scenario in which every claim holds."""
    if module == "key_growth":
        return build_run(folder, judged=True)
    return judged(PROOFS[module].healthy(), folder)


def unfolded(html: str) -> str:
    """Return a page without what is folded."""
    return re.sub(r"(<details>\s*<summary>.*?</summary>).*?</details>", r"\1", html, flags=re.DOTALL)


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("module", ["key_growth", *PROOFS])
def test_no_heading_and_no_phase_tells_the_cause(module: str, tmp_path: Path) -> None:
    """What is not folded has neutral names of phases and no heading with a command; a fold says what each phase was."""
    run = proved(module, tmp_path / "run")
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
    run = proved("keys_command", tmp_path / "run")
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
    """Whoever knows the cause gets a page with titles, and nothing to unfold."""
    run = proved("keys_command", tmp_path / "run")
    html = write_report(run, spoilers=True).read_text()

    assert "<details>" not in html and "<details open>" in html
    assert "after change 1" not in html and "the fix: delete by exact key" in html
    assert "What the phases were" not in html


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


@pytest.mark.usefixtures("words_only")
def test_a_control_reads_as_it_should(tmp_path: Path) -> None:
    """In a control a refuted claim is told to be as it should be."""
    text = words(page_of(build_run(tmp_path / "run", cause="index", judged=True)))

    assert "without the cause, all 11 applicable claims are refuted" in text
    assert text.count("not shown, as it should be") == 11


@pytest.mark.usefixtures("words_only")
def test_a_claim_that_fails_is_named(tmp_path: Path) -> None:
    """A refuted claim shows in the verdict and in the list, as a word and not as a colour."""
    text = words(page_of(build_run(tmp_path / "run", slowlog=["GET"] * 40, judged=True)))

    assert "1 of 11 claims was refuted." in text
    assert text.count("✗") == 2  # the verdict's and the claim's
    assert "are GET, all that a bystander sends" in text


@pytest.mark.usefixtures("words_only")
def test_a_claim_that_does_not_apply_says_why(tmp_path: Path) -> None:
    """A claim that does not apply is neither passed nor failed, and says why."""

    def foreign(facts: RunFacts) -> None:
        facts.cannot["restart-restores"] = "the lab did not start this server"

    text = words(page_of(build_run(tmp_path / "run", doctor=foreign, judged=True)))

    assert ": not applicable." in text
    assert "the lab did not start this server" in text


@pytest.mark.usefixtures("words_only")
def test_an_invalid_run_has_no_verdict(tmp_path: Path) -> None:
    """In place of a verdict an invalid run shows the failed condition."""

    def noisy(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.machine["others"] = 0.9

    text = words(page_of(build_run(tmp_path / "run", doctor=noisy, judged=True)))

    assert "No verdict: the run is not valid. Not fulfilled: the machine was quiet. Close other" in text


ARMS = ("grow", "turns", "restart", "return", "fix", "index")


@pytest.mark.parametrize("kept", range(len(ARMS)))
def test_a_partial_run_is_reported_as_partial(tmp_path: Path, kept: int) -> None:
    """A run that ended after any arm, even before the first, gives a report that says so."""

    def interrupt(facts: RunFacts) -> None:
        facts.interrupted = True

    text = words(page_of(build_run(tmp_path / "run", without=ARMS[kept:], doctor=interrupt)))

    assert "This is a partial run" in text
    assert "never judged" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


@pytest.mark.usefixtures("words_only")
def test_missing_figures_are_dashes_and_never_zeros(tmp_path: Path) -> None:
    """A server that counts nothing and a run without calibration leave gaps, not zeros, and do not crash."""

    def poor(facts: RunFacts) -> None:
        facts.calibration, facts.load, facts.host, facts.marks = {}, {}, {}, []
        for phase in facts.phases:
            phase.utilisation = None
            phase.commands, phase.client_p99_ms = {}, {"app": None}
            phase.processes, phase.memory_mb = {}, {}

    run = build_run(tmp_path / "run", doctor=poor)
    text = words(page_of(run))

    assert "it cannot be split" in text
    documents = {
        name: json.dumps(style.spec(make(RunView(run)), description, validate=True), allow_nan=False)
        for name, make, description in pictures(RunView(run))
    }
    assert '\\"part\\"' not in documents["parts"]
    assert "Locust, the whole" not in documents["eyes"].split('"domain"')[0]
    assert '\\"demand\\": 0' not in documents["picture-utilisation"]


def test_a_run_without_phases_names_the_strategy_that_it_planned(tmp_path: Path) -> None:
    """Before any plateau is measured, the side before the fix is called after the first strategy planned."""
    plain = PROOFS["keys_command"].healthy()
    plain.facts.phases.clear()
    assert RunView(plain.write(tmp_path / "run")).sides == ["keys", "index"]


def test_a_hole_in_the_samples_is_a_gap(tmp_path: Path) -> None:
    """A second in which the server did not answer is a gap in the chart."""
    run = build_run(tmp_path / "run", without=["index"])
    path = run.folder / "samples.csv"
    lines = path.read_text().splitlines()
    t, phase, strategy, *rest = lines[20].split(",")
    lines[20] = ",".join([t, phase, strategy, *("" for _ in rest)])
    path.write_text("\n".join(lines) + "\n")
    page_of(Run(run.folder))

    from lab.report.timeline import _keys

    row = _keys(RunView(Run(run.folder)))[19]
    assert row["value"] is None


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


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    """A last line cut in the middle of a histogram, as an interrupted run may leave it, is left out."""
    run = build_run(tmp_path / "run", without=["index", "fix"])
    path = run.folder / "probe.hlog"
    path.write_text(path.read_text()[:-30])

    assert "This run has not been judged" in words(page_of(Run(run.folder)))


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


def test_a_plateau_without_keys_has_no_part_in_the_knee(tmp_path: Path) -> None:
    """A plateau near the knee that holds no key makes the run not valid, and its report can be drawn."""
    copy = altered.copy_of("key-growth", tmp_path)
    copy.facts(lambda raw: altered.phase(raw, "grow-5").update(keys=0.0))
    run = Run(copy.folder)
    assert "the server held the keys that were planned" in {one.check for one in validate(run) if not one.ok}
    write_result(run, reach(run))
    write_report(Run(copy.folder))

"""Committed pages and plots agree with the committed runs and the code, and a mark without a meaning is an error."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from datetime import datetime
from pathlib import Path

import pytest

from docs.pages import fromcode, fromruns
from docs.pages.__main__ import main, renew
from docs.pages.pages import PLOTS, expected_files, stale
from docs.pages.records import COPIED, FOLDER, LOADS, Records, name_of
from lab import scenarios
from lab.results.folder import RunFacts
from tests.docs.pagekit import ROOT
from tests.lab.doctored import build_run

SIZE_MOST = 3_100_000
"""The most bytes that all records together may have: every clone contains them."""


@pytest.fixture(scope="module")
def expected() -> dict[Path, str]:
    """All pages and plots as they ought to be."""
    return expected_files(ROOT)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with one page and the record of one run."""
    (tmp_path / "workshop").mkdir()
    build_run(tmp_path / "run")
    (tmp_path / "README.md").write_text("# x\n")
    renew(tmp_path, tmp_path / "run")
    return tmp_path


def page(book: Path, text: str) -> str:
    """Write the page, renew it as `make docs` does, and return it."""
    (book / "README.md").write_text(text)
    renew(book)
    return (book / "README.md").read_text()


@pytest.mark.whole
def test_what_is_committed_is_what_the_runs_said(expected: dict[Path, str]) -> None:
    """`make docs` would change nothing: no page, no plot, nothing superfluous."""
    changed = [str(path) for path, text in expected.items() if not path.exists() or path.read_text() != text]
    assert changed == [], "run `make docs` and look at what changes"
    assert list(stale(ROOT, expected)) == []


def test_there_is_a_valid_record_of_every_incident() -> None:
    """Each scenario that is no control has a record; each record is valid; all are small enough to be committed."""
    records = Records(ROOT / FOLDER)
    assert {s.id for s in scenarios.catalogue().values() if not s.refutes} <= set(records.names)
    assert all(records.view(name).result["holds"] is not None for name in records.names)  # type: ignore[index]
    assert sum(path.stat().st_size for path in (ROOT / FOLDER).rglob("*")) < SIZE_MOST


@pytest.mark.parametrize(
    ("holds", "control", "said"),
    [
        (True, False, ""),
        (False, False, " (refuted)"),
        (False, True, ""),
        (True, True, " (holds, as it should not)"),
    ],
)
def test_a_headline_that_is_not_as_promised_says_so(holds: bool, control: bool, said: str) -> None:
    """In the table of incidents the measured figure says if the headline claim is not as promised."""
    view = Records(ROOT / FOLDER).view("scan-count")
    view.facts.refutes, view.result = control, deepcopy(view.result)
    assert view.headline is not None
    view.headline["holds"] = holds
    assert fromcode._incident(view)[4] == view.headline["measured"] + said


def test_no_record_names_its_machine() -> None:
    """Records hold what claims and charts need, and no file, path or process of the machine they were made on."""
    for folder in (ROOT / FOLDER).iterdir():
        assert {path.name for path in folder.iterdir()} <= {
            "run.json",
            *COPIED,
            LOADS,
            "result.json",
            "report.html",
        }
        facts = json.loads((folder / "run.json").read_text())
        assert set(facts["host"]) == {"processor", "cores", "memory_gb"}
        assert "/tmp/" not in (folder / "run.json").read_text()


def test_a_record_judges_like_its_run(book: Path) -> None:
    """Pruning a run to a record loses nothing that a claim uses."""
    before = build_run(book / "again", judged=True).result()
    after = Records(book / FOLDER).view("key-growth").result
    assert before and after
    assert [claim["measured"] for claim in after["claims"]] == [
        claim["measured"] for claim in before["claims"]
    ]


def test_a_doctored_record_is_seen(book: Path) -> None:
    """If the record is replaced by that of another run, the page changes."""
    text = page(book, "<!-- run: key-growth claims p99-rises -->\n<!-- /run -->\n")
    build_run(book / "other", p99_ms={"grow-7": 3000.0})
    assert renew(book, book / "other") == [book / FOLDER / "key-growth", book / "README.md"]
    assert (book / "README.md").read_text() != text


def test_a_page_is_renewed_in_place(book: Path) -> None:
    """A renewal changes only the text between marks, a second one nothing; marks in code are left alone."""
    text = page(
        book,
        "before\n\n<!-- run: key-growth claims p99-rises -->\nof yesterday\n<!-- /run -->\n\nafter "
        "<!-- fig: key-growth p99-rises -->of yesterday<!-- /fig --> it\n\n```\n<!-- run: so and so -->\n```\n",
    )
    assert text.startswith(
        "before\n\n<!-- run: key-growth claims p99-rises -->\n| claim | bound | measured | |\n"
    )
    assert "yesterday" not in text
    assert "| p99 at the top plateau is far above the first | ≥ 5 × |" in text
    assert text.endswith(" it\n\n```\n<!-- run: so and so -->\n```\n")
    assert renew(book) == []


def test_a_plot_is_drawn_linked_and_cleared_away(book: Path) -> None:
    """A plot is drawn where the page links to it, with a text alternative, and removed when no page uses it."""
    text = page(book, "<!-- run: key-growth plot timeline -->\n<!-- /run -->\n")
    target = book / PLOTS / "key-growth-timeline.svg"
    assert f"]({PLOTS}/key-growth-timeline.svg)" in text
    assert "![Key count and p99" in text
    assert target.read_text().startswith("<svg")
    page(book, "nothing\n")
    assert not target.exists()


def test_figures_by_phase_have_their_unit_in_the_head(book: Path) -> None:
    """The table has one row for each phase asked for, and one unit for each column."""
    text = page(
        book,
        "<!-- run: key-growth phases keys p99 exec:GET utilisation rate:SCAN only=index -->\n<!-- /run -->\n",
    )
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == (
        "| phase | keys | p99 of a GET, ms | execution of a GET, µs | main thread busy, % | SCAN calls a second |"
    )
    assert len(lines) == 2 + 4
    assert all(cell.strip().replace(",", "").replace(".", "").isdigit() for cell in lines[2].split("|")[2:-1])


def test_a_run_that_a_page_asks_for_twice_is_waited_for_twice() -> None:
    """The waiting that a page announces counts every run that it has people type."""
    records = Records(ROOT / FOLDER)
    record = records.view("giant-index").facts
    seconds = record.phases[-1].t1 - datetime.fromisoformat(record.started).timestamp()
    halves = math.ceil(seconds / 30)
    once, twice = fromruns._minutes(halves), fromruns._minutes(2 * halves)
    typed = "bin/lab run giant-index --pace quick\n"

    assert once != twice
    assert fromruns.waiting(typed, records) == f"You will wait about {once} for runs; the rest is yours."
    assert fromruns.waiting(typed * 2, records) == (
        f"You will wait about {twice} for runs (`bin/lab run giant-index --pace quick` 2 times {once}); "
        "the rest is yours."
    )


def test_a_run_is_explained(book: Path) -> None:
    """An `explain` mark gives the text of `lab report --story`, all of it or one part."""
    whole = page(book, "<!-- run: key-growth explain -->\n<!-- /run -->\n")
    part = page(book, "<!-- run: key-growth explain where-the-time -->\n<!-- /run -->\n")
    assert whole.count("\n**") > 3
    assert part.count("\n**") == 1
    assert part.splitlines()[1] in whole


def test_a_figure_in_a_sentence(book: Path) -> None:
    """A `fig` mark gives the measured value of a claim, one figure of it, a quantity of a phase, or a ratio of two."""
    text = page(
        book,
        "<!-- fig: key-growth p99-rises --><!-- /fig -->; <!-- fig: key-growth p99-rises ratio --><!-- /fig -->; "
        "<!-- fig: key-growth grow-1 p99 -->x<!-- /fig -->; <!-- fig: key-growth grow-7/grow-1 p99 -->x<!-- /fig -->; "
        "<!-- fig: key-growth grow-7 p99 -->x<!-- /fig -->",
    )
    whole, ratio, p99, times, last = (part.split("-->")[1].split("<!--")[0] for part in text.split("; "))
    assert whole.startswith(f"{float(ratio.split()[0]):.0f}"[:2])
    assert ratio.endswith(" ×")
    assert p99.endswith(" ms")
    assert times.endswith(" ×")
    assert float(times.split()[0]) == pytest.approx(float(last.split()[0]) / float(p99.split()[0]), rel=0.01)


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("run: key-grwth claims", "there is no record 'key-grwth' in docs/runs; did you mean 'key-growth'?"),
        ("run: key-growth clams", "there is no kind 'clams'; did you mean 'claims'?"),
        ("run: key-growth claims p99-rise", "key-growth has no claim 'p99-rise'; did you mean 'p99-rises'?"),
        ("run: key-growth plot timelin", "key-growth has no chart 'timelin'; did you mean 'timeline'?"),
        ("run: key-growth phases p98", "there is no figure 'p98'; did you mean 'p99'?"),
        ("run: key-growth phases p99 only=gro", "key-growth has no phase or arm 'gro'; did you mean 'grow'?"),
        ("run: key-growth phases rate:SCNA", "key-growth ran no 'rate:SCNA'; did you mean 'rate:SCAN'?"),
        ("run: key-growth", "a mark `run` needs a record and one of facts, claims, phases, explain, plot."),
        (
            "run: key-growth explain where-the-tme",
            "no part is called 'where-the-tme'; did you mean 'Where the time went'?",
        ),
        ("list: scenarois", "there is no list 'scenarois'; did you mean 'scenarios'?"),
        ("help: rnu", "there is no command 'rnu'; did you mean 'run'?"),
        (
            "fig: key-growth p99-rise",
            "key-growth has no claim or phase 'p99-rise'; did you mean 'p99-rises'?",
        ),
        (
            "fig: key-growth grow-1/fx p99",
            "key-growth has no claim or phase 'grow-1/fx'; did you mean 'grow-1'?",
        ),
        ("fig: key-growth p99-rises rato", "claim 'p99-rises' has no figure 'rato'; did you mean 'ratio'?"),
    ],
)
def test_a_mark_that_says_nothing_is_an_error(
    mark: str, said: str, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mark with a wrong name gives one line with file, line and nearest name, and exit code 2; nothing is written."""
    refused(book, f"<!-- {mark} -->\n<!-- /{mark.split(':')[0]} -->", f"README.md:2: {said}", capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- run: key-growth claims -->", "README.md:2: no <!-- /run --> follows."),
        (
            "<!-- run: key-growth claims -->\n<!-- /list -->",
            "README.md:3: <!-- /list --> ends a block never begun.",
        ),
        ("<!-- /run -->", "README.md:2: <!-- /run --> ends a block never begun."),
        (
            "a\n<!-- fig: key-growth p99-rises -->x",
            "README.md:3: a mark `fig` without its end, or an end without its mark.",
        ),
    ],
)
def test_half_a_mark_is_an_error(
    text: str, said: str, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A begin without an end and an end without a begin are refused in the same way."""
    refused(book, text, said, capsys)


def refused(book: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a page is refused with one line, and left as it was."""
    (book / "README.md").write_text(f"# x\n{text}\n")
    assert main([], book) == 2
    assert capsys.readouterr().err == f"docs: {said}\n"
    assert (book / "README.md").read_text() == f"# x\n{text}\n"


def test_only_valid_runs_become_records(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without runs, a run without a verdict, and a word too many are refused; the records stay."""
    kept = (book / FOLDER / "key-growth" / "run.json").read_text()
    build_run(book / "broken", doctor=lambda facts: setattr(facts, "interrupted", True))
    for words, said in (
        ([str(book / "workshop")], "holds no runs"),
        ([str(book / "broken")], "has no verdict"),
        (["one", "two"], "make docs RUNS="),
    ):
        assert main(words, book) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert (book / FOLDER / "key-growth" / "run.json").read_text() == kept


def test_what_is_unusual_is_in_a_records_name(book: Path) -> None:
    """A record's name has an unusual pace or server in it, so that such a run stands beside the usual one."""

    def unusual(facts: RunFacts) -> None:
        facts.server = "redis"

    run = build_run(book / "other", doctor=unusual)
    renew(book, book / "other")
    assert Records(book / FOLDER).names == ["key-growth", "key-growth-redis"]
    run.facts.pace = "full"
    assert name_of(run) == "key-growth-full-redis"

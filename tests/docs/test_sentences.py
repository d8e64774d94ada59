"""A sentence of the guide holds in its record or is reported with its figures; a wrong condition is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages.pages import Renewal
from docs.pages.sentences import FILE, Sentence, sentences
from lab.errors import UsageError
from lab.report.view import RunView
from lab.results.folder import Run
from tests.docs.pagekit import ROOT
from tests.lab.doctored import build_run


@pytest.fixture(scope="module")
def view(healthy: Run) -> RunView:
    """A synthetic run of the main incident."""
    return RunView(healthy)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A synthetic run, as in the lab's own tests."""
    return build_run(tmp_path_factory.mktemp("healthy") / "run")


def test_the_sentences_are_of_pages() -> None:
    """At least eight pages have sentences that their records could contradict, and each of these pages exists."""
    found = sentences(ROOT)
    assert len(found) >= 8
    assert [page for page in found if not (ROOT / page).is_file()] == []


@pytest.mark.parametrize(
    "condition",
    [
        'busy("grow[0]") < 0.5',
        'p99("grow[-1]") > 10 * p99("grow[0]")',
        '0 < execution("SCAN", "grow-1") < execution("SCAN", "grow-7")',
        'calls("GET", "turns") >= 100 and keys("grow[-1]") > 150000',
        'p50("index-1") > 1000 or demand("grow-1") < 1',
        'longest("grow[0]") - p99("grow[0]") >= -0.5',
        'foretold("SCAN", "grow-4") / 2 < p99("grow-4")',
    ],
)
def test_what_is_true_is_green(condition: str, view: RunView) -> None:
    """Figures of phases, by id or by place, can be compared and calculated with."""
    assert Sentence("", "key-growth", condition).broken(view) == ""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ('busy("grow[0]") > 0.5', "0.03817 against 0.5"),
        ('p99("grow[-1]") < 2 * p99("grow[0]")', " against "),
        ('busy("grow[0]") < 0.5 and busy("grow[-1]") < 0.5', "; "),
    ],
)
def test_what_is_not_true_is_red(condition: str, told: str, view: RunView) -> None:
    """A sentence that is not true is reported with the figures that contradict it."""
    said = Sentence("", "key-growth", condition).broken(view)
    assert "does not hold" in said
    assert told in said


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("busy(", "is no comparison"),
        ('busy("grow-1")', "is no comparison"),
        ('busy("grow-1") == 0.5', "Eq cannot compare measured figures"),
        ('busy("grow[99]") < 1', "has no phase 'grow[99]'"),
        ('busy("somewhere") < 1', "has no phase 'somewhere'"),
        ("busy() < 1", "does not say of which phase"),
        ('calls("grow-1") < 1', "does not say of which phase and what"),
        ('calls("KEYS", "grow-1") < unknown', "cannot be compared; figures are p99, p50"),
        ('execution("KEYS", "grow-1") < 1', "was not measured in key-growth"),
        ('__import__("os").getpid() < 1', "cannot be compared; figures are p99, p50"),
        ('p99("grow-1") ** 2 < 1', "cannot be compared; figures are p99, p50"),
    ],
)
def test_a_mark_that_says_nothing_is_an_error(condition: str, said: str, view: RunView) -> None:
    """A condition that cannot be evaluated raises UsageError, and nothing but what is allowed is executed."""
    with pytest.raises(UsageError, match=r".") as caught:
        Sentence("", "key-growth", condition).broken(view)
    assert said in str(caught.value)


def test_a_page_that_is_contradicted_is_not_made(tmp_path: Path) -> None:
    """`make docs` refuses a page that its record contradicts, and one without its sentence; line breaks are free."""
    build_run(tmp_path / "docs" / "runs" / "key-growth")
    page, file = tmp_path / "README.md", tmp_path / FILE
    page.write_text("# x\n\nThe server\nis idle.\n")
    line = """["README.md"]\n"The server is idle." = 'key-growth busy("grow[-1]") < 0.1'\n"""
    for text, said in (
        (line, "'The server is idle.' is not true of key-growth"),
        (line.replace("idle", "busy"), "'The server is busy.' is not on the page"),
        ("x", "Expected '='"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            Renewal(tmp_path).page(page)
    file.write_text(line.replace("< 0.1", "> 0.1"))
    Renewal(tmp_path).page(page)

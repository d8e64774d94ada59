"""Everything documented is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import fromcode
from tests.docs import links, names
from tests.docs.pagekit import ROOT, Page, read

PAGES = read()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_documented_is_there(page: Page) -> None:
    """No page names a command, option, scenario, verb, file, variable or title that is gone."""
    assert names.gone(page) == []


def test_links_lead_somewhere() -> None:
    """Each link leads to a file, a heading, or a port of the scene."""
    assert links.broken(PAGES) == []


def test_alerts_lead_to_a_heading() -> None:
    """Each alert leads to the heading where the search for the cause begins."""
    assert links.lost_runbooks(PAGES) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`bin/lab rum key-growth`", "there is no command bin/lab rum"),
        ("`lab run key-grwth`", "there is no scenario key-grwth"),
        ("`bin/lab run all --paces quick`", "bin/lab run has no option --paces"),
        ("`bin/lab load iterations --counts 10`", "bin/lab load iterations has no option --counts"),
        ("`bin/lab load iteration`", "there is no load iteration"),
        ("`bin/lab run all --pace slow`", "--pace cannot be slow"),
        ("`bin/lab run ID --server mysql`", "--server cannot be mysql"),
        ("`bin/lab doctor key-growth`", "bin/lab doctor takes 0 arguments, not 1"),
        ("```sh\nbin/lab list\nbin/lab lost\n```", "there is no command bin/lab lost"),
        ("`make picture RUN=DIR`", "there is no target make picture"),
        ("`--gone`", "no command has the option --gone"),
        ("`lab/readme.py`", "there is no lab/readme.py"),
        ("`python -m lab.readme`", "there is no module lab.readme"),
        ("`GRAFANA_PROT`", "nothing reads GRAFANA_PROT"),
        ("`ReadsAreSlow`", "there is no ReadsAreSlow"),
        ("the dashboard *The accident*", "no dashboard is called *The accident*"),
        ("the panel *Keys as such*", "no panel is called *Keys as such*"),
        ("the claim *p99 falls*", "no claim is called *p99 falls*"),
        ("in *What never happened*", "no title is called *What never happened*"),
    ],
)
def test_what_is_gone_is_found(text: str, said: str) -> None:
    """A name that does not exist is reported with its page and line."""
    (found,) = names.gone(Page("page.md", f"# Page\n\n{text}\n"))
    assert found.startswith("page.md:")
    assert found.endswith(f": {said}")


def test_what_is_there_is_not_called_gone() -> None:
    """Placeholders, other programs' options, and titles of reports are not reported."""
    text = (
        "`bin/lab run ID --pace quick`, `bin/lab report DIR DIR`, `make docs RUNS=DIR`, `--seed N`, `docs/runs/ID`, "
        "`docker compose --profile keydb up`, `APP_STORE_URL`, *which* of them, *Where did the time go*, "
        "*What happened*, claim *fresh connections do not help*"
    )
    assert names.gone(Page("page.md", text)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[x](nowhere.md)", "there is no nowhere.md"),
        ("[x](#nowhere)", "there is no heading #nowhere in page.md"),
        ("[x](README.md#nowhere)", "there is no heading #nowhere in README.md"),
        ("http://127.0.0.1:8081", "nothing listens on port 8081"),
    ],
)
def test_a_link_to_nowhere_is_found(text: str, said: str) -> None:
    """A link to a missing file, a missing heading of this page or another, or an unused port is reported."""
    found = links.broken([*PAGES, Page("page.md", f"# Page\n\n[all is well](#page) {text}\n")])
    assert [words.split(": ", 1)[1] for words in found] == [said]


def test_a_lost_runbook_is_found() -> None:
    """If a heading is renamed, the alert that leads to it is reported."""
    doctored = [Page(page.name, page.text.replace("## The symptom", "## The symptoms")) for page in PAGES]
    assert links.lost_runbooks(doctored) == [
        "ReadsMissTheirObjective leads to workshop/key-growth.md#the-symptom, which there is not"
    ]


def test_a_link_into_a_folder_needs_the_folder(tmp_path: Path) -> None:
    """The path of a link is looked up from the page's own folder."""
    (tmp_path / "workshop").mkdir()
    (tmp_path / ".env").write_text((ROOT / ".env").read_text())
    page = Page("workshop/a.md", "[x](../docs/b.md)")
    assert links.broken([page], tmp_path) == ["workshop/a.md:1: there is no ../docs/b.md"]


def test_the_settings_are_told_one_by_one() -> None:
    """Every variable of .env is found with its value and its comment."""
    found = fromcode.settings(ROOT)
    assert found["GRAFANA_PORT"][0] == "3000"
    assert "knee" not in found["GRAFANA_PORT"][1]
    assert all(said for _, said in found.values())

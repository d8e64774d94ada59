"""The guide for newcomers: how long runs take, words that are explained, scenes that end, one word for the server."""

from __future__ import annotations

import re

import pytest

from tests.docs.pagekit import Page, read

PAGES = [page for page in read() if page.name.startswith("workshop/")]
EXPLAINED = (
    "background client", "bystander", "claim", "event", "full SCAN", "walk", "headroom", "negative control",
    "plateau", "probe", "validity", "saturation point", "knee", "scene", "strategy",
)  # fmt: skip
"""Words of the lab that a newcomer meets in a chapter or in what the lab prints."""
ENDS = re.compile(r"end the scene|last use of the scene", re.IGNORECASE)


def unannounced(page: Page) -> list[str]:
    """Pages that have people make a run and do not say before it how long that takes."""
    slow = [typed.line for typed in page.typed if typed.needs == "slow" and "bin/lab run" in typed.text]
    said = [number for number, line in enumerate(page.text.splitlines()) if line.startswith("You will wait")]
    return [f"{page.name}: how long are its runs?" for line in slow[:1] if not said or said[0] > line]


def unexplained(reference: str) -> list[str]:
    """Words that the table of words in the reference lacks."""
    table = reference[reference.index("## Words") : reference.index("## Commands")]
    heads = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    return [word for word in EXPLAINED if word not in heads]


def disturbed(page: Page) -> list[str]:
    """Runs that a page has people make while the scene of an earlier block may still be open."""
    found, lines = [], page.text.splitlines()
    opened: int | None = None
    for typed in page.typed:
        if re.search(r"bin/lab (scene|blind open)", typed.text):
            opened = typed.line
        elif typed.needs == "slow" and "bin/lab run" in typed.text and opened is not None:
            if not ENDS.search(" ".join(lines[opened : typed.line])):
                found.append(f"{typed.where}: the scene is still open")
            opened = None
    return found


def misnamed(page: Page) -> list[str]:
    """Lines of prose that call the cache server a store."""
    prose = re.sub(r"`[^`\n]*`", "", page.text)
    return [line for line in prose.splitlines() if re.search(r"\bstores?\b", line, re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_chapter_is_ready_for_newcomers(page: Page) -> None:
    """It says how long its runs take, ends a scene before a run, and calls the cache server a server."""
    assert [*unannounced(page), *disturbed(page), *misnamed(page)] == []


def test_words_of_the_lab_are_explained() -> None:
    """Each word is in the reference's table of words."""
    (reference,) = (page.text for page in PAGES if page.name == "workshop/reference.md")
    assert unexplained(reference) == []
    assert unexplained(re.sub(r"\| headroom \|.*\n", "", reference)) == ["headroom"]


OPEN = "<!-- needs: person - it holds the terminal -->\n```sh\nbin/lab blind open keys-command\n```\n\n"
RUN = "<!-- needs: slow -->\n```sh\nbin/lab run keys-command --pace quick\n```\n"


def test_what_stops_a_newcomer_is_found() -> None:
    """A run that nobody announced, a scene that is still open and a server called a store are each reported."""
    page = Page("workshop/page.md", f"# Page\n\n{OPEN}{RUN}\nAsk the store.\n")
    assert unannounced(page) == ["workshop/page.md: how long are its runs?"]
    assert len(disturbed(page)) == 1
    assert misnamed(page) == ["Ask the store."]
    mended = Page(
        "workshop/page.md", f"# Page\n\nYou will wait.\n\n{OPEN}End the scene.\n\n{RUN}\nAsk `app.store`.\n"
    )
    assert [*unannounced(mended), *disturbed(mended), *misnamed(mended)] == []

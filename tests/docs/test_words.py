"""The guide's English and size: words that it does without, short parentheses, short chapters, minutes that agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pagekit import Page, read

WORDS = re.compile(
    r"\b(mend(?:s|ed|ing)?|beside|all the same|as long again|live shortly|waits? [\d½]+ ?(?:ms|s)|time to spare|"
    r"bystanders?|knees?|walks?|in force|carried out)\b",
    re.IGNORECASE,
)
"""Each has a plainer word: fix, during, anyway, headroom, background client, saturation point, full SCAN, done."""
LONGEST, CHAPTER, GUIDE = 8, 1_000, 14_000
"""The most words between parentheses, of a chapter, and of all pages but appendices and what is made from the code."""
EXCEPTIONS = Path(__file__).with_name("words.txt")
PAGES = {page.name.removeprefix("workshop/"): page for page in read() if page.name.startswith("workshop/")}
LEFT_OUT = ("appendix/", "dashboards", "reference")
CORE = {name: page for name, page in PAGES.items() if not name.startswith(LEFT_OUT)}


def faults(page: Page, allowed: str = "") -> list[str]:
    """Words and parentheses of what people wrote on a page that break a rule; titles in italics are left out."""
    text = re.sub(r"(?<!\*)\*(?!\*)[^*]+\*", "*", "\n".join(line for _, line in page.prose))
    found = [f"{page.name}: {each[0]}" for each in WORDS.finditer(text)]
    inner = [each[1].split() for each in re.finditer(r"\(([^()]*)\)", text)]
    found += [f"{page.name}: ({' '.join(words)})" for words in inner if len(words) > LONGEST]
    return [each for each in found if each not in allowed]


def size(page: Page) -> int:
    """The number of words that one reads: no comments, no commands to type, no descriptions of pictures."""
    unread = r"<!--.*?-->|^```.*?^```|!\[[^\]]*\]\([^)]*\)"
    return len(re.findall(r"\S*\w\S*", re.sub(unread, "", page.text, flags=re.DOTALL | re.MULTILINE)))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_to_the_fields_words(name: str) -> None:
    """No page has a word of the list or a long parenthesis, unless the file of exceptions gives a reason."""
    assert faults(PAGES[name], EXCEPTIONS.read_text()) == []


def test_the_guide_is_short() -> None:
    """Chapters and guide are within bounds, and a chapter takes the minutes that the map says."""
    rows = re.findall(r"^\| \w+\. \[.*?\]\((.*?)\) \|.*\| (\d+) \|$", PAGES["README.md"].text, re.MULTILINE)
    assert len(rows) > 10
    assert {name: size(PAGES[name]) for name, _ in rows if size(PAGES[name]) > CHAPTER} == {}
    assert [name for name, minutes in rows if f"About {minutes} minutes" not in PAGES[name].text] == []
    assert sum(map(size, CORE.values())) <= GUIDE


def test_a_fault_is_found() -> None:
    """A word of the list and a long parenthesis are found in prose, and not in code."""
    page = Page("a.md", "# A\n\nMend it, `mend`, (one two three four five six seven eight\nnine).\n")
    assert faults(page) == ["a.md: Mend", "a.md: (one two three four five six seven eight nine)"]

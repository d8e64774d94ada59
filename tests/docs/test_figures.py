"""Every measured figure in the prose comes from a run."""

from __future__ import annotations

import pytest

from tests.docs.figures import unmeasured
from tests.docs.pagekit import Page, read

PAGES = read()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_figure_comes_from_a_run(page: Page) -> None:
    """A figure with a unit of measurement is generated, a bound, or marked as true by definition."""
    assert unmeasured(page) == []


@pytest.mark.parametrize(
    "line",
    [
        "p99 was 12 ms then.",
        "It got 12.5 × faster.",
        "a third (33 %) of it",
        "| p99 | 1,200 ms |",
        "- it took 3 seconds",
        "some 4 000 keys a second",
        "<!-- fig: key-growth p99-rises -->5 ×<!-- /fig --> and 7 ms",
    ],
)
def test_a_figure_of_no_run_is_found(line: str) -> None:
    """A figure that comes from no run is found wherever it stands."""
    assert len(unmeasured(Page("page.md", f"# Page\n\n{line}\n"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "At least ≥ 5 ×.",
        "`--pace quick` takes `90 s`",
        "    100 ms of code\n",
        "```text\n12 ms\n```\n",
        "A threshold of 10 ms <!-- by definition -->",
        "At 100 requests a second\none takes 10 ms. <!-- by definition -->",
        "<!-- by definition -->\n| a | b |\n|---|---|\n| 1 s | 2 s |\n",
        "<!-- run: key-growth claims -->\n| 12 ms |\n<!-- /run -->",
        "p99 is <!-- fig: key-growth p99-rises -->12 ms<!-- /fig --> then",
        "[later](page.md#50-ms), in 2025, 200,000 keys, 2 cores",
    ],
)
def test_what_is_no_measurement_is_left_alone(text: str) -> None:
    """Bounds, code, generated blocks and marked lines are left alone."""
    assert unmeasured(Page("page.md", f"# Page\n\n{text}\n")) == []

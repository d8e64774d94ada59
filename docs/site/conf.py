"""Sphinx's settings for `make site`: the pages of this repository as static HTML, in build/site."""

from __future__ import annotations

from sphinx.application import Sphinx

project = "Redis Latency Lab"
author = "the authors of the Redis Latency Lab"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    "*.md",
    ".github/*.md",
    "deploy/*.md",
    "docs/*.md",
    "loadtest/*.md",
    "prometheus/export/*.md",
    "workshop/*.md",
    "workshop/appendix/*.md",
    "workshop/facilitator/*.md",
]
exclude_patterns = [".git", ".venv", "build", "runs", "mutants"]

myst_heading_anchors = 6  # addresses of headings, as GitHub makes them
myst_enable_extensions = ["html_image"]
nitpicky = True

html_theme = "furo"
html_title = project
html_favicon = "../../console/static/icon.svg"
html_use_index = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_additional_pages = {"index": "index.html"}
templates_path = ["templates"]

CONTENTS = {
    "Learn": [
        "workshop/README",
        "workshop/reading-p99",
        "workshop/key-growth",
        "workshop/key-growth-fix",
        "workshop/empty-slowlog",
        "workshop/keys-command",
        "workshop/scan-count",
        "workshop/eviction-cycle",
        "workshop/pipelined-delete",
        "workshop/second-act",
        "workshop/scaled-out",
        "workshop/method",
        "workshop/appendix/*",
        "workshop/dashboards",
        "workshop/reference",
    ],
    "Teach": ["workshop/facilitator/README", "workshop/facilitator/answers", "deploy/room"],
    "At work": ["docs/diagnose", "docs/predict", "prometheus/export/README"],
    "What was found": [
        "docs/incidents",
        "docs/servers",
        "docs/scale",
        "docs/trust",
        "docs/scene",
        "docs/sessions",
        "docs/history",
    ],
    "The lab": [
        "loadtest/README",
        "deploy/README",
        "docs/run-folder",
        "docs/platforms",
        "docs/licences",
        "docs/adding",
        ".github/CONTRIBUTING",
        ".github/SECURITY",
        "CHANGELOG",
    ],
}


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the table of contents to the first page. On GitHub it would be shown there as a block of code."""
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            source[0] += "\n".join(
                ["\n```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages, "```\n"]
            )


def setup(app: Sphinx) -> None:
    """Connect the table of contents."""
    app.connect("source-read", add_contents)

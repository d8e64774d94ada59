"""Figures with a unit of measurement in prose: each comes from a run, or says that it does not."""

from __future__ import annotations

import re

from tests.docs.pagekit import Page

NUMBER = r"\d(?:[\d,.  ]*\d)?"
UNITS = (
    r"ms|µs|us|s|seconds?|milliseconds?|microseconds?|×|x|times|%|per cent|kB|MB|GB|"
    r"(?:keys|events|calls|requests|commands|reads|GETs?|SCANs?|entries) (?:a|per) second"
)
MEASURED = re.compile(
    rf"(?<![\w.,\-])(?P<bound>[≥≤<>=] ?|at (?:most|least) )?(?P<figure>{NUMBER}\s?(?:{UNITS}))(?![\w/])"
)


def unmeasured(page: Page) -> list[str]:
    """Figures that come from no run, except bounds (≥ 5 ×) and figures on lines marked as true by definition."""
    return [
        f"{page.name}:{number}: {found['figure']!r} comes from no run: write it as a fig, or mark it as by definition"
        for number, line in page.prose
        if number not in page.defined
        for found in MEASURED.finditer(line)
        if not found["bound"]
    ]

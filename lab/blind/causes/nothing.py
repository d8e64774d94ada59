"""Nothing at all: the cause of a session in which all is well."""

from __future__ import annotations

from lab.blind.cause import OLD_PRICES, Cause
from lab.blind.readings import Finding, Readings


def evidence(of: Readings) -> Finding:
    """Found if none of the three figures is bad."""
    return Finding(
        not of.symptom,
        f"{of.pages_text}; {of.gets_text}; {of.changes_text}.",
    )


CAUSE = Cause(
    id="nothing",
    title="Nothing at all",
    line="nothing is wrong: all three figures are as on a healthy day",
    mechanism="The complaint is not confirmed by any measurement: pages, bystanders and changes are as fast as before. "
    "To say so, with figures, is an answer; to go on searching until something is found is not.",
    story=OLD_PRICES,
    evidence=evidence,
    typical={},
    alike={
        "unpipelined-deletes": "The age of the oldest change over a minute: it stays small.",
        "exhausted-pool": "p99 of a page over a minute: it stays small.",
    },
    cures={
        "leave": "Nothing is wrong. To change nothing, and to measure that all is well, is right.",
    },
    tempting={
        "restart storefront": "Users are well afterwards, but they were before, and for a moment they may not be.",
    },
    hints=(
        "Before you ask why, ask whether. What would a healthy figure be?",
        "Measure a minute of each of the three figures, and compare with what was printed at the start.",
        "All three figures are healthy. There is nothing to find.",
    ),
    words=("nothing at all", "no cause", "placebo"),
)

"""The same search on many servers: a row for each record of `same-search`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.pages.fromruns import table
from docs.pages.records import FOLDER, Records, server_of
from lab.claims.base import need_phase, need_typical_p99
from lab.claims.samesearch import HALF_SECOND, event_ms
from lab.claims.wording import outcome
from lab.results import numbers
from lab.scenarios import find

SCENARIO = "same-search"


def one_search(root: Path) -> str:
    """Return a row for each server: bystanders' p99 with few keys and many, and the cost of an event."""
    records = Records(root / FOLDER)
    rows, event = [], {}
    for run in (records.view(name).run for name in records.names):
        if run.facts.scenario != SCENARIO:
            continue
        waits = [
            numbers.ms(need_typical_p99(run, need_phase(run, phase), HALF_SECOND))
            for phase in ("grow-1", "grow-4", "keys", "index")
        ]
        costs = [numbers.ms(event_ms(run, need_phase(run, phase))) for phase in ("grow-4", "keys")]
        event[server_of(run)] = event_ms(run, need_phase(run, "grow-4"))
        rows.append([f"{server_of(run)} {run.facts.server_version}", *waits, *costs])
    heads = [
        "server",
        "p99, few keys, `SCAN`",
        "p99, all keys, `SCAN`",
        "p99, all keys, `KEYS`",
        "p99, all keys, index",
        "CPU of an event, `SCAN`",
        "CPU of an event, `KEYS`",
    ]
    text = table(heads, rows, range(1, len(heads)))
    if {"dragonfly", "dragonfly-current"} <= event.keys():
        share = numbers.percent(event["dragonfly-current"] / event["dragonfly"])
        text += f"\n\nToday's Dragonfly takes {share} of the CPU time that the article's takes for the same event."
    return text


def judged(root: Path) -> str:
    """Each claim with what every server that can answer it showed."""
    records = Records(root / FOLDER)
    views = [view for name in records.names if (view := records.view(name)).facts.scenario == SCENARIO]
    rows = [
        [
            f"{claim['statement']} ({claim['bound']})",
            server_of(view.run),
            claim["measured"],
            outcome(claim["holds"]),
        ]
        for number in range(len(find(SCENARIO).claims))
        for view in views
        for claim in [(view.result or {})["claims"][number]]
        if claim["holds"] is not None
    ]
    return table(["claim", "server", "measured", ""], rows)


LISTS: dict[str, Callable[[Path], str]] = {"one search": one_search, "one search claims": judged}

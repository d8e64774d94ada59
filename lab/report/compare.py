"""Runs side by side, in the terminal: two in detail, any number server by server.

Without spoilers nothing tells the cause: phases have neutral names, claims have numbers and no figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.claims import wording
from lab.report import servers
from lab.report.latencies import LatencyView
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import UNKNOWN, count, ms, percent, ratio, sig

NOTABLE = 1.25
"""Two p99s that differ by less than this factor are called alike: runs of one machine differ by as much."""

SAME_KEYS = 0.05
"""Key counts within this share of each other are one plateau."""

NOT_JUDGED = "not judged"


def comparison(console: Console, first: Run, second: Run, spoilers: bool = False) -> None:
    """Print where two runs were made, their plateaus and claims side by side, and where they differ.

    A partial run takes part with what it has; whatever is missing is a dash.
    """
    results = first.result(), second.result()
    console.print(_settings(first, second, spoilers))
    console.print()
    phases, apart = _phases(first, second, spoilers)
    console.print(phases)
    console.print()
    claims, split = _claims(*results, spoilers)
    console.print(claims)
    console.print()
    console.print("where they differ", style="bold")
    for line in [*_conditions(first, second, spoilers), *apart, *split] or ["nowhere that matters."]:
        console.print(f"  {line}", highlight=False, markup=False)


def side_by_side(console: Console, runs: Sequence[Run], spoilers: bool = False) -> None:
    """Print one row for each run: growth of p99, knee, slow log, verdict; then every claim on each server."""
    found = servers.sides(runs, spoilers)
    told = [servers.slow_logs(found), servers.claims(found)] if spoilers else [servers.outcomes(found)]
    for table in (servers.overview(found), *told):
        drawn = Table(title=table.caption, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for i, heading in enumerate(table.headings):
            drawn.add_column(heading, overflow="fold", justify="right" if i in table.figures else "left")
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)
        console.print()
    if not spoilers:
        console.print("Claims, slow logs and phases by name: with --spoilers, or unfolded in the page.\n")


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        figure = heading[:1] == " "
        table.add_column(heading, overflow="fold", justify="right" if figure else "left", no_wrap=figure)
    return table


def _facts(run: Run, spoilers: bool) -> dict[str, str]:
    facts, host = run.facts, run.facts.host
    partial = facts.interrupted or run.result() is None
    return {
        "folder": str(run.folder),
        "scenario": facts.scenario
        + (" (control)" if facts.refutes else "")
        + (" (partial)" if partial else ""),
        "server": f"{facts.server} {facts.server_version}".strip() or UNKNOWN,
        "pace": f"{facts.pace}, {count(facts.keys)} keys, seed {facts.seed}",
        "host": ", ".join(
            str(host[key]) + unit
            for key, unit in (("processor", ""), ("cores", " cores"), ("memory_gb", " GB"), ("system", ""))
            if key in host
        )
        or UNKNOWN,
        "events/s": sig(facts.load.get("events_per_second")),
        "COUNT" if spoilers else servers.NAMELESS: count(facts.scan_count),
        "cost of a visited key": f"{sig(_cost(run))} µs",
        "started": facts.started,
    }


def _cost(run: Run) -> float | None:
    cost = run.facts.calibration.get("cost_us_per_key")
    return float(cost) if cost is not None else None


def _settings(first: Run, second: Run, spoilers: bool) -> Table:
    one, two = _facts(first, spoilers), _facts(second, spoilers)
    table = _table("run", "first", "second")
    for name in one:
        style = "bold" if one[name] != two[name] and name not in ("folder", "started") else ""
        table.add_row(name, Text(one[name], style=style), Text(two[name], style=style))
    return table


def _conditions(first: Run, second: Run, spoilers: bool) -> list[str]:
    """Differences that make figures hard to compare."""
    one, two = _facts(first, spoilers), _facts(second, spoilers)
    return [
        f"{name}: {one[name]} and {two[name]}"
        for name in one
        if name in ("scenario", "server", "pace", "host", "COUNT", servers.NAMELESS)
        and one[name] != two[name]
    ]


def _phases(first: Run, second: Run, spoilers: bool) -> tuple[Table, list[str]]:
    """Plateaus by id (without spoilers by their neutral names), and sentences on those whose p99s are far apart."""
    table = _table("phase", " keys", " keys", " p99", " p99", " second/first", " busy", " busy")
    apart = []
    latencies = LatencyView(first), LatencyView(second)
    for phase_id, neutral in servers.phase_names(servers.sides((first, second), spoilers)).items():
        name = phase_id if spoilers else neutral
        pair = first.phase(phase_id), second.phase(phase_id)
        p99s = [
            latency.p99_ms(phase) if phase else None for latency, phase in zip(latencies, pair, strict=True)
        ]
        factor = ratio(p99s[1], p99s[0])
        table.add_row(
            name,
            *(count(phase.keys) if phase else UNKNOWN for phase in pair),
            *(ms(p99) for p99 in p99s),
            f"{sig(factor)} ×" if factor is not None else UNKNOWN,
            *(_busy(phase) for phase in pair),
        )
        if None in pair:
            apart.append(f"{name}: measured in the {'second' if pair[0] is None else 'first'} run only")
        elif factor is not None and not 1 / NOTABLE <= factor <= NOTABLE:
            one, two = (phase.keys if phase else 0.0 for phase in pair)
            alike = abs(one - two) <= SAME_KEYS * max(one, two)
            at = "" if alike else f", but at {count(one)} and {count(two)} keys"
            apart.append(f"{name}: p99 {ms(p99s[0])} and {ms(p99s[1])} ({sig(factor)} ×){at}")
    return table, apart


def _busy(phase: PhaseRecord | None) -> str:
    return percent(phase.utilisation) if phase else UNKNOWN


def _claims(
    first: dict[str, Any] | None, second: dict[str, Any] | None, spoilers: bool
) -> tuple[Table, list[str]]:
    """Claims by id (without spoilers by number), and sentences on those with different outcomes."""
    table = _table("claim", "first", "second", *(("measured first", "measured second") if spoilers else ()))
    by_id = [{claim["id"]: claim for claim in (result or {}).get("claims", [])} for result in (first, second)]
    split = []
    for number, claim_id in enumerate(dict.fromkeys([*by_id[0], *by_id[1]]), 1):
        name = claim_id if spoilers else str(number)
        found = [claims.get(claim_id) for claims in by_id]
        words = [wording.outcome(claim["holds"]) if claim else NOT_JUDGED for claim in found]
        measured = [Text(claim["measured"] if claim else UNKNOWN) for claim in found] if spoilers else []
        table.add_row(name, *words, *measured)
        if words[0] != words[1]:
            split.append(f"claim {name}: {words[0]} and {words[1]}")
    verdicts = [wording.short(result) for result in (first, second)]
    table.add_row("verdict", *verdicts, style="bold")
    if verdicts[0] != verdicts[1]:
        split.append(f"verdict: {verdicts[0]} and {verdicts[1]}")
    return table, split

"""Predictions held against recorded runs, and formulas against the simulation: tables for docs/predict.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.pages.fromruns import table
from docs.pages.records import FOLDER
from lab.claims import shards
from lab.results import formulas, numbers, operational
from lab.results.basis import SEARCHES, Range, of_run
from lab.results.folder import Run
from lab.results.prediction import GAP, PAGES, Prediction, Question, predict
from lab.results.simulation import wait_s

LOWEST = 3
"""The plateaus with the fewest keys, from which the rest is predicted."""
BELOW_KNEE = 0.9
HELD = Path("docs/held")
"""Runs by which nothing in the prediction was chosen: other seeds, and servers held to a share of a core."""
TRUST, CLUSTER = Path("docs/trust.json"), "repeat shards on embedded"
"""Where repeated runs of a cluster are kept."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.85)


@dataclass(frozen=True)
class Check:
    """A figure of a run, predicted from its calibration and its lowest plateaus, from these alone, and observed.

    `said` puts it in words for people.
    """

    run: str
    figure: str
    said: Callable[[float | None], str]
    predicted: Range
    alone: Range
    observed: float

    @property
    def off(self) -> float:
        """The likely prediction over what was observed, less one."""
        return self.predicted.likely / self.observed - 1


def checks(run: Run) -> Iterator[Check]:
    """The knee of a run, if it was observed, and p99 of the higher plateaus below nine tenths of it."""
    grown = sorted(run.arm("grow"), key=lambda phase: phase.keys)
    name, knee = run.folder.name, operational.knee(run)

    def predicted(keys: float) -> tuple[Prediction, Prediction]:
        bases = [of_run(run, LOWEST, calibration) for calibration in (True, False)]
        first, second = (
            predict(basis, Question(keys, basis.events, basis.count, 1, basis.strategy)) for basis in bases
        )
        return first, second

    if knee is not None:
        both = [each.knee_keys for each in predicted(knee)]
        assert both[0] is not None
        assert both[1] is not None
        yield Check(name, "knee, keys", numbers.sig, both[0], both[1], knee)
    for phase in grown[LOWEST:]:
        p99, asked = run.p99_ms(phase), operational.demand(phase, run.facts)
        below = phase.keys < BELOW_KNEE * knee if knee else (asked or 1.0) < BELOW_KNEE
        if p99 is not None and below:
            first, second = predicted(phase.keys)
            what = f"p99 at {phase.keys:,.0f} keys"
            yield Check(name, what, numbers.ms, first.even_ms, second.even_ms, p99)


def cluster_checks(run: Run) -> Iterator[Check]:
    """The knee of a cluster, if it was observed: predicted from the plateaus of one node, with `--shards`."""
    knee = shards.knee(run, shards.THREE)
    if knee is not None:
        found = shards.predicted_knee(run, shards.NODES)
        yield Check(run.folder.name, f"knee of {shards.NODES} nodes, keys", numbers.sig, found, found, knee)


def checked(root: Path) -> Iterator[Check]:
    """The checks of every record whose keys grow under searches, on one server or on a cluster."""
    for path in sorted(path for folder in (FOLDER, HELD) for path in (root / folder).glob("*/run.json")):
        run = Run(path.parent)
        grown = run.arm("grow")
        if len(grown) > LOWEST and all(phase.strategy in SEARCHES for phase in grown):
            yield from checks(run)
        if run.arm(shards.THREE):
            yield from cluster_checks(run)


def check_list(root: Path) -> str:
    """Each predicted figure beside the observed one."""
    rows = [
        [
            f"`{each.run}`",
            each.figure,
            each.said(each.predicted.likely),
            f"{each.said(each.predicted.low)} to {each.said(each.predicted.high)}",
            each.said(each.observed),
            f"{100 * each.off:+.0f} %",
            f"{each.said(each.alone.likely)} ({each.said(each.alone.low)} to {each.said(each.alone.high)})",
        ]
        for each in checked(root)
    ]
    heads = ["run", "figure", "predicted", "range", "observed", "off", "without the calibration"]
    return table(heads, rows, range(2, 7))


def cluster_list(root: Path) -> str:
    """Runs of a cluster in a row: the knees of one node and of three, predicted from the plateaus of one, and observed.

    Only runs that were valid and had both knees. Without such runs it says by which command there would be some.
    """
    path = root / TRUST
    kept = json.loads(path.read_text(encoding="utf-8")).get(CLUSTER) if path.exists() else None
    figures = [row["figures"] for row in kept["rows"] if row.get("figures")] if kept else []
    if not kept or not figures:
        return (
            f"Not measured yet: `.venv/bin/python -m bench.repeat shards --claim knee-moves --write {TRUST}`."
        )
    rows = [
        [
            str(row["seed"]),
            *(
                cell
                for nodes in ("one", "three")
                for cell in (
                    numbers.sig(found[f"predicted_{nodes}"]),
                    numbers.sig(found[f"knee_{nodes}"]),
                    f"{100 * (found[f'predicted_{nodes}'] / found[f'knee_{nodes}'] - 1):+.0f} %",
                )
            ),
            "yes" if found["low_three"] <= found["knee_three"] <= found["high_three"] else "no",
        ]
        for row in kept["rows"]
        if (found := row.get("figures"))
    ]
    heads = [
        "seed", "one node: predicted", "observed", "off", "3 nodes: predicted", "observed", "off",
        "within the stated range",
    ]  # fmt: skip
    said = (
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}; {len(rows)} of {len(kept['rows'])} runs "
        "(the others had no verdict, or no knee was found):"
    )
    return f"{said}\n\n{table(heads, rows, range(1, 7))}"


def formula_list(_: Path) -> str:
    """A bystander's p99 in times of one event's calls: both formulas, and what the simulation finds for each."""
    rows = []
    for share in SHARES:
        even, whole, paged = (
            wait_s(share, 3, pages, 1 / 3 / pages, GAP / pages / 3, events, even) * pages
            for pages, events, even in ((1, 2000, True), (1, 20_000, False), (PAGES, 2000, False))
        )
        found = [
            formulas.wait_of_absences(1.0, share),
            even,
            formulas.wait_at_random(1.0, share),
            whole,
            paged,
        ]
        rows.append([numbers.percent(share), *(f"{each:.2f}" for each in found)])
    heads = [
        "share of the time that searches take",
        "even distances: formula",
        "simulated",
        "random moments: formula",
        "simulated, one call a search",
        f"simulated, {PAGES} calls a search",
    ]
    return table(heads, rows, range(1, len(heads)))


LISTS: dict[str, Callable[[Path], str]] = {
    "predicted": check_list,
    "predicted again": cluster_list,
    "waiting formulas": formula_list,
}

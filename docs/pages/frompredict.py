"""Predictions held against recorded runs, formulas against the simulation, and the road to a thousand shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.pages.fromruns import table
from docs.pages.records import FOLDER
from lab import scenarios
from lab.claims import shards
from lab.results import formulas, numbers, operational
from lab.results.basis import SEARCHES, Range, read_basis, why_unfit
from lab.results.folder import Run
from lab.results.prediction import GAP, PAGES, Prediction, Question, predict
from lab.results.simulation import wait_s

LOWEST = 3
"""The plateaus with the fewest keys, from which the rest is predicted."""
BELOW_KNEE = 0.8
HELD_OUT = Path("docs/held")
"""Runs that were not used to tune the prediction: other seeds, and servers limited to a share of a core."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.85)


@dataclass(frozen=True)
class Check:
    """A figure of a run, predicted from its calibration and its lowest plateaus, from these alone, and observed.

    `text` puts it in words for people.
    """

    run: str
    figure: str
    text: Callable[[float | None], str]
    predicted: Range
    alone: Range
    observed: float

    @property
    def off(self) -> float:
        """The likely prediction over what was observed, less one."""
        return self.predicted.likely / self.observed - 1


def _rising(run: Run) -> str:
    """The arm in which keys grow under the cause; '' for none."""
    return scenarios.find(run.facts.scenario).arms.rising


def checks(run: Run) -> Iterator[Check]:
    """The knee of a run, if it was observed, and p99 of the higher plateaus below four fifths of it."""
    grown = sorted(run.arm(_rising(run)), key=lambda phase: phase.keys)
    name, knee = run.folder.name, operational.knee(run, _rising(run))

    def predicted(keys: float) -> tuple[Prediction, Prediction]:
        bases = [read_basis(run, grown[:LOWEST], calibration) for calibration in (True, False)]
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
        p99, demand = run.p99_ms(phase), operational.demand(phase, run.facts)
        below = phase.keys < BELOW_KNEE * knee if knee else (demand or 1.0) < BELOW_KNEE
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
    for path in sorted(path for folder in (FOLDER, HELD_OUT) for path in (root / folder).glob("*/run.json")):
        run = Run(path.parent)
        grown = run.arm(_rising(run))
        foreseen = why_unfit(run.facts.server) is None and all(phase.strategy in SEARCHES for phase in grown)
        if len(grown) > LOWEST and foreseen:
            yield from checks(run)
        if run.arm(shards.THREE):
            yield from cluster_checks(run)


def check_list(root: Path) -> str:
    """Each predicted figure beside the observed one."""
    rows = [
        [
            f"`{each.run}`",
            each.figure,
            each.text(each.predicted.likely),
            f"{each.text(each.predicted.low)} to {each.text(each.predicted.high)}",
            each.text(each.observed),
            f"{100 * each.off:+.0f} %",
            f"{each.text(each.alone.likely)} ({each.text(each.alone.low)} to {each.text(each.alone.high)})",
        ]
        for each in checked(root)
    ]
    heads = ["run", "figure", "predicted", "range", "observed", "off", "without the calibration"]
    return table(heads, rows, range(2, 7))


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


ROAD: tuple[tuple[str, float, int], ...] = (
    ("this laptop", 1e5, 1),
    ("five million", 5e6, 1),
    ("fifty million", 5e7, 1),
    ("fifty million", 5e7, 16),
    ("a billion", 1e9, 64),
    ("a billion", 1e9, 1000),
)
ROAD_RECORD = "key-growth-standard"
ROAD_EVENTS = 1.0


def road_list(root: Path) -> str:
    """From a laptop to a thousand shards: what `bin/lab predict` says of a search and of the index."""
    basis = read_basis(Run(root / FOLDER / ROAD_RECORD))
    rows = []
    for name, keys, nodes in ROAD:
        scan, index = (
            predict(basis, Question(keys, ROAD_EVENTS, basis.count, nodes, strategy))
            for strategy in ("scan", "index")
        )
        assert scan.knee_keys is not None
        rows.append(
            [
                name,
                f"{keys:,.0f}",
                f"{nodes:,}",
                _range(scan.event_s, lambda value: numbers.ms(1000 * value)),
                _range(scan.utilisation, numbers.percent),
                _range(scan.knee_events, numbers.sig),
                _range(index.knee_events, numbers.sig),
            ]
        )
    heads = [
        "",
        "keys in all",
        "shards",
        "`scan`: one event, on each shard",
        f"`scan`: demand at {ROAD_EVENTS:g} event a second",
        "`scan`: events a second that saturate",
        "`index`: events a second that saturate",
    ]
    command = (
        f"bin/lab predict docs/runs/{ROAD_RECORD} --keys N --events {ROAD_EVENTS:g} --shards N --strategy S"
    )
    return f"By `{command}`:\n\n" + table(heads, rows, range(1, len(heads)))


def _range(value: Range, text: Callable[[float], str]) -> str:
    return f"{text(value.low)} to {text(value.high)}"


LISTS: dict[str, Callable[[Path], str]] = {
    "predicted": check_list,
    "road": road_list,
    "waiting formulas": formula_list,
}

"""Runs from which one thing is missing, and what each claim and each check of validity then says.

Begins with the healthy synthetic run of a scenario, and takes away one phase, one figure, one command, one kind of
load, or all of a kind. Or it sets one figure to 0, or makes what differs between phases the same, and the reverse. A
claim that needs what is gone must say so; no claim may end in a fault.
`python -m tests.lab.claims.incomplete` writes the file anew, after a claim was changed on purpose.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from lab import scenarios
from lab.claims import judge
from lab.results.folder import Run
from lab.runner.judging import validate
from tests.lab.claims.verdicts import synthetic

KEPT = Path(__file__).with_name("incomplete.json")
RUNS = [name for name in synthetic() if not name.endswith("control")]
Said = dict[str, list[Any]]
"""Claim id → whether it holds, and what was measured; check of validity → whether it is met, and its detail."""


class Whole(Run):
    """A run whose facts are altered in memory; its files are read once."""

    def without(self, alter: Callable[[Whole], object]) -> Whole:
        """Return a copy in which one thing is missing. The latencies are shared."""
        other = copy.copy(self)
        other.__dict__.pop("said", None)
        other.facts = copy.deepcopy(self.facts)
        other.__dict__["slowlog"], other.__dict__["loads"] = list(self.slowlog), list(self.loads)
        alter(other)
        return other

    @cached_property
    def said(self) -> Said:
        """What each claim of the scenario says, and each check."""
        outcomes = judge(self, scenarios.find(self.facts.scenario).claims)
        claims = {outcome.claim.id: [outcome.holds, outcome.measured] for outcome in outcomes}
        return claims | {check.check: [check.ok, check.detail] for check in validate(self)}


def alterations(run: Whole) -> Iterator[tuple[str, Callable[[Whole], object]]]:
    """Yield each thing that can be missing from a run, in words, and how to take it away."""
    for number, phase in enumerate(run.phases):
        yield f"phase {phase.id}", lambda other, number=number: other.phases.pop(number)  # type: ignore[misc]
    for part in ("figures", "params", "commands"):
        for name in sorted({name for phase in run.phases for name in getattr(phase, part)}):
            yield f"{part} {name}", lambda other, part=part, name=name: _drop(other, part, name)  # type: ignore[misc]
    for name in sorted({name for phase in run.phases for name in phase.figures}):
        yield f"figures {name} = 0", lambda other, name=name: _zero(other, name)  # type: ignore[misc]
    for part in ("load", "calibration"):
        for name in sorted(getattr(run.facts, part)):
            yield f"{part} {name}", lambda other, part=part, name=name: getattr(other.facts, part).pop(name)  # type: ignore[misc]
    for name in sorted({str(line["load"]) for line in run.loads}):
        yield f"lines of {name}", lambda other, name=name: _silence(other, name)  # type: ignore[misc]
    for part in ("commands", "processes"):
        yield f"all {part}", lambda other, part=part: _clear(other, part)  # type: ignore[misc]
    for name in sorted({name for phase in run.phases for name in phase.params}):
        yield f"params {name} of no two phases alike", lambda other, name=name: _number(other, name)  # type: ignore[misc]
    for arm in sorted({phase.arm for phase in run.phases if len(run.arm(phase.arm)) > 1}):
        yield f"each {arm} the last one", lambda other, arm=arm: _repeat(other, arm)  # type: ignore[misc]
    yield "forecasts", _foresee_nothing
    yield "slow log", lambda other: other.slowlog.clear()
    yield "slow log, with a threshold just below the longest calls", _silent_above


def _drop(run: Run, part: str, name: str) -> None:
    for phase in run.phases:
        getattr(phase, part).pop(name, None)


def _zero(run: Run, name: str) -> None:
    for phase in run.phases:
        if name in phase.figures:
            phase.figures[name] = 0.0


def _clear(run: Run, part: str) -> None:
    for phase in run.phases:
        getattr(phase, part).clear()


def _number(run: Run, name: str) -> None:
    for number, phase in enumerate(run.phases, start=1):
        if name in phase.params:
            phase.params[name] = float(number)


def _repeat(run: Whole, arm: str) -> None:
    last = next(phase for phase in reversed(run.phases) if phase.arm == arm)
    run.phases[:] = [last if phase.arm == arm else phase for phase in run.phases]


def _silent_above(run: Run) -> None:
    run.slowlog.clear()
    took = (phase.execution_us(command) or 0.0 for phase in run.phases for command in phase.commands)
    run.facts.slowlog_threshold_us = int(0.999 * max(took))


def _foresee_nothing(run: Run) -> None:
    for phase in run.phases:
        phase.forecasts = []


def _silence(run: Run, name: str) -> None:
    run.__dict__["loads"] = [line for line in run.loads if line["load"] != name]


def told(name: str, folder: Path) -> dict[str, Said]:
    """Return what claims and checks say of each incomplete run, without those that say the same as of the whole run."""
    synthetic()[name](folder)
    whole = Whole(folder)
    found = {}
    for what, alter in alterations(whole):
        said = whole.without(alter).said
        found[what] = {claim: words for claim, words in said.items() if words != whole.said[claim]}
    return found


def kept() -> dict[str, dict[str, Said]]:
    """Return what the file says, by the name of the synthetic run."""
    return dict(json.loads(KEPT.read_text(encoding="utf-8")))


def main() -> int:
    """Write the file anew."""
    with tempfile.TemporaryDirectory() as place:
        found = {name: told(name, Path(place) / str(number)) for number, name in enumerate(RUNS)}
    KEPT.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The catalogue: every module in this package that defines `SCENARIO` is listed, run, tested and reported."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches

from lab.errors import UsageError
from lab.scenario import Scenario


def catalogue() -> dict[str, Scenario]:
    """All scenarios by id, in the order in which they build on each other (controls last)."""
    found = [
        importlib.import_module(f"{__name__}.{module.name}").SCENARIO
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    ]
    return {scenario.id: scenario for scenario in sorted(found, key=lambda s: (s.refutes, s.id))}


def find(scenario_id: str) -> Scenario:
    """The scenario of that id; an unknown one raises `UsageError` that names the nearest."""
    known = catalogue()
    if scenario_id in known:
        return known[scenario_id]
    near = get_close_matches(scenario_id, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
    raise UsageError(f"there is no scenario {scenario_id!r}; {hint} `lab list` shows them all.")

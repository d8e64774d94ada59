"""The catalogue: every module in this package that defines `SCENARIO` is listed, run, tested and reported.

(`lab.scenarios.model` defines none: it has the types of a scenario's parts.)

A module may define its `CONTROL` too: the same scene without the cause, under the id ID-control.
"""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches

from lab.errors import UsageError
from lab.scenarios.model import Scenario

MAIN = "key-growth"


def catalogue() -> dict[str, Scenario]:
    """All scenarios by id: the main incident first, controls last."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    ]
    names = ("SCENARIO", "CONTROL")
    found = [getattr(module, name) for module in modules for name in names if hasattr(module, name)]
    return {
        scenario.id: scenario for scenario in sorted(found, key=lambda s: (s.refutes, s.id != MAIN, s.id))
    }


def find(scenario_id: str) -> Scenario:
    """The scenario of that id. Raises `UsageError`, which names the nearest id, when there is none."""
    known = catalogue()
    if scenario_id in known:
        return known[scenario_id]
    near = get_close_matches(scenario_id, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
    raise UsageError(f"there is no scenario {scenario_id!r}; {hint} `bin/lab list` shows them all.")

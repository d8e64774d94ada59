"""What a pace changes of a scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import experiment, scenarios
from lab.errors import StackError
from lab.experiment import Request, conduct
from lab.scenario import Scenario

ALL = [(scenario, pace) for scenario in scenarios.catalogue().values() for pace in scenario.paces]


@pytest.mark.parametrize(("scenario", "pace"), ALL, ids=lambda each: getattr(each, "id", each))
def test_changes_are_of_numbers_that_a_scenario_has(scenario: Scenario, pace: str) -> None:
    """A name that no scenario has would end the run with a fault of the lab."""
    changes = scenario.paces[pace].changes
    assert {type(getattr(scenario, name)) for name in changes} <= {float}
    changed = replace(scenario, **changes)  # type: ignore[arg-type]
    assert {name: getattr(changed, name) for name in changes} == changes


@pytest.mark.parametrize(("pace", "rate", "patience"), [("quick", 200.0, 30.0), ("full", 10.0, 300.0)])
def test_a_run_is_made_with_the_changes(
    pace: str, rate: float, patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stack is told is what the run's facts say."""
    told: list[Scenario] = []

    def stack(scenario: Scenario, *_: Any) -> Any:
        told.append(scenario)
        raise StackError("that is all we want to know")

    monkeypatch.setattr(experiment, "NativeStack", stack)
    request = Request(scenarios.find("key-growth"), None, pace, 10_000, 1, tmp_path / "run")
    with pytest.raises(StackError, match="all we want"):
        conduct(request, SimpleNamespace(say=lambda text: None))  # type: ignore[arg-type]
    [scenario] = told
    assert (scenario.probe_per_second, scenario.patience_s) == (rate, patience)

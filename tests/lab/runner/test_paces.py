"""What a pace changes in a scenario."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import scenarios
from lab.errors import StackError, UsageError
from lab.runner import run as experiment
from lab.runner.run import Request, conduct
from lab.scenarios.model import Scenario

ALL = [(scenario, pace) for scenario in scenarios.catalogue().values() for pace in scenario.paces]


@pytest.mark.parametrize(("scenario", "pace"), ALL, ids=lambda each: getattr(each, "id", each))
def test_changes_are_of_numbers_that_a_scenario_has(scenario: Scenario, pace: str) -> None:
    """A pace changes only numbers that a scenario has; any other name would end the run with a fault of the lab."""
    changes = scenario.paces[pace].changes
    assert {type(getattr(scenario, name)) for name in changes} <= {float}
    changed = scenario.at(scenario.paces[pace])
    assert {name: getattr(changed, name) for name in changes} == changes


@pytest.mark.parametrize(("scenario", "pace"), ALL, ids=lambda each: getattr(each, "id", each))
def test_every_pace_measures_an_unfair_phase_again(scenario: Scenario, pace: str) -> None:
    """A phase may be measured three times, and all repetitions of a run may take as long as several plateaus."""
    assert scenario.paces[pace].attempts >= 3
    assert scenario.paces[pace].repeats >= 8


@pytest.mark.parametrize(("pace", "rate", "patience"), [("quick", 200.0, 30.0), ("full", 10.0, 300.0)])
def test_a_run_is_made_with_the_changes(
    pace: str, rate: float, patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack gets the scenario with the changes of the pace."""
    told: list[Scenario] = []

    def stack(scenario: Scenario, *_: Any) -> Any:
        told.append(scenario)
        raise StackError("that is all we want to know")

    monkeypatch.setattr(experiment, "check_machine", lambda: None)
    monkeypatch.setattr(experiment, "NativeStack", stack)
    request = Request(scenarios.find("key-growth"), None, pace, 10_000, 1, tmp_path / "run")
    with pytest.raises(StackError, match="all we want"):
        conduct(request, SimpleNamespace(say=lambda text: None))
    [scenario] = told
    assert (scenario.probe_per_second, scenario.timeout_s) == (rate, patience)


def test_a_folder_that_cannot_be_is_refused_before_the_machine_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written is refused before the machine is sampled, so on a busy machine too."""

    def look() -> None:
        raise AssertionError("looked at the machine")

    monkeypatch.setattr(experiment, "check_machine", look)
    (tmp_path / "file").write_text("mine")
    request = Request(scenarios.find("key-growth"), None, "quick", 10_000, 1, tmp_path / "file" / "below")
    with pytest.raises(UsageError, match="cannot be written"):
        conduct(request, SimpleNamespace(say=lambda text: None))

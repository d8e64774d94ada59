"""What a pace changes in a scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab import scenarios
from lab.errors import StackError, UsageError
from lab.results.folder import Run
from lab.runner import run as experiment
from lab.runner.run import Request, conduct
from lab.scenarios.model import Scenario
from lab.server.servers import SERVERS

ALL = [(scenario, pace) for scenario in scenarios.catalogue().values() for pace in scenario.paces]


@pytest.mark.parametrize(("scenario", "pace"), ALL, ids=lambda each: getattr(each, "id", each))
def test_every_pace_measures_an_unfair_phase_again(scenario: Scenario, pace: str) -> None:
    """A phase may be measured three times, and all repetitions of a run may take as long as several plateaus."""
    assert scenario.paces[pace].attempts >= 3
    assert scenario.paces[pace].repeats >= 8


MAIN = scenarios.find("key-growth")


@pytest.mark.parametrize(
    ("server", "count", "used"),
    [
        ("embedded", None, 100_000),
        ("dragonfly", None, 1_000),
        ("embedded", 2_000, 2_000),
        ("dragonfly", 9, 9),
    ],
)
def test_a_run_has_the_servers_own_count_or_the_one_asked_for(
    server: str, count: int | None, used: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack, run.json and the command that repeats the run have the same COUNT."""
    told: list[Scenario] = []

    def stack(scenario: Scenario, *_: Any) -> Any:
        told.append(scenario)
        raise StackError("that is all we want to know")

    monkeypatch.setitem(SERVERS, server, replace(SERVERS[server], find=lambda: "/bin/true"))
    monkeypatch.setattr(experiment, "check_machine", lambda despite: "")
    monkeypatch.setattr(experiment, "NativeStack", stack)
    request = Request(MAIN, server, "quick", 10_000, 1, tmp_path / "run", count=count)
    with pytest.raises(StackError, match="all we want"):
        conduct(request, cast(Any, SimpleNamespace(say=lambda text: None)))
    facts = Run(tmp_path / "run").facts
    assert (told[0].scan_count, facts.scan_count) == (used, used)
    assert ("--count" in facts.command) == (count is not None)


def test_a_scenario_with_counts_of_its_own_takes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--count` is refused in one line where the scenario is about a certain COUNT."""
    monkeypatch.setattr(experiment, "check_machine", lambda despite: "")
    request = Request(scenarios.find("empty-slowlog"), None, "quick", 10_000, 1, tmp_path / "run", count=5)
    with pytest.raises(UsageError, match="COUNTs of its own"):
        conduct(request, cast(Any, SimpleNamespace(say=lambda text: None)))


def test_the_main_incident_is_one_call_a_search_at_every_pace() -> None:
    """With its index sets (one for 20 entries) the keyspace stays below COUNT: beyond it p99 would stand still."""
    for pace in MAIN.paces.values():
        assert pace.keys * (1 + 1 / MAIN.fragments_per_user) < 0.96 * SERVERS["embedded"].scan_count


def test_a_folder_that_cannot_be_is_refused_before_the_machine_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written is refused before the machine is sampled, so on a busy machine too."""

    def look(_despite: bool) -> None:
        raise AssertionError("looked at the machine")

    monkeypatch.setattr(experiment, "check_machine", look)
    (tmp_path / "file").write_text("mine")
    request = Request(scenarios.find("key-growth"), None, "quick", 10_000, 1, tmp_path / "file" / "below")
    with pytest.raises(UsageError, match="cannot be written"):
        conduct(request, SimpleNamespace(say=lambda text: None))

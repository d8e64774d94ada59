"""What is checked on Kubernetes: no container was held by its limit, and none waited for a core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.claims.fairness import CLIENT_THROTTLED_MOST, THROTTLED_MOST, WAITED_MOST, why_unfair
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.runner.judging import reach, validate
from tests.lab.claims.checknames import LIMITED, QUIET
from tests.lab.doctored import build_run

Change = Callable[[PhaseRecord], object]
PARTS = ("store", "web", "invalidator", "locust", "probe")


def on_cluster(folder: Path, change: Change | None = None, waiting: bool = True) -> Run:
    """A run on Kubernetes; `change` alters its phase grow-3. `waiting`: the nodes have control groups of version 2."""

    def doctor(facts: RunFacts) -> None:
        facts.stack = "kubernetes"
        for phase in facts.phases:
            phase.machine |= {f"throttled_{name}": 0.001 for name in PARTS}
            phase.machine |= {"waited_store": 0.02, "waited_probe": 0.01, "pressure": 0.3} if waiting else {}
            if change and phase.id == "grow-3":
                change(phase)

    return build_run(folder, doctor=doctor)


def failed(run: Run) -> list[str]:
    """The checks that fail."""
    return [found.check for found in reach(run).checks if not found.ok]


@pytest.mark.parametrize("waiting", [True, False], ids=["version 2", "version 1"])
def test_a_fair_run_on_a_cluster_is_valid(folder: Path, waiting: bool) -> None:
    """Both checks pass; where the nodes do not tell the waiting, what other programs used is judged."""
    run = on_cluster(folder, waiting=waiting)
    assert failed(run) == []
    said = {found.check: found.detail for found in validate(run)}
    assert said[LIMITED].startswith(
        "held longest: the server, 0.1% of a phase (at most 0.5% for server and probe"
    )
    assert said[QUIET] == (
        "in the worst phase the server waited for a core 2% of the time, the probe 1% (at most 10%), "
        "the hypervisor took 0% (at most 10%)"
        if waiting
        else "in the worst phase other programs used 5% of a core beyond the spare ones (at most 35%), "
        "the hypervisor took 0% (at most 10%)"
    )


def test_no_other_stack_is_asked(healthy: Run) -> None:
    """A run on a machine of its own has no containers."""
    assert LIMITED not in {found.check for found in validate(healthy)}


CHANGES: dict[str, tuple[Change, str]] = {
    "the server was held": (lambda phase: phase.machine.update(throttled_store=0.006), LIMITED),
    "the probe was held": (lambda phase: phase.machine.update(throttled_probe=0.2), LIMITED),
    "the storefront was held": (lambda phase: phase.machine.update(throttled_web=0.06), LIMITED),
    "a figure of throttling is missing": (lambda phase: phase.machine.pop("throttled_locust"), LIMITED),
    "the server waited": (lambda phase: phase.machine.update(waited_store=0.11), QUIET),
    "the probe waited": (lambda phase: phase.machine.update(waited_probe=0.5), QUIET),
    "a figure of waiting is missing": (lambda phase: phase.machine.pop("waited_probe"), QUIET),
}


@pytest.mark.parametrize("what", CHANGES)
def test_one_thing_wrong_is_found_by_its_check_alone(folder: Path, what: str) -> None:
    """A run with one thing wrong has no verdict, and the check that found it is the only one that fails."""
    change, check = CHANGES[what]
    run = on_cluster(folder, change)
    assert failed(run) == [check]
    assert reach(run).exit_code == 4


BORNE: dict[str, Change] = {
    "the server": lambda phase: phase.machine.update(throttled_store=THROTTLED_MOST),
    "the load": lambda phase: phase.machine.update(throttled_locust=CLIENT_THROTTLED_MOST),
    "the waiting": lambda phase: phase.machine.update(waited_store=WAITED_MOST),
}


@pytest.mark.parametrize("what", BORNE)
def test_the_bounds_themselves_are_borne(folder: Path, what: str) -> None:
    """As much as is allowed is allowed."""
    assert failed(on_cluster(folder, BORNE[what])) == []


def test_only_phases_that_claims_use_are_judged(folder: Path) -> None:
    """What holds a container in a phase that no claim uses does not make the run invalid."""

    def doctor(facts: RunFacts) -> None:
        facts.stack = "kubernetes"
        for phase in facts.phases:
            bad = phase.arm == "fix"
            phase.machine |= {f"throttled_{name}": 0.9 if bad else 0.0 for name in PARTS}
            phase.machine |= {"waited_store": 0.9 if bad else 0.0}

    assert failed(build_run(folder, doctor=doctor)) == []


def test_a_phase_in_which_the_server_waited_is_measured_again(folder: Path) -> None:
    """Neighbours come and go, so such a phase is repeated; a limit stays, so being held is no reason to."""
    phase = next(each for each in on_cluster(folder).phases if each.id == "grow-3")
    assert why_unfair(phase) == []
    phase.machine |= {"throttled_store": 0.9, "waited_store": 0.31, "waited_probe": 0.2}
    assert why_unfair(phase) == [
        "the server waited for a core 31% of the time",
        "the probe waited for a core 20% of the time",
    ]

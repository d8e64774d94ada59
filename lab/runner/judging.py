"""Judges a run folder by its scenario. Only this module looks the scenario up."""

from __future__ import annotations

from lab import scenarios
from lab.claims import validity, verdict
from lab.claims.check import Check, Terms
from lab.claims.verdict import Verdict
from lab.results.folder import Run


def terms_of(run: Run) -> Terms:
    """Return the terms by which a run is judged. Raises `UsageError` for a scenario that the lab does not know."""
    scenario = scenarios.find(run.facts.scenario)
    pace = scenario.paces.get(run.facts.pace)
    return Terms(
        plan=scenario.plan(pace, run.facts.keys) if pace else None,
        load_share=None if scenario.knee_at is None else scenario.load_share,
        events_per_second=scenario.events_per_second,
        entries_per_user=scenario.fragments_per_user,
        rising=scenario.arms.rising,
        cured=scenario.arms.cured,
    )


def validate(run: Run) -> list[Check]:
    """Check every condition of a fair experiment. Raises `UsageError` for a scenario that the lab does not know."""
    return validity.validate(run, terms_of(run))


def reach(run: Run) -> Verdict:
    """Judge a run by the claims of its scenario. Raises `UsageError` for a scenario that the lab does not know."""
    scenario = scenarios.find(run.facts.scenario)
    return verdict.reach(run, scenario.claims, scenario.refutes, terms_of(run))

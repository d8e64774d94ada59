"""Judges a run folder by what the lab knows of its scenario and its server. Only this module looks these up."""

from __future__ import annotations

from lab import scenarios
from lab.claims import validity, verdict
from lab.claims.check import Check, Terms
from lab.claims.verdict import Verdict
from lab.results.folder import Run
from lab.stacks.servers import SERVERS

NEED_REPLICA = ("replica-unharmed",)
NEED_OWN_SERVER = ("restart-restores", "victims-not-slow")
"""Claims that some stacks cannot answer, whatever the server: without a replica, and on somebody else's server."""


def terms_of(run: Run) -> Terms:
    """The terms by which a run is judged. Raises `UsageError` for a scenario that the lab does not know."""
    scenario = scenarios.find(run.facts.scenario)
    pace = scenario.paces.get(run.facts.pace)
    if pace:
        scenario = scenario.at(pace)
    server = SERVERS.get(run.facts.server)
    needs_own = NEED_OWN_SERVER if "--url" in run.facts.command else ()
    return Terms(
        plan=scenario.plan(pace, run.facts.keys) if pace else None,
        load_share=None if scenario.knee_at is None else scenario.load_share,
        entries_per_user=scenario.fragments_per_user,
        may_exempt=frozenset([*(server.cannot if server else ()), *NEED_REPLICA, *needs_own]),
    )


def validate(run: Run) -> list[Check]:
    """Check every condition of a fair experiment. Raises `UsageError` for a scenario that the lab does not know."""
    return validity.validate(run, terms_of(run))


def reach(run: Run) -> Verdict:
    """Judge a run by the claims of its scenario. Raises `UsageError` for a scenario that the lab does not know."""
    scenario = scenarios.find(run.facts.scenario)
    return verdict.reach(run, scenario.claims, scenario.refutes, terms_of(run))

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
    servers = [server for server in SERVERS.values() if server.product == run.facts.server]
    native = run.facts.stack == "native"
    foreign = "--url" in run.facts.command
    beyond = (*(NEED_OWN_SERVER if foreign else ()), *(NEED_REPLICA if foreign or not native else ()))
    return Terms(
        plan=scenario.plan(pace, run.facts.keys) if pace else None,
        load_share=None if scenario.knee_at is None else scenario.load_share,
        events_per_second=scenario.events_per_second,
        entries_per_user=scenario.fragments_per_user,
        may_exempt=frozenset([*(claim for server in servers for claim in server.cannot), *beyond]),
    )


def validate(run: Run) -> list[Check]:
    """Check every condition of a fair experiment. Raises `UsageError` for a scenario that the lab does not know."""
    return validity.validate(run, terms_of(run))


def reach(run: Run) -> Verdict:
    """Judge a run by the claims of its scenario. Raises `UsageError` for a scenario that the lab does not know."""
    scenario = scenarios.find(run.facts.scenario)
    return verdict.reach(run, scenario.claims, scenario.refutes, terms_of(run))

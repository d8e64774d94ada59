"""What the lab expects of a release and of a person's rights is what the chart and the Role have. Needs no Helm."""

from __future__ import annotations

import json

import yaml

from lab import ROOT
from lab.stacks.pods import CHART, RIGHTS
from lab.stacks.servers import IN_CHART

DEPLOY = ROOT / "deploy"


def test_the_role_has_the_rights_that_a_run_asks_for() -> None:
    """`deploy/run-role.yaml` allows what a run needs, and nothing but `get` beyond it."""
    role = yaml.safe_load((DEPLOY / "run-role.yaml").read_text(encoding="utf-8"))
    allowed = {
        (verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    needed = {(verb, f"{kind}/{part}" if part else kind) for verb, kind, part in RIGHTS}
    assert needed <= allowed
    assert {verb for verb, _ in allowed - needed} == {"get"}
    assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {""}


def test_servers_of_the_chart_are_those_of_the_lab() -> None:
    """A server that a release may have can be named by `--server`, and no other."""
    chart = DEPLOY / "helm" / CHART
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["definitions"]["servers"]["items"]["enum"]
    assert set(known) == {server.name for server in IN_CHART}
    assert yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["name"] == CHART

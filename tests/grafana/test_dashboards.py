"""The dashboards: current, complete, explained, and asking only for what exists."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana import generate
from tests.grafana.metricnames import ROOT, asked_for, known

UIDS = {"incident", "where-time-goes", "before-after", "redis", "dragonfly", "the-lab"}
LEGENDLESS = {"stat", "text", "table", "nodeGraph", "heatmap"}
QUERYLESS = {"text"}
BORDERS = {"saturation, in keys"}
"""Legends of lines that mark a border. They may be empty: a zero in place of an unknown border would be wrong."""
SUBSTITUTES = {"$server": "dragonfly", "$__rate_interval": "30s", "$__range": "15m", "$__interval": "2s"}


def queries(board: Any) -> list[str]:
    """Every PromQL expression of a dashboard, with Grafana's variables filled in."""
    found = [t["expr"] for panel in board["panels"] for t in panel.get("targets", []) if "expr" in t]
    found += [annotation["expr"] for annotation in board["annotations"]["list"] if "expr" in annotation]
    return [filled(expr) for expr in found]


def filled(expr: str) -> str:
    """A query as Prometheus gets it."""
    for variable, value in SUBSTITUTES.items():
        expr = expr.replace(variable, value)
    return expr


def test_files_are_what_the_code_makes() -> None:
    """The committed dashboards are the generator's output, and all of it."""
    assert generate.stale() == []


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file edited by hand, a missing one and a left-over one are each reported, and mended by a new run."""
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "dashboards/incident.json").write_text("{}")
    (tmp_path / "dashboards/redis.json").unlink()
    (tmp_path / "dashboards/old.json").write_text("{}")
    (tmp_path / "export/dashboard.json").write_text("{}")

    assert generate.stale() == [
        "dashboards/incident.json",
        "dashboards/old.json",
        "dashboards/redis.json",
        "export/dashboard.json",
    ]
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.stale() == []


def test_addresses_are_fixed(boards: list[Any]) -> None:
    """The guide and the alerts link to dashboards by address, so the six addresses never change."""
    assert {board["uid"] for board in boards} == UIDS


def test_every_dashboard_has_what_all_have(board: Any) -> None:
    """Range, refresh, the variable `server`, marks of actions and alerts, and links to all the others."""
    assert (board["refresh"], board["time"]) == ("5s", {"from": "now-15m", "to": "now"})
    (variable,) = board["templating"]["list"]
    assert variable["name"] == "server"
    assert variable["current"]["value"] in ("dragonfly", "redis")
    marks = " ".join(a["expr"] for a in board["annotations"]["list"])
    assert "lab_actions_total" in marks
    assert "ALERTS" in marks
    assert {link["url"] for link in board["links"]} == {f"/d/{uid}" for uid in UIDS - {board["uid"]}}
    assert board["description"]


def test_a_server_that_a_dashboard_lacks_is_not_carried_to_it(boards: list[Any]) -> None:
    """Links to and from a server's own dashboard do not carry the server along: it shows its own kind only."""
    for board in boards:
        for link in board["links"]:
            special = {"redis", "dragonfly"} & {board["uid"], link["url"].removeprefix("/d/")}
            assert link["includeVars"] == (not special), (board["uid"], link["url"])


def test_every_panel_teaches(board: Any) -> None:
    """Each panel says in a sentence or more what to look for, and no two of a dashboard have one title."""
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in board["panels"]:
        assert len(panel.get("description", "")) >= 60, panel["title"]


def test_every_panel_is_complete(board: Any) -> None:
    """Each panel has what the builders leave out by default: a unit, a data source on panel and queries, a legend."""
    for panel in board["panels"]:
        if panel["type"] in QUERYLESS:
            continue
        title = panel["title"]
        assert panel["fieldConfig"]["defaults"].get("unit"), title
        assert panel["datasource"]["uid"] in ("prometheus", "tempo"), title
        assert panel["targets"], title
        for query in panel["targets"]:
            assert query["datasource"] == panel["datasource"], title
        letters = [query["refId"] for query in panel["targets"]]
        assert len(set(letters)) == len(letters), title
        if panel["type"] not in LEGENDLESS:
            assert panel["options"]["legend"]["showLegend"] is True, title
            assert all(query["legendFormat"] for query in panel["targets"] if "expr" in query), title


def test_panels_have_a_place_of_their_own(board: Any) -> None:
    """Ids are unique (links refer to them), panels stay within 24 columns and do not lie on each other."""
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    places = [panel["gridPos"] for panel in board["panels"]]
    for place in places:
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
    for a, b in itertools.combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y, (a, b)


def test_legible_on_a_projector(board: Any) -> None:
    """Nothing narrower than a sixth of the screen; graphs at least a third wide and eight rows high."""
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["w"] >= 4, panel["title"]
        if panel["type"] in ("timeseries", "xychart", "heatmap"):
            assert place["w"] >= 8, panel["title"]
            assert place["h"] >= 8, panel["title"]


def test_only_metrics_that_exist(boards: list[Any]) -> None:
    """Each name in each query is exposed by our code, recorded by our rules, or in the catalogue."""
    exists = known()
    unknown = {
        (board["uid"], name)
        for board in boards
        for query in queries(board)
        for name in asked_for(query) - exists
    }
    assert unknown == set()


def test_names_are_found_in_queries() -> None:
    """`asked_for` finds the metric names of a query and nothing else: otherwise the test above could pass anything."""
    query = (
        'sum by (server, le) (rate(a_total{cmd=~"get|b_total", server="x"}[5m] offset 5m)) / on (server) group_left () '
        '(server:c:sum > bool 0.5e3) or label_replace(0 * up, "d", "e_total", "", "")'
    )
    assert asked_for(query) == {"a_total", "server:c:sum", "up"}
    assert asked_for("quantile_over_time(0.5, (x_y and on (server) (z > 1e-6))[15m:5s])") == {"x_y", "z"}


def test_names_are_found_in_our_code() -> None:
    """Counters, gauges and histograms of application, load and console are known under their full names."""
    assert {
        "db_client_operation_duration_seconds_bucket",
        "cache_invalidation_events_total",
        "cache_invalidation_strategy",
        "probe_latency_seconds_count",
        "lab_actions_total",
        "lab_knee_keys",
        "server:probe_latency:p99_10s",
    } <= known()
    assert "cache_invalidation_events" not in known()


def test_variables_ask_for_metrics_that_exist(boards: list[Any]) -> None:
    """The list of servers comes from a metric that is there."""
    for board in boards:
        for variable in board["templating"]["list"]:
            match = re.fullmatch(r"label_values\((\w+), server\)", variable["definition"])
            assert match, variable["definition"]
            assert match[1] in known() | {"probe_latency_seconds_count"}


def test_every_query_parses(boards: list[Any], tmp_path: Path) -> None:
    """Prometheus itself accepts each expression."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    rules = [
        {"record": f"checked:query:{number}", "expr": query}
        for number, query in enumerate(query for board in boards for query in queries(board))
    ]
    assert len(rules) > 100
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_latency_leads_to_traces(boards: list[Any]) -> None:
    """Panels on which a spike is seen show exemplars, and query the histograms that have them: the application's and
    Tempo's (a recorded series has none).
    """
    for board in boards:
        marked = [t["expr"] for p in board["panels"] for t in p.get("targets", []) if t.get("exemplar")]
        if board["uid"] in ("incident", "where-time-goes"):
            assert marked, board["uid"]
        for expr in marked:
            assert re.search(
                r"(db_client_operation_duration_seconds|traces_spanmetrics_latency)_bucket", expr
            )


@pytest.mark.parametrize("panel_type", ["timeseries", "stat"])
def test_nothing_is_empty_for_want_of_events(boards: list[Any], panel_type: str) -> None:
    """A query for things that may never happen (SCANs under the index, slow commands, actions, alerts) falls back to a
    zero with labels; `or vector(0)`, which has none, may stand only where the query has no labels.
    """
    may_be_absent = (
        "lab_slowlog",
        "lab_knee_keys",
        "cache_invalidation_store_calls",
        "ALERTS",
        "evicted",
        'cmd="scan"',
    )
    for board in boards:
        for panel in board["panels"]:
            if panel["type"] != panel_type:
                continue
            for query in panel["targets"]:
                if query["legendFormat"] in BORDERS:
                    continue
                if any(word in query["expr"] for word in may_be_absent):
                    assert (
                        "or 0 * sum by (server)" in query["expr"] or "unless on (server)" in query["expr"]
                    ), query
                if "vector(0)" in query["expr"]:
                    assert re.match(r"sum\(.*\) or vector\(0\)$", query["expr"]), query


def test_catalogue_has_no_ballast() -> None:
    """Each catalogued name is used by a dashboard, a rule or a link, so the catalogue stays worth reading."""
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("grafana", "prometheus", "tempo")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yml", ".yaml")
    )
    catalogue = (Path(__file__).parent / "catalogue.txt").read_text(encoding="utf-8")
    names = [line for line in catalogue.splitlines() if line and not line.startswith("#")]
    assert [name for name in names if name not in text] == []

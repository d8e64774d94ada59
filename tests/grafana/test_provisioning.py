"""Grafana's provisioning files: they parse, and agree with the compose file and with each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.grafana.metricnames import ROOT, asked_for, known

FOLDER = ROOT / "grafana/provisioning"


def load(name: str) -> Any:
    """A provisioning file."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.y*ml")), ids=lambda path: path.name)
def test_file_parses(path: Any) -> None:
    """Grafana stops at start on a provisioning file it cannot read."""
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["apiVersion"] == 1


def test_data_sources_have_the_addresses_dashboards_use() -> None:
    """Two data sources under fixed names, reached inside the compose network, closed to edits."""
    sources = {s["uid"]: s for s in load("datasources/datasources.yaml")["datasources"]}
    assert {uid: (s["type"], s["url"]) for uid, s in sources.items()} == {
        "prometheus": ("prometheus", "http://prometheus:9090"),
        "tempo": ("tempo", "http://tempo:3200"),
    }
    assert not any(s["editable"] for s in sources.values())
    assert [s["uid"] for s in sources.values() if s.get("isDefault")] == ["prometheus"]


def test_an_exemplar_leads_to_its_trace() -> None:
    """Both spellings of the exemplar's label lead to Tempo: the application's and Tempo's own."""
    sources = {s["uid"]: s for s in load("datasources/datasources.yaml")["datasources"]}
    ways = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert {(way["name"], way["datasourceUid"]) for way in ways} == {
        ("trace_id", "tempo"),
        ("traceID", "tempo"),
    }


def test_a_span_leads_to_the_numbers_around_it() -> None:
    """Each link's query asks for metrics that exist, by a label that the span's attribute is mapped to."""
    sources = {s["uid"]: s for s in load("datasources/datasources.yaml")["datasources"]}
    link = sources["tempo"]["jsonData"]["tracesToMetrics"]
    assert link["datasourceUid"] == "prometheus"
    assert {(tag["key"], tag["value"]) for tag in link["tags"]} == {("app.store.server", "server")}
    for query in link["queries"]:
        assert "{$$__tags}" in query["query"], query["name"]
        assert asked_for(query["query"]) <= known(), query["name"]


def test_every_dollar_is_written_twice() -> None:
    """Grafana replaces $NAME in provisioning files by the environment: a single dollar would vanish."""
    for path in FOLDER.rglob("*.y*ml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line.partition("#")[0] for line in lines)
        assert "$" not in text.replace("$$", ""), path.name


def test_the_folder_is_where_compose_mounts_it() -> None:
    """The provider reads the folder that the compose file mounts, and does not allow saving over the files."""
    (provider,) = load("dashboards/dashboards.yaml")["providers"]
    assert provider["allowUiUpdates"] is False
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    volumes = compose["services"]["grafana"]["volumes"]
    mounts = {mount["source"]: mount["target"] for mount in volumes if isinstance(mount, dict)}
    assert mounts == {
        "./grafana/dashboards": provider["options"]["path"],
        "./grafana/provisioning": "/etc/grafana/provisioning",
    }

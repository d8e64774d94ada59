"""Prometheus: what it scrapes, what it computes, and when it alerts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.server.servers import IN_COMPOSE, PARTS
from tests.grafana.metricnames import asked_for, known

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "prometheus"
RULES = sorted((FOLDER / "rules").glob("*.yml"))
TESTS = sorted((FOLDER / "tests").glob("*.yml"))


def load(path: Path) -> Any:
    """Parse a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool, or skip the test where there is none."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)


def alerts() -> dict[str, Any]:
    """Alert rules by name."""
    groups = load(FOLDER / "rules/alerts.yml")["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_configuration_is_accepted() -> None:
    """Prometheus accepts the scrape configuration and the rules it names."""
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    for rules in RULES:
        assert f"{rules.name}" in done.stdout, "a rule file is not loaded"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_do_what_they_should(path: Path) -> None:
    """Each alert fires in the incident, ends with it, and is silent in the control (cases in prometheus/tests)."""
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.first(1)
@pytest.mark.parametrize("name", alerts())
def test_an_alert_that_never_fires_is_noticed(name: str, tmp_path: Path) -> None:
    """The cases can fail: with the alert's condition made false, the incident's test does not pass."""
    shutil.copytree(FOLDER, tmp_path / "prometheus")
    path = tmp_path / "prometheus/rules/alerts.yml"
    rules = load(path)
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] == name:
            rule["expr"] = f"({rule['expr']}) and vector(0) > 1"
    path.write_text(yaml.safe_dump(rules))
    done = promtool("test", "rules", tmp_path / "prometheus/tests/incident.yml")
    assert done.returncode != 0
    assert name in done.stdout + done.stderr


@pytest.mark.first(1)
@pytest.mark.parametrize("name", alerts())
def test_an_alert_that_always_fires_is_noticed(name: str, tmp_path: Path) -> None:
    """The control can fail: with the alert's condition made true, its test does not pass."""
    shutil.copytree(FOLDER, tmp_path / "prometheus")
    path = tmp_path / "prometheus/rules/alerts.yml"
    rules = load(path)
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] == name:
            rule["expr"] = "server:probe_latency:p50_10s >= 0"
    path.write_text(yaml.safe_dump(rules))
    done = promtool("test", "rules", tmp_path / "prometheus/tests/control.yml")
    assert done.returncode != 0


def test_every_alert_is_in_the_incident() -> None:
    """Each alert has a case in which it must fire and one in which it must not."""
    case = load(FOLDER / "tests/incident.yml")["tests"][0]
    fires = {row["alertname"] for row in case["alert_rule_test"] if row.get("exp_alerts")}
    silent = {row["alertname"] for row in case["alert_rule_test"] if not row.get("exp_alerts")}
    assert fires == silent == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_to_do(name: str) -> None:
    """An alert has a summary, a description, a dashboard that exists, and a heading of the guide that exists."""
    notes = alerts()[name]["annotations"]
    assert set(notes) == {"summary", "description", "dashboard", "runbook_url"}
    board = re.fullmatch(r"/d/([a-z-]+)\?var-server=\{\{ \$labels\.server \}\}", notes["dashboard"])
    assert board
    assert (ROOT / f"grafana/dashboards/{board[1]}.json").exists()
    page, _, anchor = notes["runbook_url"].partition("#")
    assert page.startswith("workshop/")
    assert anchor
    if (ROOT / "workshop").exists():
        text = (ROOT / page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert anchor in {
            re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
        }


def test_alerts_are_on_symptoms() -> None:
    """No alert's condition is on a cause: not on keys, SCAN, the slow log, the strategy or the lab's own metrics."""
    for name, rule in alerts().items():
        assert not re.search(r"scan|keys|slowlog|strategy|lab_", rule["expr"]), name


def test_rules_ask_for_metrics_that_exist() -> None:
    """Each name in a rule is exposed by our code, recorded by another rule, or in the catalogue."""
    for path in RULES:
        for group in load(path)["groups"]:
            for rule in group["rules"]:
                assert asked_for(rule["expr"]) <= known(), rule


def test_every_target_is_a_service_of_the_stack() -> None:
    """Prometheus scrapes only services of the compose file, and every process with metrics is scraped."""
    services = set(load(ROOT / "compose.yaml")["services"])
    hosts = set()
    for job in load(FOLDER / "prometheus.yml")["scrape_configs"]:
        for config in job.get("static_configs", []):
            hosts |= {target.rpartition(":")[0] for target in config["targets"]}
        for config in job.get("dns_sd_configs", []):
            hosts |= set(config["names"])
    assert hosts - {"127.0.0.1"} <= services
    ours = {name for name in services if re.match(r"(web|invalidator|warmer|probe|locust)-", name)}
    assert ours <= hosts


def test_each_server_is_complete() -> None:
    """A server appears in every job of a storefront, under its name: a forgotten one would be an empty panel."""
    jobs = {job["job_name"]: job for job in load(FOLDER / "prometheus.yml")["scrape_configs"]}
    always = {server.name for server in IN_COMPOSE if not server.profile}
    for name in PARTS:
        static = {config["labels"]["server"]: config["targets"][0] for config in jobs[name]["static_configs"]}
        assert set(static) == always
        assert all(target.startswith(f"{name}-{server}:") for server, target in static.items())
        (found,) = [config for config in jobs[name]["dns_sd_configs"] if config["names"] != ["lab"]]
        assert found["names"] == [f"{name}-{server.name}" for server in IN_COMPOSE if server.profile]
        assert static["redis"].endswith(f":{found['port']}")
        named = re.compile(jobs[name]["relabel_configs"][1]["regex"])
        read = [match[1] for host in found["names"] if (match := named.fullmatch(host))]
        assert read == [server.name for server in IN_COMPOSE if server.profile]


def test_the_exporter_never_scans() -> None:
    """Nothing asks redis_exporter to count or check keys: that would be a SCAN."""
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    config = "\n".join(line.partition("#")[0] for line in text.splitlines())
    assert not re.search(r"(check|count)[-_](single[-_])?keys", config)

"""The files of `bin/lab export`: complete, for any names, and with tests of alerts that can fail."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cli import run_command
from lab.diagnose.export import RULES

ALERTS = re.findall(r"- alert: (\w+)", (RULES / "rules.yml").read_text(encoding="utf-8"))
NAMES = {
    "as they are": [],
    "other names": ["--job", "cache/redis", "--label", "server", "--every", "1m", "--datasource", "prom-1"],
    "every second": ["--every", "1s"],
}


def promtool(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool, or skip the test where there is none."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return subprocess.run(
        ["promtool", *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with the default names."""
    folder = tmp_path_factory.mktemp("export") / "mine"
    assert run_command(["export", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("names", NAMES)
def test_rules_are_accepted_and_do_what_they_should(names: str, tmp_path: Path) -> None:
    """Each alert fires just beyond its bound; just below all bounds none fires."""
    folder = tmp_path / "mine"
    assert run_command(["export", str(folder), *NAMES[names]]) == 0
    for words in (("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")):
        done = promtool(*words, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    assert "<<" not in text
    assert ">>" not in text


@pytest.mark.parametrize(
    "change", ["({}) and vector(0) > 1", "redis_up >= 0 or redis_memory_max_bytes"], ids=["never", "always"]
)
def test_an_alert_that_never_or_always_fires_is_noticed(change: str, exported: Path, tmp_path: Path) -> None:
    """The exported tests can fail: for every alert they do if its condition is made false, and if it is made true."""
    folder = tmp_path / "altered"
    shutil.copytree(exported, folder)
    rules = yaml.safe_load((folder / "rules.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = change.format(rule["expr"])
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    done = promtool("test", "rules", "rules_test.yml", cwd=folder)
    assert done.returncode != 0
    assert [alert for alert in ALERTS if alert not in done.stdout + done.stderr] == []


def test_the_dashboard_asks_for_its_data_source(exported: Path, tmp_path: Path) -> None:
    """The dashboard asks for its data source at import, unless --datasource named one."""
    made = json.loads((exported / "dashboard.json").read_text())
    [asked] = made["__inputs"]
    assert sources(made) == {f"${{{asked['name']}}}"}
    assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
    assert run_command(["export", str(tmp_path / "named"), "--datasource", "prom-1"]) == 0
    named = json.loads((tmp_path / "named/dashboard.json").read_text())
    assert "__inputs" not in named
    assert sources(named) == {"prom-1"}


def sources(board: dict[str, Any]) -> set[str]:
    """Return every data source of a dashboard's panels, queries and variables; text panels have none."""
    asking = [panel for panel in board["panels"] if panel["type"] != "text"]
    asking += [target for panel in asking for target in panel["targets"]] + board["templating"]["list"]
    return {each["datasource"]["uid"] for each in asking}


def test_nothing_of_the_lab_is_needed(exported: Path) -> None:
    """The export asks only for metrics that redis_exporter gives, none of the lab's own."""
    text = "".join(path.read_text(encoding="utf-8") for path in exported.iterdir() if path.suffix != ".md")
    metrics = set(re.findall(r"\b([a-z]+_[a-z_]+)\s*\{", text))
    assert metrics
    assert {name.split("_")[0] for name in metrics} == {"redis"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--job", 'a"b'], "--job"),
        (["--label", "1st"], "--label"),
        (["--label", "cmd"], "--label"),
        (["--every", "often"], "--every"),
        (["--every", "0s"], "--every"),
        (["--every", "6m"], "--every"),
        (["--datasource", "a b"], "--datasource"),
    ],
)
def test_bad_names_are_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that would break a query or a file is refused, and nothing is written."""
    assert run_command(["export", str(tmp_path / "mine"), *words]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert not (tmp_path / "mine").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a folder with something in it nor a file is written over."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("full", "file"):
        assert run_command(["export", str(tmp_path / name)]) == 2
        [line] = capsys.readouterr().err.strip().splitlines()
        assert "choose another" in line
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]

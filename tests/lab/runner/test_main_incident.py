"""The main incident for real, whole runs at quick pace: a few minutes in all.

The run that several tests look at is made once and shared. Where the machine alone makes a run not valid (exit code 4)
its tests are skipped, with the failed check named. All bounds are ratios and ranks within a run.
"""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from lab.results.folder import Run
from lab.scenarios import catalogue
from tests.lab.labkit import Finished, lab, whole_run

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def key_growth(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A valid quick run of key-growth on the embedded server."""
    return whole_run(tmp_path_factory.mktemp("key-growth"), "key-growth")


def test_every_claim_holds_in_a_quick_run(key_growth: Finished) -> None:
    """`lab run key-growth --pace quick` reproduces the incident and its cure: every claim holds, exit code 0."""
    assert key_growth.refuted() == []
    assert key_growth.answer.code == 0
    assert key_growth.result["holds"] is True
    assert all(claim["holds"] is True for claim in key_growth.result["claims"])


def test_json_on_stdout_is_the_result_and_nothing_else(key_growth: Finished) -> None:
    """--json prints result.json alone; progress goes to stderr, without a complaint."""
    assert json.loads(key_growth.answer.out) == key_growth.result
    assert "grow" in key_growth.answer.err
    assert key_growth.answer.complaints == []


def test_result_of_a_real_run_has_the_fields_of_the_contract(key_growth: Finished) -> None:
    """Everything tools may rely on is there, and filled."""
    result = key_growth.result
    for name in ("server", "server_version", "pace", "started", "host", "calibration", "phases", "command"):
        assert result[name], name
    assert (result["scenario"], result["pace"], result["seed"]) == ("key-growth", "quick", 1)
    scenario = catalogue()["key-growth"]
    assert [phase["id"] for phase in result["phases"]] == [phase.id for phase in scenario.phases]
    assert [claim["id"] for claim in result["claims"]] == [claim.id for claim in scenario.claims]
    assert all(check["ok"] for check in result["validity"])
    assert 0 <= result["load"]["others_gets_per_second"] < 10  # nobody else uses a server of the lab's own
    for phase in result["phases"]:
        assert phase["t1"] > phase["t0"]
        assert phase["p99_ms"]["main_intended"] > 0
        assert phase["client_p99_ms"]["app"] > 0
        assert phase["commands"]["GET"]["calls"] > 0


def test_run_folder_of_a_real_run_is_complete(key_growth: Finished) -> None:
    """The folder holds what the contract names, about one row a second, and no leftovers."""
    names = {path.name for path in key_growth.folder.iterdir()}
    assert names >= {"run.json", "result.json", "samples.csv", "probe.hlog", "slowlog.csv", "report.html"}
    assert "state" not in names
    assert not [name for name in names if name.endswith(".part") or name.startswith(".")]
    times = [float(row["t"]) for row in Run(key_growth.folder).samples]
    assert all(a < b for a, b in pairwise(times))
    assert len(times) >= 0.8 * (times[-1] - times[0])


def test_whole_native_run_stays_under_a_gigabyte(key_growth: Finished) -> None:
    """Server, storefront, load generator, probes and the lab itself together stay under 1 GB at 200 000 keys."""
    assert key_growth.result["keys"] == 200_000
    used = {phase["id"]: sum(phase["memory_mb"].values()) for phase in key_growth.result["phases"]}
    assert max(used.values()) < 1000, used
    assert min(used.values()) > 50  # it was measured


def test_report_of_a_real_run_is_reproducible(key_growth: Finished, tmp_path: Path) -> None:
    """`lab report` judges the folder again, to the same verdict and the same picture, anywhere else."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(key_growth.folder, copy)
    (copy / "result.json").unlink()
    (copy / "report.html").unlink()
    answer = lab("report", "elsewhere", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    for name in ("result.json", "report.html"):
        assert (copy / name).read_bytes() == (key_growth.folder / name).read_bytes()


@pytest.mark.whole
def test_control_refutes_every_applicable_claim(tmp_path: Path) -> None:
    """`lab run control --pace quick` exits 0 because without the cause no claim of key-growth holds."""
    finished = whole_run(tmp_path, "control")
    claims = finished.result["claims"]
    assert [c["id"] for c in claims] == [c.id for c in catalogue()["key-growth"].claims]
    assert [c["id"] for c in claims if c["holds"]] == []
    assert any(c["holds"] is False for c in claims)
    assert finished.answer.code == 0
    assert finished.result["holds"] is True


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server on PATH")
def test_key_growth_holds_on_redis_too(tmp_path: Path) -> None:
    """The incident is not Valkey's own: on the system's Redis every claim holds as well."""
    finished = whole_run(tmp_path, "key-growth", "--server", "redis")
    assert finished.result["server"] == "redis"
    assert finished.refuted() == []
    assert finished.answer.code == 0

"""Whole runs for real, at quick pace.

The run that several tests check is made once and shared: in `make test` that of `empty-slowlog`, the shortest
incident, and in `make test-all` that of the main incident too. Where the machine alone makes a run not valid (exit
code 4) its tests are skipped, with the failed check named. All bounds are ratios and ranks within a run.
"""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from lab.results.folder import Run
from lab.scenarios import catalogue
from tests.lab.labkit import Finished, lab, whole_run

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module", params=["empty-slowlog", "key-growth"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A valid quick run of an incident on the embedded server."""
    return whole_run(tmp_path_factory.mktemp(request.param), request.param)


def test_every_claim_holds_in_a_quick_run(finished: Finished) -> None:
    """`lab run ... --pace quick` reproduces the incident and its cure: every claim holds, exit code 0."""
    assert finished.refuted() == []
    assert finished.answer.code == 0
    assert finished.result["holds"] is True
    assert all(claim["holds"] is True for claim in finished.result["claims"])


def test_json_on_stdout_is_the_result_and_nothing_else(finished: Finished) -> None:
    """--json prints result.json alone; progress goes to stderr, without a complaint."""
    assert json.loads(finished.answer.out) == finished.result
    assert "server busy" in finished.answer.err
    assert finished.answer.complaints == []


def test_result_of_a_real_run_has_the_fields_of_the_contract(finished: Finished) -> None:
    """Every field that tools may rely on is there and filled."""
    result = finished.result
    for name in ("server", "server_version", "pace", "started", "host", "calibration", "phases", "command"):
        assert result[name], name
    assert (result["pace"], result["seed"]) == ("quick", 1)
    scenario = catalogue()[result["scenario"]]
    assert [phase["id"] for phase in result["phases"]] == [phase.id for phase in scenario.phases]
    assert [claim["id"] for claim in result["claims"]] == [claim.id for claim in scenario.claims]
    assert all(check["ok"] for check in result["validity"])
    assert 0 <= result["load"]["others_gets_per_second"] < 10  # nobody else uses a server of the lab's own
    for phase in result["phases"]:
        assert phase["t1"] > phase["t0"]
        assert phase["p99_ms"]["main_intended"] > 0
        assert phase["client_p99_ms"]["app"] > 0
        assert phase["commands"]["GET"]["calls"] > 0


def test_run_folder_of_a_real_run_is_complete(finished: Finished) -> None:
    """The folder holds what the contract names, about one row a second, and no leftovers."""
    names = {path.name for path in finished.folder.iterdir()}
    assert names >= {"run.json", "result.json", "samples.csv", "probe.hlog", "slowlog.csv", "report.html"}
    assert "state" not in names
    assert not [name for name in names if name.endswith(".part") or name.startswith(".")]
    times = [float(row["t"]) for row in Run(finished.folder).samples]
    assert all(a < b for a, b in pairwise(times))
    assert len(times) >= 0.8 * (times[-1] - times[0])


def test_whole_native_run_stays_under_a_gigabyte(finished: Finished) -> None:
    """Server, storefront, load generator, probes and the lab itself together stay under 1 GB, with 200,000 keys too."""
    used = {phase["id"]: sum(phase["memory_mb"].values()) for phase in finished.result["phases"]}
    assert max(used.values()) < 1000, used
    assert min(used.values()) > 50  # it was measured


def test_report_of_a_real_run_is_reproducible(finished: Finished, tmp_path: Path) -> None:
    """`lab report` on a copy of the folder gives the same result.json and the same report, byte for byte."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(finished.folder, copy)
    (copy / "result.json").unlink()
    (copy / "report.html").unlink()
    answer = lab("report", "elsewhere", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    for name in ("result.json", "report.html"):
        assert (copy / name).read_bytes() == (finished.folder / name).read_bytes()


def test_control_refutes_every_applicable_claim(tmp_path: Path) -> None:
    """`lab run control --pace quick` exits 0 because without the cause no claim of key-growth holds."""
    finished = whole_run(tmp_path, "control")
    claims = finished.result["claims"]
    assert [c["id"] for c in claims] == [c.id for c in catalogue()["key-growth"].claims]
    assert [c["id"] for c in claims if c["holds"]] == []
    assert any(c["holds"] is False for c in claims)
    assert finished.answer.code == 0
    assert finished.result["holds"] is True


@pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server (Debian: apt install redis-server)"
)
def test_finished_holds_on_redis_too(tmp_path: Path) -> None:
    """The incident is not Valkey's own: on the system's Redis every claim holds as well."""
    finished = whole_run(tmp_path, "key-growth", "--server", "redis")
    assert finished.result["server"] == "redis"
    assert finished.refuted() == []
    assert finished.answer.code == 0

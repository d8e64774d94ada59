"""The lab runs against a release, as somebody who has the rights of deploy/run-role.yaml and no others."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.blind_trial import Trial
from lab import ROOT
from lab.blind.causes import CAUSES
from lab.blind.kubernetes import KubernetesBlindStack
from lab.scenarios import catalogue
from tests.compose.stack import until
from tests.kubernetes import configs
from tests.kubernetes.groups import ONE, SERVER, VALUES
from tests.kubernetes.kube import Kube
from tests.kubernetes.neighbour import neighbour
from tests.lab.claims.checknames import LIMITED, ON_TIME, QUIET, SPARE, STEADY

LAB = ROOT / "bin" / "lab"
HERE = ("--stack", "kubernetes", "--namespace")
RUN_S, DOCTOR_S = 900, 420
STORY = ("--set", "story.enabled=true", "--set", "resources.server.cpu=900")
OF_THE_MACHINE = {LIMITED, QUIET, ON_TIME, SPARE, STEADY}
"""Checks that two cores with two groups on them may fail."""


@pytest.fixture(scope="module")
def story(releases: Kube) -> Kube:
    """The first group's release with its story on: a run has to pause it."""
    releases.helm("upgrade", ONE, *VALUES[ONE], *STORY)
    releases.wait_ready(ONE)
    return releases


def lab(
    kube: Kube, *words: str, config: Path | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """A command of the lab, as the guest of the tests or by another kubeconfig."""
    environ = {"KUBECONFIG": str(config or kube.run / "guest.conf")}
    return kube.command(str(LAB), *words, seconds=seconds, environ=environ)


def refusal(kube: Kube, *words: str, code: int = 3, config: Path | None = None) -> str:
    """The one line with which the lab refuses."""
    done = lab(kube, *words, config=config)
    assert done.returncode == code, (done.stdout, done.stderr)
    [line] = done.stderr.splitlines()
    return line


def uids(kube: Kube) -> dict[str, str]:
    """The pods of the group, and which they are."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in kube.get("pods", ONE)}


def test_what_cannot_be_is_one_line(story: Kube, tmp_path: Path) -> None:
    """No cluster, no right, no release, no such server: one line each with real kubectl, and nothing was changed."""
    before = uids(story)
    nowhere = tmp_path / "nowhere.conf"
    nowhere.write_text(configs.kubeconfig(configs.ADMIN, "https://127.0.0.1:1"))
    nowhere.chmod(0o600)
    admin = story.run / "admin.conf"
    run = ("run", "key-growth", *HERE)
    assert "no cluster answers kubectl" in refusal(story, *run, ONE, config=nowhere)
    assert "no right to do this in the namespace team-1" in refusal(story, *run, ONE)
    assert "has no release of the lab" in refusal(story, *run, "default", config=admin)
    assert "has no release of the lab" in refusal(story, *run, "no-such-namespace", config=admin)
    said = refusal(story, *run, ONE, "--server", "valkey", config=admin)
    assert f"in {ONE} has no valkey; it has redis: --server redis" in said
    assert "the chart has no keydb" in refusal(story, *run, ONE, "--server", "keydb", code=2, config=admin)
    assert uids(story) == before


@pytest.fixture(scope="module")
def guest(story: Kube) -> Iterator[Kube]:
    """The guest of the tests has the rights of deploy/run-role.yaml in the first group's namespace."""
    story("--namespace", ONE, "apply", "--filename", str(ROOT / "deploy" / "run-role.yaml"))
    binding = ("rolebinding", "latency-lab-run")
    story("--namespace", ONE, "create", *binding, "--role=latency-lab-run", "--user=guest")
    yield story
    story("--namespace", ONE, "delete", *binding)
    story("--namespace", ONE, "delete", "role", "latency-lab-run")


def test_the_doctor_says_what_is_ready(guest: Kube, tmp_path: Path) -> None:
    """With the Role's rights nothing is missing: rights, containers, what validity reads, console and load."""
    done = lab(guest, "doctor", "--scene", "--namespace", ONE, "--out", str(tmp_path), seconds=DOCTOR_S)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    for what in ("cluster", "rights", "release", "containers", "validity, redis", "Locust, Redis"):
        assert f"ok   {what}: " in done.stdout, what


def test_a_diagnosis_through_a_forward(guest: Kube) -> None:
    """`diagnose` looks at the group's server."""
    done = lab(guest, "diagnose", "--namespace", ONE, "--seconds", "5")
    assert done.returncode == 0, done.stderr
    assert f"redis://redis.{ONE}" in done.stderr


def forwards() -> list[str]:
    """The command lines of kubectl's port-forwards and programs in containers that run on this machine."""
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [line for line in lines if "kubectl" in line and (" port-forward " in line or " exec " in line)]


@dataclass(frozen=True)
class Ran:
    """A run of the lab: its exit code, its result, and run.json."""

    code: int
    result: dict[str, Any]
    facts: dict[str, Any]

    @property
    def failed(self) -> dict[str, str]:
        """The checks of validity that failed, with what they say."""
        return {each["check"]: each["detail"] for each in self.result["validity"] if not each["ok"]}

    @property
    def others(self) -> float:
        """What other programs used in the worst phase, in cores."""
        return max(float(phase["machine"]["others"]) for phase in self.facts["phases"])


def begun(kube: Kube, scenario: str, group: str, out: Path, config: str) -> subprocess.Popen[str]:
    """Start a quick run on a group's server."""
    words = [str(LAB), "run", scenario, "--pace", "quick", *HERE, group, "--server", SERVER[group]]
    environ = {**os.environ, "KUBECONFIG": str(kube.run / config)}
    return subprocess.Popen(
        [*words, "--out", str(out), "--json"],
        cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(kube: Kube, run: subprocess.Popen[str], out: Path) -> Ran:
    """Wait for its end, which must be one with a result."""
    said, told = run.communicate(timeout=RUN_S)
    print(told[-3000:])
    assert run.returncode in (0, 1, 4), (said[-500:], told[-2000:], kube.evidence())
    return Ran(run.returncode, json.loads(said), json.loads((out / "run.json").read_text()))


@pytest.fixture(scope="module")
def undisturbed(guest: Kube, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run on the first group's server, with the Role's rights, while nobody else runs anything."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    return ended(guest, begun(guest, "key-growth", ONE, out, "guest.conf"), out)


def test_a_run_is_judged(guest: Kube, undisturbed: Ran) -> None:
    """All phases are walked and every claim is judged; the story is paused meanwhile, and goes on afterwards.

    Two cores with two groups and a cluster on them may not do for a valid run. Then only the machine is to blame.
    """
    for each in (*undisturbed.result["claims"], *undisturbed.result["validity"]):
        print(each)
    facts = undisturbed.facts
    assert (facts["stack"], facts["server"], facts["interrupted"]) == ("kubernetes", "redis", False)
    assert facts["host"]["kubernetes"].startswith("v1.") and facts["host"]["nodes"] == 1
    phases = [phase["id"] for phase in undisturbed.result["phases"]]
    assert phases == [phase.id for phase in catalogue()["key-growth"].phases]
    judged = undisturbed.result["claims"]
    assert not [claim for claim in judged if claim["measured"].startswith("not measured")]
    assert set(undisturbed.failed) <= OF_THE_MACHINE
    assert bool(undisturbed.failed) == (undisturbed.code == 4)
    assert forwards() == []
    guest.wait_ready(ONE)
    warming = ("web-redis", 8000, "/settings/warming")
    until(lambda: guest.json(ONE, *warming)["target_keys"] > 0, "the story going on", 120, every=1)


def sealed() -> list[str]:
    """The command lines of a session's programs in the cluster, whose processes this machine sees."""
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [line for line in lines if "lab.blind.launcher" in line]


def test_a_blind_session_shows_its_evidence(
    guest: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the Role's rights a session plays a cause, whose evidence alone is found; all its programs end with it."""
    seen: list[str] = []
    trial = Trial(
        CAUSES["unpipelined-deletes"],
        tmp_path / "blind",
        looks=2,
        inspect=lambda _: seen.extend(sealed()),
        make=partial(KubernetesBlindStack, namespace=ONE),
    )
    with monkeypatch.context() as as_guest:
        as_guest.setenv("KUBECONFIG", str(guest.run / "guest.conf"))
        trial.run()
    print(*trial.said, sep="\n")
    found = {cause.id for cause in CAUSES.values() if cause.evidence(trial.outcome()).found}
    assert found == {"unpipelined-deletes"}, trial.outcome()
    assert seen
    until(lambda: not sealed(), "the session's programs have ended", 30)
    guest.wait_ready(ONE)


@pytest.mark.parametrize("group", SERVER)
def test_validity_tells_of_a_neighbour(group: str, guest: Kube, undisturbed: Ran, tmp_path: Path) -> None:
    """Beside a pod that takes all it can get, a group's run has no verdict, and validity says what disturbed.

    It names half a core more than in the undisturbed run. A server's promised share does not make such a node a quiet
    one.
    """
    with neighbour(guest):
        ran = ended(
            guest, begun(guest, "empty-slowlog", group, tmp_path / "run", "admin.conf"), tmp_path / "run"
        )
    print(f"{group}: others used {ran.others:.2f} cores, undisturbed {undisturbed.others:.2f}: {ran.failed}")
    assert ran.code == 4
    assert QUIET in ran.failed
    assert ran.others > undisturbed.others + 0.5

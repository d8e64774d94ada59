"""The lab runs against a release, as somebody who has the rights of deploy/run-role.yaml and no others."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
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
from tests.lab.claims.checknames import LIMITED, ON_TIME, QUIET, SPARE, STEADY, WAITED

LAB = ROOT / "bin" / "lab"
HERE = ("--stack", "kubernetes", "--namespace")
RUN_S, DOCTOR_S = 900, 420
STORY = ("--set", "story.enabled=true", "--set", "resources.server.cpu=900")
OF_THE_MACHINE = {LIMITED, WAITED, QUIET, ON_TIME, SPARE, STEADY}
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


def test_a_run_ends_with_a_verdict(guest: Kube, tmp_path: Path) -> None:
    """All phases are walked and every claim is judged; the story is paused meanwhile, and goes on afterwards.

    Two cores with two groups and a cluster on them may not do for a valid run. Then validity says why.
    """
    out = tmp_path / "run"
    words = (
        "run",
        "key-growth",
        "--pace",
        "quick",
        *HERE,
        ONE,
        "--server",
        "redis",
        "--out",
        str(out),
        "--json",
    )
    done = lab(guest, *words, seconds=RUN_S)
    print(done.stderr[-3000:])
    assert done.returncode in (0, 1, 4), (done.stdout[-500:], done.stderr[-2000:], guest.evidence())
    result: dict[str, Any] = json.loads(done.stdout)
    for each in (*result["claims"], *result["validity"]):
        print(each)
    facts = json.loads((out / "run.json").read_text())
    assert (facts["stack"], facts["server"], facts["interrupted"]) == ("kubernetes", "redis", False)
    assert facts["host"]["kubernetes"].startswith("v1.") and facts["host"]["nodes"] == 1
    assert [phase["id"] for phase in result["phases"]] == [
        phase.id for phase in catalogue()["key-growth"].phases
    ]
    assert not [claim for claim in result["claims"] if claim["measured"].startswith("not measured")]
    failed = {each["check"] for each in result["validity"] if not each["ok"]}
    if done.returncode == 4:
        assert failed <= OF_THE_MACHINE, failed
    else:
        assert not failed
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


def both_at_once(kube: Kube, place: Path) -> dict[str, tuple[set[str], float]]:
    """Run an incident in both groups at once.

    Returns for each the checks that failed, and what other programs used in its worst phase, in cores.
    """
    place.mkdir()
    environ = {**os.environ, "KUBECONFIG": str(kube.run / "admin.conf")}
    runs = {}
    for group, server in SERVER.items():
        words = [str(LAB), "run", "empty-slowlog", "--pace", "quick", *HERE, group, "--server", server]
        words += ["--out", str(place / group), "--json"]
        runs[group] = subprocess.Popen(
            words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    said = {group: run.communicate(timeout=RUN_S) for group, run in runs.items()}
    found = {}
    for group, (out, err) in said.items():
        assert runs[group].returncode in (0, 1, 4), (group, out[-500:], err[-2000:])
        failed = {each["check"]: each["detail"] for each in json.loads(out)["validity"] if not each["ok"]}
        print(group, failed)
        phases = json.loads((place / group / "run.json").read_text())["phases"]
        found[group] = (set(failed), max(phase["machine"]["others"] for phase in phases))
    return found


def test_validity_tells_of_a_neighbour(guest: Kube, tmp_path: Path) -> None:
    """Beside a pod that takes all it can get no run is valid, and validity tells of half a core more than without it.

    (Two groups on two cores disturb each other, too. A server's promised share does not make such a node a quiet one.)
    """
    alone = both_at_once(guest, tmp_path / "alone")
    with neighbour(guest):
        beside = both_at_once(guest, tmp_path / "beside")
    for group, (failed, used) in beside.items():
        print(f"{group}: others used {alone[group][1]:.2f} cores, beside the neighbour {used:.2f}")
        assert QUIET in failed
        assert used > alone[group][1] + 0.5

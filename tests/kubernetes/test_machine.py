"""What the tests' Kubernetes does to this machine, and puts back. Needs no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lab import ROOT
from tests.compose.engine import NotPossible
from tests.deploy import helmkit
from tests.kubernetes import building, cluster, configs

pytestmark = pytest.mark.skipif(not Path("/proc/mounts").exists(), reason="it is about Linux")


def test_another_engine_is_not_disturbed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where another engine or Kubernetes runs it ends with one line, before anything was built or changed."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(cluster, "others", lambda: ["dockerd"])
    monkeypatch.setattr(building, "want_packages", lambda: pytest.fail("it went on"))
    assert cluster.main(["true"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "dockerd" in line and "stop it first" in line


def test_remains_of_another_kubernetes_are_not_touched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Cgroups of pods that are there already are somebody's: it does not start."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(cluster, "others", list)
    monkeypatch.setattr(cluster, "cgroups", lambda: [tmp_path / "kubepods"])
    with pytest.raises(NotPossible, match="kubepods is there"):
        cluster.refuse()


def test_only_root_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root there is one line."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NotPossible, match="needs Linux and root"):
        cluster.refuse()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> cluster.Machine:
    """A machine whose folders, cgroups and settings are in a temporary folder."""
    monkeypatch.setattr(cluster, "HIDDEN", (str(tmp_path / "var" / "cni"),))
    monkeypatch.setattr(cluster, "KUBELET_FOLDER", tmp_path / "var" / "kubelet")
    monkeypatch.setattr(cluster, "cgroups", lambda: [p for p in [tmp_path / "kubepods"] if p.is_dir()])
    monkeypatch.setattr(cluster, "settings", dict)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "var").mkdir()
    (tmp_path / "run" / "etcd").mkdir(parents=True)
    return cluster.Machine(tmp_path / "run")


def test_all_is_put_back(machine: cluster.Machine, tmp_path: Path) -> None:
    """Folders that had to be there, the run's own, and cgroups with all below them are removed."""
    (tmp_path / "kubepods" / "burstable" / "pod1").mkdir(parents=True)
    assert (tmp_path / "var" / "kubelet").is_dir()
    assert machine.put_back() == []
    assert sorted(tmp_path.iterdir()) == [tmp_path / "var"]
    assert not list((tmp_path / "var").iterdir())


def test_what_is_left_is_named(
    machine: cluster.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be removed, a new folder, a mount, a changed setting and a network interface are named."""
    (tmp_path / "var" / "kubelet" / "pods").mkdir()
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    machine.mounts = "another"
    monkeypatch.setattr(cluster, "settings", lambda: {"kernel/panic": "10"})
    machine.settings = {"kernel/panic": "1"}
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)
    machine.interfaces.remove("lo")
    left = machine.put_back()
    folders = [f"the folder {tmp_path / name}" for name in ("var/kubelet", "home/.kube")]
    assert left == [*folders, "kernel/panic of /proc/sys", "mounts", "the network interface lo"]


def test_what_cannot_be_built_is_one_line_and_leaves_nothing(
    machine: cluster.Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A package or program that cannot be had ends in one line and exit code 3, and the folders are removed."""

    def missing() -> None:
        raise NotPossible("etcd cannot be installed")

    machine.put_back()
    monkeypatch.setattr(cluster, "refuse", lambda: None)
    monkeypatch.setattr(building, "want_packages", missing)
    monkeypatch.setenv("LAB_ENGINE_CACHE", str(tmp_path / "cache"))
    assert cluster.main(["true"]) == 3
    assert capsys.readouterr().err == "engine: etcd cannot be installed\n"
    assert not list((tmp_path / "var").iterdir()) and not list((tmp_path / "cache").iterdir())


def test_the_kubelets_settings_are_noted() -> None:
    """Each file of /proc/sys that the kubelet writes is read, where the machine has it."""
    assert set(cluster.settings()) <= set(cluster.SETTINGS)
    assert "vm/overcommit_memory" in cluster.settings() or not Path("/proc/sys/vm").is_dir()


def test_configurations_are_whole(tmp_path: Path) -> None:
    """All files that the programs are started with are written, and nobody else may read the tokens."""
    configs.write(tmp_path)
    started = configs.commands(tmp_path, tmp_path / "bin")
    words = [word.rpartition("=")[2] for command in started.values() for word in command]
    named = {Path(word) for word in words if word.startswith(str(tmp_path)) and "/bin/" not in word}
    made_by_themselves = {"etcd", "certificates", "volume-plugins", "service-accounts.pem"}
    assert {path.name for path in named if not path.exists()} == made_by_themselves
    for name in ("kubelet.json", "proxy.json", "cni/lab.conflist", "admin.conf"):
        json.loads((tmp_path / name).read_text())
    assert (tmp_path / "tokens.csv").stat().st_mode & 0o077 == 0


def test_what_is_built_is_what_is_started() -> None:
    """Each program of Kubernetes that is started is built; kubectl is for the tests."""
    started = {command[0] for command in configs.commands(Path("/run"), Path("/bin-of-tests")).values()}
    built = {f"/bin-of-tests/{name}" for name in (*building.PROGRAMS, "coredns")}
    assert built - started == {"/bin-of-tests/kubectl"}
    assert {name for name in started if not name.startswith("/")} <= set(building.PACKAGES)


def test_the_tests_values_fit_two_cores() -> None:
    """Two groups, the room and what the story takes besides are placed on two cores; images are those that are made."""
    values = yaml.safe_load((ROOT / "tests" / "kubernetes" / "values.yaml").read_text(encoding="utf-8"))
    needs = {kind: row["cpu"] for kind, row in values["resources"].items()}
    group = sum(needs[kind] for kind in needs if kind not in ("prometheus", "tempo", "grafana"))
    watchers = sum(needs[kind] for kind in ("prometheus", "tempo", "grafana"))
    story = 900 - needs["server"]
    assert 2 * group + 2 * watchers + story <= 2000
    assert set(values["images"].values()) <= set(building.IMAGES)


def test_images_are_made_anew_when_something_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The archive's name follows what is in the images."""
    monkeypatch.setattr(building, "ROOT", tmp_path)
    monkeypatch.setattr(building, "IN_THE_IMAGES", ("app", "lock"))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "web.py").write_text("1")
    (tmp_path / "lock").write_text("1")
    before = building.digest()
    assert building.digest() == before
    (tmp_path / "app" / "web.py").write_text("2")
    assert building.digest() != before


def test_all_that_is_copied_into_the_image_is_watched() -> None:
    """What .dockerignore lets through belongs to what the images are made of."""
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert let_through <= set(building.IN_THE_IMAGES)


def test_without_go_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither Helm nor Go is told what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(helmkit.NoHelm, match="there is no Go"):
        helmkit.go_install("example.org/tool@v1", tmp_path)

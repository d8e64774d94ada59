"""A stand-in for `kubectl` on PATH, pods for it, and what their containers read, on control groups of both versions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPACE = "team-7"
GROUP = "/sys/fs/cgroup"


def of_node(
    at: float = 1000.0, idle: tuple[int, int] = (50_000, 40_000), stolen: tuple[int, int] = (100, 20)
) -> list[str]:
    """What every container reads of a node with two cores: uptime in s, idle and stolen time of each in hundredths."""
    cores = [
        f"/proc/stat:cpu{n} 900 0 400 {i} 100 0 50 {s} 0 0"
        for n, (i, s) in enumerate(zip(idle, stolen, strict=True))
    ]
    return [
        f"/proc/uptime:{at} 1800.55",
        "/proc/stat:cpu  1800 0 800 90000 200 0 100 120 0 0",
        *cores,
        "/proc/stat:ctxt 1990473",
        "/proc/stat:btime 1062191376",
    ]


def new_groups(
    cpu_s: float = 12.5, held_s: float = 0.0, waited_s: float = 1.5, limit: str = "150000"
) -> list[str]:
    """What a container reads on control groups of version 2. `limit`: CPU time in 100 ms, in µs, or max."""
    return [
        f"{GROUP}/cpu.stat:usage_usec {cpu_s * 1e6:.0f}",
        f"{GROUP}/cpu.stat:user_usec 9000000",
        f"{GROUP}/cpu.stat:nr_periods 4000",
        f"{GROUP}/cpu.stat:nr_throttled 3",
        f"{GROUP}/cpu.stat:throttled_usec {held_s * 1e6:.0f}",
        f"{GROUP}/cpu.max:{limit} 100000",
        f"{GROUP}/cpu.pressure:some avg10=0.00 avg60=0.12 avg300=0.05 total={waited_s * 1e6:.0f}",
        f"{GROUP}/cpu.pressure:full avg10=0.00 avg60=0.00 avg300=0.00 total=1200",
        f"{GROUP}/memory.current:64000000",
        f"{GROUP}/memory.stat:anon 50000000",
        f"{GROUP}/memory.stat:inactive_file 4000000",
        "/proc/pressure/cpu:some avg10=1.00 avg60=0.50 avg300=0.20 total=7000000",
    ]


def old_groups(cpu_s: float = 12.5, held_s: float = 0.0, limit: int = 150_000) -> list[str]:
    """What a container reads on control groups of version 1. `limit`: CPU time in 100 ms, in µs, or -1 for none."""
    return [
        f"{GROUP}/cpuacct/cpuacct.usage:{cpu_s * 1e9:.0f}",
        f"{GROUP}/cpu/cpu.stat:nr_periods 4000",
        f"{GROUP}/cpu/cpu.stat:nr_throttled 3",
        f"{GROUP}/cpu/cpu.stat:throttled_time {held_s * 1e9:.0f}",
        f"{GROUP}/cpu/cpu.cfs_quota_us:{limit}",
        f"{GROUP}/cpu/cpu.cfs_period_us:100000",
        f"{GROUP}/memory/memory.usage_in_bytes:64000000",
        f"{GROUP}/memory/memory.stat:inactive_file 1000",
        f"{GROUP}/memory/memory.stat:total_inactive_file 4000000",
    ]


class FakeKubectl:
    """Sets what the stand-in for `kubectl` answers, and reads the calls it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.has([])
        self.denies()
        self.reads([*new_groups(), *of_node()])

    def _put(self, name: str, text: str) -> None:
        """Write a file in one piece: shells of all pods may be reading it."""
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.replace(self.folder / name)

    def has(self, pods: list[dict[str, Any]]) -> None:
        """Set the pods of the namespace."""
        self._put("pods.json", json.dumps(pods))

    def denies(self, *rights: str) -> None:
        """Set what the user may not do, such as ``create pods/exec``."""
        (self.folder / "denied.json").write_text(json.dumps(rights))

    def reads(self, lines: list[str], service: str = "") -> None:
        """Set what containers read, or one of them."""
        name = f"reading-{service}.txt" if service else "reading.txt"
        self._put(name, "".join(f"{line}\n" for line in lines))

    def fails(self, words: str, said: str, code: int = 1) -> None:
        """Let commands that begin with these words fail with this text on stderr and this exit code."""
        (self.folder / "fail.json").write_text(json.dumps({"words": words, "said": said, "code": code}))

    def does(self, what: str) -> None:
        """Make one of the files that the stand-in looks for: see its docstring."""
        (self.folder / what).touch()

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call so far, without the namespace."""
        log = self.folder / "calls.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def pod(component: str, *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Describe a pod for `FakeKubectl.has`."""
    name = f"{component}-0"
    return {
        "pod": name,
        "uid": f"uid-of-{name}",
        "component": component,
        "containers": list(containers),
        **more,
    }


def container(service: str, ports: Mapping[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """Describe a container for `pod`. `ports` maps those inside to those of this machine."""
    return {"service": service, "ports": ports or {}, **more}


def release(
    server: str, ports: Mapping[str, Mapping[int, int]] | None = None, **more: Any
) -> list[dict[str, Any]]:
    """Describe the pods of a release with one server. `ports`: by service. `more`: keys of the server's container."""
    at = ports or {}

    def one(service: str, **keys: Any) -> dict[str, Any]:
        return container(service, at.get(service), **keys)

    env = {"env": {"APP_STORE_URL": f"redis://{server}:6379/0"}}
    return [
        pod(server, one(server, memory="1280Mi", **more)),
        pod(
            f"storefront-{server}",
            *(one(f"{role}-{server}", **env) for role in ("web", "invalidator", "warmer")),
        ),
        pod(f"locust-{server}", one(f"locust-{server}")),
        pod(f"probe-{server}", one(f"probe-{server}")),
    ]


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    """Make the stand-in the first `kubectl` on PATH, for this process and its children."""
    place, state = folder / "kubectl-bin", folder / "kubectl"
    place.mkdir()
    state.mkdir()
    script = place / "kubectl"
    source = Path(__file__).with_name("kubectl_standin.py").read_text()
    script.write_text(f"#!{sys.executable}\n{source}")
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_KUBECTL", str(state))
    monkeypatch.setenv("FAKE_KUBECTL_ROOT", str(ROOT))
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return FakeKubectl(state)

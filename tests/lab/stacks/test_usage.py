"""CPU and memory of containers, from the kernel's cgroup files and from `docker stats`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.errors import StackError
from lab.stacks.asking import memory_by_id
from lab.stacks.docker import Container, Docker
from lab.stacks.usage import CgroupUsage, ContainerMeter, ProcessUsage, StatsUsage, read_stats, usage_of
from tests.app.servicekit import eventually

ID = "ab12" * 16


def container(pid: int = 7, identity: str = ID) -> Container:
    """Return a container with this process id."""
    return Container(identity, "redis", "healthy", pid)


@pytest.fixture
def version_2(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A machine with unified cgroups: its /proc, its /sys/fs/cgroup, and the container's folder."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    folder = groups / "system.slice" / f"docker-{ID}.scope"
    (proc / "7").mkdir(parents=True)
    folder.mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"0::/system.slice/docker-{ID}.scope\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (folder / "memory.current").write_text("30000000\n")
    (folder / "memory.stat").write_text("anon 1\ninactive_file 10000000\n")
    return proc, groups, folder


def test_books_of_cgroups_2(version_2: tuple[Path, Path, Path]) -> None:
    """From cgroups v2: CPU time is converted from microseconds, memory leaves out file cache that could be dropped."""
    proc, groups, folder = version_2
    usage = CgroupUsage({"store": [container()], "both": [container(), container()]}, proc, groups)
    assert usage.cpu_seconds() == {"store": 2.5, "both": 5.0}
    assert usage.memory_mb() == {"store": 20.0, "both": 40.0}
    (folder / "cpu.stat").write_text("usage_usec 3000000\n")
    assert usage.cpu_seconds()["store"] == 3.0


def test_books_of_cgroups_1(tmp_path: Path) -> None:
    """CPU time and memory are read from the separate hierarchies of cgroups v1, too."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(
        f"4:memory:/docker/{ID}\n3:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}\n"
    )
    for name, file, text in (
        ("cpuacct", "cpuacct.usage", "1500000000"),
        ("memory", "memory.usage_in_bytes", "5000000"),
        ("memory", "memory.stat", "total_inactive_file 1000000"),
    ):
        folder = groups / name / "docker" / ID
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text + "\n")
    usage = CgroupUsage({"store": [container()]}, proc, groups)
    assert usage.cpu_seconds() == {"store": 1.5}
    assert usage.memory_mb() == {"store": 4.0}


def test_books_that_are_gone_for_a_moment_are_no_error(version_2: tuple[Path, Path, Path]) -> None:
    """While a container restarts its cgroup folder is missing; its share is then 0, never negative."""
    proc, groups, folder = version_2
    usage = CgroupUsage({"store": [container()]}, proc, groups)
    meter = ContainerMeter(usage.cpu_seconds)
    meter.sample()
    for file in folder.iterdir():
        file.unlink()
    assert usage.cpu_seconds() == {"store": 0.0}
    assert meter.sample()[0]["store"] == 0.0


def test_process_number_of_another_machine_is_not_believed(version_2: tuple[Path, Path, Path]) -> None:
    """A cgroup that does not name this container is refused: the engine then runs on another machine."""
    proc, groups, _ = version_2
    with pytest.raises(OSError, match="is not about redis"):
        CgroupUsage({"store": [container(identity="ff" * 32)]}, proc, groups)
    with pytest.raises(OSError, match="cgroup"):
        CgroupUsage({"store": [container(pid=8)]}, proc, groups)


@pytest.fixture
def busy_first_process() -> Iterator[int]:
    """The first process of a namespace of process ids, which works for 0.2 s of CPU time and waits."""
    program = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ntime.sleep(60)"
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as outside:
        try:
            assert outside.stdout is not None
            if not outside.stdout.readline():
                pytest.skip("this machine lets nobody make a namespace")
            [inside] = psutil.Process(outside.pid).children()
            yield inside.pid
            inside.kill()
        finally:
            outside.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no namespaces")
def test_containers_in_one_cgroup_are_told_apart_by_their_processes(busy_first_process: int) -> None:
    """Without root on cgroups v1 no cgroup is one container's. Its processes are, and only they count."""
    found = usage_of(Docker(), {"store": [container(busy_first_process)]})
    assert isinstance(found, ProcessUsage)
    busy = psutil.Process(busy_first_process)
    assert found.cpu_seconds()["store"] == pytest.approx(sum(busy.cpu_times()[:2]), abs=0.05)
    assert found.cpu_seconds()["store"] > 0.1, (
        "0.2 s less what the kernel rounds down (user and system time, to 10 ms each)"
    )
    assert found.memory_mb()["store"] == pytest.approx(busy.memory_info().rss / 1e6, rel=0.1)
    with pytest.raises(OSError, match="no process ids of its own"):
        ProcessUsage({"store": [container(os.getpid())]})


def test_docker_stats_are_read_in_every_unit() -> None:
    """Percent become shares of a core, units become megabytes, and short ids are recognised."""
    text = (
        '{"ID": "aaaa", "CPUPerc": "150.00%", "MemUsage": "1.5GiB / 2GiB"}\n'
        '{"ID": "bbbb", "CPUPerc": "0.50%", "MemUsage": "512KiB / 1GiB"}\n'
        '{"ID": "cccc", "CPUPerc": "9.00%", "MemUsage": "1MB / 1GB"}\n\n'
    )
    shares, memory = read_stats(text, {"aaaa11": "store", "bbbb22": "store"})
    assert shares == {"store": pytest.approx(1.505)}
    assert memory == {"store": pytest.approx((1.5 * 2**30 + 512 * 2**10) / 1e6)}
    for wrong in ('{"ID": "aaaa"}', "ID CPU", '{"ID": "aaaa", "CPUPerc": "--", "MemUsage": "-- / --"}'):
        with pytest.raises(StackError, match="docker stats says something unexpected"):
            read_stats(wrong, {"aaaa11": "store"})


def test_memory_is_read_in_the_units_of_either_engine() -> None:
    """Docker prints memory in binary units and Podman in decimal ones; a container without a figure is left out."""
    said = "aaaa\t1.5GiB / 2GiB\nbbbbbbbbbbbbbb\t20.5kB / 1.2GB\ncccc\t0B / 0B\ndddd\t-- / --\n"
    assert memory_by_id(said) == {"aaaa": 1.5 * 2**30, "bbbbbbbbbbbb": 20_500, "cccc": 0}


def test_where_books_are_out_of_sight_stats_are_asked(docker: Any, make: Callable[..., Any]) -> None:
    """An engine on another machine is asked by `docker stats`, whose percentages are summed to CPU seconds."""
    docker.has([make("redis", pid=0), make("tempo", pid=0)])
    found = {container.service: container for container in Docker().containers()}
    parts = {"store": [found["redis"]], "tempo": [found["tempo"]]}
    usage = usage_of(Docker(), parts)
    assert isinstance(usage, StatsUsage)
    usage.close()
    quick = StatsUsage(Docker(), parts, every_s=0.01)
    try:
        first = eventually(lambda: quick.cpu_seconds()["store"])
        assert eventually(lambda: quick.cpu_seconds()["store"] > first)
        assert quick.cpu_seconds()["store"] == pytest.approx(quick.cpu_seconds()["tempo"], rel=0.5)
        assert quick.memory_mb() == {
            "store": pytest.approx(10.49, rel=0.01),
            "tempo": pytest.approx(10.49, rel=0.01),
        }
    finally:
        quick.close()

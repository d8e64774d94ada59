"""What a server's own machine takes from it is named, from the kernel's files as a test writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnose.machine import Counters, notes, read

CALM = Counters(stolen_s=5.0, machine_s=1000.0, throttled_s=2.0, major_faults=70)
FILES = {
    "kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "devices/system/clocksource/clocksource0/current_clocksource": "tsc",
}


def system(folder: Path, **changed: str) -> Path:
    """Write the files of a machine on which all is well, but for those that end in a name of `changed`."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(changed.get(name.rpartition("/")[2], text) + "\n")
    return folder


@pytest.mark.parametrize(
    ("counters", "pauses_s", "files", "said"),
    [
        (Counters(8.0, 1020.0, 2.0, 70), (0.001,), {}, "the hypervisor took 15% of the processors' time"),
        (
            Counters(5.0, 1020.0, 5.0, 70),
            (0.001,),
            {},
            "a quota of CPU (cgroup) held the server's group back 30%",
        ),
        (Counters(5.0, 1020.0, 2.0, 5070), (0.001,), {}, "read 500 pages a second back from disk"),
        (Counters(5.0, 1020.0, 2.0, 70), (0.001, 0.012), {}, "stood still for up to 12 ms"),
        (
            Counters(5.0, 1020.0, 2.0, 70),
            (),
            {"enabled": "[always] madvise never"},
            "transparent huge pages are on",
        ),
        (Counters(5.0, 1020.0, 2.0, 70), (), {"current_clocksource": "hpet"}, "the clock source is hpet"),
    ],
)
def test_each_is_named(
    counters: Counters, pauses_s: tuple[float, ...], files: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Over ten seconds, each thing by itself is one sentence; without it nothing is said."""
    (sentence,) = notes(CALM, counters, 10.0, pauses_s, system(tmp_path / "ill", **files))
    assert said in sentence
    calm = Counters(5.1, 1020.0, 2.05, 75)
    assert notes(CALM, calm, 10.0, (0.002,), system(tmp_path / "well")) == []
    assert notes(CALM, calm, 10.0, (), tmp_path / "no such system") == []


def test_counters_of_a_process(tmp_path: Path) -> None:
    """Faults are the tenth field behind the name, which may hold blanks; the quota is that of the process's group."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (redis) server) S 1 7 7 0 -1 4194560 900 0 31 0 150 20 0 0\n")
    (tmp_path / "7" / "cgroup").write_text("0::/system.slice/redis.service\n")
    group = tmp_path / "cgroup" / "system.slice" / "redis.service"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 9000\nnr_throttled 3\nthrottled_usec 2500000\n")
    found = read(7, tmp_path / "cgroup", tmp_path)
    assert (found.major_faults, found.throttled_s) == (31, 2.5)
    assert read(8, tmp_path / "cgroup", tmp_path).throttled_s == 0

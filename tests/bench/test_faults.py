"""The fault matrix in short: three cells on real processes, planted bugs that it must find, and its command line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bench import faults
from bench.fault_cell import STRATEGIES, SWITCH, Plan, run_cell
from bench.fault_compose import FAULTS as CONTAINERS
from bench.fault_kinds import FAULTS, Fault
from bench.fault_scene import Scene
from lab import ROOT
from tests.app.servicekit import eventually
from tests.bench.planted import FIRST_USER, is_forgotten, is_kept

SHORT = Plan(events=60, before_s=0.2, fault_s=0.5, turn_s=0.3)
NOTHING = Fault("nothing", lambda _, seconds: time.sleep(seconds))


def test_three_faults_lose_nothing(tmp_path: Path) -> None:
    """The short form: a killed server, a killed invalidator, and killed connections while the strategy is switched."""
    scene = Scene(tmp_path)
    try:
        scene.up()
        for number, (fault, strategy) in enumerate(
            (("server-killed", "scan"), ("invalidator-killed", "index"), ("connections-killed", SWITCH))
        ):
            row = run_cell(scene, FAULTS[fault], strategy, SHORT, 1_000_000 + 1_000 * number)
            assert row["red"] == [], row
            assert row["accepted"] == SHORT.events and row["reads"] > 3 * SHORT.events
        assert " times, " in row["said"] and " switches, " in row["said"]
    finally:
        scene.down()


def test_a_clock_that_is_set_back_hides_no_entry(tmp_path: Path) -> None:
    """The storefront's clock goes an hour forward and an hour back: the index still finds what was put before."""
    scene = Scene(tmp_path, stepped=True)
    try:
        scene.up()
        row = run_cell(
            scene, FAULTS["clock-stepped"], "index", Plan(events=120, before_s=0.2, fault_s=3.0), 1_000_000
        )
    finally:
        scene.down()
    assert row["red"] == [], row
    assert row["accepted"] == 120


def test_planted_bugs_are_found(tmp_path: Path) -> None:
    """An invalidator loses one event in ten, and a storefront serves entries that it kept: both are counted."""
    planted = [sys.executable, "-m", "tests.bench.planted"]
    instead = {"invalidator": [*planted, "forgetful"], "web": [*planted, "stubborn"]}
    scene = Scene(tmp_path, instead=instead)
    try:
        scene.up()
        row = run_cell(scene, NOTHING, "index", Plan(events=90, before_s=0.2, fault_s=0.2), FIRST_USER)
    finally:
        scene.down()
    users = range(FIRST_USER, FIRST_USER + 90)
    lost, kept = (sum(map(which, users)) for which in (is_forgotten, is_kept))
    # Three entries of each lost event are read at the end, and some once before: 30 without the storefront's. A kept
    # entry is read once more: mostly while the load goes on, else at the end, and then its event counts as lost.
    assert lost <= row["lost"] <= lost + kept, row
    assert row["stale"] >= 3 * lost + kept, row
    assert row["red"] == [f"{row['lost']} lost", f"{row['stale']} stale"]


STARTED_S = 120
"""For the scene, which starts four Python programs beside what other tests do."""


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def state_of(process: psutil.Process) -> str:
    """The state of a process. One that has ended is a zombie, also after its parent has heard of that."""
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_ZOMBIE)


def test_a_process_that_has_ended_is_a_zombie_before_and_after_its_parent_hears_of_it() -> None:
    """A process without a parent stays in the table until the system's first process looks, which may take a while."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    assert state_of(process) != psutil.STATUS_ZOMBIE
    child.kill()
    eventually(lambda: state_of(process) == psutil.STATUS_ZOMBIE)
    assert process.is_running(), "psutil calls it running until then"
    child.wait()
    assert state_of(process) == psutil.STATUS_ZOMBIE


def test_an_interruption_ends_every_process() -> None:
    """Ctrl-C in the middle of a fault, with the server frozen: exit code 130, one line, and no process is left."""
    command = [sys.executable, "-m", "bench.faults", "--faults", "server-stopped", "--strategies", "scan"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + STARTED_S
        members: list[psutil.Process] = []
        while not any(state_of(member) == psutil.STATUS_STOPPED for member in members):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
            members = family(process.pid)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=STARTED_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.splitlines() == ["bench.faults: interrupted; every process has ended"]
    assert said.splitlines()[0].startswith("1 cells, about ")
    assert [state_of(member) for member in members] == [psutil.STATUS_ZOMBIE] * len(members)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", ","], "names no fault; known are server-killed, "),
        (["--faults", "flood"], "there is no fault 'flood'; known are server-killed, "),
        (["--strategies", "hope"], "there is no strategy 'hope'; known are scan, "),
        (["--strategies", "scan", "--write", "x.json"], "--write keeps whole rows: leave --strategies out"),
        (["--server", "memcached"], "invalid choice: 'memcached'"),
        (
            ["--stack", "compose", "--faults", "state-full"],
            "there is no fault 'state-full'; known are server-killed, ",
        ),
        (
            ["--stack", "compose", "--strategies", "hash"],
            "there is no strategy 'hash'; known are scan, index, ",
        ),
        (["--stack", "compose", "--out", "x"], "--out is for processes"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a line that says what is wrong."""
    with pytest.raises(SystemExit) as ended:
        faults.main(arguments)
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors and len(errors.splitlines()) == 1


def test_the_time_is_told_by_arithmetic() -> None:
    """A row that is not applicable takes none; a slower load takes longer."""
    plan = Plan()
    here, slower = Fault("x", NOTHING.act), Fault("x", NOTHING.act, slower=0.5)
    missing = Fault("x", NOTHING.act, not_here="no")
    cells = len(STRATEGIES)
    assert faults.expected_s([missing], cells, plan) == 0
    assert faults.expected_s([here, missing], cells, plan) == faults.START_S + cells * plan.seconds
    assert faults.expected_s([slower], cells, plan) > faults.expected_s([here], cells, plan)


def test_titles_tell_the_faults_apart() -> None:
    """No two rows have the same title."""
    for known in (FAULTS, CONTAINERS):
        titles = [fault.title for fault in known.values()]
        assert len(set(titles)) == len(titles)

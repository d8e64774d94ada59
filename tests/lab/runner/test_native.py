"""Runs with real processes that people, the server or the disk break off; and runs on other people's servers."""

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.results.folder import Run
from lab.server.processes import port_taken
from lab.server.redis_cli import LOCK
from lab.stacks import rights
from tests.app.servicekit import ServerProcess, eventually
from tests.lab.labkit import LAB, ROOT, Answer, Running, lab, tree, whole_run

INCIDENT = ("key-growth", "--pace", "quick", "--despite-noise")
"""A run to break off. It needs no verdict, so it begins on a busy machine too."""


def phases(folder: Path) -> int:
    """Return how many phases a run has finished."""
    try:
        return len(json.loads((folder / "run.json").read_text())["phases"])
    except FileNotFoundError:
        return 0


def assert_partial(folder: Path) -> None:
    """Assert that an interrupted run keeps its samples, says that it was interrupted, and has no verdict."""
    assert not list(folder.glob("result.json*"))
    assert not list(folder.glob("*.part"))
    assert not (folder / "state").exists()
    run = Run(folder)
    assert run.facts.interrupted
    assert len(run.phases) >= 1
    assert run.p99_ms(run.phases[0]) is not None
    assert len(run.samples) > 3


def assert_nothing_left(run: Running, ports: set[int]) -> None:
    """Assert that no process of the run is alive and that its ports are free."""
    assert run.seen, "no process of the run was ever seen: the test looked at nothing"
    assert run.left() == []
    assert not [port for port in ports if port_taken(port)]


def assert_one_complaint(answer: Answer, code: int) -> None:
    """Assert that one line, the last, says why the run stopped, and that the exit code is this one."""
    assert answer.code == code, answer
    assert len(answer.complaints) == 1, answer
    assert answer.err.splitlines()[-1] == answer.complaints[0]
    assert "Traceback" not in answer.err
    assert answer.out == ""


@pytest.mark.whole
def test_ctrl_c_in_the_middle_keeps_the_samples_and_nothing_else(tmp_path: Path) -> None:
    """Ctrl-C mid-run: exit code 130, one line, no process and no port left; what was measured can be read."""
    with Running(*INCIDENT, "--out", "interrupted", cwd=tmp_path) as run:
        folder = tmp_path / "interrupted"
        run.until(lambda: phases(folder) >= 1)
        ports = run.ports()
        assert len(ports) >= 4
        run.signal()
        assert_one_complaint(run.answer(), 130)
        assert_nothing_left(run, ports)
    assert_partial(folder)
    assert not (ROOT / "interrupted").exists(), "a relative --out is meant from where the person is"
    answer = lab("report", "interrupted", cwd=tmp_path)
    assert (answer.code, answer.complaints) == (4, [])


@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGINT],
        pytest.param([signal.SIGTERM], marks=pytest.mark.whole),
        pytest.param([signal.SIGHUP], marks=pytest.mark.whole),
        [signal.SIGINT, signal.SIGINT, signal.SIGINT],
    ],
    ids=lambda numbers: "+".join(number.name for number in numbers),
)
def test_signals_while_starting_leave_nothing(numbers: list[signal.Signals], tmp_path: Path) -> None:
    """Interrupted while the stack comes up, once or several times: exit code 130, one line, nothing left."""
    with Running(*INCIDENT, "--out", "run", cwd=tmp_path) as run:
        run.until(lambda: len(run.family()) >= 4)
        ports = run.ports()
        for number in numbers:
            run.signal(number)
            time.sleep(0.2)
        assert_one_complaint(run.answer(), 130)
        assert_nothing_left(run, ports)
    assert not list((tmp_path / "run").glob("result.json*"))


def test_killed_lab_leaves_no_process(tmp_path: Path) -> None:
    """kill -9 of the lab: the kernel ends its processes, and theirs."""
    with Running(*INCIDENT, "--out", "run", cwd=tmp_path) as run:
        run.until(lambda: any("probe" in command for command in run.family()))
        ports = run.ports()
        run.signal(signal.SIGKILL)
        assert run.answer().code == -signal.SIGKILL
        assert run.left(seconds=15) == []
        assert not [port for port in ports if port_taken(port)]


def server_of(run: Running) -> psutil.Process:
    """Return the server among the lab's processes."""
    return next(process for command, process in run.family().items() if "valkey-server" in command)


@pytest.mark.whole
def test_server_that_dies_in_the_middle_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """kill -9 of the server mid-run: exit code 3, one line that names it, no process left, samples kept."""
    folder = tmp_path / "run"
    with Running(*INCIDENT, "--out", "run", cwd=tmp_path) as run:
        run.until(lambda: phases(folder) >= 1)
        ports = run.ports()
        server_of(run).kill()
        answer = run.answer()
        assert_one_complaint(answer, 3)
        assert_nothing_left(run, ports)
    assert "embedded" in answer.complaints[0]
    assert_partial(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None] | None]]:
    """A folder on a disk of 400 KB; where this user may not mount one, a limit on the size of files instead."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if mount and os.geteuid() == 0:
        done = subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], capture_output=True, check=False
        )
        if done.returncode == 0:
            yield place, None
            subprocess.run(["umount", str(place)], check=True)
            return
    yield place, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))


@pytest.mark.whole
def test_full_disk_is_one_line_and_exit_3(
    small_disk: tuple[Path, Callable[[], None] | None], tmp_path: Path
) -> None:
    """The disk fills up mid-run: exit code 3, one line that says so, no process left, no half-written file."""
    place, limit = small_disk
    folder = place / "run"
    with Running(*INCIDENT, "--out", str(folder), cwd=tmp_path, limit=limit) as run:
        run.until(lambda: any("probe" in command for command in run.family()))
        ports = run.ports()
        answer = run.answer(seconds=150)
        assert_one_complaint(answer, 3)
        assert_nothing_left(run, ports)
    assert str(folder) in answer.complaints[0]
    assert "No space left" in answer.complaints[0] or "too large" in answer.complaints[0]
    assert not list(folder.glob("result.json*"))
    assert not list(folder.glob("*.part"))
    assert (folder / "probe.hlog").stat().st_size > 1000


FOREIGN = {
    "page:1": "yours",
    "latency-lab": "no colon: yours",
    "latency-labs:1": "another lab's",
    "shop:42:page-3": "an entry of a real shop",
    "x latency-lab:1": "the prefix in the middle",
}


@pytest.fixture
def foreign() -> Iterator[ServerProcess]:
    """Somebody else's server, with their keys and settings."""
    server = ServerProcess(ServerProcess.valkey()).start()
    client = server.client()
    client.mset(FOREIGN)
    client.hset("a hash", mapping={"field": "value"})
    client.set("with a TTL", "v", px=86_400_000)
    client.config_set("slowlog-log-slower-than", 12_345)
    client.config_set("slowlog-max-len", 77)
    client.config_resetstat()
    yield server
    server.stop()


def contents(server: ServerProcess) -> dict[str, Any]:
    """Every key of the server with its value; the lab's sets with their type."""
    client = server.client()
    kinds = {key: client.type(key) for key in client.keys("*")}
    read = {"hash": client.hgetall, "string": client.get}
    return {key: read[kind](key) if kind in read else kind for key, kind in kinds.items()}


def test_url_to_a_database_in_use_asks_first(foreign: ServerProcess, tmp_path: Path) -> None:
    """Without --yes and without a person to ask, a non-empty database is refused: one line, exit code 2."""
    before = contents(foreign)
    answer = lab("run", "key-growth", "--url", foreign.url, cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert f"{len(before)} keys" in answer.err
    assert "--yes" in answer.err
    assert contents(foreign) == before
    assert tree(tmp_path) == []


@pytest.mark.first(1)
@pytest.mark.parametrize("reply", [b"n\n", b"\n"])
def test_no_is_taken_for_no(reply: bytes, foreign: ServerProcess, tmp_path: Path) -> None:
    """Asked at a terminal, anything but yes ends the command, and nothing was written."""
    before = contents(foreign)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [str(LAB), "run", "key-growth", "--url", foreign.url],
        cwd=tmp_path, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        os.write(master, reply)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    assert process.returncode == 2, err
    assert "Go on?" in out + err
    assert contents(foreign) == before
    assert tree(tmp_path) == []


@contextmanager
def somebody_reading(server: ServerProcess, per_second: float) -> Iterator[None]:
    """Let another program send GETs to the server meanwhile."""
    over, client = threading.Event(), server.client()

    def read() -> None:
        while not over.wait(1 / per_second):
            client.get("nothing")

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def running_on(server: ServerProcess, folder: Path, url: str) -> Iterator[Running]:
    """Start a run on somebody else's server; yield it once it has written keys and changed settings."""
    client = server.client()
    with Running(*INCIDENT, "--url", url, "--yes", "--out", "run", cwd=folder) as run:
        run.until(lambda: client.dbsize() > 1000)
        run.until(lambda: any("loadtest.probe" in command for command in run.family()))
        assert client.config_get("slowlog-log-slower-than") != {"slowlog-log-slower-than": "12345"}
        yield run


def slowlog_of(server: ServerProcess) -> tuple[str, str]:
    """Return the server's settings that a run changes."""
    settings = server.client().config_get("slowlog-*")
    return settings["slowlog-log-slower-than"], settings["slowlog-max-len"]


def all_killed(run: Running, _: ServerProcess) -> None:
    """Kill the lab and everything that it started, the restorer too."""
    run.family()
    for process in [psutil.Process(run.process.pid), *run.seen.values()]:
        process.kill()


def without_rights(run: Running, server: ServerProcess) -> None:
    """Take the right to change settings away, and interrupt."""
    server.client().execute_command("ACL", "SETUSER", "default", "-config|set")
    run.signal()


def second_at_once(run: Running, server: ServerProcess) -> None:
    """A second run is refused while the first has the lock; then the first is interrupted."""
    second = lab("run", "key-growth", "--url", server.url, "--yes", cwd=run.folder)
    assert second.is_one_line(2), second
    run.signal()


def killed_and_a_second_too(run: Running, server: ServerProcess) -> None:
    """The first run is killed, and a second one begins at once: it is refused, or has the lock after the restorer.

    Then it is killed, too.
    """
    client = server.client()
    first = client.get(LOCK)
    run.signal(signal.SIGKILL)
    with Running(
        *INCIDENT, "--url", server.url, "--yes", "--out", "run", cwd=run.folder / "second"
    ) as second:
        eventually(
            lambda: second.process.poll() is not None or client.get(LOCK) not in (None, first), seconds=60
        )
        second.process.kill()
        second.answer()
        assert second.left(seconds=30) == []


ENDS: dict[str, Callable[[Running, ServerProcess], None]] = {
    "SIGKILL": lambda run, _: run.signal(signal.SIGKILL),
    "SIGINT": lambda run, _: run.signal(),
    "SIGTERM": lambda run, _: run.signal(signal.SIGTERM),
    "all killed": all_killed,
    "without rights": without_rights,
    "second at once": second_at_once,
    "second after": killed_and_a_second_too,
}
BY_HAND = ("all killed", "without rights")
"""Ends after which `bin/lab clean` puts the server right; after the others a minute is enough."""


@pytest.mark.parametrize(
    "how", [how if how == "SIGKILL" else pytest.param(how, marks=pytest.mark.whole) for how in ENDS]
)
def test_somebody_elses_server_is_left_as_it_was(how: str, foreign: ServerProcess, tmp_path: Path) -> None:
    """However a run ends, the lab's keys go, foreign keys and settings are as before, and no process is left.

    The server would evict, were it full.
    """
    foreign.client().config_set("maxmemory", "4gb")
    foreign.client().config_set("maxmemory-policy", "allkeys-lru")
    before = contents(foreign)
    with running_on(foreign, tmp_path, foreign.url) as run:
        ENDS[how](run, foreign)
        run.answer()
        assert run.left(seconds=30) == []
    if how in BY_HAND:
        foreign.client().execute_command("ACL", "SETUSER", "default", "+config|set")
        assert foreign.client().exists(LOCK)
        assert lab("clean", "--url", foreign.url, "--yes", cwd=tmp_path).code == 0
    eventually(lambda: contents(foreign) == before, seconds=60)
    assert slowlog_of(foreign) == ("12345", "77")
    assert foreign.client().config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lru"


@pytest.mark.whole
def test_a_verdict_with_the_least_rights(foreign: ServerProcess, tmp_path: Path) -> None:
    """On somebody else's server, as the user that `lab.stacks.rights` prints, every claim that applies holds.

    The server's CPU time is taken from what it tells itself, so a server on this machine is no "other program".
    """
    foreign.client().execute_command(*rights.ACL.replace(">PASSWORD", ">secret").split())
    foreign.client().config_set("slowlog-log-slower-than", 1000)  # the run may not set it
    before = contents(foreign)
    url = f"redis://lab:secret@127.0.0.1:{foreign.port}/0"
    finished = whole_run(tmp_path, "keys-command", "--url", url, "--yes")
    assert finished.refuted() == []
    assert finished.answer.code == 0
    assert all(phase["processes"]["store"] > 0 for phase in finished.result["phases"])
    assert "secret" not in (finished.folder / "run.json").read_text() + finished.answer.err
    assert f"--url redis://lab@127.0.0.1:{foreign.port}/0" in finished.result["command"]
    assert contents(foreign) == before


@pytest.mark.whole
def test_url_with_yes_touches_only_its_own_keys(foreign: ServerProcess, tmp_path: Path) -> None:
    """After a run on somebody else's server, even interrupted, their keys and settings are as before, ours are gone.

    The GETs that they send meanwhile are counted as theirs, and not as the storefront's.
    """
    before, folder = contents(foreign), tmp_path / "run"
    client = foreign.client()
    with (
        somebody_reading(foreign, 100),
        Running(*INCIDENT, "--url", foreign.url, "--yes", "--out", "run", cwd=tmp_path) as run,
    ):
        run.until(lambda: phases(folder) >= 1)
        assert client.dbsize() > 1000  # the lab does write here
        assert client.config_get("slowlog-log-slower-than") != {"slowlog-log-slower-than": "12345"}
        ports = run.ports()
        run.signal()
        assert_one_complaint(run.answer(), 130)
        assert_nothing_left(run, ports)
    eventually(lambda: client.dbsize() == len(before), seconds=5)
    assert contents(foreign) == before
    assert 0 < client.pttl("with a TTL") <= 86_400_000
    settings = client.config_get("slowlog-*")
    assert (settings["slowlog-log-slower-than"], settings["slowlog-max-len"]) == ("12345", "77")
    used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert not used & {"flushall", "flushdb", "shutdown", "debug", "config|rewrite", "swapdb"}
    assert_partial(folder)
    run_facts = Run(folder).facts
    assert "restart-restores" in run_facts.cannot
    assert 50 < run_facts.load["others_gets_per_second"] < 110

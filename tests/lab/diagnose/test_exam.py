"""The examination: its loads do to a server what they say, and a scene that cannot be examined fails it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import exam
from bench.exam import NOT_THE_SERVERS
from bench.exam_loads import CALL_S, LATE_S, LOADS, OTHERS, QUICKEST_OF, TRIED
from lab import ROOT
from lab.blind.causes import CAUSES
from lab.diagnose.findings import CAUSES as KNOWN
from lab.diagnose.watch import watch
from lab.diagnose.window import LOOP_US
from lab.errors import StackError, UsageError
from lab.stacks.address import read_address
from lab.stacks.processes import Child
from tests.app.servicekit import eventually
from tests.loadtest.conftest import Server

SMALL = {
    "full-sync": "COPIED_KEYS, COPIED_BYTES = 2_000, 100",
    "slow-disk": "SYNCERS, SYNCED_BYTES, FILE_BYTES, TRIED_WRITES, SLOW_WRITE_S = 1, 4_096, 8_192, 2, 0.0",
    "bursts": "BURST_LINES, BURST_COMMANDS, BURST_EVERY_S = 3, 20, 0.1",
    "held-back": "HELD_BACK_MS, HELD_BACK_EVERY_S = 300, 0.4",
}
"""Settings with which a load costs next to nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which begins a copy at once, as the examination's do."""
    found = Server(tmp_path, "--repl-diskless-sync-delay", "0")
    found.start()
    yield found
    found.kill()


def typed(name: str, settings: str, url: str) -> list[str]:
    """The command that runs a load with other settings."""
    names = settings.partition(" = ")[0]
    script = (
        "import sys\nfrom bench import exam_loads\nfrom loadtest.resp import Server\n"
        f"{settings}\nfor name in {names.split(', ')!r}:\n    setattr(exam_loads, name, globals()[name])\n"
        "exam_loads.LOADS[sys.argv[1]](Server.from_url(sys.argv[2]))"
    )
    return [sys.executable, "-c", script, name, url]


@contextmanager
def running(name: str, server: Server, folder: Path) -> Iterator[Child]:
    """A small load, as the examination runs it."""
    child = Child("load", typed(name, SMALL[name], server.url), folder / "load.log", cwd=ROOT)
    try:
        yield child
    finally:
        child.stop()


def number(server: Server, field: str) -> Callable[[], int]:
    """A function that reads a field of INFO."""
    client: Any = server.client()
    return lambda: int(client.info("all").get(field, 0))


def test_a_replica_copies_everything_again_and_again(server: Server, tmp_path: Path) -> None:
    """Each round is a full copy, which a diagnosis sees; the replica ends with the load."""
    copies, replicas = number(server, "sync_full"), number(server, "connected_slaves")
    with running("full-sync", server, tmp_path) as load:
        eventually(lambda: copies() >= 2)
        window, _ = watch(read_address(server.url, environ={}), 3.0)
        load.check()
    assert window.last.number("sync_full") > window.first.number("sync_full")
    assert window.copies
    assert window.keys == 2_000
    eventually(lambda: replicas() == 0)


def test_a_slow_disk_is_under_writes_that_are_synced(server: Server, tmp_path: Path) -> None:
    """The server keeps a file of its commands and syncs it at each write, while another file beside it is synced."""
    written = number(server, "aof_current_size")
    with running("slow-disk", server, tmp_path) as load:
        eventually(lambda: written() > 0)
        before = written()
        eventually(lambda: written() > before)
        load.check()
    assert server.client().config_get("append*")["appendfsync"] == "always"
    assert (tmp_path / "beside-0").stat().st_size <= 8_192


def test_a_disk_that_is_too_quick_is_told(server: Server) -> None:
    """A load that has no effect ends with one line instead of passing for a slow disk."""
    settings = SMALL["slow-disk"].replace("0.0", "60.0")
    done = subprocess.run(
        typed("slow-disk", settings, server.url), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "too quick for this load: let TMPDIR name a folder on a slower disk" in line


def test_a_burst_is_many_short_commands_at_once(server: Server, tmp_path: Path) -> None:
    """Every burst has all commands of all its connections, and each of them is short."""
    client: Any = server.client()
    with running("bursts", server, tmp_path) as load:
        eventually(lambda: int(client.get("exam:counter") or 0) >= 3 * 60)
        load.check()
    eventually(lambda: client.info("clients")["connected_clients"] == 1)
    counted = client.info("commandstats")["cmdstat_incr"]
    assert counted["calls"] % 60 == 0 or counted["calls"] > 180
    assert counted["usec_per_call"] < 1000


def test_a_server_that_holds_commands_back_shows_no_long_command(server: Server, tmp_path: Path) -> None:
    """Clients wait for as long as all commands are held back, and the server's own figures have no reason for it."""
    client: Any = server.client()

    def wait_s() -> float:
        began = time.monotonic()
        client.get("nothing")
        return time.monotonic() - began

    with running("held-back", server, tmp_path) as load:
        eventually(lambda: wait_s() >= 0.1)
        load.check()
    eventually(lambda: wait_s() < 0.1)
    assert client.info("commandstats")["cmdstat_get"]["usec_per_call"] < 10_000


def test_every_load_has_its_right_answer() -> None:
    """Each load has an answer, but the one beside a cause; only a pause of the process needs no load.

    Three have an answer that no diagnosis knows.
    """
    assert set(LOADS) == set(exam.EXPECTED) - {"paused"} | {"others"}
    assert [name for name, answer in exam.EXPECTED.items() if answer == "unknown"] == [
        "bursts",
        "held-back",
        "paused",
    ]
    assert not set(exam.EXPECTED) & set(CAUSES), "the loads are none that a session has"
    assert set(NOT_THE_SERVERS) <= set(CAUSES)
    named = {cause.id for cause in KNOWN}
    assert set(CAUSES) - set(NOT_THE_SERVERS) - {"nothing"} <= named
    assert exam.right_answer("full-sync", {}) == "full-sync"
    assert exam.right_answer("slow-disk", {LOOP_US: 1}) == "slow-disk"
    assert exam.right_answer("slow-disk", {}) == "unknown"


def test_a_scene_that_cannot_be_examined_fails_the_examination(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that were never made are no success."""

    def broken(name: str, of: str, seconds: float) -> exam.Row:
        if of == "redis":
            raise StackError("load ended unexpectedly.")
        return exam.Row(name, of, "nothing", "nothing", True, 0.3, 0.0)

    monkeypatch.setattr(exam, "plain", broken)
    monkeypatch.setattr(sys, "argv", ["exam", "--only", "idle", "--times", "1"])
    assert exam.main() == 1
    assert "1 of 1 right, 1 could not be examined" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--servers", "embedded"])
    assert exam.main() == 0


def test_sessions_are_held_without_and_with_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session is one row without and one with them; a load has none beside it. A wrong word is one line."""
    held: list[tuple[str, bool | None]] = []

    def noted(name: str, of: str, _: float, others: bool | None = None) -> exam.Row:
        held.append((name, others))
        return exam.Row(name, of, name, name, True, 0.3, 0.0)

    monkeypatch.setattr(exam, "plain", noted)
    monkeypatch.setattr(exam, "session", noted)
    asked = ["exam", "--only", "idle", "--only", "nothing", "--times", "1", "--servers", "embedded"]
    monkeypatch.setattr(sys, "argv", asked)
    assert exam.main() == 0
    assert held == [("idle", None), ("nothing", False), ("nothing", True)]
    held.clear()
    monkeypatch.setattr(sys, "argv", [*asked, "--others", "with"])
    assert exam.main() == 0
    assert held == [("idle", None), ("nothing", True)]
    monkeypatch.setattr(sys, "argv", [*asked, "--others", "many"])
    with pytest.raises(SystemExit, match="2"):
        exam.main()


def test_other_programs_keep_to_their_share(server: Server, tmp_path: Path) -> None:
    """They ask no more often than what an eighth of the server's time allows for, and they go on."""
    calls = number(server, "total_commands_processed")
    child = Child(
        "others", [sys.executable, "-m", "bench.exam_loads", "others", server.url], tmp_path / "load.log", cwd=ROOT
    )  # fmt: skip
    try:
        tried = QUICKEST_OF * TRIED
        eventually(lambda: calls() > 2 * tried)
        began, before = time.monotonic(), calls()
        eventually(lambda: calls() > before + 1_000)
        child.check()
        allowed = OTHERS / CALL_S * (time.monotonic() - began + LATE_S)
        assert calls() - before < 1.2 * allowed
    finally:
        child.stop()


def row(scene: str) -> exam.Row:
    """A right answer for a scene."""
    return exam.Row(scene, "embedded", scene, scene, True, 12.0, 0.3)


def test_rows_are_kept_at_once_and_added_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has each row as soon as it is known. A later sitting begins anew, or adds, and then both are named."""
    file = tmp_path / "exam.json"
    monkeypatch.setattr("sys.argv", ["bench.exam", "--only", "idle", "--write", str(file)])
    first = exam.Kept(file, 20.0, add=False)
    for number, scene in enumerate(("idle", "nothing"), start=1):
        first.add(row(scene))
        assert len(json.loads(file.read_text())["rows"]) == number
    monkeypatch.setattr("sys.argv", ["bench.exam", "--add"])
    exam.Kept(file, 20.0, add=True).add(row("idle"))
    kept = json.loads(file.read_text())
    assert [each["scene"] for each in kept["rows"]] == ["idle", "nothing", "idle"]
    commands = [each["command"] for each in kept["sittings"]]
    assert commands == ["python -m bench.exam --only idle", "python -m bench.exam --add"]
    exam.Kept(file, 20.0, add=False).add(row("nothing"))
    assert len(json.loads(file.read_text())["rows"]) == 1


def test_rows_that_were_made_otherwise_are_not_mixed(tmp_path: Path) -> None:
    """Rows of another length of observation are refused, and stay."""
    file = tmp_path / "exam.json"
    exam.Kept(file, 20.0, add=False).add(row("idle"))
    before = file.read_text()
    with pytest.raises(UsageError, match=r"has rows with seconds 20\.0, and here it is 5\.0"):
        exam.Kept(file, 5.0, add=True)
    assert file.read_text() == before

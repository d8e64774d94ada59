"""A storefront reports a state folder that is full, read-only, locked or corrupt, and recovers."""

import logging
import math
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.acceptance import TRY_EVERY_S, Acceptance
from app.state import State, StateError
from tests.app.servicekit import ROOT, ServerProcess, Service, eventually

NewService = Callable[..., Service]
LOST = "cache_invalidation_events_lost_at_most"
READABLE = 18
"""Offset of a database's write version. SQLite takes a file of a later version for read-only, whoever opens it."""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A state database of the test's own."""
    opened = State(tmp_path)
    yield opened
    opened.close()


def refused(acceptance: Acceptance) -> str:
    """Return why no event can be accepted when an attempt is due; '' if one can."""
    acceptance._next_try = 0.0
    try:
        acceptance.check()
    except StateError as error:
        return str(error)
    return ""


def make_read_only(folder: Path, whether: bool) -> None:
    """Let the state database be read-only for whatever opens it from now on, or take that back."""
    path = folder / "state.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(READABLE)
        file.write(b"\x7f" if whether else b"\x02")


def corrupt(folder: Path) -> None:
    """Overwrite the state database and its journal with noise."""
    for path in folder.glob("state.sqlite3*"):
        if not path.name.endswith("-shm"):
            with path.open("r+b") as file:
                file.write(os.urandom(path.stat().st_size))


def test_an_attempt_leaves_nothing(state: State, tmp_path: Path) -> None:
    """An attempt counts the outbox, commits, and leaves no event and no gap between the events' numbers."""
    other = State(tmp_path)
    first = state.add_event(1, "order", None)
    other.changed()
    assert state.try_event() == 1
    assert other.changed()
    assert [event.id for event in other.claim("a")] == [first]
    assert state.add_event(1, "order", None) == first + 1
    other.close()


def test_readiness_writes_once_a_second(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often readiness is asked for, there is one attempt in `TRY_EVERY_S`."""
    other, acceptance, now = State(tmp_path), Acceptance(state), [100.0]
    monkeypatch.setattr("app.acceptance.time.monotonic", lambda: now[0])
    other.changed()
    for moment, writes in ((100.0, True), (100.1, False), (100.0 + TRY_EVERY_S, True)):
        now[0] = moment
        for _ in range(3):
            acceptance.check()
        assert other.changed() is writes, moment
    other.close()


def test_a_refused_event_is_remembered(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program holds the lock, readiness is green until an event was refused, then red, then green."""
    acceptance = Acceptance(state)
    acceptance.check()
    monkeypatch.setattr("app.state._BUSY_S", 0.01)
    with closing(sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert refused(acceptance) == ""
        with pytest.raises(StateError, match="locked"):
            acceptance.accept(1, "order", None)
        assert "locked" in refused(acceptance)
    assert refused(acceptance) == ""
    assert acceptance.accept(1, "order", None) == 1


def test_who_waits_for_the_database_delays_no_readiness(state: State, tmp_path: Path) -> None:
    """While an event waits for a database that another program holds, the outbox is counted and readiness answers."""
    acceptance = Acceptance(state)
    waiting = threading.Thread(target=acceptance.accept, args=(1, "order", None))
    with closing(sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting.start()
        assert acceptance.pending() == 0
        acceptance.check()
        assert waiting.is_alive()
    waiting.join()
    assert acceptance.pending() == 1


def test_a_handle_that_can_only_read_is_replaced(state: State, tmp_path: Path) -> None:
    """A database that cannot be written is read all the same, and written as soon as it can be."""
    state.init_invalidation("index", 7)
    make_read_only(tmp_path, True)
    with closing(State(tmp_path, make=False)) as late:
        acceptance = Acceptance(late)
        assert "readonly" in refused(acceptance)
        assert late.invalidation().scan_count == 7
        with pytest.raises(StateError, match="readonly"):
            acceptance.accept(1, "order", None)
        make_read_only(tmp_path, False)
        assert refused(acceptance) == ""
        assert acceptance.accept(1, "order", None) == 1


def test_a_database_that_another_process_makes_is_awaited(tmp_path: Path) -> None:
    """Without `make` no file is made; the first call after another process made it opens it."""
    with closing(State(tmp_path, make=False)) as late:
        with pytest.raises(StateError, match="unable to open"):
            late.ping()
        assert list(tmp_path.iterdir()) == []
        State(tmp_path).close()
        late.ping()


def test_what_a_corrupt_outbox_held_is_said(
    state: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At most what the outbox held when it was looked at, and what was accepted since: one line, and no more events."""
    acceptance = Acceptance(state)
    for user in (1, 2, 3):
        acceptance.accept(user, "order", None)
    state.done(1)
    assert refused(acceptance) == ""
    acceptance.accept(4, "order", None)
    assert acceptance.at_most_lost() == 0
    corrupt(tmp_path)
    with caplog.at_level(logging.ERROR, "web"):
        for _ in range(3):
            with pytest.raises(StateError, match="start again") as found:
                acceptance.accept(6, "order", None)
            assert found.value.corrupt
            assert "start again" in refused(acceptance)
    assert acceptance.at_most_lost() == 3
    assert len(caplog.records) == 1
    assert "lost with the outbox: 3 at most" in caplog.text


def test_no_handle_goes_on_writing_into_noise(state: State, tmp_path: Path) -> None:
    """An event is accepted by what the file holds, not by pages that a handle remembers."""
    with closing(State(tmp_path)) as other:
        other.claim("a")
        state.add_event(1, "order", None)
        assert (state.pending(), state._read("none")) == (1, {})
        corrupt(tmp_path)
        assert state.pending() == 1  # as this handle remembers
        with pytest.raises(StateError, match="start again"):
            state.add_event(2, "order", None)


def test_what_nobody_looked_at_is_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A storefront that begins on a corrupt database does not guess."""
    State(tmp_path).close()
    corrupt(tmp_path)
    with closing(State(tmp_path, make=False)) as late:
        acceptance = Acceptance(late)
        assert refused(acceptance)
    assert math.isnan(acceptance.at_most_lost())
    assert "lost with the outbox: unknown" in caplog.text


# -- the storefront as a process


def workers(service: Service) -> list[psutil.Process]:
    """The storefront's worker processes."""
    return psutil.Process(service.running["web"].pid).children()


def is_ready(service: Service) -> bool:
    """True if the storefront says so."""
    return service.get("/readyz").status == 200


def web_metric(service: Service, name: str) -> float | None:
    """A metric without labels of the storefront; None if it is not there."""
    page = service.get("/metrics").body.decode()
    found = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[1]) if found else None


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="limits of another process can be set on Linux only"
)
def test_a_full_state_folder_is_not_ready(new_service: NewService, server: ServerProcess) -> None:
    """While no byte can be written, readiness is red, though nobody sends events, and one is refused; then neither."""
    service = new_service(server).start("web")
    eventually(lambda: is_ready(service))
    (worker,) = workers(service)
    before: Any = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    eventually(lambda: not is_ready(service), seconds=TRY_EVERY_S + 2)
    detail = service.get("/readyz").json["detail"]
    assert detail.startswith("state database: "), detail
    assert service.event(1).status == 503
    assert service.get("/users/1/fragments/page-0").status == 200
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)
    eventually(lambda: is_ready(service))
    assert service.event(1).status == 202
    assert web_metric(service, LOST) == 0


class Mounted(Service):
    """A service of which only the storefront runs, with a file system of its own for the state folder."""

    def launch(self, role: str) -> "subprocess.Popen[bytes]":
        """Start the storefront without waiting for anything."""
        self.state_dir.mkdir()
        inside = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, str(self.state_dir)]
        environment = {**self.environment, "PORT": str(self.port)}
        with (self.folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, sys.executable, "-m", f"app.{role}"],
                cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def remount(self, how: str) -> None:
        """Remount the state folder, `ro` or `rw`. `ro` waits for the files of a killed worker: its threads close them
        some moments after the process has become a zombie.
        """
        pid = str(self.running["web"].pid)
        command = [
            "nsenter",
            "--target",
            pid,
            "--mount",
            "mount",
            "-o",
            f"remount,{how}",
            str(self.state_dir),
        ]
        eventually(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0)


def can_mount() -> bool:
    """True if this process may give another one mounts of its own."""
    asked = ["unshare", "--mount", "true"]
    return (
        bool(shutil.which("unshare") and shutil.which("nsenter"))
        and not subprocess.run(asked, capture_output=True, check=False).returncode
    )


@pytest.mark.first(1)
@pytest.mark.parametrize("mounted", [False, True], ids=["read-only file", "read-only mount"])
def test_a_worker_that_begins_where_nothing_can_be_written(
    tmp_path: Path, server: ServerProcess, mounted: bool
) -> None:
    """The new worker stays, serves what it can, is not ready, and accepts events again by itself."""
    if mounted and not can_mount():
        pytest.skip("needs the right to mount")
    service: Service = (Mounted if mounted else Service)(tmp_path, server.url)

    def let_write(whether: bool) -> None:
        if isinstance(service, Mounted):
            service.remount("rw" if whether else "ro")
        else:
            make_read_only(service.state_dir, not whether)

    try:
        service.start("web")
        eventually(lambda: is_ready(service))
        assert service.put("/settings/invalidation", {"strategy": "generation"}).status == 200
        assert service.get("/users/1/fragments/page-0").headers["Cache-Status"] == "shop; fwd=miss"
        (first,) = workers(service)
        master = psutil.Process(service.running["web"].pid)
        master.suspend()
        first.kill()
        eventually(lambda: first.status() == psutil.STATUS_ZOMBIE)
        let_write(False)
        master.resume()
        (second,) = eventually(lambda: [one for one in workers(service) if one.pid != first.pid])
        eventually(lambda: service.get("/readyz").status == 503)
        assert service.event(1).status == 503
        assert service.get("/users/1/fragments/page-0").headers["Cache-Status"] == "shop; hit"
        time.sleep(2)
        assert workers(service) == [second]
        let_write(True)
        eventually(lambda: is_ready(service))
        assert service.event(1).status == 202
        assert workers(service) == [second]
    finally:
        service.stop()


@pytest.mark.whole
def test_a_state_folder_that_becomes_corrupt(new_service: NewService, server: ServerProcess) -> None:
    """No event is accepted any more, and what is lost is counted and said once. A start says what to do."""
    service = new_service(server).start("web")
    eventually(lambda: is_ready(service))
    accepted = [service.event(user).status for user in (1, 2, 3)]
    corrupt(service.state_dir)
    assert service.event(4).status == 503
    assert accepted == [202] * 3
    assert not is_ready(service)
    assert web_metric(service, LOST) == len(accepted)
    lines = [line for line in service.log("web").splitlines() if "lost" in line]
    assert len(lines) == 1 and f"outbox: {len(accepted)} at most" in lines[0], lines
    (worker,) = workers(service)
    worker.kill()
    worker.wait(10)
    eventually(lambda: [one for one in workers(service) if one.pid != worker.pid])
    eventually(lambda: service.get("/readyz").status == 503)
    assert math.isnan(web_metric(service, LOST) or 0.0)
    service.signal("web")
    before = len(service.log("web").splitlines())
    assert service.launch("web").wait(20) == 2
    (said,) = service.log("web").splitlines()[before:]
    assert "put its folder aside, empty the server, and start again" in said
    service.state_dir.rename(service.folder / "aside")
    server.client().flushall()
    service.start("web")
    eventually(lambda: is_ready(service))
    assert service.event(1).status == 202

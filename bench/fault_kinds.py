"""The faults of the matrix: a row each in `FAULTS`. A function does its fault to a scene and takes it back again.

It is given the seconds that the fault should last, and returns at the fault's end. What a fault counts (how often
something was killed) it writes into `Scene.notes`.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fault_scene import Scene

SLOW_S = 0.1
KILL_EVERY_S = 0.1
PASSWORD = "another"
CODE_2 = "processes ended with code 2"
BLOCK = b"\0" * 4096
HOUR_S = 3600.0


@dataclass(frozen=True)
class Fault:
    """A row of the matrix.

    `act` does the fault to a scene of its stack, for that many seconds. `proxy`, `small`, `traced`, `stepped`: see
    `Scene`.
    `freezes`: a put that the server has received may be carried out after its client gave up (`bench.fault_judge`:
    late). `corrupts`: the outbox is lost, so nothing may be accepted meanwhile, and what was in it is counted.
    `slower`: the load is sent at this share of its rate, and the fault lasts longer accordingly. `not_here`: why this
    row is not applicable; empty if it is.
    """

    title: str
    act: Callable[[Any, float], None]
    proxy: bool = False
    small: bool = False
    traced: bool = False
    freezes: bool = False
    corrupts: bool = False
    stepped: bool = False
    slower: float = 1.0
    not_here: str = ""


def server_killed(scene: Scene, seconds: float) -> None:
    """SIGKILL; all entries are gone. Started again at the end."""
    scene.end("server")
    time.sleep(seconds)
    scene.start("server")


def server_restarted(scene: Scene, seconds: float) -> None:
    """SIGTERM and an immediate start, again and again, a second apart; all entries are gone each time."""
    end = time.monotonic() + seconds
    while True:
        scene.end("server", signal.SIGTERM)
        scene.start("server")
        scene.wait_port("server")
        scene.notes["restarts"] = scene.notes.get("restarts", 0) + 1
        if time.monotonic() >= end:
            return
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))


def frozen(*names: str) -> Callable[[Scene, float], None]:
    """SIGSTOP to some processes, and SIGCONT at the end."""

    def act(scene: Scene, seconds: float) -> None:
        for name in names:
            scene.send(name, signal.SIGSTOP)
        time.sleep(seconds)
        for name in names:
            scene.send(name, signal.SIGCONT)

    return act


def setting(name: str, value: str, normal: str) -> Callable[[Scene, float], None]:
    """A setting of the server, and its normal value at the end."""

    def act(scene: Scene, seconds: float) -> None:
        with scene.admin() as server:
            server.config_set(name, value)
            time.sleep(seconds)
            server.config_set(name, normal)

    return act


def read_only(scene: Scene, seconds: float) -> None:
    """The server becomes the replica of a server that is not there; its data stays."""
    with scene.admin() as server:
        server.execute_command("REPLICAOF", "127.0.0.1", "1")
        time.sleep(seconds)
        server.execute_command("REPLICAOF", "NO", "ONE")


def slow(scene: Scene, seconds: float) -> None:
    """Each call takes `SLOW_S` longer."""
    scene.delay(SLOW_S)
    time.sleep(seconds)
    scene.delay(0.0)


def unreachable(scene: Scene, seconds: float) -> None:
    """The way to the server is closed: connections are refused."""
    scene.end("proxy")
    time.sleep(seconds)
    scene.start("proxy")


def password_changed(scene: Scene, seconds: float) -> None:
    """The server asks for a password that no process has."""
    with scene.admin() as server:
        server.config_set("requirepass", PASSWORD)
        server.client_kill_filter(_type="normal", skipme=True)
        time.sleep(seconds)
        server.config_set("requirepass", "")


def connections_killed(scene: Scene, seconds: float) -> None:
    """All connections are closed by the server, ten times a second."""
    end = time.monotonic() + seconds
    with scene.admin() as server:
        while time.monotonic() < end:
            server.client_kill_filter(_type="normal", skipme=True)
            scene.notes["times"] = scene.notes.get("times", 0) + 1
            time.sleep(KILL_EVERY_S)


def invalidator_killed(scene: Scene, seconds: float) -> None:
    """SIGKILL at random moments, with a new start each time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(random.uniform(0.0, 0.5))
        scene.end("invalidator")
        scene.start("invalidator")
        scene.wait_port("invalidator")
        scene.notes["kills"] = scene.notes.get("kills", 0) + 1


def worker_killed(scene: Scene, seconds: float) -> None:
    """SIGKILL to the storefront's worker; gunicorn starts another."""
    for worker in scene.workers():
        worker.kill()
        worker.wait(10)


def web_killed(scene: Scene, seconds: float) -> None:
    """SIGKILL to all processes of the storefront; started again at the end."""
    scene.end("web")
    time.sleep(seconds)
    scene.start("web")


def state_full(scene: Scene, seconds: float) -> None:
    """The disk with the state folder is full."""
    filler = scene.state_folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(BLOCK)
    time.sleep(seconds)
    filler.unlink()


def state_read_only(scene: Scene, seconds: float) -> None:
    """The state folder is read-only when the processes start."""
    for name in ("web", "invalidator", "warmer"):
        scene.end(name, signal.SIGTERM)
    scene.remount("ro")
    for name in ("web", "invalidator", "warmer"):
        scene.start(name)
    time.sleep(seconds)
    _end_all(scene)
    scene.remount("rw")
    for name in ("web", "invalidator", "warmer"):
        scene.start(name)


def _end_all(scene: Scene) -> None:
    """End what did not end by itself, and count what ended as a bad setting does."""
    for name in ("web", "invalidator", "warmer"):
        scene.notes[CODE_2] = scene.notes.get(CODE_2, 0) + (scene.exit_code(name) == 2)
        scene.end(name, signal.SIGTERM)


def state_locked(scene: Scene, seconds: float) -> None:
    """Another program holds the lock of the state database."""
    with closing(sqlite3.connect(scene.database, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        database.execute("ROLLBACK")


def corrupt(database: Path) -> None:
    """Overwrite the state database and its journal with noise."""
    for path in (database, database.with_name(database.name + "-wal")):
        if path.exists():
            size = max(4096, path.stat().st_size)
            with path.open("r+b") as file:
                file.write(os.urandom(size))


def state_corrupt_at_start(scene: Scene, seconds: float) -> None:
    """The state folder is corrupt when the processes start; at the end it is put aside (`Scene.begin_anew`)."""
    scene.end("invalidator")
    time.sleep(0.3)  # some events are accepted and not handled
    for name in ("web", "warmer"):
        scene.end(name)
    _give_up(scene)
    corrupt(scene.database)
    for name in ("web", "invalidator", "warmer"):
        scene.start(name)
    time.sleep(seconds)
    _end_all(scene)
    scene.begin_anew()


def state_corrupt_under_way(scene: Scene, seconds: float) -> None:
    """The state database is overwritten while all work with it; at the end it is put aside (`Scene.begin_anew`)."""
    frozen_ones = ("web", "invalidator", "warmer")
    for name in frozen_ones:
        scene.send(name, signal.SIGSTOP)
    _give_up(scene)
    corrupt(scene.database)
    for name in frozen_ones:
        scene.send(name, signal.SIGCONT)
    time.sleep(seconds)
    scene.begin_anew()


def _give_up(scene: Scene) -> None:
    """Count the events that go with the state database."""
    scene.given_up = scene.outbox()
    scene.notes["events given up"] = len(scene.given_up)
    scene.corrupt_from = time.monotonic()


def tempo_gone(scene: Scene, seconds: float) -> None:
    """The trace backend refuses connections."""
    assert scene.tempo is not None
    scene.tempo.leave()
    time.sleep(seconds)
    scene.tempo.come()


def tempo_silent(scene: Scene, seconds: float) -> None:
    """The trace backend accepts, and does not answer."""
    assert scene.tempo is not None
    scene.tempo.keep_silent()
    time.sleep(seconds)
    scene.tempo.come()


def clock_stepped(scene: Scene, seconds: float) -> None:
    """The clock of the storefront's processes is set an hour forward, right, an hour back, and right again."""
    for step, share in ((HOUR_S, 0.4), (0.0, 0.2), (-HOUR_S, 0.4)):
        scene.step_clock(step)
        time.sleep(seconds * share)
    scene.step_clock(0.0)


NO_MOUNTS = (
    "" if sys.platform == "linux" and os.geteuid() == 0 else "needs root on Linux, for a small file system"
)

FAULTS = {
    "server-killed": Fault("server killed, started again", server_killed),
    "server-stopped": Fault("server stopped", frozen("server"), freezes=True),
    "server-restarted": Fault("server restarted again and again", server_restarted),
    "server-full": Fault("server out of memory", setting("maxmemory", "100kb", "0")),
    "server-read-only": Fault("server read-only, as a replica is", read_only),
    "server-lonely": Fault(
        "server without the replicas it asks for", setting("min-replicas-to-write", "1", "0")
    ),
    "server-slow": Fault("server slow: 100 ms a call", slow, proxy=True),
    "server-unreachable": Fault("server unreachable", unreachable, proxy=True),
    "password-changed": Fault("the server's password changed", password_changed),
    "connections-killed": Fault("connections killed again and again", connections_killed),
    "invalidator-killed": Fault("invalidator killed at random moments", invalidator_killed, slower=0.6),
    "worker-killed": Fault("a web worker killed", worker_killed),
    "web-killed": Fault("all web processes killed", web_killed),
    "all-stopped": Fault(
        "all processes stopped", frozen("web", "invalidator", "warmer", "server"), freezes=True
    ),
    "state-full": Fault("state folder full", state_full, small=True, not_here=NO_MOUNTS),
    "state-read-only": Fault(
        "state folder read-only at a restart", state_read_only, small=True, not_here=NO_MOUNTS
    ),
    "state-locked": Fault("state database locked by another program", state_locked),
    "state-corrupt-at-start": Fault(
        "state folder corrupt at the start", state_corrupt_at_start, corrupts=True
    ),
    "state-corrupt": Fault("state folder corrupt under way", state_corrupt_under_way, corrupts=True),
    "tempo-gone": Fault("Tempo gone", tempo_gone, traced=True),
    "tempo-silent": Fault("Tempo accepting without an answer", tempo_silent, traced=True),
    "clock-stepped": Fault(
        "the storefront's clock an hour forward, and an hour back", clock_stepped, stepped=True
    ),
}

"""Loads of the examination that no blind session has: `python -m bench.exam_loads NAME redis://127.0.0.1:PORT`.

Each goes on until it is ended, against a server of the examination's own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socket import socket

from lab.stacks.processes import free_port
from loadtest.info import busy_seconds, fields
from loadtest.resp import ConnectionLost, Server, ask, command, connect

KEYS, SEARCHED_KEYS = 100_000, 300_000
CHUNK = 1_000
BATCH, TRIED, QUICKEST_OF = 10, 200, 5
CALL_S = 60e-6
"""Execution time of one call of the ordinary traffic, in seconds."""
OTHERS = 1 / 8
"""Share of the server's time that the ordinary programs of other teams take, where the server is not too busy."""
BURST_LINES, BURST_COMMANDS, BURST_EVERY_S = 100, 600, 0.5
"""Connections that send a pipeline at once, how many commands it has (about what the server reads at once), and how
often."""
HELD_BACK_MS, HELD_BACK_EVERY_S = 150, 1.0
COPIED_KEYS, COPIED_BYTES = 100_000, 10_000
"""What a full copy transfers: 1 GB. A fork then takes 25 ms on a quick machine."""
COPY_S, LOOK_S = 30.0, 0.05
"""The most seconds until a full copy begins, and the time from one look at it to the next."""
SYNCERS, SYNCED_BYTES, FILE_BYTES = 2, 4_000_000, 64_000_000
"""Threads that write beside the server, bytes from one fsync to the next, and bytes after which a file begins anew."""
WRITES_PER_S, TRIED_WRITES = 50, 40
SLOW_WRITE_S = 0.005
"""A write that waits this long for the disk makes other clients wait as long, which they notice."""
LATE_S = 0.5
"""The most seconds by which a schedule may fall behind; it then drops the calls that are overdue for longer."""


def fill(server: Server, keys: int = KEYS, value: str | bytes = "x" * 200) -> None:
    """Write keys with this value."""
    with connect(server) as line:
        for first in range(0, keys, CHUNK):
            ask(line, *(command("SET", f"exam:{number}", value) for number in range(first, first + CHUNK)))


def repeatedly(every_s: float, do: Callable[[], object]) -> None:
    """Call `do` every `every_s` seconds, without end."""
    due = time.monotonic()
    while True:
        do()
        due = max(due + every_s, time.monotonic() - LATE_S)
        time.sleep(max(0.0, due - time.monotonic()))


def quickest_s(line: socket, request: bytes, each: int = 1) -> float:
    """How long a request of `each` commands takes that nothing interrupts, in seconds: the quickest of a few."""

    def took_s() -> float:
        began = time.monotonic()
        ask(line, request, each=each)
        return time.monotonic() - began

    return min(took_s() for _ in range(QUICKEST_OF))


def script(server: Server) -> None:
    """A script that computes for some ten milliseconds, five times a second."""
    text = "local s = 0 for i = 1, tonumber(ARGV[1]) do s = s + i % 7 end return s"
    with connect(server) as line:
        loops = round(100_000 * 0.04 / quickest_s(line, command("EVAL", text, 0, 100_000)))
        repeatedly(0.2, lambda: ask(line, command("EVAL", text, 0, loops)))


def many(server: Server) -> None:
    """MGETs of tens of thousands of keys, for about a sixth of the server's time; their answers take as long again."""
    fill(server)
    request = command("MGET", *(f"exam:{number}" for number in range(60_000)))
    with connect(server) as line:
        repeatedly(2 * quickest_s(line, request), lambda: ask(line, request))


def bursts(server: Server) -> None:
    """Short commands that many clients send in the same moment: the server has little to do, and all of it at once."""
    request = command("INCR", "exam:counter") * BURST_COMMANDS
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(server)) for _ in range(BURST_LINES)]

        def burst() -> None:
            for line in lines:
                line.sendall(request)
            for line in lines:
                ask(line, b"", each=BURST_COMMANDS)

        repeatedly(BURST_EVERY_S, burst)


def held_back(server: Server) -> None:
    """A program that has the server hold back all commands now and then, as programs do that move data or a primary."""
    with connect(server) as line:
        repeatedly(HELD_BACK_EVERY_S, lambda: ask(line, command("CLIENT", "PAUSE", HELD_BACK_MS)))


def ordinary(server: Server) -> bytes:
    """A batch of ordinary commands, each of which takes the server `CALL_S`; calls that long let one client suffice.

    It is a BITCOUNT of a string whose length is found by trying.
    """
    size = 200_000
    with connect(server) as line:
        ask(line, command("SET", "exam:bits", "x" * size))
        tried_s = quickest_s(line, command("BITCOUNT", "exam:bits") * TRIED, each=TRIED)
        size = round(size * CALL_S * TRIED / tried_s)
        ask(line, command("SET", "exam:bits", "x" * size))
    return command("BITCOUNT", "exam:bits") * BATCH


def traffic(server: Server, busy: float) -> None:
    """Ordinary commands that keep the main thread busy for about that share, controlled by the server's CPU time."""
    request = ordinary(server)
    per_s = 200.0
    with connect(server) as line, connect(server) as watched:

        def used() -> tuple[float, float]:
            [said] = ask(watched, command("INFO", "ALL"))
            assert isinstance(said, bytes)
            return time.monotonic(), busy_seconds(fields(said)) or 0.0

        before, due, looked = used(), time.monotonic(), time.monotonic()
        while True:
            ask(line, request, each=BATCH)
            due = max(due + 1 / per_s, time.monotonic() - 0.02)
            time.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() - looked > 0.5:
                looked, now = time.monotonic(), used()
                share = (now[1] - before[1]) / (now[0] - before[0])
                per_s = max(10.0, per_s * min(2.0, max(0.5, busy / max(share, 0.01))) ** 0.5)
                before = now


def others(server: Server) -> None:
    """Ordinary commands of other teams' programs, for an eighth of the server's time, as others leave it."""
    request = ordinary(server)
    with connect(server) as line:
        repeatedly(BATCH * CALL_S / OTHERS, lambda: ask(line, request, each=BATCH))


def keys(server: Server) -> None:
    """KEYS, for about a sixth of the server's time."""
    fill(server, SEARCHED_KEYS)
    with connect(server) as line:
        search = command("KEYS", "nobody:*")
        repeatedly(6 * quickest_s(line, search), lambda: ask(line, search))


def two(server: Server) -> None:
    """KEYS and a script at once."""
    threading.Thread(target=script, args=(server,), daemon=True).start()
    keys(server)


def told(server: Server) -> dict[str, str]:
    """Its INFO."""
    with connect(server) as line:
        [said] = ask(line, command("INFO", "ALL"))
    assert isinstance(said, bytes)
    return fields(said)


def folder_of(server: Server) -> Path:
    """The folder in which it keeps its files. The examination removes it afterwards."""
    with connect(server) as line:
        [said] = ask(line, command("CONFIG", "GET", "dir"))
    assert isinstance(said, list)
    return Path(said[1].decode())


def start_replica(server: Server) -> Server:
    """Start another server of the same program, and wait until it answers. It ends with this process's group."""
    folder = folder_of(server) / "replica"
    folder.mkdir()
    other = Server("127.0.0.1", free_port())
    words = [told(server)["executable"], "--bind", other.host, "--port", str(other.port), "--save", ""]
    subprocess.Popen([*words, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + COPY_S
    while True:
        try:
            connect(other).close()
            return other
        except ConnectionLost:
            if time.monotonic() > give_up:
                raise
            time.sleep(LOOK_S)


def full_sync(server: Server) -> None:
    """A replica whose copy of the whole data set breaks off and begins anew, as one does whose buffer is too small.

    What hurts is the fork at the beginning of each copy. There is one a second: a server looks once a second whether a
    replica waits, and this one is told not to wait for others.
    """
    fill(server, COPIED_KEYS, os.urandom(COPIED_BYTES))  # nothing that the snapshot could compress
    with connect(server) as line:
        ask(line, command("CONFIG", "SET", "repl-diskless-sync-delay", 0))
    with connect(start_replica(server)) as line:
        while True:
            forks, give_up = told(server)["total_forks"], time.monotonic() + COPY_S
            ask(line, command("REPLICAOF", server.host, server.port))
            while told(server)["total_forks"] == forks:
                if time.monotonic() > give_up:
                    sys.exit(f"no copy has begun after {COPY_S:.0f} s")
                time.sleep(LOOK_S)
            ask(line, command("REPLICAOF", "NO", "ONE"))  # its history is then another: it needs all anew


def sync_again(file: Path) -> None:
    """Write to a file and have each piece synced to disk, without end."""
    piece = os.urandom(SYNCED_BYTES)
    while True:
        with file.open("wb", buffering=0) as out:
            for _ in range(FILE_BYTES // SYNCED_BYTES):
                out.write(piece)
                os.fsync(out.fileno())


def slow_disk(server: Server) -> None:
    """Writes that the server syncs one by one, to a disk that other writers keep busy.

    Ends with a sentence if the writes hardly wait: then the disk is too quick for this load, or none at all.
    """
    folder = folder_of(server)
    with connect(server) as line:
        ask(line, command("CONFIG", "SET", "appendfsync", "always"))
        ask(line, command("CONFIG", "SET", "appendonly", "yes"))
        for number in range(SYNCERS):
            threading.Thread(target=sync_again, args=(folder / f"beside-{number}",), daemon=True).start()

        def write() -> float:
            began = time.monotonic()
            ask(line, command("SET", "exam:written", "x" * 100))
            return time.monotonic() - began

        waited_s = statistics.median(write() for _ in range(TRIED_WRITES))
        if waited_s < SLOW_WRITE_S:
            sys.exit(
                f"a write waits {1000 * waited_s:.1f} ms for the disk, which is too quick for this load: let TMPDIR "
                "name a folder on a slower disk"
            )
        repeatedly(1 / WRITES_PER_S, write)


def idle(server: Server) -> None:
    """No load."""
    time.sleep(3600)


LOADS: dict[str, Callable[[Server], None]] = {
    "idle": idle,
    "others": others,
    "busy-30": lambda server: traffic(server, 0.3),
    "busy-60": lambda server: traffic(server, 0.6),
    "busy-80": lambda server: traffic(server, 0.8),
    "many-at-once": many,
    "full-sync": full_sync,
    "slow-disk": slow_disk,
    "two-at-once": two,
    "bursts": bursts,
    "held-back": held_back,
}


if __name__ == "__main__":
    LOADS[sys.argv[1]](Server.from_url(sys.argv[2]))

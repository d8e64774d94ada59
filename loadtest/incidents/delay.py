"""A TCP relay that adds a round-trip time: it holds every byte for half of that time, each way.

`python -m loadtest.incidents.delay --url redis://127.0.0.1:6379 --rtt-ms 1` prints one JSON line that says on which
port of 127.0.0.1, or of the address after `--listen`, it listens. It relays until SIGTERM, SIGINT, or with
`--until-stdin-ends` the end of stdin: exit code 0. Bad arguments: 2. If the server cannot be reached, the relay closes
the client's connection. The relay works for any protocol.

It models latency alone: what was read at time t is written at t + RTT/2, in its order, however much is on its way. A
real network also has a bandwidth, a window that opens slowly, and losses; with those a long pipeline gains less. The
relay's own work (two wake-ups each way) comes on top: measure the round trip of a PING through it.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue

from loadtest.arguments import ServerPlan, number, option, read_plan
from loadtest.probe.quiet import become_quiet
from loadtest.process import heed_endings, say
from loadtest.resp import Server

READ_BYTES = 256 * 1024
LONGEST_MS = 1_000.0
Pieces = SimpleQueue[tuple[float, bytes]]


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the relay: delay and address."""

    rtt_ms: float = option("round-trip time to add, in ms", number(0, LONGEST_MS), 1.0)
    listen: str = option("address of this machine to listen at", default="127.0.0.1")


class Delay:
    """The time that bytes are held each way, in s. A change applies to bytes that arrive from then on.

    With `every_s` the relay stands still for the last `stall_s` of each such period: what would be due then is due at
    its end. So bytes keep their order, and none is lost, as on a connection that sends again what a network lost.
    """

    def __init__(self, half_s: float, stall_s: float = 0.0, every_s: float = 0.0) -> None:
        self.half_s, self.stall_s, self.every_s = half_s, stall_s, every_s

    def due(self, now: float) -> float:
        """Return when bytes that arrive `now` are due at the other end; both by the same clock, in s."""
        due, every_s = now + self.half_s, self.every_s
        if every_s and (left := every_s - due % every_s) <= self.stall_s:
            due += left
        return due


def relay(server: Server, delay: Delay, client_line: tuple[str, int] = ("127.0.0.1", 0)) -> int:
    """Listen at `near` (port 0: a free one) and relay each connection to the server, in threads; returns the port.

    Threads inherit the timer slack of the one that calls this (`become_quiet`).
    """
    listener = socket.create_server(client_line)
    threading.Thread(target=_accept, args=(listener, server, delay), daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def _accept(listener: socket.socket, server: Server, delay: Delay) -> None:
    while True:
        client_line, _ = listener.accept()
        try:
            server_line = socket.create_connection((server.host, server.port))
        except OSError:
            client_line.close()
            continue
        for source, sink in ((client_line, server_line), (server_line, client_line)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces: Pieces = SimpleQueue()
            threading.Thread(target=_receive, args=(source, pieces, delay), daemon=True).start()
            threading.Thread(target=_send_when_due, args=(pieces, sink), daemon=True).start()


def _receive(source: socket.socket, pieces: Pieces, delay: Delay) -> None:
    """Queue the arriving bytes, each piece with its due time at the other end; b"" marks the end of the stream."""
    data = b"."
    while data:
        try:
            data = source.recv(READ_BYTES)
        except OSError:
            data = b""
        pieces.put((delay.due(time.monotonic()), data))


def _send_when_due(pieces: Pieces, sink: socket.socket) -> None:
    while True:
        due, data = pieces.get()
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:  # that end is gone; bytes on their way there are lost
            with contextlib.suppress(OSError):
                sink.close()
            return


def main() -> int:
    """Relay until the end is requested; returns the exit code."""
    plan, ended = read_plan(Plan, "delay", __doc__), threading.Event()
    heed_endings(plan, ended.set)
    become_quiet()
    try:
        port = relay(plan.server, Delay(plan.rtt_ms / 2000), (plan.listen, 0))
    except (OSError, UnicodeError) as error:
        print(
            f"delay: cannot listen at {plan.listen}: {getattr(error, 'strerror', None) or error}",
            file=sys.stderr,
        )
        return 2
    with contextlib.suppress(BrokenPipeError):
        say({"port": port})
    ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())

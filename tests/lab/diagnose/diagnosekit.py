"""Helpers for tests of `bin/lab diagnose`: a recording proxy, services other than Redis, a fake server."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import hiredis

from tests.loadtest.conftest import Server

Run = Callable[..., tuple[int, str, str]]


class Tap(socketserver.ThreadingTCPServer):
    """A proxy in front of the server that records every command with its time."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), self.Relay)
        self.behind = port
        self.commands: list[tuple[float, list[str]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.server_address[1]}"

    class Relay(socketserver.BaseRequestHandler):
        """Relays one connection."""

        def handle(self) -> None:
            """Pass data on in both directions, and record the commands."""
            tap: Any = self.server
            with socket.create_connection(("127.0.0.1", tap.behind)) as there:
                threading.Thread(target=self._back, args=(there,), daemon=True).start()
                reader = hiredis.Reader()
                while data := self.request.recv(65536):
                    reader.feed(data)
                    while (words := reader.gets()) is not False:
                        tap.commands.append((time.monotonic(), [word.decode() for word in words]))
                    there.sendall(data)

        def _back(self, there: socket.socket) -> None:
            try:
                while data := there.recv(65536):
                    self.request.sendall(data)
            except OSError:
                pass


class Other(socketserver.ThreadingTCPServer):
    """A service that is no Redis: answers the first bytes with its own words."""

    daemon_threads = True
    words = b""

    def __init__(self, words: bytes) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1000)
                self.request.sendall(words)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Fake(socketserver.ThreadingTCPServer):
    """Speaks the protocol as far as a diagnosis needs. INFO says that each INFO took `info_s`; PING takes `ping_s`.

    `more` are further lines of INFO, `replies` replies to other commands. `stands(command, infos)`: whether a command
    waits `STANDS_S` for its reply, after so many INFOs.
    """

    daemon_threads = True
    STANDS_S = 20.0

    def __init__(
        self,
        info_s: float = 0.0,
        ping_s: float = 0.0,
        product: str = "valkey",
        more: str = "",
        replies: Mapping[str, bytes] | None = None,
        stands: Callable[[str, int], bool] = lambda _name, _infos: False,
    ) -> None:
        fake = self
        self.infos = 0

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                reader = hiredis.Reader()
                while data := self.request.recv(65536):
                    reader.feed(data)
                    while (words := reader.gets()) is not False:
                        self.request.sendall(fake.reply(words[0].decode()))

        super().__init__(("127.0.0.1", 0), Handler)
        self.info_s, self.ping_s, self.product = info_s, ping_s, product
        self.more, self.replies, self.stands = more, replies or {}, stands
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.server_address[1]}"

    def reply(self, name: str) -> bytes:
        """Return the reply to a command."""
        if self.stands(name, self.infos):
            time.sleep(self.STANDS_S)
        if name in self.replies:
            return self.replies[name]
        if name == "INFO":
            self.infos += 1
            usec = round(1e6 * self.info_s * self.infos)
            text = f"{self.product}_version:9.1.2\r\nuptime_in_seconds:9\r\n"
            text += "used_cpu_user:0.1\r\nused_cpu_sys:0.0\r\n"
            text += f"cmdstat_info:calls={self.infos},usec={usec}\r\n{self.more}"
            return f"${len(text)}\r\n{text}\r\n".encode()
        if name in ("PING", "GET"):
            if self.infos > 1:
                time.sleep(self.ping_s)
            return b"+PONG\r\n"
        return b"$0\r\n\r\n" if name == "CLIENT" else b"*0\r\n"


def acl(server: Server, line: str) -> None:
    """Carry out a printed ACL command."""
    client: Any = server.client()
    client.execute_command(*line.split())


def one_line(found: tuple[int, str, str], code: int, said: str) -> None:
    """Assert this exit code, and one line that says what is wrong."""
    assert found[0] == code
    assert found[1] == ""
    [line] = [line for line in found[2].splitlines() if line.startswith("lab: ")]
    assert said in line

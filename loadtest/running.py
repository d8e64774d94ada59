"""What every load of a scenario does alike: begin, say its figures, end when it is told to, fail in one line.

The last line of a load's output holds ``{"figures": {name: number}}``. Exit code 0 after that line; 3 with one line
on stderr where the server refuses or is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import hiredis

from loadtest.arguments import stop_with_stdin
from loadtest.wire import ConnectionLost, Server, command

BROKE = 3
ANSWER_S = 60.0
"""For an answer outside of the measurement: loads make servers stall for seconds, and that is no failure."""


class LoadFailed(Exception):
    """The server refused, or is gone; one sentence."""


class Ending:
    """Whether the load was told to end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Tell it. Safe in a signal handler."""
        self.asked = True


def say(line: dict[str, object]) -> None:
    """One line of output."""
    print(json.dumps(line), flush=True)


def run_load(name: str, work: Callable[[Ending], dict[str, float]], until_stdin_ends: bool) -> int:
    """Do the work until it ends or is told to, then say its figures; the exit code."""
    ending = Ending()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.ask())
    if until_stdin_ends:
        threading.Thread(target=stop_with_stdin, args=(ending.ask,), name="stdin", daemon=True).start()
    try:
        say({"figures": work(ending)})
    except (LoadFailed, ConnectionLost) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return BROKE
    except BrokenPipeError:  # nobody reads the lines any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the interpreter's last flush quiet
    return 0


def _greeting(server: Server) -> list[bytes]:
    """What a new connection says first."""
    words: list[bytes] = []
    if server.password:
        words.append(command("AUTH", *((server.username,) if server.username else ()), server.password))
    if server.database:
        words.append(command("SELECT", server.database))
    return words


def connect(server: Server) -> socket.socket:
    """A blocking connection that is signed in. Raises `LoadFailed` or `ConnectionLost`."""
    try:
        line = socket.create_connection((server.host, server.port), ANSWER_S)
    except OSError as error:
        raise ConnectionLost(f"{server}: {error.strerror or error}") from None
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if words := _greeting(server):
            ask(line, *words)
    except BaseException:
        line.close()
        raise
    return line


def ask(line: socket.socket, *requests: bytes, each: int = 1) -> list[object]:
    """The replies to some requests sent at once, `each` to one. Raises `LoadFailed` for a refusal, or `ConnectionLost`.

    (A request may itself be a pipeline of several commands.)
    """
    reader, wanted = hiredis.Reader(), each * len(requests)
    replies: list[object] = []
    try:
        line.sendall(b"".join(requests))
        while len(replies) < wanted:
            while (reply := reader.gets()) is False:
                data = line.recv(65536)
                if not data:
                    raise ConnectionLost("closed by the server")
                reader.feed(data)
            if isinstance(reply, hiredis.ReplyError):
                raise LoadFailed(f"the server refuses: {reply}")
            replies.append(reply)
    except TimeoutError:
        raise LoadFailed("the server does not answer") from None
    except OSError as error:
        raise ConnectionLost(error.strerror or str(error)) from None
    except hiredis.ProtocolError as error:
        raise ConnectionLost(f"not a Redis-compatible server: {error}") from None
    return replies

"""`bin/lab redis`: sends one command to a server and shows the reply as redis-cli does, on machines without redis-cli.

On a server of the lab every command is allowed. The values of settings before a change are printed, and the end of a
blind session puts all settings back. On any other server only commands that change nothing and cost next
to nothing (`HARMLESS`) are allowed, unless `--write` is given. Changes of data are not undone.
"""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import hiredis
import typer

from lab.errors import StackError, UsageError
from lab.foreign_text import shown
from lab.server import inside
from lab.server.address import Address
from lab.server.servers import ADDRESS
from loadtest import resp

OBSERVED = b" name=probe:main "
"""In CLIENT LIST this marks the main probe's connection, which every server in a scene of the lab has."""
ENDLESS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "SYNC", "PSYNC"})
MONITORED_S, MONITORED_LINES = 2.0, 1000
"""Limits for MONITOR, seconds and lines: it costs a server dearly, and lasts until the connection is closed."""
HARMLESS = frozenset(
    tuple(words.split())
    for words in (
        "PING", "ECHO", "TIME", "INFO", "ROLE", "LASTSAVE", "DBSIZE", "COMMAND", "ACL WHOAMI", "CLIENT LIST",
        "CLIENT INFO", "CLIENT ID", "CONFIG GET", "SLOWLOG GET", "SLOWLOG LEN", "COMMANDLOG GET", "COMMANDLOG LEN",
        "LATENCY LATEST", "LATENCY HISTORY", "LATENCY HISTOGRAM", "LATENCY DOCTOR", "MEMORY STATS", "MEMORY DOCTOR",
        "MEMORY USAGE", "CLUSTER INFO", "CLUSTER NODES", "OBJECT ENCODING", "OBJECT FREQ", "OBJECT IDLETIME", "EXISTS",
        "TYPE", "TTL", "PTTL", "GET", "STRLEN", "HLEN", "HGET", "LLEN", "SCARD", "SISMEMBER", "ZCARD", "ZSCORE", "XLEN",
        "SCAN",
    )
)  # fmt: skip
"""First words of the commands that change nothing and whose cost does not grow with the number of keys."""
MOST = {"COUNT": 10_000, "SAMPLES": 100, "SLOWLOG GET": 1_000, "COMMANDLOG GET": 1_000}
"""The largest number after these words in a harmless command."""
LOCK = "latency-lab-lock"  # the key of a run on a server of --url: see `lab.stacks.foreign`
SECRET = ("pass", "masterauth", "primaryauth")  # in the name of a setting: its value is not shown


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


class CliConnection:
    """A connection to a server. Methods raise `UsageError` for a refused command, `StackError` for no answer."""

    def __init__(self, url: str) -> None:
        try:
            self._server = resp.Server.from_url(url)
        except ValueError as error:
            raise UsageError(f"{str(error).partition(': ')[0]}.") from None
        try:
            self._socket: socket.socket = resp.connect(self._server)
        except (resp.ConnectionLost, resp.LoadFailed) as error:
            raise StackError(f"{error}.") from None

    def ask(self, *words: str) -> object:
        """Send a command, and return the reply."""
        try:
            return resp.ask(self._socket, resp.command(*words))[0]
        except resp.LoadFailed as error:
            raise UsageError(f"{error}.") from None
        except resp.ConnectionLost as error:
            raise StackError(f"{self._server}: {error}.") from None

    def monitored(self) -> list[str]:
        """Return MONITOR's lines of two seconds, at most a thousand. It is the connection's last command.

        The two seconds begin with the server's OK, which may take as long as any other answer.
        """
        stream, end = resp.Stream(self._socket), time.monotonic() + resp.ANSWER_S
        replies: list[object] = []
        try:
            stream.send(resp.command("MONITOR"))
            while len(replies) <= MONITORED_LINES and (left := end - time.monotonic()) > 0:
                waits = not replies
                if select.select([stream.fd], [], [], left)[0]:
                    replies += stream.receive()
                if waits and replies:
                    end = time.monotonic() + MONITORED_S
                if replies and isinstance(replies[0], hiredis.ReplyError):
                    raise UsageError(f"the server refuses: {replies[0]}.")
        except resp.ConnectionLost as error:
            raise StackError(f"{self._server}: {error}.") from None
        if not replies:
            raise StackError(f"{self._server}: the server does not answer.")
        return [_text(line) for line in replies[1 : MONITORED_LINES + 1]]  # the first is OK

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def is_the_labs(self) -> bool:
        """Return True if a scene of the lab runs on this server."""
        with contextlib.suppress(UsageError):
            answer = self.ask("CLIENT", "LIST")
            return isinstance(answer, bytes) and OBSERVED in answer
        return False

    def is_near(self) -> bool:
        """Return True if the server runs on this machine or belongs to the scene: the lab starts none elsewhere."""
        return inside.is_inside() or Address("", self._server.host).is_here

    def settings(self, names: list[str]) -> dict[str, str]:
        """Return the current values of these settings."""
        found: dict[str, str] = {}
        for name in names:
            answer = self.ask("CONFIG", "GET", name)
            words = [_text(word) for word in answer] if isinstance(answer, list) else []
            found |= dict(zip(words[::2], words[1::2], strict=False))
        return found


def harmless(words: list[str]) -> bool:
    """Return True if a command is allowed without `--write` on a server that the lab does not own."""
    upper = tuple(word.upper() for word in words)
    if not (upper[:1] in HARMLESS or upper[:2] in HARMLESS):
        return False
    numbers = {word: upper[at + 1 : at + 2] for at, word in enumerate(upper[:-1]) if word in MOST}
    if (name := " ".join(upper[:2])) in MOST:
        numbers[name] = upper[2:3] or ("1",)
    return all(
        number and number[0].isdecimal() and 1 <= int(number[0]) <= MOST[word]
        for word, number in numbers.items()
    )


def lines(answer: object, terminal: bool, indent: str = "") -> Iterator[str]:
    """Yield the lines of a reply, as redis-cli prints it: with types and numbers on a terminal, bare in a pipe."""
    if isinstance(answer, list):
        if not answer and terminal:
            yield "(empty array)"
        for number, each in enumerate(answer, 1):
            inner = lines(each, terminal)
            if not terminal:
                yield from inner
                continue
            head = f"{number:>{len(str(len(answer)))}}) "
            for place, line in enumerate(inner):
                yield indent + (head if place == 0 else " " * len(head)) + line
    elif answer is None:
        yield "(nil)" if terminal else ""
    elif isinstance(answer, int) and terminal:
        yield f"(integer) {answer}"
    else:
        yield from map(shown, _text(answer).splitlines() or [""])


def carry_out(connection: CliConnection, words: list[str], write: bool) -> tuple[object, dict[str, str]]:
    """Send a command. Returns its reply (for MONITOR a list of lines), and the old values of changed settings.

    Raises `UsageError` for a command that is not allowed on this server.
    """
    name = words[0].upper()
    if name in ENDLESS:
        raise UsageError(f"{name} never ends: use redis-cli, which shows it until Ctrl-C.")
    # On any server a client may have the probe's name.
    labs = connection.is_near() and connection.is_the_labs() and not connection.ask("EXISTS", LOCK)
    if not (labs or write or harmless(words)):
        raise UsageError(
            f"{name} may change this server or load it heavily, and it is no scene of the lab's. To send it all the "
            "same: bin/lab redis --write COMMAND."
        )
    if name == "MONITOR" and len(words) == 1:
        return connection.monitored(), {}
    if [word.upper() for word in words[:2]] != ["CONFIG", "SET"]:
        return connection.ask(*words), {}
    before = connection.settings(words[2::2])
    answer = connection.ask(*words)
    after = connection.settings(list(before))
    return answer, {name: value for name, value in before.items() if after.get(name) != value}


def redis(
    words: Annotated[
        list[str] | None, typer.Argument(help="The command and its arguments.", metavar="COMMAND...")
    ] = None,
    url: Annotated[str, typer.Option(envvar=ADDRESS, help="redis://[user:password@]host:port[/db].")] = "",
    write: Annotated[
        bool,
        typer.Option("--write", help="Allow commands that change a server where no scene of the lab runs."),
    ] = False,
) -> None:
    """Send one command to the server, and show the reply as redis-cli does."""
    if not words:
        raise UsageError("name a command, as in bin/lab redis INFO memory.")
    if not url:  # no default address: a server that is not the lab's may listen there
        raise UsageError(
            "name a server by --url redis://127.0.0.1:6379, or start a scene in another terminal."
        )
    with contextlib.closing(CliConnection(url)) as connection:
        answer, before = carry_out(connection, words, write)
        for text in lines(answer, sys.stdout.isatty() and words[0].upper() != "MONITOR"):
            print(text)
        for name, value in before.items():
            if any(part in name for part in SECRET):
                print(f"before: {name} had another value, which is not shown.", file=sys.stderr)
                continue
            back = shlex.join(["bin/lab", "redis", "CONFIG", "SET", name, value])
            print(shown(f"before: {name} {value or 'empty'}. Put it back with: {back}"), file=sys.stderr)

"""`bin/lab redis`: give a server one command and show its raw answer as redis-cli does, on machines without redis-cli.

On a server of the lab every command is allowed. Settings that a command changes are noted, and put back by `--restore`
or at the end of the blind session in which they were changed. On any other server only commands that change nothing and
cost next to nothing (`HARMLESS`) are allowed, unless `--write` is given. What a command does to data is not undone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import hiredis
import typer

from lab import ROOT
from lab.errors import StackError, UsageError
from loadtest import resp

ADDRESS = "PROBE_URL"
OBSERVED = b" name=probe:main "
"""In CLIENT LIST this marks the main probe's connection, which every server in a scene of the lab has."""
ENDLESS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "SYNC", "PSYNC"})
MONITORED_S, MONITORED_LINES = 2.0, 1000
"""Limits for MONITOR, seconds and lines: it costs a server dearly, and goes on until the connection is closed."""
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


def journal() -> Path:
    """The file in which changed settings are noted, beside the blind sessions (of which one runs at a time)."""
    return Path(os.environ.get("LAB_BLIND_HOME") or ROOT / "runs" / "blind") / "settings-by-hand.json"


def noted() -> dict[str, dict[str, str]]:
    """Server (address and run id) → its changed settings, with their values before.

    Raises `UsageError` when the file cannot be read.
    """
    try:
        found = json.loads(journal().read_text())
        return {server: {str(k): str(v) for k, v in was.items()} for server, was in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, OSError) as error:
        raise UsageError(f"{journal()} cannot be read ({error}): remove it.") from None


def note(found: dict[str, dict[str, str]]) -> None:
    """Replace the noted settings in one step; remove the file if none are left. Raises `StackError` if that fails."""
    place = journal()
    try:
        if kept := {server: was for server, was in found.items() if was}:
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1))
            part.replace(place)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise StackError(f"changed settings cannot be noted in {place}: {error.strerror}.") from None


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


class Line:
    """One connection to a server. Methods raise `UsageError` for what it refuses, `StackError` when it is away."""

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
        """The answer to one command."""
        try:
            return resp.ask(self._socket, resp.command(*words))[0]
        except resp.LoadFailed as error:
            raise UsageError(f"{error}.") from None
        except resp.ConnectionLost as error:
            raise StackError(f"{self._server}: {error}.") from None

    def monitored(self) -> list[str]:
        """MONITOR's lines, for two seconds or up to a thousand lines. It is the connection's last command.

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

    def identity(self) -> str:
        """The server's address and, if it tells one, its run id: a restart gives a new id, and resets the settings."""
        told = ""
        with contextlib.suppress(UsageError):
            for row in _text(self.ask("INFO", "server")).splitlines():
                told = row.removeprefix("run_id:") if row.startswith("run_id:") else told
        return f"{self._server} {told}".strip()

    def is_the_labs(self) -> bool:
        """True if a scene of the lab runs on this server."""
        with contextlib.suppress(UsageError):
            answer = self.ask("CLIENT", "LIST")
            return isinstance(answer, bytes) and OBSERVED in answer
        return False

    def settings(self, names: list[str]) -> dict[str, str]:
        """The current values of these settings."""
        found: dict[str, str] = {}
        for name in names:
            answer = self.ask("CONFIG", "GET", name)
            words = [_text(word) for word in answer] if isinstance(answer, list) else []
            found |= dict(zip(words[::2], words[1::2], strict=False))
        return found


def harmless(words: list[str]) -> bool:
    """True if a command may be given to somebody else's server without `--write`."""
    upper = tuple(word.upper() for word in words[:2])
    return upper[:1] in HARMLESS or upper in HARMLESS


def lines(answer: object, terminal: bool, indent: str = "") -> Iterator[str]:
    """The lines of an answer, as redis-cli prints it: with types and numbers on a terminal, bare in a pipe."""
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
        yield from _text(answer).splitlines() or [""]


def carry_out(line: Line, words: list[str], write: bool) -> object:
    """Give a command and note the settings that it changes. Returns its answer; for MONITOR a list of its lines.

    Raises `UsageError` for a command that is not allowed on this server.
    """
    name = words[0].upper()
    if name in ENDLESS:
        raise UsageError(f"{name} never ends: use redis-cli, which shows it until Ctrl-C.")
    labs = line.is_the_labs()
    if not (labs or write or harmless(words)):
        raise UsageError(
            f"{name} may change this server or load it heavily, and no scene of the lab runs there. To send it all the "
            "same: bin/lab redis --write COMMAND."
        )
    if name == "MONITOR" and len(words) == 1:
        return line.monitored()
    if [word.upper() for word in words[:2]] != ["CONFIG", "SET"]:
        return line.ask(*words)
    found = noted()  # read first: if it raises, no change is made that could not be put back
    before = line.settings(words[2::2])
    answer = line.ask(*words)
    after = line.settings(list(before))
    identity = line.identity()
    address = identity.partition(" ")[0]
    was = {**before, **found.get(identity, {})}
    others = {server: kept for server, kept in found.items() if server.partition(" ")[0] != address}
    note({**others, identity: {name: value for name, value in was.items() if after.get(name, "") != value}})
    return answer


def changed(line: Line) -> dict[str, str]:
    """Settings of this server that were changed by hand, with their values before."""
    return noted().get(line.identity(), {})


def restore(line: Line) -> dict[str, str]:
    """Put back the settings of this server that were changed by hand. Returns those that were put back.

    Raises `UsageError` when the server refuses one; what was not put back stays noted.
    """
    identity, found = line.identity(), noted()
    back = {}
    try:
        for name, value in dict(found.get(identity, {})).items():
            line.ask("CONFIG", "SET", name, value)
            back[name] = found[identity].pop(name)
    finally:
        note(found)
    return back


def restore_all() -> dict[str, str]:
    """At the end of a blind session, put back all settings changed by hand, on every server. Returns them.

    The notes of a server that is gone are dropped: its settings went with it. Nothing is raised, so that a blind
    session always ends.
    """
    back: dict[str, str] = {}
    with contextlib.suppress(UsageError, StackError):
        for identity in noted():
            try:
                with contextlib.closing(Line(f"redis://{identity.partition(' ')[0]}")) as line:
                    back |= restore(line)
            except UsageError:
                continue
            except StackError:
                note({server: was for server, was in noted().items() if server != identity})
    return back


def redis(
    words: Annotated[
        list[str] | None, typer.Argument(help="The command and its arguments.", metavar="COMMAND...")
    ] = None,
    url: Annotated[str, typer.Option(envvar=ADDRESS, help="redis://[user:password@]host:port[/db].")] = "",
    write: Annotated[
        bool,
        typer.Option("--write", help="Allow commands that change a server where no scene of the lab runs."),
    ] = False,
    put_back: Annotated[
        bool, typer.Option("--restore", help="Put back the settings that were changed by hand.")
    ] = False,
) -> None:
    """Give the server one command, and show its raw answer, as redis-cli would."""
    if put_back == bool(words):
        raise UsageError("name a command, as in bin/lab redis INFO memory, or --restore alone.")
    if not url:  # no usual address: somebody else's server may listen there
        raise UsageError(
            f"name a server by --url redis://127.0.0.1:6379, or set {ADDRESS} as a scene prints it."
        )
    with contextlib.closing(Line(url)) as line:
        if not words:
            for name, value in restore(line).items():
                print(f"put back: {name} {value}")
            return
        answer = carry_out(line, words, write)
        for text in lines(answer, sys.stdout.isatty() and words[0].upper() != "MONITOR"):
            print(text)
        if words[0].upper() == "CONFIG" and (was := changed(line)):
            told = ", ".join(f"{name} (was {value or 'empty'})" for name, value in was.items())
            print(f"changed by hand: {told}. Put back with: bin/lab redis --restore", file=sys.stderr)

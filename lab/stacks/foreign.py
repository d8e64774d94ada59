"""Runs on a server of --url, which the lab does not own: one at a time, and every change is undone, however a run ends.

During a run the server itself holds two keys: a lock with the run's token, which expires, and a note of the settings
before the run, which does not. A separate process, the restorer (`python -m lab.stacks.foreign`), waits for the end
of its stdin, which comes when the run ends or is killed. Then it removes the lab's keys, restores the settings, and
releases the lock last, so that no other run begins before. `bin/lab clean --url` does the same if the restorer was
killed too, or the machine lost its power.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from lab.errors import LabError, StackError, UsageError
from lab.server.address import PLAIN_HELP, Route, read_address, route_to
from lab.server.processes import Child, ignore_interruptions
from lab.server.redis_cli import LOCK, CliConnection
from lab.server.server_stats import ServerObserver
from lab.stacks.base import BYSTANDER_PREFIX, LOAD_PREFIX

KEY_PREFIX = "latency-lab"
OWN_PREFIXES = (f"{KEY_PREFIX}:", f"{KEY_PREFIX}-")
# Keys with any other prefix would stay on the server.
assert all(prefix.startswith(OWN_PREFIXES) for prefix in (BYSTANDER_PREFIX, LOAD_PREFIX))
LOCK_S, RENEWED_S = 2 * 3600, 1800.0
"""The lock's time to live, and how often the restorer renews it."""
BEFORE_KEY = f"{KEY_PREFIX}-settings-before"
KEPT = frozenset((LOCK, BEFORE_KEY))  # removed last
SLOWLOG = ("slowlog-log-slower-than", "slowlog-max-len")
NOTHING = "nothing of the lab's was there."
ADDRESS, SHOWN = "PROBE_URL", "LAB_SHOWN_URL"
IN_ORDER = b"."
"""Written to the restorer's stdin by a run that ends in order: none of its processes is left, so one pass is enough."""
PAUSE_S = 1.0
"""Seconds between passes after a killed run, until a pass finds no keys: the run's processes go on writing for
seconds."""


@dataclass(frozen=True)
class Taken:
    """A run's hold on a server: the token in the lock, and the settings to restore (empty if unknown)."""

    token: str
    settings: dict[str, str]


def cleaning(route: Route) -> str:
    """Return the command that cleans the server up by hand."""
    return shlex.join(["bin/lab", "clean", *route.words])


def take_over(server: ServerObserver, route: Route) -> Taken:
    """Take the lock, and note the settings in a key of the server, unless a killed run has left such a note.

    Returns the hold. Raises `UsageError` while another run has the lock.
    """
    token = secrets.token_hex(8)
    if not server.lock(LOCK, token, LOCK_S):
        raise UsageError(
            f"another run of the lab uses {server.shown} (its key {LOCK} is there). Wait for its end; after a "
            f"crash: {cleaning(route)}"
        )
    if noted := _noted(server):
        return Taken(token, noted)
    try:
        before = server.settings(SLOWLOG)
    except StackError:  # a managed server, or a user without the right to CONFIG
        before = {}
    if before:
        server.keep(BEFORE_KEY, json.dumps(before))
    return Taken(token, before)


def put_back(server: ServerObserver, settings: dict[str, str], token: str | None = None) -> int:
    """Remove the lab's keys, restore the settings that differ, then remove the note and the lock.

    A lock with another token than `token` stays, unless none is given. Returns the number of removed keys. Raises
    `StackError` if a setting cannot be restored: then the note stays, and the lock until it expires.
    """
    removed = server.remove_own(OWN_PREFIXES, KEPT)
    server.restore(settings)
    removed += server.remove(BEFORE_KEY)
    if token is None or server.text(LOCK) == token:
        removed += server.remove(LOCK)
    return removed


def _noted(server: ServerObserver) -> dict[str, str]:
    try:
        found = json.loads(server.text(BEFORE_KEY) or "{}")
        # Dragonfly may spell the names with underscores.
        return {name: str(value) for name, value in found.items() if name.replace("_", "-") in SLOWLOG}
    except (ValueError, AttributeError):  # the lab did not write this
        return {}


class Restorer:
    """The process that restores a server after the run. A run that ends in order calls `end`."""

    def __init__(self, route: Route, taken: Taken, log: Path) -> None:
        words = [sys.executable, "-m", "lab.stacks.foreign", json.dumps(asdict(taken))]
        root = Path(__file__).resolve().parents[2]
        # The environment has the address: on the command line every user could read a password.
        self._child = Child(
            "restorer", words, log, {ADDRESS: route.url, SHOWN: route.shown}, root,
            pipe=True, stdin_open=True,
        )  # fmt: skip
        if not next(self._child.lines(), b""):
            self._child.check()

    def end(self) -> str | None:
        """Have the server restored, and wait for it. Returns None, or the reason of a failure."""
        stdin = self._child.process.stdin
        if stdin is not None and not stdin.closed:
            try:
                stdin.write(IN_ORDER)
                stdin.close()
            except BrokenPipeError:  # the restorer was killed: see its exit code below
                pass
        code = self._child.process.wait()
        reason = self._child.last_words() or f"the process that was to do it ended with {code}"
        self._child.stop()
        return reason if code else None


def main() -> int:
    """Wait for the end of stdin, then restore the server: the restorer's process.

    Returns exit code 0; 3, with one line on stderr, if the server could not be restored.
    """
    ignore_interruptions()
    taken = Taken(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    in_order = over = False
    server = ServerObserver(os.environ[ADDRESS], shown=os.environ[SHOWN])
    while not over:
        if select.select([0], [], [], RENEWED_S)[0]:
            over = not os.read(0, 4096)
            in_order = in_order or not over
        else:
            with contextlib.suppress(LabError):  # the run itself reports that the server is away
                server.keep_lock(LOCK, taken.token, LOCK_S)
    try:
        empty = in_order
        while not empty:
            time.sleep(PAUSE_S)
            if server.text(LOCK) not in (taken.token, None):
                return 0  # the lock expired, and another run has the server: its keys stay
            empty = not server.remove_own(OWN_PREFIXES, KEPT)
        put_back(server, taken.settings, taken.token)
    except LabError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def clean(
    url: Annotated[str, typer.Option(help=PLAIN_HELP)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the keys of a killed run from the server of --url, and restore its settings."""
    route = route_to(read_address(url, called="--url"))
    connection = CliConnection(route.url)
    if connection.is_the_labs():
        raise UsageError(
            "a run or a scene of the lab is at work on this server: end it, and it cleans up by itself."
        )
    connection.close()
    server = ServerObserver(route.url, shown=route.shown)
    _clean(server, lambda: yes or _agreed())
    server.close()


def _clean(server: ServerObserver, may: Callable[[], bool]) -> None:
    settings = _noted(server)
    now = server.settings(settings)
    changed = {name: value for name, value in settings.items() if now.get(name) != value}
    visited = server.snapshot().keys
    print(
        f"{server.shown}: {visited:,} keys are to be visited, with pauses, and those that begin with "
        f"{KEY_PREFIX!r} removed."
    )
    for name, value in changed.items():
        print(f"{name} is to be {value} again (it is {now.get(name)}).")
    if not may():
        raise UsageError("nothing was done.")
    removed = put_back(server, settings)
    print(
        f"removed {removed:,} keys" + (", put the settings back." if changed else ".") if removed else NOTHING
    )


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nothing was done: there is no terminal to ask at. To agree beforehand, add --yes.")
    return typer.confirm("Remove and put back?", err=True)


if __name__ == "__main__":
    sys.exit(main())

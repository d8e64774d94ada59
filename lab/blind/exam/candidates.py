"""Who takes an examination: a person at a second terminal, or a program that is started for each scene.

The program gets one JSON line that describes the scene. Then it writes requests, a JSON line each, and gets an answer
to each, {"text": ..., "code": 0}; code 2 says that the request was refused. The requests are those of a blind session:

    {"verb": "look", "what": "commands"}                  {"verb": "look", "what": "key", "name": "NAME"}
    {"verb": "note", "hypothesis": "CAUSE"}               {"verb": "hint"}
    {"verb": "answer", "cause": "CAUSE", "evidence": "link.p50 = 42 ms; server.p50 = 0.1 ms"}
    {"verb": "cure", "words": ["kill", "ID"]}             {"verb": "checked"}
    {"verb": "done"}

The scene ends with done, with the program, or when the time is up.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from lab.errors import LabError, UsageError

Ask = Callable[[dict[str, Any]], str]
"""Sends a request to the session; returns its text, or raises `LabError`."""
OTHER_USER = "nobody"
LONGEST_LINE = 100_000
MOST_REQUESTS = 10_000
ALLOWED = {"look", "note", "hint", "answer", "cure", "checked"}
END_S = 5.0


class Candidate(Protocol):
    """Takes one scene after the other."""

    apart: bool
    """True if it cannot read the examiner's memory, because it runs under another user."""

    def sit(self, paper: dict[str, Any], ask: Ask) -> str:
        """Work on a scene until the candidate is done. Returns why it ended early, or an empty text."""
        ...

    def stop(self) -> None:
        """End what works on the scene, since its time is up."""
        ...


class Program:
    """A program that speaks JSON. It runs under another user where this one may do so, and `same_user` is not given.

    `folder`: the folder in which it is started; if left out, that of this process. Raises `UsageError` for a command
    that cannot be split into words.
    """

    def __init__(self, command: str, same_user: bool = False, folder: Path | None = None) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--for {command}: {error}.") from None
        if not self._words:
            raise UsageError("--for takes human, diagnose, or the command of a program.")
        self.apart = not same_user and os.geteuid() == 0 and _exists(OTHER_USER)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()
        self._stopped = False

    def sit(self, paper: dict[str, Any], ask: Ask) -> str:
        """Start the program, describe the scene, and answer its requests. See `Candidate`."""
        with self._turn:
            if self._stopped:
                return "the time was up"
            self._process = process = self._start()
        try:
            self._talk(process, paper, ask)
        finally:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            _end(process)
            for stream in (process.stdin, process.stdout):
                if stream:
                    with suppress(OSError):
                        stream.close()
        if self._stopped:
            return "the time was up"
        return f"the program ended with exit code {process.returncode}" if process.returncode > 0 else ""

    def stop(self) -> None:
        """See `Candidate`."""
        with self._turn:
            self._stopped = True
            if self._process:
                _end(self._process)

    def again(self) -> Program:
        """The same program, for the next scene."""
        return Program(shlex.join(self._words), not self.apart, self._folder)

    def _start(self) -> subprocess.Popen[str]:
        """Start the program. Raises `UsageError` where that cannot be done."""
        other: dict[str, Any] = {}
        if self.apart:
            home = {"HOME": "/nonexistent", "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
            other = {
                "user": OTHER_USER,
                "group": pwd.getpwnam(OTHER_USER).pw_gid,
                "extra_groups": [],
                "env": home,
            }
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                cwd=self._folder,
                **other,
            )
        except OSError as error:
            as_whom = f" as {OTHER_USER} (see --same-user)" if self.apart else ""
            raise UsageError(
                f"--for {shlex.join(self._words)} cannot be started{as_whom}: {error.strerror}."
            ) from None

    def _talk(self, process: subprocess.Popen[str], paper: dict[str, Any], ask: Ask) -> None:
        assert process.stdin and process.stdout
        with suppress(BrokenPipeError, ValueError):  # ValueError: closed since the time is up
            _tell(process.stdin, paper)
            for _ in range(MOST_REQUESTS):
                line = process.stdout.readline(LONGEST_LINE)
                if not line:
                    return
                words = _request(line)
                if words is not None and words.get("verb") == "done":
                    return
                _tell(process.stdin, _answer(words, ask))


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and what it started: SIGTERM, then SIGKILL. Safe to call twice."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def _tell(stream: Any, words: dict[str, Any]) -> None:
    stream.write(json.dumps(words) + "\n")
    stream.flush()


def _request(line: str) -> dict[str, Any] | None:
    try:
        words = json.loads(line)
    except ValueError:
        return None
    return words if isinstance(words, dict) else None


def _answer(words: dict[str, Any] | None, ask: Ask) -> dict[str, Any]:
    """The session's answer to a request, or why it is refused."""
    if words is None:
        return {"text": "a request is one JSON object in a line.", "code": UsageError.exit_code}
    if words.get("verb") not in ALLOWED:
        known = ", ".join(sorted(ALLOWED | {"done"}))
        return {
            "text": f"there is no verb {words.get('verb')!r}; known are {known}.",
            "code": UsageError.exit_code,
        }
    try:
        return {"text": ask(words), "code": 0}
    except LabError as error:
        return {"text": str(error), "code": error.exit_code}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {
            "text": f"{words['verb']} lacks a word, or one is of another kind.",
            "code": UsageError.exit_code,
        }


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True

"""A program that takes an examination: it is started for each scene, and asks what a person asks.

It gets one JSON line that describes the scene. Then it writes requests, a JSON line each, and gets an answer
to each, {"text": ..., "code": 0}. Code 2 says that the request was refused, code 3 that a part of the scene did not
answer. The requests are those of a blind session:

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
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from lab.errors import LabError, UsageError

Ask = Callable[[dict[str, Any]], str]
"""Sends a request to the session; returns its text, or raises `LabError`."""
OTHER_USER = "nobody"
LONGEST_LINE = 100_000
MOST_REQUESTS = 10_000
ALLOWED = {"look", "note", "hint", "answer", "cure", "checked"}
END_S = 5.0
LOOK_S = 0.2
"""Between two looks at whether the program has ended, or the time is up."""
TIME_IS_UP = "the time was up"


class Program:
    """A program that speaks JSON. It runs under another user where this one may do so, and `same_user` is not given.

    `folder`: the folder in which it is started; if left out, that of this process. `apart`: it runs under another user,
    so it cannot read the examiner's memory. Raises `UsageError` for a command that cannot be split into words, or whose
    program is not there.
    """

    def __init__(self, command: str, same_user: bool = False, folder: Path | None = None) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--for {command}: {error}.") from None
        if not self._words:
            raise UsageError("--for takes human, diagnose, or the command of a program.")
        if shutil.which(self._words[0]) is None:
            raise UsageError(f"--for {command}: there is no program {self._words[0]}.")
        self.apart = not same_user and os.geteuid() == 0 and _exists(OTHER_USER)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._stopped = False

    def sit(self, paper: dict[str, Any], ask: Ask) -> str:
        """Start the program, describe the scene, and answer its requests.

        Returns why it ended early, or an empty text. Raises `UsageError` if it cannot be started.
        """
        with self._turn:
            if self._stopped:
                return TIME_IS_UP
            self._process = process = self._start()
        try:
            ended = self._talk(process, paper, ask)
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr] # a pipe: see _start
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        finally:
            code = process.poll()  # before it is ended here
            _end(process)
            with suppress(OSError):
                process.stdout.close()  # type: ignore[union-attr]
        if self._stopped:
            return TIME_IS_UP
        return ended or (f"the program ended with exit code {code}" if code else "")

    def stop(self) -> None:
        """End the program, since its time is up."""
        with self._turn:
            self._stopped = True
            if self._process:
                _end(self._process)

    def again(self) -> Program:
        """The same program, for the next scene."""
        return Program(shlex.join(self._words), not self.apart, self._folder)

    def _start(self) -> subprocess.Popen[bytes]:
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
                start_new_session=True,
                cwd=self._folder,
                **other,
            )
        except OSError as error:
            as_whom = f" as {OTHER_USER} (see --same-user)" if self.apart else ""
            raise UsageError(
                f"--for {shlex.join(self._words)} cannot be started{as_whom}: {error.strerror}."
            ) from None

    def _talk(self, process: subprocess.Popen[bytes], paper: dict[str, Any], ask: Ask) -> str:
        """Answer requests. Returns why the talk ended early, or an empty text."""
        try:
            _tell(process, paper)
            for number, line in enumerate(self._lines(process)):
                words = _request(line)
                if words is not None and words.get("verb") == "done":
                    return ""
                if number == MOST_REQUESTS:
                    return f"the program asked more than {MOST_REQUESTS:,} times"
                _tell(process, _answer(words, ask))
        except BrokenPipeError:  # it has ended: its exit code says how
            pass
        return ""

    def _lines(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """What the program writes, line by line, until it ends or the time is up.

        A process that it left behind may keep the pipe open, so the end of the pipe is not waited for.
        """
        assert process.stdout
        buffer, source = bytearray(), process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while not self._stopped:
                ended = process.poll() is not None
                if not selector.select(0 if ended else LOOK_S):
                    if ended:
                        return
                    continue
                data = os.read(source, 65536)
                if not data:
                    return
                buffer += data
                while (at := buffer.find(b"\n")) >= 0 or len(buffer) > LONGEST_LINE:
                    length = at + 1 if at >= 0 else len(buffer)
                    yield bytes(buffer[:length])
                    del buffer[:length]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started: SIGTERM, then SIGKILL. Safe to call twice."""
    family: list[psutil.Process] = []
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        for each in family:  # one that has a session of its own
            with suppress(psutil.Error):
                each.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def _tell(process: subprocess.Popen[bytes], words: dict[str, Any]) -> None:
    assert process.stdin
    process.stdin.write(json.dumps(words).encode() + b"\n")
    process.stdin.flush()


def _request(line: bytes) -> dict[str, Any] | None:
    """The request, or None if the line is no JSON object, or holds text that no file can hold (half a surrogate)."""
    try:
        words = json.loads(line)
        json.dumps(words, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return words if isinstance(words, dict) else None


def _answer(words: dict[str, Any] | None, ask: Ask) -> dict[str, Any]:
    """The session's answer to a request, or why it is refused."""
    if words is None:
        return _refused("a request is one JSON object in a line.")
    verb = words.get("verb")
    if not isinstance(verb, str) or verb not in ALLOWED:
        return _refused(f"there is no verb {verb!r}; known are {', '.join(sorted(ALLOWED | {'done'}))}.")
    try:
        return {"text": ask(words), "code": 0}
    except LabError as error:
        return {"text": str(error), "code": error.exit_code}
    except (KeyError, TypeError, ValueError, AttributeError):
        return _refused(f"{verb} lacks a word, or one is of another kind.")


def _refused(why: str) -> dict[str, Any]:
    return {"text": why, "code": UsageError.exit_code}


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True

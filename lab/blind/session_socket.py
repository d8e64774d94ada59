"""The session socket: a Unix socket over which a second terminal sends requests. Only its owner may use it.

A request is one JSON line, and so is its reply: {"verb": ..., ...} → {"text": ..., "code": exit code}.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import stat
import tempfile
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import USAGE, LabError, StackError, UsageError
from lab.results.jsontext import parse

LONGEST_PATH = 100
"""Bytes; a little less than a Unix socket's address holds on Linux (108) and macOS (104)."""
LONGEST = 100_000
PATIENCE_S = 60.0
NO_SESSION = "no blind session runs. Start one in another terminal: bin/lab blind start."
SERVER_URL = "server url"
"""The verb that asks for the URL of the scene's server."""
Handler = Callable[[dict[str, Any]], str]


def home() -> Path:
    """Return the parent of all session folders: LAB_BLIND_HOME, by default runs/blind of the lab."""
    return Path(os.environ.get("LAB_BLIND_HOME") or ROOT / "runs" / "blind").absolute()


def address(folder: Path) -> Path:
    """Return the socket's path in `folder`; if that is too long for a socket, a path in a private temporary folder.

    LAB_SOCKETS names another folder, because some folders that a container shares with its machine cannot have sockets.
    """
    path = (_sockets() or folder) / "session.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    digest = sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"lab-blind-{os.getuid()}-{digest}" / "s"


def _sockets() -> Path | None:
    folder = os.environ.get("LAB_SOCKETS")
    return Path(folder) if folder else None


def _require_private(path: Path, folder: Path) -> bool:
    """Return whether the socket lies in a private temporary folder. Raises `UsageError` if others can write there."""
    if path.parent in (folder, _sockets()):
        return False
    with contextlib.suppress(FileNotFoundError):
        status = path.parent.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UsageError(f"{path.parent} belongs to another user or is open to others: remove it.")
    return True


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
        return connection
    except OSError:
        connection.close()
        return None


def server_url() -> str | None:
    """Return the URL of the server of the scene that runs, or None if none runs or answers."""
    try:
        return ask({"verb": SERVER_URL})
    except LabError:
        return None


def ask(request: dict[str, Any], folder: Path | None = None) -> str:
    """Send a request and return the session's reply.

    Raises `UsageError` when no session runs or the session refuses the request, `StackError` when it does not answer.
    """
    folder = folder or home()
    path = address(folder)
    _require_private(path, folder)
    connection = _connect(path)
    if connection is None:
        raise UsageError(NO_SESSION)
    with connection, connection.makefile("rb") as replies:
        connection.settimeout(PATIENCE_S)
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            reply = parse(replies.readline(LONGEST * 100))
            text, code = str(reply["text"]), int(reply["code"])
        except (OSError, ValueError, KeyError, TypeError):
            raise StackError("the session does not answer; look at the terminal it runs in.") from None
    if code == USAGE:
        raise UsageError(text)
    if code:
        raise StackError(text)
    return text


def make(folder: Path) -> None:
    """Make a folder for sessions if it is not there. Raises `UsageError` if that is not possible."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}. Set LAB_BLIND_HOME to a folder of yours."
        ) from None


class SessionSocket(socketserver.ThreadingUnixStreamServer):
    """The session's end of the socket. Creating it raises `UsageError` while another session listens there."""

    daemon_threads, block_on_close = True, False

    def __init__(self, folder: Path, handle: Handler) -> None:
        self._handle = handle
        self._path = address(folder)
        make(self._path.parent)
        self._private = _require_private(self._path, folder)
        if other := _connect(self._path):
            other.close()
            raise UsageError(
                "a blind session or a scene runs already, and two would disturb each other. End it with Ctrl-C in "
                "its terminal, a session also with `bin/lab blind reveal`."
            )
        self._path.unlink(missing_ok=True)  # left by a session that was killed
        mask = os.umask(0o177)
        try:
            super().__init__(str(self._path), socketserver.BaseRequestHandler)
        except OSError as error:
            raise StackError(f"cannot listen at {self._path}: {error.strerror}.") from None
        finally:
            os.umask(mask)
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer the line of a connection."""
        request.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError), request.makefile("rb") as lines:
            request.sendall(json.dumps(self._reply(lines.readline(LONGEST))).encode() + b"\n")

    def _reply(self, data: bytes) -> dict[str, Any]:
        try:
            request = parse(data)
            return {"text": self._handle(request), "code": 0}
        except LabError as error:
            return {"text": str(error), "code": error.exit_code}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"text": "the session does not understand this request.", "code": USAGE}

    def close(self) -> None:
        """Close the socket; remove its file, and the private temporary folder if there is one."""
        self._path.unlink(missing_ok=True)
        if self._private:
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()
        self.shutdown()
        self.server_close()

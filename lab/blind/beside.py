"""Makes `bin/lab blind look` work on the scene that `bin/lab scene` started, which hides no cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lab.blind import diagnostics
from lab.blind.session_socket import SessionSocket, home
from lab.errors import UsageError


@contextmanager
def answering_looks(scene: diagnostics.SessionTarget, users: Callable[[], str]) -> Iterator[None]:
    """Answer `bin/lab blind look` for this scene until the context ends.

    Raises `UsageError` when a blind session or another scene is running.
    """

    def reply(words: dict[str, Any]) -> str:
        if words["verb"] != "look":
            raise UsageError(
                "this scene hides no cause. End it, and start one that does: bin/lab blind start."
            )
        return diagnostics.raw_reading(str(words["what"]), scene, users, str(words.get("name", "")))

    folder = home()
    new = [path for path in (folder, folder.parent) if not path.exists()]
    socket = SessionSocket(folder, reply)
    try:
        yield
    finally:
        socket.close()
        with suppress(OSError):  # something else has been put into it
            for path in new:
                path.rmdir()

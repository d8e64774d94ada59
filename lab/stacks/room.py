"""`make room`: hand the archives of `make bundle` out to everybody on the room's own network, over plain HTTP.

    python -m lab.stacks.room --port 8000

It prints the one line that a participant types for each archive, and serves nothing but the archives, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import socket
import sys
from pathlib import Path

from lab.errors import LabError, UsageError
from lab.stacks.bundle import FOLDER, NAME

EVERYBODY = "0.0.0.0"


def own_address() -> str:
    """The address by which others in the room reach this machine; 127.0.0.1 where it is in no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            # Connecting UDP sends nothing: the kernel only chooses a route. Nobody has this address (RFC 5737).
            trial.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(trial.getsockname()[0])


class _Archives(http.server.SimpleHTTPRequestHandler):
    """Serves the archives of a folder and nothing else: no listing, and no other file."""

    def send_head(self):  # type: ignore[no-untyped-def] # the library's own private type
        name = self.path.removeprefix("/")
        if "/" in name or name not in {path.name for path in archives(Path(self.directory))}:
            self.send_error(404, "make room prints the names of what is here")
            return None
        return super().send_head()


def archives(folder: Path) -> list[Path]:
    """The archives in a folder."""
    return sorted(path for path in folder.glob(f"{NAME}-*.tar") if path.is_file())


def serve(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server for the archives in a folder, on all of this machine's addresses. Port 0 takes any free port.

    Raises `UsageError` when the folder has no archive, or the port cannot be opened.
    """
    if not archives(folder):
        raise UsageError(f"{folder} has no bundle yet: make bundle.")
    handler = functools.partial(_Archives, directory=str(folder))
    try:
        return http.server.ThreadingHTTPServer((EVERYBODY, port), handler)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise UsageError(
            f"port {port} cannot be opened ({why}): try PORT={port % 60000 + 1} make room."
        ) from error


def lines(folder: Path, address: str) -> list[str]:
    """The command line that a participant types, one for each archive."""
    return [
        f"curl -fO http://{address}/{archive.name} && tar xf {archive.name} && sh {archive.stem}/install.sh"
        for archive in archives(folder)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C. Returns the exit code; after an error one line on stderr says what is wrong."""
    parser = argparse.ArgumentParser(prog="lab.stacks.room", description="Hand out what make bundle made.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the archives (runs/bundle)")
    parser.add_argument("--port", type=int, default=8000, help="port to serve at; 0 takes a free one (8000)")
    asked = parser.parse_args(arguments)
    try:
        with serve(asked.out, asked.port) as server:
            address = f"{own_address()}:{server.server_address[1]}"
            print("\n".join(lines(asked.out, address)), flush=True)
            print("One of these lines for each participant, in an empty folder. Ctrl-C ends it.", flush=True)
            server.serve_forever()
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

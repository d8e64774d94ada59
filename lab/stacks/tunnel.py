"""A tunnel to a server that the lab's processes cannot reach by themselves: over TLS, or by a Unix socket.

Storefront, probes and loads speak plain RESP over TCP. For such a server a process of its own (`python -m
lab.stacks.tunnel`) listens on 127.0.0.1 and passes bytes on in both directions. Each connection to it opens one
connection to the server. It knows no password: clients sign in through it. It adds some tenths of a millisecond to each
answer, which is negligible where commands take long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import STACK_BROKE, StackError, UsageError
from lab.stacks.address import Address, Tls
from lab.stacks.processes import Child, ignore_interruptions

CONNECT_S, GRACE_S = 3.0, 10.0
"""Seconds to reach the server, and seconds that a tunnel whose run was killed waits for the restorer's connection."""
CHUNK = 65_536
IN_ORDER = b"."
"""A run that ends in order writes this before it closes the tunnel's stdin: no further connection will come."""


@dataclass(frozen=True)
class Way:
    """How the lab's processes reach somebody else's server.

    `url` is the plain redis:// URL that they use, and may hold a password. `shown` is the address for people. `words`
    are the options with which a command names the same server again. `is_here`: the server is a process of this
    machine. `tunnel` is the tunnel's process, if the server needs one.
    """

    url: str
    shown: str
    words: tuple[str, ...] = ()
    is_here: bool = True
    tunnel: Child | None = None


@contextlib.contextmanager
def way_to(address: Address) -> Iterator[Way]:
    """The way to a server. A tunnel, if it needs one, runs until the end of the block.

    Raises `StackError` when the tunnel does not start or cannot reach the server.
    """
    words = ("--url", address.url_without_password, *(address.tls.words if address.tls else ()))
    if not (address.socket or address.tls):
        yield Way(address.plain(address.host, address.port), address.shown, words, address.is_here)
        return
    tls = address.tls or Tls()
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    place = {
        "host": address.host,
        "port": address.port,
        "socket": str(Path(address.socket).resolve()) if address.socket else "",
        "encrypted": address.tls is not None,
        "insecure": tls.insecure,
        "grace_s": GRACE_S,
        "files": {name: str(file.resolve()) for name, file in files.items() if file},
    }
    root = Path(__file__).resolve().parents[2]  # the tunnel's working directory, which is not the user's
    command = [sys.executable, "-m", "lab.stacks.tunnel", json.dumps(place)]
    child = Child("tunnel", command, Path(os.devnull), cwd=root, pipe=True, stdin_open=True)
    try:
        said = next(child.lines(), b"").decode(errors="replace").strip()
        if not said.isdigit():
            raise StackError(said or "the tunnel to the server ended at its start.")
        yield Way(address.plain("127.0.0.1", int(said)), address.shown, words, address.is_here, child)
    finally:
        stdin = child.process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(OSError):
                stdin.write(IN_ORDER)
                stdin.close()
        child.stop()


class Tunnel:
    """Listens and passes bytes on, until its stdin and the last connection have ended."""

    def __init__(self, address: Address, grace_s: float) -> None:
        self._address, self._grace_s = address, grace_s
        self._context = address.tls.context() if address.tls else None
        self._connections = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def serve(self) -> None:
        """Print the port once the server was reached. Return after the end of stdin, the last connection and the grace.

        The grace is for a run that was killed; one that ended in order has none.
        """
        (await self._reach())[1].close()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        grace = self._grace_s if not await self._end_of_stdin() else 0.0
        while True:
            await self._idle.wait()
            await asyncio.sleep(grace)
            if self._idle.is_set():
                return

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = self._address
        async with asyncio.timeout(CONNECT_S):
            if place.socket:
                return await asyncio.open_unix_connection(place.socket)
            name = place.host if self._context else None
            return await asyncio.open_connection(
                place.host, place.port, ssl=self._context, server_hostname=name
            )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self._idle.clear()
        try:
            there_reader, there_writer = await self._reach()
            try:
                ways = [
                    asyncio.ensure_future(_copy(reader, there_writer)),
                    asyncio.ensure_future(_copy(there_reader, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
            finally:
                there_writer.close()
        except (OSError, ssl.SSLError):  # the server is away: the client sees a closed connection
            pass
        finally:
            writer.close()
            self._connections -= 1
            if not self._connections:
                self._idle.set()

    async def _end_of_stdin(self) -> bool:
        """Wait for the end of stdin. Returns True if the run ended in order."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        said = bytearray()

        def read() -> None:
            while some := os.read(0, 64):
                said.extend(some)
            loop.call_soon_threadsafe(over.set)

        threading.Thread(target=read, daemon=True).start()
        await over.wait()
        return IN_ORDER in said


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while some := await reader.read(CHUNK):
            writer.write(some)
            await writer.drain()


def main() -> int:
    """The tunnel's process. Returns exit code 0; 3, with one line on stdout, if the server cannot be reached."""
    ignore_interruptions()  # a restorer may need it after the run
    told = json.loads(sys.argv[1])
    shown = told["socket"] or f"{told['host']}:{told['port']}"
    try:
        files = {name: Path(file) for name, file in told["files"].items()}
        tls = Tls(**files, insecure=told["insecure"]) if told["encrypted"] else None
        address = Address(shown, told["host"], told["port"], told["socket"], tls=tls)
        asyncio.run(Tunnel(address, told["grace_s"]).serve())
    except UsageError as error:
        print(error, flush=True)
        return error.exit_code
    except (OSError, ssl.SSLError, TimeoutError) as error:
        print(f"no server answers at {shown}: {reason(error, told['encrypted'])}", flush=True)
        return STACK_BROKE
    return 0


def reason(error: Exception, encrypted: bool) -> str:
    """Why a connection failed, with what to do about it where that is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}). Name who signed it: --ca FILE."
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed ({error.reason or error}). Is it a TLS port?"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s.{' Is it a TLS port?' if encrypted else ''}"
    number = getattr(error, "errno", None)
    return f"{os.strerror(number) if number and number > 0 else error}."


if __name__ == "__main__":
    sys.exit(main())

"""The address of a server: `redis[s]://[user:password@]host:port[/db]`, or `unix:///path/to/socket[?db=0]`."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import typer

from lab.errors import UsageError

PLAIN_HELP = "redis://[user:password@]host:port[/db]."
CertificateAuthority = Annotated[
    Path | None,
    typer.Option("--ca", help="TLS: certificate of the authority that signed the server's (PEM)."),
]
Certificate = Annotated[Path | None, typer.Option("--cert", help="TLS: the client's certificate (PEM).")]
CertificateKey = Annotated[
    Path | None, typer.Option("--key", help="TLS: the client certificate's key (PEM).")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="TLS: do not verify the server's certificate. Any host that answers gets the password.",
    ),
]

PLAIN, ENCRYPTED, SOCKET = ("redis", "valkey"), ("rediss", "valkeys"), "unix"
PASSWORD_FROM = "REDISCLI_AUTH"
"""The variable in which redis-cli looks for a password."""

FORWARD = 16379  # the port proposed for a program that forwards plain TCP
EXAMPLE = "as in redis://host:6379/0"


@dataclass(frozen=True)
class Tls:
    """Encryption of a connection. Files are PEM. `insecure`: the server's certificate is not verified."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        for file in (self.ca, self.certificate, self.key):
            if file is not None and not file.is_file():
                raise UsageError(f"there is no file {file}.")
        if self.key and not self.certificate:
            raise UsageError("--key needs the certificate that it belongs to: --cert FILE.")

    @property
    def words(self) -> list[str]:
        """The same settings as command-line options."""
        files = (("--ca", self.ca), ("--cert", self.certificate), ("--key", self.key))
        options = [word for option, file in files if file for word in (option, str(file))]
        return options + (["--insecure"] if self.insecure else [])

    def options(self) -> dict[str, Any]:
        """Return keyword arguments for redis-py, which sends the host's name as the server name (SNI)."""
        return {
            "ssl_ca_certs": str(self.ca) if self.ca else None,
            "ssl_certfile": str(self.certificate) if self.certificate else None,
            "ssl_keyfile": str(self.key) if self.key else None,
            "ssl_cert_reqs": ssl.CERT_NONE if self.insecure else ssl.CERT_REQUIRED,
            "ssl_check_hostname": not self.insecure,
        }


@dataclass(frozen=True)
class Address:
    """A server's address and credentials. `shown` may be printed and stored: it has no user and no password."""

    shown: str
    host: str = ""
    port: int = 6379
    socket: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None

    def options(self) -> dict[str, Any]:
        """Return keyword arguments for redis-py."""
        place: dict[str, Any] = (
            {"path": self.socket} if self.socket else {"host": self.host, "port": self.port}
        )
        signed = {"username": self.username, "password": self.password, "db": self.database}
        return place | signed | (self.tls.options() if self.tls else {})

    def plain(self, host: str, port: int) -> str:
        """Return a redis:// URL with the same user, password and database for another host and port."""
        host = f"[{host}]" if ":" in host else host
        signed = ""
        if self.password is not None:
            signed = f"{quote(self.username or '', safe='')}:{quote(self.password, safe='')}@"
        return f"redis://{signed}{host}:{port}/{self.database}"

    @property
    def url_without_password(self) -> str:
        """The URL to type to reach this server again: with database and user, without the password."""
        scheme, place = self.shown.split("://", 1)
        if self.socket:
            return f"{self.shown}?db={self.database}" if self.database else self.shown
        return f"{scheme}://{f'{quote(self.username)}@' if self.username else ''}{place}/{self.database}"

    @property
    def is_here(self) -> bool:
        """True if the server runs on this machine: its address is a socket file or one of this machine's own."""
        if self.socket:
            return True
        with contextlib.suppress(OSError):
            for family, kind, _, _, place in socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM):
                with contextlib.suppress(OSError), socket.socket(family, kind) as ours:
                    ours.bind(place)  # the kernel binds to its own addresses only
                    return True
        return False


def read_address(
    url: str,
    tls: Tls | None = None,
    environ: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] | None = None,
    called: str = "the address",
) -> Address:
    """Parse a URL. Raises `UsageError` with one sentence, which refers to the URL as `called`.

    The password comes from the URL, else from the variable REDISCLI_AUTH. If both lack it and the URL names a user,
    `ask` is called for it. By default the terminal is asked; without a terminal, `UsageError` is raised.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{called} holds a broken IPv6 address: write redis://[::1]:6379/0.") from None
    if parts.fragment or (parts.query and parts.scheme != SOCKET):
        raise UsageError(f"{called} holds a # or a ?: write %23 and %3F in a password, and a database as /2.")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise UsageError(f"{called} must have a port from 1 to 65535, {EXAMPLE}.")
    if parts.scheme not in (*PLAIN, *ENCRYPTED, SOCKET):
        raise UsageError(f"{called} must begin with redis://, rediss:// (TLS) or unix://, {EXAMPLE}.")
    encrypted = parts.scheme in ENCRYPTED
    tls = tls or Tls()
    if tls != Tls() and not encrypted:
        raise UsageError(
            f"--ca, --cert, --key and --insecure are for TLS: {called} must begin with rediss://."
        )
    if parts.scheme == SOCKET:
        if not parts.path.strip("/") or parts.hostname:
            raise UsageError(f"{called} of a socket has three slashes, as in unix:///run/redis/redis.sock.")
        database = parse_qs(parts.query).get("db", ["0"])[-1]
    else:
        if not parts.hostname:
            raise UsageError(f"{called} names no host, {EXAMPLE}.")
        try:
            parts.hostname.encode("idna")
        except UnicodeError:  # an empty part, or one of more than 63 letters
            raise UsageError(f"{called} names a host that cannot be one, {EXAMPLE}.") from None
        database = parts.path.strip("/") or "0"
    if not (database.isascii() and database.isdigit()):
        raise UsageError(f"{called} must name its database by a number, {EXAMPLE}.")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else environ.get(PASSWORD_FROM)
    if username and password is None:
        password = _ask_password(ask, called)
    host = parts.hostname or ""
    place = (
        parts.path
        if parts.scheme == SOCKET
        else f"[{host}]:{port or 6379}"
        if ":" in host
        else f"{host}:{port or 6379}"
    )
    return Address(
        shown=f"{parts.scheme}://{place}",
        host=host,
        port=port or 6379,
        socket=parts.path if parts.scheme == SOCKET else "",
        database=int(database),
        username=username,
        password=password,
        tls=tls if encrypted else None,
    )


@dataclass(frozen=True)
class Route:
    """A route by which a run's processes reach a server that the lab does not own.

    They connect to `url`, which may hold a password. `shown` is the address for people. `words` are the options that
    name the same server in another command. `is_here`: the server is a process of this machine.
    """

    url: str
    shown: str
    words: tuple[str, ...] = ()
    is_here: bool = True


def route_to(address: Address) -> Route:
    """Return the route to a server that answers by plain TCP: probes and loads speak nothing else.

    Raises `UsageError` for TLS and for a socket, with a command of socat that forwards plain TCP to it.
    """
    if not (address.socket or address.tls):
        words = ("--url", address.url_without_password)
        return Route(address.plain(address.host, address.port), address.shown, words, address.is_here)
    there = f"UNIX-CONNECT:{address.socket}" if address.socket else f"OPENSSL:{address.host}:{address.port}"
    raise UsageError(
        f"a run's loads speak plain TCP, not TLS and no socket. Forward it with `socat TCP-LISTEN:{FORWARD},bind="
        f"127.0.0.1,fork,reuseaddr {there}`, and name redis://127.0.0.1:{FORWARD}/{address.database}."
    )


def _ask_password(ask: Callable[[str], str] | None, called: str) -> str:
    if ask is None:
        if not sys.stdin.isatty():
            raise UsageError(f"{called} names a user and no password: set {PASSWORD_FROM}.")
        ask = getpass.getpass
    return ask("password: ")

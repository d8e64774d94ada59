"""The commands that a diagnosis may send to a server, and a connection that sends no others, at a bounded rate.

This is the only module of `lab.diagnose` that can send a command.
"""

from __future__ import annotations

import contextlib
import math
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from lab.errors import LabError, StackError
from lab.server.address import Address

ABSENT = "latency-lab:diagnose:absent"
"""The key that the probe reads. It does not exist, so no value is read."""
ALLOWED = frozenset(
    {
        ("INFO",),
        ("PING",),
        ("GET", ABSENT),
        ("SLOWLOG", "GET"),
        ("COMMANDLOG", "GET"),
        ("LATENCY", "LATEST"),
        ("LATENCY", "HISTOGRAM"),
        ("CLIENT", "LIST"),
        ("CONFIG", "GET"),
    }
)
"""Allowed beginnings of a command. redis-py sends AUTH and SELECT by itself when it connects."""
SETTINGS = (
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "latency-monitor-threshold",
    "appendonly",
    "appendfsync",
    "save",
    "io-threads",
    "latency-tracking",
)
"""The only settings that CONFIG GET may ask for; none is a secret."""
PER_SECOND, PROBES_PER_S, MOST_PROBES_PER_S = 20.0, 10.0, 50.0
ACL = (
    f"ACL SETUSER diagnose on >PASSWORD resetchannels resetkeys ~{ABSENT} nocommands +info +ping +get +select "
    "+slowlog|get +latency|latest +latency|histogram +client|list +config|get"
)
"""The fewest rights that suffice (Valkey 8.1 and later: +commandlog|get too)."""
ANSWER_S = 20.0
"""Timeout for a reply: a server in the middle of an incident may keep all clients waiting that long."""
CONNECT_S = 5.0
"""Timeout for connecting, TLS included, and for sending a command."""


class NotAllowed(LabError):
    """A command that a diagnosis never sends. This is a bug of the lab; the command was not sent."""


class Refused(Exception):
    """The server refuses a command: no right to it, unknown or renamed. `args[0]` is the reason in a few words."""


class Gone(StackError):
    """The server cannot be reached, or has stopped answering."""


class Late(Exception):
    """No time is left for a command or its reply (`Questions.until`)."""


class Questions:
    """A connection with a bound on the commands a second. Methods raise `Gone`, `Refused` or `Late`.

    `until`: the moment (monotonic) after which nothing is sent, and the wait for a reply ends.
    """

    def __init__(self, address: Address, per_second: float | None = PER_SECOND) -> None:
        """`per_second`: the bound; None for a caller with a schedule of its own, such as the probe."""
        self.address = address
        self.sent: Counter[str] = Counter()
        self.until = math.inf
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0
        kind: Any = (
            UnixDomainSocketConnection if address.socket else SSLConnection if address.tls else Connection
        )
        # Not through redis-py's pool: it mistakes a TLS session ticket that has come for a reply that was never read.
        self._connection: Any = kind(
            **address.options(),
            protocol=2,
            driver_info=None,
            socket_timeout=CONNECT_S,
            socket_connect_timeout=CONNECT_S,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            decode_responses=True,
            encoding_errors="replace",
        )

    def connect(self) -> None:
        """Connect, log in and select the database, whatever `until` is. Raises `Gone`."""
        try:
            with self._translated_errors():
                self._connection.connect()
        except Refused as error:
            raise Gone(
                f"the server at {self.address.shown} refuses the connection to database {self.address.database}: "
                f"{error}."
            ) from None

    def ask(self, *words: str | int) -> Any:
        """Send a command and return its RESP2 reply. Raises `NotAllowed` for a command that is not allowed."""
        head = tuple(str(word) for word in words[:2])
        if not (head in ALLOWED or head[:1] in ALLOWED) or (
            head == ("CONFIG", "GET") and not (words[2:] and set(words[2:]) <= set(SETTINGS))
        ):
            raise NotAllowed(f"a diagnosis does not send {' '.join(head)}.")
        self._wait_for_turn()
        left = self.until - time.monotonic()
        if left <= 0:
            raise Late
        name = head[0] if head[:1] in ALLOWED or head[0] == "GET" else " ".join(head)
        self.sent[name] += 1
        with self._translated_errors():
            self._connection.socket_timeout = self._connection.socket_connect_timeout = min(CONNECT_S, left)
            self._connection.send_command(*words)
            return self._connection.read_response(timeout=min(ANSWER_S, left))

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise errors of redis-py and of the socket as `Gone`, `Refused` or `Late`."""
        try:
            yield
        except (redis.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError) as error:
            raise Gone(self._error_text("refuses the login", error)) from None
        except redis.exceptions.NoPermissionError:
            raise Refused("no right to it") from None
        except redis.exceptions.MovedError:  # its text has the other node's address
            raise Refused("another node of the cluster has that key's slot") from None
        except redis.BusyLoadingError:
            raise Gone(
                f"the server at {self.address.shown} is loading its data: try again when it is done."
            ) from None
        except redis.ResponseError as error:
            if str(error).startswith(("NOAUTH", "WRONGPASS")):
                raise Gone(self._error_text("refuses the login", error)) from None
            if str(error).startswith("BUSY "):
                raise Gone(
                    f"the server at {self.address.shown} answers no client: a script or function has been running for "
                    "seconds. SCRIPT KILL or FUNCTION KILL ends it, where it has written nothing yet."
                ) from None
            raise Refused(_words(error)[:60]) from None
        except redis.TimeoutError as error:
            if time.monotonic() >= self.until:
                raise Late from None
            raise Gone(self._connection_error(error)) from None
        except redis.RedisError as error:
            raise Gone(self._connection_error(error)) from None
        except (
            ssl.SSLError,
            OSError,
            ValueError,
        ) as error:  # a file that is no certificate; bytes that are no text
            raise Gone(self._error_text("cannot be asked", error)) from None

    def _wait_for_turn(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._gap

    def _error_text(self, action: str, error: BaseException) -> str:
        return f"the server at {self.address.shown} {action}: {_words(error)}"

    def _connection_error(self, error: redis.RedisError) -> str:
        text = _words(error)
        if isinstance(error, redis.exceptions.InvalidResponse) or "Protocol error" in text:
            return f"what answers at {self.address.shown} does not speak the Redis protocol: another service's port?"
        hung_up = any(word in text for word in ("SSL", "EOF", "closed by server", "reset by peer"))
        if self.address.tls and not self.address.tls.certificate and hung_up and "connecting" not in text:
            return (  # the server's handshake was done; in TLS 1.3 it asks for our certificate only then
                f"{self.address.shown} closed the connection: does it ask for a client's certificate (--cert FILE, "
                "--key FILE), or has the server gone?"
            )
        if "certificate has expired" in text:
            return f"the certificate of {self.address.shown} has expired."
        if "ismatch, certificate is not valid for" in text:  # Hostname mismatch, IP address mismatch
            return (
                f"the certificate of {self.address.shown} is for another name: write the address as the certificate "
                "has it, or leave the certificate unchecked with --insecure."
            )
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return (
                f"this machine does not know the authority that signed the certificate of {self.address.shown}: name "
                "it with --ca FILE, or leave the certificate unchecked with --insecure."
            )
        if self.address.tls and any(word in text for word in ("SSL", "EOF", "Timeout connecting")):
            return f"{self.address.shown} does not answer in TLS: is it a plain port (redis://)? {text}"
        if not self.address.tls and ("closed by server" in text or "reset by peer" in text):
            return f"{self.address.shown} closed the connection: is it a TLS port (rediss://), or has the server gone?"
        return f"no server answers at {self.address.shown}: {text}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

"""What a diagnosis may ask a server: only the commands listed below, at a bounded rate.

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
"""The key that the probe asks for. It does not exist, so no value is read."""
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
"""What a command must begin with. redis-py sends AUTH and SELECT by itself when it connects."""
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
"""Timeout for a reply: a server in the middle of an incident may keep everybody waiting that long."""
CONNECT_S = 5.0
"""Timeout for connecting, TLS included, and for sending a command."""


class NotAllowed(LabError):
    """A command that a diagnosis never sends. This is a fault of the lab; the command was not sent."""


class Refused(Exception):
    """The server refuses a command: no right to it, unknown or renamed. `args[0]` says why in a few words."""


class Gone(StackError):
    """The server cannot be reached, or has stopped answering."""


class Late(Exception):
    """No time is left for a question or its reply (`Questions.until`)."""


class Questions:
    """One connection, with a bound on the commands a second. Methods raise `Gone`, `Refused` or `Late`.

    `until`: the moment (monotonic) after which nothing is sent, and no reply is waited for.
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
        self._line: Any = kind(
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
            with self._faults_in_words():
                self._line.connect()
        except Refused as error:
            raise Gone(
                f"the server at {self.address.shown} refuses the connection to database {self.address.database}: "
                f"{error}."
            ) from None

    def ask(self, *words: str | int) -> Any:
        """Send a command and return its reply as RESP2 has it. Raises `NotAllowed` for one that is not allowed."""
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
        with self._faults_in_words():
            self._line.socket_timeout = self._line.socket_connect_timeout = min(CONNECT_S, left)
            self._line.send_command(*words)
            return self._line.read_response(timeout=min(ANSWER_S, left))

    @contextlib.contextmanager
    def _faults_in_words(self) -> Iterator[None]:
        """Raise what goes wrong meanwhile as `Gone`, `Refused` or `Late`."""
        try:
            yield
        except (redis.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError) as error:
            raise Gone(self._says("refuses the login", error)) from None
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
                raise Gone(self._says("refuses the login", error)) from None
            if str(error).startswith("BUSY "):
                raise Gone(
                    f"the server at {self.address.shown} answers nobody: a script or function has been running for "
                    "seconds. SCRIPT KILL or FUNCTION KILL ends it, where it has written nothing yet."
                ) from None
            raise Refused(_words(error)[:60]) from None
        except redis.TimeoutError as error:
            if time.monotonic() >= self.until:
                raise Late from None
            raise Gone(self._why(error)) from None
        except redis.RedisError as error:
            raise Gone(self._why(error)) from None
        except (
            ssl.SSLError,
            OSError,
            ValueError,
        ) as error:  # a file that is no certificate; bytes that are no text
            raise Gone(self._says("cannot be asked", error)) from None

    def _wait_for_turn(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._gap

    def _says(self, what: str, error: BaseException) -> str:
        return f"the server at {self.address.shown} {what}: {_words(error)}"

    def _why(self, error: redis.RedisError) -> str:
        said = _words(error)
        if isinstance(error, redis.exceptions.InvalidResponse) or "Protocol error" in said:
            return f"what answers at {self.address.shown} does not speak the Redis protocol: another service's port?"
        hung_up = any(word in said for word in ("SSL", "EOF", "closed by server", "reset by peer"))
        if self.address.tls and not self.address.tls.certificate and hung_up and "connecting" not in said:
            return (  # the server's handshake was done; in TLS 1.3 it asks for our certificate only then
                f"{self.address.shown} closed the connection: does it ask for a client's certificate (--cert FILE, "
                "--key FILE), or has the server gone?"
            )
        if "certificate has expired" in said:
            return f"the certificate of {self.address.shown} has expired."
        if "ismatch, certificate is not valid for" in said:  # Hostname mismatch, IP address mismatch
            return (
                f"the certificate of {self.address.shown} is for another name: write the address as the certificate "
                "has it, or leave the certificate unchecked with --insecure."
            )
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return (
                f"this machine does not know the authority that signed the certificate of {self.address.shown}: name "
                "it with --ca FILE, or leave the certificate unchecked with --insecure."
            )
        if self.address.tls and any(word in said for word in ("SSL", "EOF", "Timeout connecting")):
            return f"{self.address.shown} does not answer in TLS: is it a plain port (redis://)? {said}"
        if not self.address.tls and ("closed by server" in said or "reset by peer" in said):
            return f"{self.address.shown} closed the connection: is it a TLS port (rediss://), or has the server gone?"
        return f"no server answers at {self.address.shown}: {said}"

    def close(self) -> None:
        """Close the connection."""
        self._line.disconnect()


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

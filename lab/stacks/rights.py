"""Checks a server of --url before a run writes anything: its role, its memory, and the user's rights.

To check the rights, each command is queued after MULTI: the server refuses those that the user may not run. The
connection is closed without EXEC, so nothing is executed. (Redis and Valkey check rights, the role and the memory when
they queue a command.)
"""

from __future__ import annotations

import contextlib
from typing import cast

from lab.errors import UsageError
from lab.server.address import Route
from lab.server.redis_cli import CliConnection
from lab.stacks.foreign import KEY_PREFIX
from lab.stacks.memory import require_memory
from loadtest import info

KEY = f"{KEY_PREFIX}:rights-check"
NEEDED: tuple[tuple[str, ...], ...] = (
    # Commands of the storefront and its strategies.
    ("GET", KEY), ("MGET", KEY), ("SET", KEY, "1", "PX", "1"), ("MSET", KEY, "1"), ("DEL", KEY), ("UNLINK", KEY),
    ("PEXPIREAT", KEY, "1"), ("INCRBY", KEY, "1"), ("HGET", KEY, "1"), ("HSET", KEY, "1", "1"), ("SADD", KEY, "1"),
    ("SREM", KEY, "1"), ("SMEMBERS", KEY), ("SSCAN", KEY, "0"), ("SCAN", "0", "MATCH", KEY), ("KEYS", KEY),
    # Commands of the lab's own reads and checks.
    ("INFO", "server"), ("DBSIZE",), ("PING",), ("SETRANGE", KEY, "0", ""), ("SLOWLOG", "GET", "1"),
    ("CLIENT", "SETNAME", "probe:main"),
)  # fmt: skip
WITH_SUBCOMMANDS = ("SLOWLOG", "CLIENT")
REFUSALS = ("NOPERM", "unknown command", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "MASTERDOWN")
"""Words of the errors that would also come in the run. Other errors, such as that of a server that does not queue a
command, do not count."""


def _name(words: tuple[str, ...]) -> str:
    return "|".join(words[:2]).lower() if words[0] in WITH_SUBCOMMANDS else words[0].lower()


ACL = (
    f"ACL SETUSER lab on >PASSWORD resetchannels resetkeys ~{KEY_PREFIX}* nocommands +select +multi +exec "
    + " ".join(f"+{_name(words)}" for words in NEEDED)
)
"""The fewest rights that suffice. With `+config|get +config|set` the run also sets up the slow log and puts it back.
Without them it reads the log as it is, and the claims about the log do not apply."""


def check_server(route: Route, needed_bytes: float, subject: str, most_keys: float) -> str:
    """Check that a run can succeed on the server, before anything is written.

    Returns a sentence on the server's memory; empty if the memory has no limit. Raises `UsageError`, with one line,
    for a replica, a node of a cluster, a missing right, too little memory, or a database with more than `most_keys`
    keys: a search visits all keys of its database, also those of others.
    """
    with contextlib.closing(CliConnection(route.url)) as connection:
        facts = info.fields("")
        with contextlib.suppress(UsageError):  # the user may lack the right to INFO: `_refused` reports it
            facts = info.fields(_bytes(connection.ask("INFO")))
        if facts.get("role", "master") not in ("master", "primary"):
            raise UsageError(f"{route.shown} is a replica, which takes no writes: name its primary.")
        if facts.get("cluster_enabled") == "1":
            raise UsageError(
                f"{route.shown} is a node of a cluster, which takes the keys of its own slots only: "
                "name a server that is in none."
            )
        others = 0
        with contextlib.suppress(UsageError):  # likewise
            others = cast(int, connection.ask("DBSIZE"))
        refused = _refused(connection)
    if refused:
        names = ", ".join(refused)
        first = next(iter(refused.values()))
        if first.startswith("NOPERM"):
            raise UsageError(
                f"{route.shown}: this user may not run {names}. The fewest rights that suffice: {ACL}"
            )
        raise UsageError(f"{route.shown} refuses {names}: {first}")
    if others > most_keys:
        raise UsageError(
            f"{route.shown} holds {others:,} keys in this database. Searches visit them too, and the phase with the "
            f"fewest keys allows {most_keys:,.0f}. Name an empty database: end the URL with /N."
        )
    limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    if not limit:
        return ""
    return require_memory(
        subject,
        needed_bytes,
        max(0, limit - used),
        f"left of maxmemory on {route.shown}",
        "The server would evict your keys, or refuse the lab's. Choose fewer with --keys.",
    )


def _refused(connection: CliConnection) -> dict[str, str]:
    """Return command → the server's error, for each command that it would refuse."""
    if refusal := _refusal(connection, ("MULTI",)):
        return {"multi": refusal}  # without MULTI the other commands would be executed
    refusals = {_name(words): _refusal(connection, words) for words in NEEDED}
    return {name: refusal for name, refusal in refusals.items() if any(mark in refusal for mark in REFUSALS)}


def _refusal(connection: CliConnection, words: tuple[str, ...]) -> str:
    try:
        connection.ask(*words)
    except UsageError as error:
        return str(error).removeprefix("the server refuses: ")
    return ""


def _bytes(answer: object) -> bytes:
    return answer if isinstance(answer, bytes) else b""

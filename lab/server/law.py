"""The law of a diagnosis: a bystander waits while another client's command occupies the server's thread.

A command whose calls arrive at random, `per_s` a second, each of length `L`, makes a bystander wait
`per_s · E[L²] / 2` in the mean, and 1 / (1 - utilisation) times that because of the queue behind it (Pollaczek and
Khinchine; `formulas.mean_wait_of_random_work` is the case of equal calls). These waits add up. So each command explains
a part of the mean wait that the probe observed, whatever its name and however rare its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from lab.server.figures import CONSTANT, OWN, Figures

SATURATED = 0.9
"""Utilisation from which the wait in a queue is a multiple of the work: nine times at 0.9 (M/M/1)."""
EXPLAINS = 0.2
"""A command that explains less of the observed wait is not named. Calls that come several at a time (three searches for
an event) make bystanders wait up to that many times as long as the formula says."""
EXPLAINED = 0.5
"""If the commands explain this share of the wait, no other activity of the server is named."""
FILLS = 0.4
"""Share of the time from which short searches are the reason for saturation."""
QUEUED = 2.0
"""Mean number of searches under way for each thread, from which they wait for each other."""
SEARCHES = ("SCAN", "KEYS")
WHOLE = ("SMEMBERS", "HGETALL", "HKEYS", "HVALS", "LRANGE", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "SUNION", "SINTER",
         "SDIFF", "SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE", "ZUNION", "ZINTER", "ZUNIONSTORE", "ZINTERSTORE", "SORT",
         "SORT_RO")  # fmt: skip
SCRIPTS = ("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO")
TRANSACTIONS = ("EXEC",)
REMOVERS = ("UNLINK", "DEL")
MANY = ("MGET", "MSET", "HMGET", *REMOVERS)
ROWS: Mapping[str, tuple[str, ...]] = {
    "scan-storm": ("SCAN",),
    "keys-command": ("KEYS",),
    "giant-index": WHOLE,
    "lua-script": SCRIPTS,
    "transaction": TRANSACTIONS,
    "many-at-once": MANY,
}
"""Cause → its commands. Any other command is a `long-command`."""
CONTAINERS = (*SCRIPTS, *TRANSACTIONS)
"""Commands whose time includes that of the commands that they execute, which are also counted themselves."""
SYNCS = ("PSYNC", "SYNC", "REPLCONF", "BGSAVE", "BGREWRITEAOF")
"""Commands whose time is that of a fork, which the causes full-sync and fork have."""
VICTIMS = (*CONSTANT, *OWN, *SYNCS)
"""Commands that take microseconds by themselves. If they take longer, something else delayed them."""


@dataclass(frozen=True)
class Holder:
    """A command that occupies the thread. `explains`: share of the observed mean wait."""

    name: str
    cause: str
    explains: float


def cause_of(command: str) -> str:
    """Return the cause that a command belongs to."""
    return next((cause for cause, names in ROWS.items() if command in names), "long-command")


def predicted_ms(figures: Figures) -> float:
    """Return a bystander's p99 in ms, predicted from the commands' calls; 0 if a command's clock includes its waits.

    It is predicted from scripts and transactions, and again from all other commands, because a script's time is also
    counted for the commands that it executes. The larger result is a lower bound.
    """
    if figures.clock_includes_waits:
        return 0.0
    parts: tuple[list[str], list[str]] = ([], [])
    for name in known(figures):
        parts[name in CONTAINERS].append(name)
    return max(predicted_by(figures, part) for part in parts)


def predicted_by(figures: Figures, names: Iterable[str]) -> float:
    """Return a bystander's p99 in ms by these commands: P(wait > t) = Σ per_s · (L - t) over calls longer than t.

    This is `formulas.wait_of_absences` for calls of several lengths. 0 if they fill less than a hundredth of the time.
    """
    calls = sorted(
        ((length_s, per_s) for name in names for per_s, length_s in figures.calls(name)), reverse=True
    )
    rate = time = 0.0
    for (length_s, per_s), (shorter_s, _) in pairwise([*calls, (0.0, 0.0)]):
        rate, time = rate + per_s, time + per_s * length_s
        if rate and (wait_s := (time - 0.01) / rate) >= shorter_s:
            return 1000 * max(0.0, wait_s)
    return 0.0


def is_slow(figures: Figures) -> bool:
    """Return True if the probe's waits are a symptom, or the p99 predicted from the server's counters is."""
    return figures.slow_gets or predicted_ms(figures) >= figures.slow_from_ms


def known(figures: Figures) -> list[str]:
    """Return the commands that can occupy the thread.

    If the clock of a command includes its waits (Dragonfly), victims look long, too. Then only a command with a
    row in `ROWS` counts.
    """
    return [
        name
        for name in figures.commands
        if name not in VICTIMS and (cause_of(name) != "long-command" or not figures.clock_includes_waits)
    ]


def time_of_commands(figures: Figures) -> float:
    """Return the commands' share of the thread's time. Commands inside scripts and transactions count once."""
    shares = {name: figures.share(name) for name in figures.commands}
    inside = sum(share for name, share in shares.items() if name in CONTAINERS)
    return max(inside, sum(share for name, share in shares.items() if name not in CONTAINERS))


def holders(figures: Figures) -> list[Holder]:
    """Return the commands that explain a bystander's wait, the largest part first; empty if the wait is no symptom."""
    if not is_slow(figures):
        return []
    waits = {
        name: 500 * sum(per_s * length_s**2 for per_s, length_s in figures.calls(name))
        for name in known(figures)
    }
    behind, observed = 1 / max(1 - figures.busy, 0.03), figures.wait_ms
    taken = figures.busy + (figures.waited or 0.0)  # a thread without a core serves no other command either
    total = sum(waits.values())
    # All commands together explain at most the whole wait, also when the queue is full.
    scale = min(behind / max(observed, 1e-9), 1 / total) if total else 0.0
    found = []
    for name, wait in waits.items():
        # If the clock counts waits, the server is full when `QUEUED` calls are under way on average (Little's law).
        full = taken >= SATURATED or (
            figures.clock_includes_waits and figures.spent(name).share >= QUEUED * figures.threads
        )
        fills = name in SEARCHES and full and figures.share(name) >= FILLS
        explains = max(
            scale * wait, figures.share(name) / max(figures.busy, figures.share(name)) if fills else 0.0
        )
        if explains >= EXPLAINS:
            found.append(Holder(name, cause_of(name), min(1.0, explains)))
    return sorted(found, key=lambda each: -each.explains)


def by_cause(figures: Figures) -> dict[str, tuple[Holder, ...]]:
    """Return cause → its holders. With reads of a whole collection, a removal counts as that of the collection."""
    found: dict[str, tuple[Holder, ...]] = {}
    reads = [each for each in holders(figures) if each.cause == "giant-index"]
    for each in holders(figures):
        cause = "giant-index" if reads and each.name in REMOVERS else each.cause
        found[cause] = (*found.get(cause, ()), each)
    return found


def explained(figures: Figures) -> bool:
    """Return True if commands explain a bystander's wait."""
    return sum(each.explains for each in holders(figures)) >= EXPLAINED

"""The signs of each cause in a window: for each a function that says whether its evidence is there, with the figures.

Where the blind sessions judge the same, the bounds are theirs (`lab.blind.evidence`).
"""

from __future__ import annotations

from collections.abc import Callable

from lab.blind import evidence
from lab.blind.readings import Finding as Evidence
from lab.diagnose.window import LOOP_US, TORN_SHARE, TORN_US, Window
from lab.results.numbers import percent

SATURATED = 0.9
"""Utilisation from which the wait in a queue is a multiple of the work: nine times at 0.9 (M/M/1)."""
FAR_MS = 5.0
"""A round trip that is too long for one data centre, with nothing in its way."""
CONNECTIONS_SHARE = 0.95
"""Share of maxclients from which a server is at the limit of its connections."""
PIPELINED = 1.5
"""Commands per read of a socket from which clients count as pipelining."""
CAPPED = "expired_time_cap_reached_count"
"""Field of INFO: how often the server interrupted its removal of expired entries, to let commands through."""
HELD_SHARE = evidence.LONG_SHARE
"""Share of the time in which the main loop waits for the disk that counts as much as one command's long calls."""
REMOVERS = ("UNLINK", "DEL")
INNOCENT_TIMES = 2.0
"""If a bystander stands still for this many times as long as the main loop was held, the loop is not the reason."""
SYNCS = ("PSYNC", "SYNC")
"""A replica asks for its copy by these. Their time is the fork's, which the cause full-sync has."""


def _p99(of: Window) -> str:
    low, high = of.interval_ms
    return f"p99 of the probe {of.get_ms:.1f} ms ({low:.1f} to {high:.1f})"


def _spent(of: Window, name: str) -> str:
    spent = of.spent(name)
    return f"{name} {percent(spent.share)} of the time, {spent.per_s:,.1f} calls a second of {spent.mean_us:,.0f} µs"


def _busy(of: Window) -> str:
    seconds = of.busy_by_second
    spread = f" ({percent(min(seconds))} to {percent(max(seconds))} in single seconds)" if seconds else ""
    return f"the main thread was busy {percent(of.busy)}{spread}"


def saturates_at(of: Window, share: float) -> float | None:
    """The key count at which searches that visit every key would fill the main thread, at today's rate of searches.

    Their share grows with the keys, the rest of the work does not: N × (1 - rest) / share.
    """
    rest = max(0.0, of.busy - share)
    return of.keys * (1 - rest) / share if share > 0 and of.keys and rest < 1 else None


def _search(of: Window, name: str) -> str:
    """Say what a search costs here, and at how many keys it fills the server."""
    spent, limit = of.spent(name), saturates_at(of, of.spent(name).share)
    each = (
        f"; a visited key costs {spent.mean_us / of.keys:.2f} µs here" if name == "KEYS" and of.keys else ""
    )
    leads = (
        f"; at today's rate it fills the server at {limit:,.0f} keys, and there are {of.keys:,}"
        if limit
        else ""
    )
    return f"{_spent(of, name)}{each}{leads}; {_busy(of)}; {_p99(of)}."


def scan(of: Window) -> Evidence:
    return Evidence(evidence.scan_storm(of), _search(of, "SCAN"))


def keys(of: Window) -> Evidence:
    return Evidence(evidence.long_calls(of, "KEYS"), _search(of, "KEYS"))


def _logged(of: Window, name: str) -> str:
    """What a command took, and what the slow log got of it."""
    logged, longest = of.slow.get(name, (0, 0.0))
    return _spent(of, name) + (f"; the slow log got {logged}, the longest {longest:.0f} ms" if logged else "")


def long_calls(names: tuple[str, ...]) -> Callable[[Window], Evidence]:
    """Make the function that looks for long calls of these commands and reports on the one that takes most time."""

    def evidence_of_longest(of: Window) -> Evidence:
        found = [name for name in names if evidence.long_calls(of, name)]
        dearest = max(found or names, key=lambda name: of.spent(name).share)
        return Evidence(bool(found), f"{_logged(of, dearest)}; {_p99(of)}.")

    return evidence_of_longest


def share(*names: str) -> Callable[[Window], float]:
    return lambda of: sum(of.spent(name).share for name in names)


WHOLE = (
    "SMEMBERS",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "LRANGE",
    "ZRANGE",
    "ZREVRANGE",
    "SUNION",
    "SINTER",
    "SDIFF",
    "SORT",
)
SCRIPTS = ("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO")
MANY = ("MGET", "MSET", "HMGET", "DEL", "UNLINK")


def other(of: Window) -> Evidence:
    """Evidence of long calls of a command that is in none of the lists."""
    listed = {"SCAN", "KEYS", *WHOLE, *SCRIPTS, *MANY, *SYNCS}
    others = tuple(name for name, _ in of.dearest if name not in listed)
    return long_calls(others)(of) if others else Evidence(False, "no other command was called.")


def collection(of: Window) -> Evidence:
    """Evidence of a collection that is read in one piece; with what it names, if that is deleted in one piece, too."""
    if evidence.giant_set(of):
        return Evidence(True, f"{_logged(of, 'SMEMBERS')}; {_logged(of, 'UNLINK')}; {_p99(of)}.")
    return long_calls(WHOLE)(of)


def evictions(of: Window) -> Evidence:
    every = f"; stalls came every {of.period_s:.1f} s" if of.period_s else ""
    return Evidence(
        evidence.evictions(of),
        f"{of.evicted_per_s:,.0f} entries evicted a second, memory came to {percent(of.memory)} of its limit"
        f"{every}; {_p99(of)}.",
    )


def core(of: Window) -> Evidence:
    """Evidence that the server lacks a core.

    It comes from the kernel's record if the server runs on this machine, else from commands that were interrupted.
    """
    torn = of.torn
    known = of.waited is not None
    found = (
        (known or _interrupted(of))
        and evidence.without_a_core(of, of.waited, of.others)
        and not _blocked(of)
        and not _copied(of)  # the snapshot's process and the replica are such programs
    )
    said = [_busy(of)]
    if of.waited is not None:
        said.append(f"it was ready and without a core {percent(of.waited)} of the time")
    if of.others is not None:
        said.append(f"other programs of its machine used {of.others:.1f} cores")
    if torn:
        said.append(
            f"{torn[1]:,} of {torn[0]:,} commands of constant time took longer than {TORN_US / 1000:.1f} ms"
        )
    return Evidence(found, f"{'; '.join(said)}; {_p99(of)}.")


def _interrupted(of: Window) -> bool:
    """True if commands of constant time were interrupted too often for chance."""
    torn = of.torn
    return torn is not None and torn[0] > 0 and torn[1] / torn[0] >= TORN_SHARE and torn[1] >= 2


def _blocked(of: Window) -> bool:
    """True if long calls of one command, or evictions, explain why others wait."""
    return any(
        evidence.long_calls(of, name) for name in of.commands if name not in SYNCS
    ) or evidence.evictions(of)


def far(of: Window) -> Evidence:
    """Evidence that the way is long: even round trips that find the server idle take long."""
    return Evidence(
        of.floor_ms >= FAR_MS and of.busy < evidence.BUSY_ENOUGH and of.floor_is_the_way,
        f"the quickest twentieth of the round trips took {of.floor_ms:.1f} ms and the server executed a GET in "
        f"{of.parts_ms['execution'] * 1000:.0f} µs; {_busy(of)}; {_p99(of)}.",
    )


def one_by_one(of: Window) -> Evidence:
    name = max(REMOVERS, key=lambda name: of.spent(name).per_s)
    together = of.per_read
    said = f"; {together:.1f} commands came with one read of a socket" if together else ""
    found = (name == "UNLINK" and evidence.one_by_one(of)) or (
        of.spent(name).per_s >= evidence.REMOVED_PER_S and of.spent(name).mean_us < evidence.REMOVED_US
    )
    return Evidence(found and (together is None or together < PIPELINED), f"{_spent(of, name)}{said}.")


def connections(of: Window) -> Evidence:
    limit = of.last.number("maxclients") or of.setting("maxclients")
    most = max(snapshot.number("connected_clients") for snapshot in of.snapshots)
    refused = of.per_s("rejected_connections")
    return Evidence(
        bool(refused) or (limit > 0 and most / limit >= CONNECTIONS_SHARE),
        f"{most:,.0f} connections of {limit:,.0f} that are admitted, {refused:.1f} a second refused.",
    )


def connects(of: Window) -> Evidence:
    return Evidence(
        evidence.connects(of) and not _blocked(of),
        f"{of.connects_per_s:,.0f} new connections a second; {_busy(of)}; {_p99(of)}.",
    )


def expiries(of: Window) -> Evidence:
    """Evidence that the removal of expired entries holds the server: there are many, and it had to be interrupted."""
    capped = of.per_s(CAPPED) if CAPPED in of.last.fields else None
    told = "an unknown number of times" if capped is None else f"{capped:.1f} times a second"
    return Evidence(
        evidence.expiries(of) and capped != 0 and not _blocked(of),
        f"{of.expired_per_s:,.0f} entries expired a second, and their removal was interrupted {told}; "
        f"{of.evicted_per_s:,.0f} were evicted; {_p99(of)}.",
    )


def beside(of: Window) -> float:
    """Share of the time in which the main thread works on something else than commands: reading and answering."""
    return max(0.0, of.busy - sum(spent.share for spent in of.commands.values()))


def _answers(of: Window) -> bool:
    return evidence.big_answers(of) and not _blocked(of) and not _copied(of)


def big_answers(of: Window) -> Evidence:
    calls = sum(spent.per_s for spent in of.commands.values())
    each = f" in answers of {1000 * of.sent_mb_per_s / calls:,.1f} kB" if calls else ""
    return Evidence(
        _answers(of),
        f"the server sent {of.sent_mb_per_s:,.0f} MB a second{each}; its main thread spent {percent(beside(of))} of "
        f"the time on reading and answering, beside the commands; {_busy(of)}; {_p99(of)}.",
    )


def disk(of: Window) -> Evidence:
    delayed = of.per_s("aof_delayed_fsync")
    told = {name: took for name, took in of.events.items() if name.startswith(("aof-", "rdb-", "fork"))}
    said = "".join(f"; {name} {took:.0f} ms" for name, took in told.items())
    logged = any(took >= evidence.LONG_MS for name, took in told.items() if name != "fork")
    loop = "this server does not tell how long its main loop was held"
    waits = False
    if of.held is not None:
        loop = f"the main loop waited {percent(of.held)} of the time outside of commands"
        # A loop without a core waits, too: the kernel tells for how long, else interrupted commands tell that it did.
        for_a_core = (1.0 if _interrupted(of) else 0.0) if of.waited is None else of.waited
        waits = of.last.fields.get("aof_enabled") == "1" and of.held - for_a_core >= HELD_SHARE
    return Evidence(
        of.slow_gets and not _blocked(of) and (delayed > 0 or logged or waits),
        f"{delayed:.1f} writes a second waited for an earlier fsync{said}; {loop}; appendfsync is "
        f"{of.settings.get('appendfsync', 'unknown')}; {_p99(of)}.",
    )


def _copied(of: Window) -> bool:
    """True if GETs are slow while a replica copies the whole data set, and are not slow at other times."""
    apart_ms = of.apart_ms(of.copies)
    ends_with_it = apart_ms is None or apart_ms < of.slow_from_ms
    return of.slow_gets and bool(of.copies) and ends_with_it and not _blocked(of)


def full_sync(of: Window) -> Evidence:
    started = max(0.0, of.last.number("sync_full") - of.first.number("sync_full"))
    fork_ms = of.last.number("latest_fork_usec") / 1000
    lasted_s = sum(end - begin for begin, end in of.copies)
    apart_ms = of.apart_ms(of.copies) if of.copies else None
    apart = f", and outside of that p99 was {apart_ms:.1f} ms" if apart_ms is not None else ""
    return Evidence(
        _copied(of),
        f"{started:.0f} full copies for a replica began; they were under way for {lasted_s:.0f} of {of.seconds:.0f} "
        f"s{apart}; the last fork took {fork_ms:.1f} ms; {_p99(of)}.",
    )


def saturated(of: Window) -> Evidence:
    dearest = ", ".join(_spent(of, name) for name, _ in of.dearest[:3])
    return Evidence(
        of.slow_gets
        and of.busy >= SATURATED
        and not _blocked(of)
        and not evidence.scan_storm(of)
        and not _answers(of),
        f"{_busy(of)}; {dearest or 'no command was called'}; {_p99(of)}.",
    )


def elsewhere(of: Window) -> str:
    """A sentence on where else to look if the main loop was held for a shorter time than the probe stood still."""
    held, still = of.per_s(LOOP_US) / 1e6, sum(length for _, length in of.stalls) / of.seconds
    if LOOP_US not in of.last.fields or still < INNOCENT_TIMES * held:
        return ""
    return (
        f" The bystander stood still {percent(still)} of the time, and the server's main loop was held for "
        f"{percent(held)} of it: does the way stand still now and then, or something that stops the whole server?"
    )

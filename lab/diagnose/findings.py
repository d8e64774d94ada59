"""Judges a window: which causes have evidence, ranked, and which are refuted; or that nothing is wrong; or no answer.

A cause is named only if the figures show it. If GETs are slow and no cause is shown, the answer is "I cannot tell".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.blind import evidence
from lab.blind.readings import Finding as Evidence
from lab.diagnose.window import TORN_SHARE, TORN_US, Window
from lab.results.numbers import percent

SATURATED = 0.9
"""Utilisation from which the wait in a queue is a multiple of the work: nine times at 0.9 (M/M/1)."""
FAR_MS = 5.0
"""A round trip that is too long for one data centre, with nothing in its way."""
CONNECTIONS_SHARE = 0.95
"""Share of maxclients from which a server is at the limit of its connections."""
PIPELINED = 1.5
"""Commands per read of a socket from which clients count as pipelining."""
LATE = 0.2
"""Lateness of the probe's own process, as a share of p99, from which the probe's waits may be its own doing: a process
that is late to send is late to read, too."""
CONNECTS_PER_S = 200
"""New connections a second: each costs the server as much as some dozen GETs, and TLS a thousand."""
HELD_SHARE = evidence.LONG_SHARE
"""Share of the time in which the main loop waits for the disk that counts as much as one command's long calls."""
REMOVERS = ("UNLINK", "DEL")
SYNCS = ("PSYNC", "SYNC")
"""A replica asks for its copy by these. Their time is the fork's, which the cause full-sync has."""


@dataclass(frozen=True)
class Cause:
    """One thing that may be wrong. `line`: the cause in words. `against`: what would refute it.

    `next` is the next experiment to type. `weight` ranks the causes that are found: about the share of the time that a
    cause takes.
    """

    id: str
    line: str
    evidence: Callable[[Window], Evidence]
    against: str
    next: str
    weight: Callable[[Window], float]
    chapter: str = "method.md"


@dataclass(frozen=True)
class Found:
    """A cause with its evidence, found or not."""

    cause: Cause
    evidence: Evidence
    weight: float


@dataclass(frozen=True)
class Judgement:
    """`outcome`: named, nothing or unknown. `found`: causes by weight. `refuted`: causes without evidence."""

    outcome: str
    sentence: str
    found: tuple[Found, ...]
    refuted: tuple[Found, ...]


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


def _scan(of: Window) -> Evidence:
    return Evidence(evidence.scan_storm(of), _search(of, "SCAN"))


def _keys(of: Window) -> Evidence:
    return Evidence(evidence.long_calls(of, "KEYS"), _search(of, "KEYS"))


def _long(names: tuple[str, ...]) -> Callable[[Window], Evidence]:
    """Make the function that looks for long calls of these commands and reports on the one that takes most time."""

    def evidence_of_longest(of: Window) -> Evidence:
        found = [name for name in names if evidence.long_calls(of, name)]
        dearest = max(found or names, key=lambda name: of.spent(name).share)
        logged, longest = of.slow.get(dearest, (0, 0.0))
        said = f"; the slow log got {logged}, the longest {longest:.0f} ms" if logged else ""
        return Evidence(bool(found), f"{_spent(of, dearest)}{said}; {_p99(of)}.")

    return evidence_of_longest


def _share(*names: str) -> Callable[[Window], float]:
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


def _other(of: Window) -> Evidence:
    """Evidence of long calls of a command that is in none of the lists."""
    listed = {"SCAN", "KEYS", *WHOLE, *SCRIPTS, *MANY, *SYNCS}
    others = tuple(name for name, _ in of.dearest if name not in listed)
    return _long(others)(of) if others else Evidence(False, "no other command was called.")


def _collection(of: Window) -> Evidence:
    plain = _long(WHOLE)(of)
    return Evidence(plain.found or evidence.giant_set(of), plain.text)


def _evictions(of: Window) -> Evidence:
    every = f"; stalls came every {of.period_s:.1f} s" if of.period_s else ""
    return Evidence(
        evidence.evictions(of),
        f"{of.evicted_per_s:,.0f} entries evicted a second, memory came to {percent(of.memory)} of its limit"
        f"{every}; {_p99(of)}.",
    )


def _core(of: Window) -> Evidence:
    """Evidence that the server lacks a core.

    It comes from the kernel's record if the server runs on this machine, else from commands that were interrupted.
    """
    torn = of.torn
    known = of.waited is not None
    found = (
        (known or _interrupted(of))
        and evidence.without_a_core(of, of.waited, of.others)
        and not _blocked(of)
        and not _storm(of)
        and not _copied(of)  # the snapshot's process and the replica are such programs
    )
    said = [_busy(of)]
    if of.waited is not None:
        said.append(f"it was ready and without a core {percent(of.waited)} of the time")
    if of.others is not None:
        said.append(f"other programs of its machine used {of.others:.1f} cores")
    if torn:
        said.append(
            f"{torn[1]:,} of {torn[0]:,} commands of constant time took longer than {TORN_US / 1000:.0f} ms"
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


def _far(of: Window) -> Evidence:
    return Evidence(
        of.floor_ms >= FAR_MS and of.busy < evidence.BUSY_ENOUGH,
        f"the quickest twentieth of the round trips took {of.floor_ms:.1f} ms and the server executed a GET in "
        f"{of.parts_ms['execution'] * 1000:.0f} µs; {_busy(of)}; {_p99(of)}.",
    )


def _one_by_one(of: Window) -> Evidence:
    name = max(REMOVERS, key=lambda name: of.spent(name).per_s)
    together = of.per_read
    said = f"; {together:.1f} commands came with one read of a socket" if together else ""
    found = (name == "UNLINK" and evidence.one_by_one(of)) or (
        of.spent(name).per_s >= evidence.REMOVED_PER_S and of.spent(name).mean_us < evidence.REMOVED_US
    )
    return Evidence(found and (together is None or together < PIPELINED), f"{_spent(of, name)}{said}.")


def _connections(of: Window) -> Evidence:
    limit = of.last.number("maxclients") or of.setting("maxclients")
    most = max(snapshot.number("connected_clients") for snapshot in of.snapshots)
    refused = of.per_s("rejected_connections")
    return Evidence(
        bool(refused) or (limit > 0 and most / limit >= CONNECTIONS_SHARE),
        f"{most:,.0f} connections of {limit:,.0f} that are admitted, {refused:.1f} a second refused.",
    )


def _storm(of: Window) -> bool:
    return of.slow_gets and of.per_s("total_connections_received") >= CONNECTS_PER_S and not _blocked(of)


def _connects(of: Window) -> Evidence:
    per_s = of.per_s("total_connections_received")
    return Evidence(
        _storm(of),
        f"{per_s:,.0f} new connections a second; {_busy(of)}; {_p99(of)}.",
    )


def _disk(of: Window) -> Evidence:
    delayed = of.per_s("aof_delayed_fsync")
    told = {name: took for name, took in of.events.items() if name.startswith(("aof-", "rdb-", "fork"))}
    said = "".join(f"; {name} {took:.0f} ms" for name, took in told.items())
    always = of.settings.get("appendonly") == "yes" and of.settings.get("appendfsync") == "always"
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
        f"{'always' if always else of.settings.get('appendfsync', 'unknown')}; {_p99(of)}.",
    )


def _copied(of: Window) -> bool:
    """True if GETs are slow while a replica copies the whole data set, and are not slow at other times."""
    apart_ms = of.apart_ms(of.copies)
    ends_with_it = apart_ms is None or apart_ms < of.slow_from_ms
    return of.slow_gets and bool(of.copies) and ends_with_it and not _blocked(of)


def _full_sync(of: Window) -> Evidence:
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


def _saturated(of: Window) -> Evidence:
    dearest = ", ".join(_spent(of, name) for name, _ in of.dearest[:3])
    return Evidence(
        of.slow_gets and of.busy >= SATURATED and not _blocked(of) and not evidence.scan_storm(of),
        f"{_busy(of)}; {dearest or 'no command was called'}; {_p99(of)}.",
    )


CAUSES = (
    Cause(
        "scan-storm", "SCAN searches the keyspace again and again", _scan,
        "SCAN's share of the time, in INFO commandstats, is small.",
        "redis-cli CLIENT LIST | grep cmd=scan   # who searches? Stop one, and look again",
        _share("SCAN"), "key-growth.md",
    ),
    Cause(
        "keys-command", "KEYS walks over every key in one piece", _keys,
        "No call of KEYS in INFO commandstats.",
        "redis-cli SLOWLOG GET 5                 # its pattern tells who sends it", _share("KEYS"), "keys-command.md",
    ),
    Cause(
        "giant-index", "a collection has grown huge, and is read in one piece", _collection,
        "The slow log names no command that reads a whole collection, or their calls are short.",
        "redis-cli SLOWLOG GET 5                 # names the key; SCARD, HLEN, LLEN or ZCARD tells its size",
        _share(*WHOLE, "UNLINK"), "second-act.md",
    ),
    Cause(
        "lua-script", "a script holds the server while it runs", _long(SCRIPTS),
        "No EVAL, EVALSHA or FCALL in INFO commandstats, or their calls are short.",
        "redis-cli SLOWLOG GET 5                 # the script's SHA1; SCRIPT SHOW, or your code, has its text",
        _share(*SCRIPTS), "method.md",
    ),
    Cause(
        "many-at-once", "one command reads or writes thousands of keys at once", _long(MANY),
        "Their calls are short.",
        "redis-cli SLOWLOG GET 5                 # how many arguments? Split it into hundreds",
        _share(*MANY), "pipelined-delete.md",
    ),
    Cause(
        "long-command", "one command holds the server in long calls", _other,
        "Its calls are short.",
        "redis-cli SLOWLOG GET 5                 # its words; what does each visit?",
        lambda of: max((spent.share for _, spent in of.dearest), default=0.0), "reading-p99.md",
    ),
    Cause(
        "eviction-cycle", "memory is at its limit, and entries are evicted in bursts", _evictions,
        "evicted_keys in INFO stats stands still, or memory is below its limit.",
        "redis-cli --stat                        # does memory climb and fall with the stalls?",
        lambda of: 0.5 if evidence.evictions(of) else 0.0, "eviction-cycle.md",
    ),
    Cause(
        "noisy-neighbour", "other programs take the core that the server needs", _core,
        "The server's machine has a core to spare; a command of constant time never takes a millisecond.",
        "cat /proc/$(pidof redis-server)/schedstat   # the second figure: ns without a core. top, on its machine",
        lambda of: of.waited or 0.3, "method.md",
    ),
    Cause(
        "slow-network", "the way to the server is long", _far,
        "The quickest round trips take less than a millisecond.",
        "redis-cli --latency                     # from another machine, and from the server's own",
        lambda of: 0.4 if of.floor_ms >= FAR_MS else 0.0, "method.md",
    ),
    Cause(
        "unpipelined-deletes", "keys are deleted one by one, a round trip each", _one_by_one,
        "Several commands come with each read of a socket: they are pipelined.",
        "redis-cli CLIENT LIST | grep -E 'cmd=(unlink|del) '   # who? Its changes wait, the server does not",
        lambda of: 0.2, "pipelined-delete.md",
    ),
    Cause(
        "connection-limit", "the server is at the limit of its connections", _connections,
        "rejected_connections stands still.",
        "redis-cli CLIENT LIST                   # who has most of them? Idle ones leak", lambda of: 0.6, "method.md",
    ),
    Cause(
        "connection-storm", "clients connect anew for each command", _connects,
        "total_connections_received rises slowly.",
        "redis-cli CLIENT LIST                   # many with age=0: that client has no pool",
        lambda of: 0.3, "method.md",
    ),
    Cause(
        "slow-disk", "writes wait for the disk", _disk,
        "aof_delayed_fsync stands still, LATENCY LATEST names no aof event, and the main loop waits for nothing.",
        "redis-cli LATENCY LATEST                # after CONFIG SET latency-monitor-threshold 5",
        lambda of: 0.3, "method.md",
    ),
    Cause(
        "full-sync", "a replica copies the whole data set", _full_sync,
        "sync_full in INFO stats stands still, or a bystander waits as long when no copy is under way.",
        "redis-cli INFO replication              # does a replica come and go? Its backlog is too small",
        lambda of: 0.3, "method.md",
    ),
    Cause(
        "saturated", "the server has more ordinary work than one core can do", _saturated,
        "The main thread has time left.",
        "redis-cli INFO commandstats             # calls × time of a call: which of these can be spared?",
        lambda of: 0.25, "reading-p99.md",
    ),
)  # fmt: skip


def judge(of: Window) -> Judgement:
    """Judge a window: look in it for the evidence of each cause."""
    looked = [Found(cause, cause.evidence(of), cause.weight(of)) for cause in CAUSES]
    found = tuple(sorted((each for each in looked if each.evidence.found), key=lambda each: -each.weight))
    refuted = tuple(each for each in looked if not each.evidence.found)
    if found:
        more = f" Besides: {'; '.join(each.cause.line for each in found[1:])}." if found[1:] else ""
        return Judgement("named", f"{_upper(found[0].cause.line)}.{more}", found, refuted)
    if of.slow_gets and of.lag_ms >= LATE * of.get_ms:
        return Judgement(
            "unknown",
            f"I cannot tell: this machine itself was late by {of.lag_ms:.1f} ms (p99), so the {of.get_ms:.1f} ms that "
            "a bystander waits may be its own. Diagnose from a quieter machine.",
            (),
            refuted,
        )
    if of.slow_gets:
        return Judgement(
            "unknown",
            f"I cannot tell: a bystander waits {of.get_ms:.1f} ms (p99), and none of {len(CAUSES)} causes has its "
            "evidence here.",
            (),
            refuted,
        )
    return Judgement(
        "nothing",
        f"Nothing is wrong with the server: a bystander's p99 is {of.get_ms:.1f} ms, {of.floor_ms:.2f} ms of it the "
        f"round trip, and the main thread is busy {percent(of.busy)}.",
        (),
        refuted,
    )


def answer_of(judgement: Judgement) -> str:
    """The ids of the named causes, in order; without any, `nothing` or `unknown`."""
    return " + ".join(each.cause.id for each in judgement.found) or judgement.outcome


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]

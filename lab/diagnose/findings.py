"""Judges a window: which causes have evidence, ranked, and which are refuted; or that nothing is wrong; or no answer.

A cause is named only if the figures show it. If GETs are slow and no cause is shown, the answer is "I cannot tell".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.results.numbers import percent
from lab.server import law, signs
from lab.server.figures import Evidence
from lab.server.window import Window, at_least

LATE = 0.2
"""Lateness of the probe's own process, as a share of p99, from which this process may cause the probe's waits: a
process that is late to send is late to read, too."""


@dataclass(frozen=True)
class KnownCause:
    """A possible cause. `line` describes it in a few words. `against` is the observation that would refute it.

    `next` is the next experiment to type. `weight` ranks the causes that are found: about the share of the time that a
    cause takes. `needs`: prefixes of the fields of INFO that its evidence needs.
    """

    id: str
    line: str
    evidence: Callable[[Window], Evidence]
    against: str
    next: str
    weight: Callable[[Window], float]
    chapter: str = "method.md"
    needs: tuple[str, ...] = ()

    def lacks(self, window: Window) -> str:
        """Return the first prefix of `needs` that no field of this server's INFO has; '' if all are there."""
        return next(
            (name for name in self.needs if not any(field.startswith(name) for field in window.last.fields)),
            "",
        )


@dataclass(frozen=True)
class JudgedCause:
    """A cause with its evidence, found or not. `next`: the next experiment to type on this server."""

    cause: KnownCause
    evidence: Evidence
    weight: float
    next: str


@dataclass(frozen=True)
class WindowJudgement:
    """`outcome`: named, nothing or unknown. `found`: causes by weight. `refuted`: causes without evidence.

    `not_looked_at`: causes whose evidence needs a field of INFO that the server lacks, with its prefix.
    """

    outcome: str
    sentence: str
    found: tuple[JudgedCause, ...]
    refuted: tuple[JudgedCause, ...]
    not_looked_at: tuple[tuple[KnownCause, str], ...] = ()


COMMANDS = ("cmdstat_",)
NEEDED = ("cmdstat_", "used_cpu_user")
"""Fields of INFO without which the answer cannot be that nothing is wrong: time of commands, CPU time of the thread."""


def _explained(cause: str) -> Callable[[Window], float]:
    """Return the weight of a cause that is commands: they hold the thread, so they rank before their consequences."""
    return lambda window: 1 + sum(each.explains for each in law.by_cause(window).get(cause, ()))


CAUSES = (
    KnownCause(
        "scan-storm", "SCAN searches the keyspace again and again", signs.commands("scan-storm"),
        "SCAN's share of the time, in INFO commandstats, is small.",
        "redis-cli CLIENT LIST | grep cmd=scan   # who searches? Stop one, and look again",
        _explained("scan-storm"), "key-growth.md", COMMANDS,
    ),
    KnownCause(
        "keys-command", "KEYS walks over every key in one piece", signs.commands("keys-command"),
        "No call of KEYS in INFO commandstats.",
        "redis-cli SLOWLOG GET 5                 # its pattern shows which client sends it",
        _explained("keys-command"), "keys-command.md", COMMANDS,
    ),
    KnownCause(
        "giant-index", "a collection has grown huge, and is read in one piece", signs.commands("giant-index"),
        "The slow log names no command that reads a whole collection, or their calls are short.",
        "redis-cli SLOWLOG GET 5                 # names the key; SCARD, HLEN, LLEN or ZCARD returns its size",
        _explained("giant-index"), "second-act.md", COMMANDS,
    ),
    KnownCause(
        "lua-script", "a script holds the server while it runs", signs.commands("lua-script"),
        "No EVAL, EVALSHA or FCALL in INFO commandstats, or their calls are short.",
        "redis-cli SLOWLOG GET 5                 # the script's SHA1; SCRIPT SHOW, or your code, has its text",
        _explained("lua-script"), "method.md", COMMANDS,
    ),
    KnownCause(
        "transaction", "a transaction holds the server until all of its commands are executed",
        signs.commands("transaction"), "No EXEC in INFO commandstats, or its calls are short.",
        "redis-cli SLOWLOG GET 5                 # EXEC; MONITOR shows its commands, for a moment only",
        _explained("transaction"), "method.md", COMMANDS,
    ),
    KnownCause(
        "many-at-once", "one command reads, writes or deletes a great deal at once", signs.commands("many-at-once"),
        "Their calls are short.",
        "redis-cli SLOWLOG GET 5                 # how many arguments? Split it into hundreds",
        _explained("many-at-once"), "pipelined-delete.md", COMMANDS,
    ),
    KnownCause(
        "long-command", "one command holds the server in long calls", signs.commands("long-command"),
        "Its calls are short.",
        "redis-cli SLOWLOG GET 5                 # its words; what does each visit?",
        _explained("long-command"), "reading-p99.md", COMMANDS,
    ),
    KnownCause(
        "eviction-cycle", "memory is at its limit, and entries are evicted in bursts", signs.evictions,
        "evicted_keys in INFO stats stands still, or memory is below its limit.",
        "redis-cli --stat                        # does memory climb and fall with the stalls?",
        lambda window: 0.5 if signs.evicts(window) else 0.0, "eviction-cycle.md", ("evicted_keys",),
    ),
    KnownCause(
        "noisy-neighbour", "other programs take the core that the server needs", signs.lacks_a_core,
        "The server's machine has a core to spare; a command of constant time never takes a millisecond.",
        "cat /proc/$(pidof redis-server)/schedstat   # the second figure: ns without a core. top, on its machine",
        lambda window: window.waited or 0.3, "method.md", ("used_cpu_user",),
    ),
    KnownCause(
        "slow-network", "the network route to the server is long", signs.network_is_slow,
        "The quickest round trips take less than a millisecond.",
        "redis-cli --latency                     # from another machine, and from the server's own",
        lambda window: 0.4 if window.floor_ms >= signs.FAR_MS else 0.0, "method.md",
    ),
    KnownCause(
        "unpipelined-deletes", "keys are deleted one by one, a round trip each", signs.one_by_one,
        "Several commands come with each read of a socket: they are pipelined.",
        "redis-cli CLIENT LIST | grep -E 'cmd=(unlink|del) '   # who? Its changes wait, the server does not",
        lambda _: 0.2, "pipelined-delete.md", COMMANDS,
    ),
    KnownCause(
        "connection-limit", "the server is at the limit of its connections", signs.connections,
        "rejected_connections stands still.",
        "redis-cli CLIENT LIST                   # who has most of them? Idle ones leak", lambda _: 0.6, "method.md",
        ("rejected_connections",),
    ),
    KnownCause(
        "connection-storm", "clients open a new connection for each command", signs.connects,
        "total_connections_received rises slowly.",
        "redis-cli CLIENT LIST                   # many with age=0: that client has no pool",
        lambda _: 0.3, "method.md", ("total_connections_received",),
    ),
    KnownCause(
        "expiry-wave", "many entries expire in the same moment, and the server removes them", signs.expiries,
        "expired_keys in INFO stats climbs slowly, or evenly.",
        "redis-cli INFO stats | grep expired     # a second apart: does it jump? Spread the lifetimes",
        lambda _: 0.3, "method.md", ("expired_keys",),
    ),
    KnownCause(
        "hot-big-key", "big values are read all the time, and their answers fill the main thread", signs.big_answers,
        "total_net_output_bytes in INFO stats climbs slowly, or the answers are small.",
        "redis-cli CLIENT LIST | grep -v ' omem=0 '   # whose answers are under way? MONITOR shows the key",
        signs.time_outside_commands, "method.md", ("total_net_output_bytes", "used_cpu_user"),
    ),
    KnownCause(
        "slow-disk", "writes wait for the disk", signs.disk,
        "aof_delayed_fsync stands still, LATENCY LATEST names no aof event, and the main loop waits for nothing.",
        "redis-cli LATENCY LATEST                # after CONFIG SET latency-monitor-threshold 5",
        lambda _: 0.3, "method.md", ("aof_enabled",),
    ),
    KnownCause(
        "full-sync", "a replica copies the whole data set", signs.full_sync,
        "sync_full in INFO stats stands still, or a bystander waits as long when no copy is under way.",
        "redis-cli INFO replication              # does a replica come and go? Its backlog is too small",
        lambda _: 0.3, "method.md", ("sync_full",),
    ),
    KnownCause(
        "fork", "the server stands still while it forks, to save its data", signs.fork,
        "total_forks in INFO stats stands still, or latest_fork_usec is small.",
        "redis-cli INFO stats | grep fork        # how long? It grows with the memory in use",
        lambda _: 0.3, "method.md", ("total_forks",),
    ),
    KnownCause(
        "saturated", "the server has more ordinary work than one core can do", signs.saturated,
        "The main thread has time left.",
        "redis-cli INFO commandstats             # calls × time of a call: which of these can be spared?",
        lambda _: 0.25, "reading-p99.md", ("used_cpu_user",),
    ),
)  # fmt: skip


KEYED = {
    "giant-index": ("CPU", "large-reply"),
    "many-at-once": ("CPU", "large-request"),
    "long-command": ("CPU", "slow"),
    "hot-big-key": ("NET", "large-reply"),
}
"""KnownCause of which a newer server names the key → what Redis counts for it, and the log in which Valkey keeps it."""


def next_step(cause: KnownCause, window: Window) -> str:
    """Return the next experiment to type. It has HOTKEYS or COMMANDLOG only where this server knows the command."""
    metric, log = KEYED.get(cause.id, ("", ""))
    if metric and window.product == "redis" and at_least(window.version, (8, 6)):
        start = f"redis-cli HOTKEYS START METRICS 1 {metric} DURATION 10"
        return f"{start}; sleep 10; redis-cli HOTKEYS GET   # which keys?"
    if metric and window.product == "valkey" and at_least(window.version, (8, 1)):
        return f"redis-cli COMMANDLOG GET 5 {log}   # names the key"
    return cause.next


def judge(window: Window) -> WindowJudgement:
    """Judge a window by the evidence of each cause.

    Nothing is wrong only if a bystander's wait and the round trip are short, the thread has time left, and INFO has the
    fields that show this.
    """
    not_looked_at = tuple((cause, lacking) for cause in CAUSES if (lacking := cause.lacks(window)))
    skipped = {cause.id for cause, _ in not_looked_at}
    judged = [
        JudgedCause(each, each.evidence(window), each.weight(window), next_step(each, window))
        for each in CAUSES
        if each.id not in skipped
    ]
    found = tuple(sorted((each for each in judged if each.evidence.found), key=lambda each: -each.weight))
    refuted = tuple(each for each in judged if not each.evidence.found)
    if found:
        others = f" Besides: {'; '.join(each.cause.line for each in found[1:])}." if found[1:] else ""
        return WindowJudgement(
            "named", f"{_upper(found[0].cause.line)}.{others}", found, refuted, not_looked_at
        )
    missing = [
        name.rstrip("_") for name in NEEDED if not any(has.startswith(name) for has in window.last.fields)
    ]
    waits = f"a bystander waits {window.get_ms:.1f} ms (p99)"
    if window.slow_gets and window.lag_ms >= LATE * window.get_ms:
        sentence = (
            f"this machine itself was late by {window.lag_ms:.1f} ms (p99), and may cause the {window.get_ms:.1f} ms "
            "that a bystander waits. Diagnose from a quieter machine."
        )
    elif missing:
        sentence = f"{waits}, and this server's INFO lacks {' and '.join(missing)}."
    elif window.slow_gets:
        sentence = (
            f"{waits}, and none of {len(judged)} causes has its evidence here.{signs.elsewhere(window)}"
        )
    elif window.busy >= law.SATURATED:
        sentence = (
            f"{waits}, and the server uses a whole core or more; it does not report the main thread's part."
        )
    elif window.floor_ms >= signs.FAR_MS:
        sentence = (
            f"{waits}, and even the quickest twentieth waits {window.floor_ms:.1f} ms, for an unknown reason."
        )
    else:
        return WindowJudgement(
            "nothing",
            f"Nothing is wrong with the server: a bystander's p99 is {window.get_ms:.1f} ms, {window.floor_ms:.2f} ms "
            f"of it the round trip, and the main thread is busy {percent(window.busy)}.",
            (),
            refuted,
            not_looked_at,
        )
    return WindowJudgement("unknown", f"I cannot tell: {sentence}", (), refuted, not_looked_at)


def answer_of(judgement: WindowJudgement) -> str:
    """Return the ids of the named causes, in order; without any, `nothing` or `unknown`."""
    return " + ".join(each.cause.id for each in judgement.found) or judgement.outcome


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]

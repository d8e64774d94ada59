"""The signs of each cause: functions that return whether its evidence is in the figures, and which figures decided it.

Commands are judged by one law (`lab.server.law`). Other activities of a server are judged by bounds, and only if
commands do not explain the wait. Blind sessions use the same functions, as far as they have the figures;
their causes exceed the bounds several times over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.results.numbers import percent
from lab.server import law
from lab.server.figures import Evidence, Figures
from lab.server.law import REMOVERS, SATURATED
from lab.server.window import LOOP_US, TORN_US, Window

FAR_MS = 5.0
"""A round trip too long for one data centre, without any queue."""
CONNECTIONS_SHARE = 0.95
"""Share of maxclients from which a server is at the limit of its connections."""
PIPELINED = 1.5
"""Commands per read of a socket from which clients count as pipelining."""
LONG_MS = 3.0
"""A call of this length is noticed by other clients."""
EVICTED_PER_S, MEMORY_SHARE = 100, 0.95
EXPIRED_PER_S = 2000
CONNECTS_PER_S = 200
"""New connections a second: each costs the server as much as some dozen GETs, and TLS a thousand."""
SENT_MB_PER_S, ANSWER_BYTES, ANSWERING = 50.0, 10_000, 0.3
"""Bounds of big answers: MB a second sent, bytes of the mean answer (below it answers are many rather than big), and
the utilisation from which sending them makes others wait."""
WITHOUT_A_CORE, BUSY_ENOUGH, OTHERS_CORES, SEARCHING = 0.05, 0.7, 0.5, 0.2
REMOVED_PER_S, REMOVED_US = 1000, 100
HELD_SHARE = 0.1
"""Share of the time from which the main loop's waits for the disk are noticed."""
INNOCENT_TIMES = 2.0
"""If a bystander's stalls last this many times as long as the main loop was occupied, the loop is not the reason."""


def _spent_text(figures: Figures, name: str) -> str:
    spent = figures.spent(name)
    taken = percent(figures.share(name)) + " of the time"
    if figures.threads > 1:
        taken = f"{figures.share(name) * figures.threads:.1f} of {figures.threads} threads"
    waits = ", waits included" if figures.clock_includes_waits else ""
    return f"{name} {taken}, {spent.per_s:,.1f} calls a second of {spent.mean_us:,.0f} µs{waits}"


def _busy_text(figures: Figures) -> str:
    seconds = figures.busy_by_second
    spread = f" ({percent(min(seconds))} to {percent(max(seconds))} in single seconds)" if seconds else ""
    return f"the main thread was busy {percent(figures.busy)}{spread}"


def saturates_at(figures: Figures, share: float) -> float | None:
    """Return the key count at which searches of every key would fill the main thread, at today's rate of searches.

    Their share grows with the keys, the rest of the work does not: N × (1 - rest) / share. None if there are more keys
    already: then today's searches are not finished in time.
    """
    rest = max(0.0, figures.busy - share)
    limit = figures.keys * (1 - rest) / share if share > 0 and rest < 1 else 0.0
    return limit if limit > figures.keys else None


def commands(cause: str) -> Callable[[Figures], Evidence]:
    """Return a function that checks whether the commands of a cause explain a bystander's wait."""

    def look(figures: Figures) -> Evidence:
        found = law.by_cause(figures).get(cause, ())
        names = [
            name for name, _ in figures.dearest if law.cause_of(name) == cause and name not in law.VICTIMS
        ]
        return evidence_of_holders(figures, found, names[:1])

    return look


def evidence_of_holders(
    figures: Figures, found: Sequence[law.Holder], called: Sequence[str] = ()
) -> Evidence:
    """Return evidence that these holders explain a bystander's wait; without any, figures of the called commands."""
    names = [each.name for each in found] or called
    if not names:
        return Evidence(False, "none was called.")
    sentences = [_command_text(figures, name) for name in names]
    if found:
        share = percent(min(1.0, sum(each.explains for each in found)))
        sentences.append(
            f"that explains {share} of the {figures.wait_ms:.1f} ms that a bystander waits in the mean"
        )
        if not figures.clock_includes_waits and (predicted := law.predicted_by(figures, names)):
            sentences.append(f"by these calls alone p99 is {predicted:.0f} ms")
    return Evidence(bool(found), f"{'; '.join(sentences)}; {_busy_text(figures)}; {figures.p99_text}.")


def _command_text(figures: Figures, name: str) -> str:
    """Return a command's cost, its slow log entries, and for a search the key count at which it fills the server."""
    text = _spent_text(figures, name)
    logged, longest = figures.slow.get(name, (0, 0.0))
    if logged:
        text += f"; the slow log got {logged}, the longest {longest:.0f} ms"
    if name == "KEYS" and figures.keys and not figures.clock_includes_waits:
        text += f"; a visited key costs {figures.spent(name).mean_us / figures.keys:.2f} µs here"
    if name in figures.senders:
        text += f"; sent by {figures.senders[name]}"
    limit = saturates_at(figures, figures.share(name)) if name in law.SEARCHES else None
    if limit:
        text += f"; at today's rate it fills the server at {limit:,.0f} keys, and there are {figures.keys:,}"
    return text


def evicts(figures: Figures) -> bool:
    """Return True if GETs are slow and at least a hundred entries a second are evicted, with memory at its limit."""
    return figures.slow_gets and figures.evicted_per_s >= EVICTED_PER_S and figures.memory >= MEMORY_SHARE


def evictions(figures: Figures) -> Evidence:
    """Return evidence that evictions occupy the server."""
    every = f"; stalls came every {figures.period_s:.1f} s" if figures.period_s else ""
    return Evidence(
        evicts(figures) and not law.explained(figures),
        f"{figures.evicted_per_s:,.0f} entries evicted a second, memory came to {percent(figures.memory)} of its limit"
        f"{every}; {figures.p99_text}.",
    )


def lacks_a_core(figures: Figures) -> Evidence:
    """Return evidence that the server lacks a core.

    It comes from the kernel's record if the server runs on this machine, else from commands that were interrupted.
    """
    torn = figures.torn
    found = (
        figures.slow_gets
        and (figures.interrupted if figures.waited is None else figures.waited >= WITHOUT_A_CORE)
        and (figures.others is None or figures.others >= OTHERS_CORES)
        and figures.busy < BUSY_ENOUGH
        and figures.share("SCAN") < SEARCHING
        # Clients that read big answers, reconnect often or copy the data use cores, too.
        and not (_sends(figures) or _connects(figures) or figures.copied)
        and not law.explained(figures)
    )
    sentences = [_busy_text(figures)]
    if figures.waited is not None:
        sentences.append(f"it was ready and without a core {percent(figures.waited)} of the time")
    if figures.others is not None:
        sentences.append(f"other programs of its machine used {figures.others:.1f} cores")
    if torn:
        sentences.append(
            f"{torn[1]:,} of {torn[0]:,} commands of constant time took longer than {TORN_US / 1000:.1f} ms"
        )
    return Evidence(found, f"{'; '.join(sentences)}; {figures.p99_text}.")


def network_is_slow(window: Window) -> Evidence:
    """Return evidence that the network is slow: even round trips that find the server idle take long."""
    return Evidence(
        window.floor_ms >= FAR_MS and window.busy < BUSY_ENOUGH and window.floor_is_the_network,
        f"the quickest twentieth of the round trips took {window.floor_ms:.1f} ms and the server executed a GET in "
        f"{window.parts_ms['execution'] * 1000:.0f} µs; {_busy_text(window)}; {window.p99_text}.",
    )


def one_by_one(figures: Figures) -> Evidence:
    name = max(REMOVERS, key=lambda name: figures.spent(name).per_s)
    together = figures.per_read
    pipelined = f"; {together:.1f} commands came with one read of a socket" if together else ""
    found = figures.spent(name).per_s >= REMOVED_PER_S and figures.spent(name).mean_us < REMOVED_US
    return Evidence(
        found and (together is None or together < PIPELINED), f"{_spent_text(figures, name)}{pipelined}."
    )


def connections(window: Window) -> Evidence:
    limit = window.last.number("maxclients") or window.setting("maxclients")
    most = max(snapshot.number("connected_clients") for snapshot in window.snapshots)
    refused = window.per_s("rejected_connections")
    return Evidence(
        bool(refused) or (limit > 0 and most / limit >= CONNECTIONS_SHARE),
        f"{most:,.0f} connections of {limit:,.0f} that are admitted, {refused:.1f} a second refused.",
    )


def _connects(figures: Figures) -> bool:
    return figures.slow_gets and figures.connects_per_s >= CONNECTS_PER_S


def connects(figures: Figures) -> Evidence:
    return Evidence(
        _connects(figures) and not law.explained(figures),
        f"{figures.connects_per_s:,.0f} new connections a second; {_busy_text(figures)}; {figures.p99_text}.",
    )


def expiries(figures: Figures) -> Evidence:
    """Return evidence that the removal of expired entries occupies the server: many, with interruptions."""
    capped = figures.capped_per_s
    interruptions = "an unknown number of times" if capped is None else f"{capped:.1f} times a second"
    found = figures.slow_gets and figures.expired_per_s >= EXPIRED_PER_S and not evicts(figures)
    return Evidence(
        found and capped != 0 and not law.explained(figures),
        f"{figures.expired_per_s:,.0f} entries expired a second, and their removal was interrupted {interruptions}; "
        f"{figures.evicted_per_s:,.0f} were evicted; {figures.p99_text}.",
    )


def time_outside_commands(figures: Figures) -> float:
    """Return the main thread's share of time outside of commands: on reading and answering."""
    return max(0.0, figures.busy - law.time_of_commands(figures))


def _sends(figures: Figures) -> bool:
    """Return True if GETs are slow, and a busy server sends tens of MB a second, in answers of more than 10 kB."""
    calls = sum(spent.per_s for spent in figures.commands.values())
    big = figures.sent_mb_per_s * 1e6 >= ANSWER_BYTES * calls
    return figures.slow_gets and figures.busy >= ANSWERING and figures.sent_mb_per_s >= SENT_MB_PER_S and big


def _answers(figures: Figures) -> bool:
    return _sends(figures) and not law.explained(figures) and not figures.copied


def big_answers(figures: Figures) -> Evidence:
    calls = sum(spent.per_s for spent in figures.commands.values())
    each = f" in answers of {1000 * figures.sent_mb_per_s / calls:,.1f} kB" if calls else ""
    return Evidence(
        _answers(figures),
        f"the server sent {figures.sent_mb_per_s:,.0f} MB a second{each}; its main thread spent "
        f"{percent(time_outside_commands(figures))} of the time outside of commands, on "
        f"reading and answering; {_busy_text(figures)}; {figures.p99_text}.",
    )


def disk(window: Window) -> Evidence:
    delayed = window.per_s("aof_delayed_fsync")
    events = {name: took for name, took in window.events.items() if name.startswith(("aof-", "rdb-", "fork"))}
    event_text = "".join(f"; {name} {took:.0f} ms" for name, took in events.items())
    logged = any(took >= LONG_MS for name, took in events.items() if name != "fork")
    loop = "this server does not report how long its main loop was busy"
    waits = False
    if window.loop_waited is not None:
        loop = f"the main loop waited {percent(window.loop_waited)} of the time outside of commands"
        # A loop without a core waits, too: the kernel reports for how long, else interrupted commands show that it did.
        for_a_core = (1.0 if window.interrupted else 0.0) if window.waited is None else window.waited
        waits = window.last.fields.get("aof_enabled") == "1" and window.loop_waited - for_a_core >= HELD_SHARE
    return Evidence(
        window.slow_gets and not law.explained(window) and (delayed > 0 or logged or waits),
        f"{delayed:.1f} writes a second waited for an earlier fsync{event_text}; {loop}; appendfsync is "
        f"{window.settings.get('appendfsync', 'unknown')}; {window.p99_text}.",
    )


def full_sync(window: Window) -> Evidence:
    started = max(0.0, window.last.number("sync_full") - window.first.number("sync_full"))
    fork_ms = window.last.number("latest_fork_usec") / 1000
    lasted_s = sum(end - begin for begin, end in window.copies)
    apart_ms = window.apart_ms(window.copies) if window.copies else None
    apart = f", and outside of that p99 was {apart_ms:.1f} ms" if apart_ms is not None else ""
    return Evidence(
        window.copied and not law.explained(window),
        f"{started:.0f} full copies for a replica began; they were under way for {lasted_s:.0f} of "
        f"{window.seconds:.0f} s{apart}; the last fork took {fork_ms:.1f} ms; {window.p99_text}.",
    )


def saturated(window: Window) -> Evidence:
    """Return evidence that the thread is full, without a command or an activity that takes most of its time."""
    dearest = ", ".join(_spent_text(window, name) for name, _ in window.dearest[:3])
    together = window.per_read
    piped = f"; {together:.1f} commands came with one read of a socket" if together else ""
    # If INFO reports the time of all threads instead of this one's, a busy core counts only if a bystander waits.
    own = "used_cpu_user_main_thread" in window.last.fields or window.clock_includes_waits
    return Evidence(
        window.busy >= SATURATED
        and (own or window.slow_gets)
        and not law.explained(window)
        and not _answers(window),
        f"{_busy_text(window)}; {dearest or 'no command was called'}{piped}; {window.p99_text}.",
    )


def fork(window: Window) -> Evidence:
    """Return evidence that the forks of snapshots and rewrites of the log explain a bystander's wait."""
    each_ms, per_s = window.last.number("latest_fork_usec") / 1000, window.per_s("total_forks")
    wait_ms = per_s * each_ms**2 / 2000 / max(1 - window.busy, 0.03)
    found = (
        window.slow_gets
        and not window.copied
        and window.wait_ms > 0
        and wait_ms >= law.EXPLAINS * window.wait_ms
    )
    return Evidence(
        found and not law.explained(window),
        f"{per_s * window.seconds:.0f} forks in {window.seconds:.0f} s, the last held the main thread for "
        f"{each_ms:.1f} ms; {window.p99_text}.",
    )


def elsewhere(window: Window) -> str:
    """Return a sentence on other places to look if the main loop was busy for a shorter time than the probe stalled."""
    loop_held, still = (
        window.per_s(LOOP_US) / 1e6,
        sum(length for _, length in window.stalls) / window.seconds,
    )
    if LOOP_US not in window.last.fields or still < INNOCENT_TIMES * loop_held:
        return ""
    return (
        f" The bystander stood still {percent(still)} of the time, and the server's main loop was held for "
        f"{percent(loop_held)} of it: does the network stall now and then, or something that stops the whole server?"
    )

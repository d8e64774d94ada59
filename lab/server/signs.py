"""The signs of each cause in a window: for each a function that says whether its evidence is there, with the figures.

Commands are judged by one law (`lab.server.law`). What else a server does is judged by bounds, and only where
commands do not explain the wait already. Blind sessions judge by the same functions where they have the figures for
them; their causes exceed the bounds several times over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.results.numbers import percent
from lab.server import law
from lab.server.figures import Figures
from lab.server.figures import Finding as Evidence
from lab.server.law import REMOVERS, SATURATED
from lab.server.window import LOOP_US, TORN_US, Window

FAR_MS = 5.0
"""A round trip that is too long for one data centre, with nothing in its way."""
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
"""What a server sends, the size of its mean answer, from which answers are big rather than many, and the utilisation
from which the work of sending them makes others wait."""
WITHOUT_A_CORE, BUSY_ENOUGH, OTHERS_CORES, SEARCHING = 0.05, 0.7, 0.5, 0.2
REMOVED_PER_S, REMOVED_US = 1000, 100
HELD_SHARE = 0.1
"""Share of the time in which the main loop waits for the disk that is noticed."""
INNOCENT_TIMES = 2.0
"""If a bystander stands still for this many times as long as the main loop was held, the loop is not the reason."""


def _spent(of: Figures, name: str) -> str:
    spent = of.spent(name)
    taken = percent(of.share(name)) + " of the time"
    if of.threads > 1:
        taken = f"{of.share(name) * of.threads:.1f} of {of.threads} threads"
    waits = ", waits included" if of.clock_includes_waits else ""
    return f"{name} {taken}, {spent.per_s:,.1f} calls a second of {spent.mean_us:,.0f} µs{waits}"


def _busy(of: Figures) -> str:
    seconds = of.busy_by_second
    spread = f" ({percent(min(seconds))} to {percent(max(seconds))} in single seconds)" if seconds else ""
    return f"the main thread was busy {percent(of.busy)}{spread}"


def saturates_at(of: Figures, share: float) -> float | None:
    """The key count at which searches that visit every key would fill the main thread, at today's rate of searches.

    Their share grows with the keys, the rest of the work does not: N × (1 - rest) / share. None where the keys that are
    there contradict it: then the searches of today are not finished in time.
    """
    rest = max(0.0, of.busy - share)
    limit = of.keys * (1 - rest) / share if share > 0 and rest < 1 else 0.0
    return limit if limit > of.keys else None


def commands(cause: str) -> Callable[[Figures], Evidence]:
    """Make the function that looks whether the commands of a cause explain what a bystander waits."""

    def look(of: Figures) -> Evidence:
        found = law.by_cause(of).get(cause, ())
        names = [name for name, _ in of.dearest if law.cause_of(name) == cause and name not in law.VICTIMS]
        return held_by(of, found, names[:1])

    return look


def held_by(of: Figures, found: Sequence[law.Holder], called: Sequence[str] = ()) -> Evidence:
    """Evidence that these holders explain what a bystander waits; without any, figures of commands that were called."""
    names = [each.name for each in found] or called
    if not names:
        return Evidence(False, "none was called.")
    said = [_told(of, name) for name in names]
    if found:
        share = percent(min(1.0, sum(each.explains for each in found)))
        said.append(f"that explains {share} of the {of.wait_ms:.1f} ms that a bystander waits in the mean")
        if not of.clock_includes_waits and (predicted := law.predicted_by(of, names)):
            said.append(f"by these calls alone p99 is {predicted:.0f} ms")
    return Evidence(bool(found), f"{'; '.join(said)}; {_busy(of)}; {of.p99_text}.")


def _told(of: Figures, name: str) -> str:
    """What a command took, what the slow log got of it, and for a search at how many keys it fills the server."""
    said = _spent(of, name)
    logged, longest = of.slow.get(name, (0, 0.0))
    if logged:
        said += f"; the slow log got {logged}, the longest {longest:.0f} ms"
    if name == "KEYS" and of.keys and not of.clock_includes_waits:
        said += f"; a visited key costs {of.spent(name).mean_us / of.keys:.2f} µs here"
    limit = saturates_at(of, of.share(name)) if name in law.SEARCHES else None
    if limit:
        said += f"; at today's rate it fills the server at {limit:,.0f} keys, and there are {of.keys:,}"
    return said


def evicts(of: Figures) -> bool:
    """True if GETs are slow and at least a hundred entries a second are evicted, with memory at its limit."""
    return of.slow_gets and of.evicted_per_s >= EVICTED_PER_S and of.memory >= MEMORY_SHARE


def evictions(of: Figures) -> Evidence:
    """Evidence that evictions hold the server."""
    every = f"; stalls came every {of.period_s:.1f} s" if of.period_s else ""
    return Evidence(
        evicts(of) and not law.explained(of),
        f"{of.evicted_per_s:,.0f} entries evicted a second, memory came to {percent(of.memory)} of its limit"
        f"{every}; {of.p99_text}.",
    )


def core(of: Figures) -> Evidence:
    """Evidence that the server lacks a core.

    It comes from the kernel's record if the server runs on this machine, else from commands that were interrupted.
    """
    torn = of.torn
    found = (
        of.slow_gets
        and (of.interrupted if of.waited is None else of.waited >= WITHOUT_A_CORE)
        and (of.others is None or of.others >= OTHERS_CORES)
        and of.busy < BUSY_ENOUGH
        and of.share("SCAN") < SEARCHING
        # Programs that read big answers, connect again and again or copy the data compute, too.
        and not (_sends(of) or _connects(of) or of.copied)
        and not law.explained(of)
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
    return Evidence(found, f"{'; '.join(said)}; {of.p99_text}.")


def far(of: Window) -> Evidence:
    """Evidence that the way is long: even round trips that find the server idle take long."""
    return Evidence(
        of.floor_ms >= FAR_MS and of.busy < BUSY_ENOUGH and of.floor_is_the_way,
        f"the quickest twentieth of the round trips took {of.floor_ms:.1f} ms and the server executed a GET in "
        f"{of.parts_ms['execution'] * 1000:.0f} µs; {_busy(of)}; {of.p99_text}.",
    )


def one_by_one(of: Figures) -> Evidence:
    name = max(REMOVERS, key=lambda name: of.spent(name).per_s)
    together = of.per_read
    said = f"; {together:.1f} commands came with one read of a socket" if together else ""
    found = of.spent(name).per_s >= REMOVED_PER_S and of.spent(name).mean_us < REMOVED_US
    return Evidence(found and (together is None or together < PIPELINED), f"{_spent(of, name)}{said}.")


def connections(of: Window) -> Evidence:
    limit = of.last.number("maxclients") or of.setting("maxclients")
    most = max(snapshot.number("connected_clients") for snapshot in of.snapshots)
    refused = of.per_s("rejected_connections")
    return Evidence(
        bool(refused) or (limit > 0 and most / limit >= CONNECTIONS_SHARE),
        f"{most:,.0f} connections of {limit:,.0f} that are admitted, {refused:.1f} a second refused.",
    )


def _connects(of: Figures) -> bool:
    return of.slow_gets and of.connects_per_s >= CONNECTS_PER_S


def connects(of: Figures) -> Evidence:
    return Evidence(
        _connects(of) and not law.explained(of),
        f"{of.connects_per_s:,.0f} new connections a second; {_busy(of)}; {of.p99_text}.",
    )


def expiries(of: Figures) -> Evidence:
    """Evidence that the removal of expired entries holds the server: there are many, and it had to be interrupted."""
    capped = of.capped_per_s
    told = "an unknown number of times" if capped is None else f"{capped:.1f} times a second"
    found = of.slow_gets and of.expired_per_s >= EXPIRED_PER_S and not evicts(of)
    return Evidence(
        found and capped != 0 and not law.explained(of),
        f"{of.expired_per_s:,.0f} entries expired a second, and their removal was interrupted {told}; "
        f"{of.evicted_per_s:,.0f} were evicted; {of.p99_text}.",
    )


def beside(of: Figures) -> float:
    """Share of the time in which the main thread works on something else than commands: reading and answering."""
    return max(0.0, of.busy - law.time_of_commands(of))


def _sends(of: Figures) -> bool:
    """True if GETs are slow, and a busy server sends tens of megabytes a second, in answers of more than 10 kB."""
    calls = sum(spent.per_s for spent in of.commands.values())
    big = of.sent_mb_per_s * 1e6 >= ANSWER_BYTES * calls
    return of.slow_gets and of.busy >= ANSWERING and of.sent_mb_per_s >= SENT_MB_PER_S and big


def _answers(of: Figures) -> bool:
    return _sends(of) and not law.explained(of) and not of.copied


def big_answers(of: Figures) -> Evidence:
    calls = sum(spent.per_s for spent in of.commands.values())
    each = f" in answers of {1000 * of.sent_mb_per_s / calls:,.1f} kB" if calls else ""
    return Evidence(
        _answers(of),
        f"the server sent {of.sent_mb_per_s:,.0f} MB a second{each}; its main thread spent {percent(beside(of))} of "
        f"the time on reading and answering, beside the commands; {_busy(of)}; {of.p99_text}.",
    )


def disk(of: Window) -> Evidence:
    delayed = of.per_s("aof_delayed_fsync")
    told = {name: took for name, took in of.events.items() if name.startswith(("aof-", "rdb-", "fork"))}
    said = "".join(f"; {name} {took:.0f} ms" for name, took in told.items())
    logged = any(took >= LONG_MS for name, took in told.items() if name != "fork")
    loop = "this server does not tell how long its main loop was held"
    waits = False
    if of.held is not None:
        loop = f"the main loop waited {percent(of.held)} of the time outside of commands"
        # A loop without a core waits, too: the kernel tells for how long, else interrupted commands tell that it did.
        for_a_core = (1.0 if of.interrupted else 0.0) if of.waited is None else of.waited
        waits = of.last.fields.get("aof_enabled") == "1" and of.held - for_a_core >= HELD_SHARE
    return Evidence(
        of.slow_gets and not law.explained(of) and (delayed > 0 or logged or waits),
        f"{delayed:.1f} writes a second waited for an earlier fsync{said}; {loop}; appendfsync is "
        f"{of.settings.get('appendfsync', 'unknown')}; {of.p99_text}.",
    )


def full_sync(of: Window) -> Evidence:
    started = max(0.0, of.last.number("sync_full") - of.first.number("sync_full"))
    fork_ms = of.last.number("latest_fork_usec") / 1000
    lasted_s = sum(end - begin for begin, end in of.copies)
    apart_ms = of.apart_ms(of.copies) if of.copies else None
    apart = f", and outside of that p99 was {apart_ms:.1f} ms" if apart_ms is not None else ""
    return Evidence(
        of.copied and not law.explained(of),
        f"{started:.0f} full copies for a replica began; they were under way for {lasted_s:.0f} of {of.seconds:.0f} "
        f"s{apart}; the last fork took {fork_ms:.1f} ms; {of.p99_text}.",
    )


def saturated(of: Window) -> Evidence:
    """Evidence that there is no time left, and no command or activity of another cause that takes most of it."""
    dearest = ", ".join(_spent(of, name) for name, _ in of.dearest[:3])
    together = of.per_read
    piped = f"; {together:.1f} commands came with one read of a socket" if together else ""
    # Where not the thread's own time is told, but that of all threads, a whole core is much only if a bystander waits.
    own = "used_cpu_user_main_thread" in of.last.fields or of.clock_includes_waits
    return Evidence(
        of.busy >= SATURATED and (own or of.slow_gets) and not law.explained(of) and not _answers(of),
        f"{_busy(of)}; {dearest or 'no command was called'}{piped}; {of.p99_text}.",
    )


def fork(of: Window) -> Evidence:
    """Evidence that the forks of snapshots and rewrites of the log explain what a bystander waits."""
    each_ms, per_s = of.last.number("latest_fork_usec") / 1000, of.per_s("total_forks")
    wait_ms = per_s * each_ms**2 / 2000 / max(1 - of.busy, 0.03)
    found = of.slow_gets and not of.copied and of.wait_ms > 0 and wait_ms >= law.EXPLAINS * of.wait_ms
    return Evidence(
        found and not law.explained(of),
        f"{per_s * of.seconds:.0f} forks in {of.seconds:.0f} s, the last held the main thread for {each_ms:.1f} ms; "
        f"{of.p99_text}.",
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

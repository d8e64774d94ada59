"""Claims about commands that block the server for a whole search: KEYS against exact deletes, SCAN and a replica."""

from __future__ import annotations

from lab.claims.base import (
    Claim,
    Inapplicable,
    Missing,
    Result,
    need_arm,
    need_p99,
    need_phase,
    need_typical_p99,
    need_utilisation,
)
from lab.claims.ratio import at_most
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import ms

FEWEST_ENTRIES = 10


def fills_slowlog(rising: str, share: float) -> Claim:
    """On the plateaus most slow-log entries are KEYS; a log with hardly any entries does not count as full.

    Entries from filling do not count. The lab itself then writes many thousand keys a second, and the log, which times
    by the wall clock, holds SETs during which the machine took the server off its core.
    """

    def check(run: Run) -> Result:
        plateaus = need_arm(run, rising, 2)
        entries = run.slow_commands(plateaus)
        total, keys = entries.total(), entries["KEYS"]
        named = ", ".join(f"{count} {name}" for name, count in entries.most_common())
        return Result(
            keys >= FEWEST_ENTRIES and keys > share * total,
            f"of {total} entries {keys / max(1.0, total):.0%} are KEYS ({named or 'there are none'})",
            {"share": keys / max(1.0, total), "entries": float(total)},
        )

    return worded("keys-fill-slowlog", check, share=share, fewest_entries=FEWEST_ENTRIES)


def replica_unharmed(rising: str, share: float) -> Claim:
    """On the replica, which gets the deletes but no KEYS, a GET waits a fraction of what it waits on the primary."""
    return at_most(
        "replica-unharmed",
        share,
        lambda run: [need_p99(run, need_arm(run, rising, 2)[-1], probe) for probe in ("replica", "main")],
        lambda replica, primary: (
            f"{replica:.2f} ms on the replica while it is {primary:.1f} ms on the primary ({replica / primary:.1%})"
        ),
    )


def scan_stalls_less(rising: str, call_times: float, p99_times: float) -> Claim:
    """SCAN in place of KEYS: one call holds the server for a fraction of the time, and bystanders wait less."""

    def check(run: Run) -> Result:
        before, after = need_arm(run, rising, 2)[-1], need_phase(run, "scan")
        keys, scan = before.execution_us("KEYS"), after.execution_us("SCAN")
        p99s = need_p99(run, before), need_p99(run, after)
        ratio = p99s[0] / p99s[1]
        if keys is None or scan is None:
            return Result(False, f"nothing was searched; p99 differs by {ratio:.1f} ×", {"p99_ratio": ratio})
        return Result(
            keys / scan >= call_times and ratio >= p99_times,
            f"a call takes {keys / 1000:.1f} → {scan / 1000:.2f} ms ({keys / scan:.0f} ×), "
            f"p99 {p99s[0]:.1f} → {p99s[1]:.1f} ms ({ratio:.1f} ×)",
            {"call_ratio": keys / scan, "p99_ratio": ratio},
        )

    return worded("scan-stalls-less", check, call_times=call_times, p99_times=p99_times)


def scan_works_more(rising: str, times: float) -> Claim:
    """SCAN in place of KEYS: more work for the same event. It is a relief, not the cure.

    Work is CPU time per event, of the server's main thread and of the invalidator, less what the same load takes when
    nothing is searched. (Not the commands' execution time: that leaves out reading requests and writing replies, most
    of a short call's work.) Where KEYS is expensive, little of the additional work is the server's.
    """

    def check(run: Run) -> Result:
        before, after = need_arm(run, rising, 2)[-1], need_phase(run, "scan")
        quiet = need_phase(run, "exact")
        if not before.rate("KEYS") or not after.rate("SCAN"):
            return Result(False, "nothing was searched")
        keys, scan = _search_ms(before, quiet), _search_ms(after, quiet)
        totals = max(sum(keys), 1e-9), sum(scan)
        ratio = totals[1] / totals[0]
        return Result(
            sum(keys) > 0 and ratio >= times,
            f"{totals[0]:.0f} → {totals[1]:.0f} ms of CPU time for each event ({ratio:.1f} ×): {keys[0]:.0f} → "
            f"{scan[0]:.0f} ms in the server, {keys[1]:.0f} → {scan[1]:.0f} ms in the invalidator",
            {
                "keys_ms": totals[0],
                "scan_ms": totals[1],
                "ratio": ratio,
                "server_ratio": scan[0] / max(keys[0], 1e-9),
            },
        )

    return worded("scan-works-more", check, times=times)


def keys_unfelt(rising: str, times: float) -> Claim:
    """On a server that answers KEYS from a snapshot, in another thread, no client waits for the whole search."""

    def check(run: Run) -> Result:
        if run.facts.server != "keydb":
            raise Inapplicable("only KeyDB answers KEYS in another thread")
        keys, exact = need_arm(run, rising, 2)[-1], need_phase(run, "exact")
        if not keys.rate("KEYS"):
            return Result(False, "nothing was searched by KEYS")
        waits = [need_typical_p99(run, phase, 2) for phase in (keys, exact)]
        ratio = waits[0] / waits[1]
        return Result(
            ratio <= times,
            f"{ms(waits[0])} under KEYS, {ms(waits[1])} under exact deletes ({ratio:.1f} ×)",
            {"ratio": ratio},
        )

    return worded("keys-unfelt", check, times=times)


def keys_harmless(times: float) -> Claim:
    """On a server that answers KEYS from a snapshot, in another thread, others wait for SCAN and not for KEYS.

    It compares the phases in which `strategy` is scan and keys with the most keys.
    """

    def check(run: Run) -> Result:
        if run.facts.server != "keydb":
            raise Inapplicable("only KeyDB answers KEYS in another thread")
        searched = {
            name: max((p for p in run.phases if p.strategy == name), key=lambda p: p.keys, default=None)
            for name in ("scan", "keys")
        }
        scan, keys = searched["scan"], searched["keys"]
        if not scan or not keys:
            return Result(False, "nothing was searched by SCAN and by KEYS")
        waits = [need_typical_p99(run, phase, 2) for phase in (scan, keys)]
        return Result(
            waits[0] >= times * waits[1],
            f"{ms(waits[0])} under SCAN, {ms(waits[1])} under KEYS ({waits[0] / waits[1]:.1f} ×)",
            {"ratio": waits[0] / waits[1]},
        )

    return worded("keys-harmless", check, times=times)


def _search_ms(phase: PhaseRecord, quiet: PhaseRecord) -> tuple[float, float]:
    """CPU time of searching per event: the server's and the invalidator's, in ms."""
    finished = phase.events["finished_per_s"]
    if not finished:
        raise Missing(f"no event was finished in phase {phase.id!r}")
    server = need_utilisation(phase) - need_utilisation(quiet)
    client = max(0.0, _invalidator(phase) - _invalidator(quiet))
    return server / finished * 1000, client / finished * 1000


def _invalidator(phase: PhaseRecord) -> float:
    if "invalidator" not in phase.processes:
        raise Missing(f"the invalidator's CPU time was not measured in phase {phase.id!r}")
    return phase.processes["invalidator"]

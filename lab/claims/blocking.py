"""Claims about commands that block the server for a whole search: KEYS, beside exact deletes, SCAN and a replica."""

from __future__ import annotations

from lab import stats
from lab.claims.base import (
    Claim,
    Finding,
    Missing,
    need_arm,
    need_latencies,
    need_p99,
    need_phase,
    need_utilisation,
)
from lab.runfolder import PhaseRecord, Run

FEWEST_ENTRIES = 10
SAME_KEYS, SAME_LOAD = 0.05, 0.15


def fills_slowlog(share: float) -> Claim:
    """KEYS is what the slow log holds of the plateaus; a log with hardly an entry is filled by nothing.

    Entries of filling do not count: the lab itself then writes many thousand keys a second, and the log, which times by
    the wall clock, holds a SET that the machine took off its core half-way.
    """

    def check(run: Run) -> Finding:
        plateaus = need_arm(run, "grow", 2)
        entries: dict[str, int] = {}
        for row in run.slowlog:  # the log counts whole seconds, rounded down
            if any(phase.t0 <= float(row["t"]) <= phase.t1 for phase in plateaus):
                entries[row["command"]] = entries.get(row["command"], 0) + 1
        total, keys = sum(entries.values()), entries.get("KEYS", 0)
        named = ", ".join(f"{count} {name}" for name, count in sorted(entries.items(), key=_by_count))
        return Finding(
            keys >= FEWEST_ENTRIES and keys > share * total,
            f"of {total} entries {keys / max(1.0, total):.0%} are KEYS ({named or 'there are none'})",
            {"share": keys / max(1.0, total), "entries": float(total)},
        )

    return Claim(
        "keys-fill-slowlog",
        "the slow log is full of KEYS",
        f"> {share:.0%} of its entries, of at least {FEWEST_ENTRIES}",
        check,
    )


def _by_count(entry: tuple[str, int]) -> int:
    return -entry[1]


def exact_cures(times: float) -> Claim:
    """p99 under KEYS against p99 under deletes by exact key, at the same keys and the same offered load."""

    def check(run: Run) -> Finding:
        before, after = need_arm(run, "grow", 2)[-1], need_phase(run, "exact")
        ratio = need_p99(run, before) / need_p99(run, after)
        differs = _differ(before, after)
        return Finding(
            ratio >= times and not differs,
            f"{ratio:.1f} × at {after.keys:,.0f} keys ({need_p99(run, before):.1f} → {need_p99(run, after):.2f} ms)"
            + (f", but {differs}" if differs else ""),
            {"ratio": ratio},
        )

    return Claim(
        "exact-cures",
        "at the same keys and load, p99 under KEYS is a multiple of p99 under deletes by exact key",
        f"≥ {times:g} ×",
        check,
    )


def _differ(before: PhaseRecord, after: PhaseRecord) -> str:
    """What makes two phases unfit to be compared; nothing if they are fit."""
    if abs(before.keys / after.keys - 1) > SAME_KEYS:
        return f"the key counts differ: {before.keys:,.0f} and {after.keys:,.0f}"
    loads = before.events["offered_per_s"], after.events["offered_per_s"]
    if abs(loads[0] - loads[1]) > SAME_LOAD * max(loads):
        return f"the loads differ: {loads[0]:.1f} and {loads[1]:.1f} events/s"
    return ""


def grows(rank: float, times: float) -> Claim:
    """p99 follows the key count: in rank, by a slope whose interval lies above zero, and by how far it gets.

    One pair of neighbours may have changed places: below saturation a plateau's p99 depends on how many of its few
    events happened to meet.
    """

    def check(run: Run) -> Finding:
        plateaus = need_arm(run, "grow", 4)
        keys, p99s = [p.keys for p in plateaus], [need_p99(run, p) for p in plateaus]
        rho, rise = stats.spearman(keys, p99s), p99s[-1] / p99s[0]
        slope = stats.bootstrap(
            [need_latencies(run, p) for p in plateaus],
            lambda y: stats.theil_sen(keys, y)[0] * 1e5,
            run.facts.seed,
        )
        return Finding(
            round(rho, 6) >= rank and slope.low > 0 and rise >= times,
            f"{p99s[0]:.1f} → {p99s[-1]:.1f} ms ({rise:.1f} ×), rank correlation {rho:.2f}, "
            f"{slope.value:.0f} ms per 100 000 keys (95 % interval {slope.low:.0f} to {slope.high:.0f})",
            {"spearman": rho, "rise": rise, "slope_low": slope.low},
        )

    return Claim(
        "keys-follow-keyspace",
        "p99 of bystanders grows with the number of keys that KEYS has to visit",
        f"≥ {times:g} × from first to last, rank correlation ≥ {rank:g}, the slope's interval above 0",
        check,
    )


def replica_unharmed(share: float) -> Claim:
    """A GET on the replica, which gets the deletes but no KEYS, waits a fraction of a GET on the primary."""

    def check(run: Run) -> Finding:
        top = need_arm(run, "grow", 2)[-1]
        primary, replica = need_p99(run, top), need_p99(run, top, "replica")
        return Finding(
            replica <= share * primary,
            f"{replica:.2f} ms on the replica while it is {primary:.1f} ms on the primary ({replica / primary:.1%})",
            {"share": replica / primary},
        )

    return Claim(
        "replica-unharmed",
        "a replica serves GETs unharmed while the primary stalls",
        f"p99 ≤ {share:.0%} of the primary's, through the same moments",
        check,
    )


def scan_stalls_less(call_times: float, p99_times: float) -> Claim:
    """SCAN in place of KEYS: one call holds the server for a fraction of the time, and bystanders feel it."""

    def check(run: Run) -> Finding:
        before, after = need_arm(run, "grow", 2)[-1], need_phase(run, "scan")
        keys, scan = before.execution_us("KEYS"), after.execution_us("SCAN")
        p99s = need_p99(run, before), need_p99(run, after)
        ratio = p99s[0] / p99s[1]
        if keys is None or scan is None:
            return Finding(False, f"nothing was searched; p99 differs by {ratio:.1f} ×", {"p99_ratio": ratio})
        return Finding(
            keys / scan >= call_times and ratio >= p99_times,
            f"a call takes {keys / 1000:.1f} → {scan / 1000:.2f} ms ({keys / scan:.0f} ×), "
            f"p99 {p99s[0]:.1f} → {p99s[1]:.1f} ms ({ratio:.1f} ×)",
            {"call_ratio": keys / scan, "p99_ratio": ratio},
        )

    return Claim(
        "scan-stalls-less",
        "SCAN in place of KEYS makes the longest stall shorter",
        f"one call ≤ 1/{call_times:g}, p99 of bystanders ≤ 1/{p99_times:g}",
        check,
    )


def scan_works_more(times: float) -> Claim:
    """SCAN in place of KEYS: more work for the same event. It is a relief, not the cure.

    Work is CPU time for each event, of the server's main thread and of the invalidator that asks, less what the same
    load takes when nothing is searched. (Not the commands' execution time: it leaves out reading requests and writing
    replies, most of a short call's work.) How much of it is the server's own differs: where KEYS is dear, little.
    """

    def check(run: Run) -> Finding:
        before, after = need_arm(run, "grow", 2)[-1], need_phase(run, "scan")
        quiet = need_phase(run, "exact")
        if not before.rate("KEYS") or not after.rate("SCAN"):
            return Finding(False, "nothing was searched")
        keys, scan = _search_ms(before, quiet), _search_ms(after, quiet)
        both = max(sum(keys), 1e-9), sum(scan)
        ratio = both[1] / both[0]
        return Finding(
            sum(keys) > 0 and ratio >= times,
            f"{both[0]:.0f} → {both[1]:.0f} ms of CPU time for each event ({ratio:.1f} ×): {keys[0]:.0f} → "
            f"{scan[0]:.0f} ms in the server, {keys[1]:.0f} → {scan[1]:.0f} ms in the invalidator",
            {
                "keys_ms": both[0],
                "scan_ms": both[1],
                "ratio": ratio,
                "server_ratio": scan[0] / max(keys[0], 1e-9),
            },
        )

    return Claim(
        "scan-works-more",
        "SCAN in place of KEYS is more work in all, for the server and who asks it together",
        f"≥ {times:g} × the CPU time for each event",
        check,
    )


def _search_ms(phase: PhaseRecord, quiet: PhaseRecord) -> tuple[float, float]:
    """CPU time that searching takes for each event: the server's and the invalidator's, in ms."""
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

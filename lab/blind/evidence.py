"""Is the evidence of a cause in the readings? One function a cause; each says its figures either way."""

from __future__ import annotations

from lab.blind.readings import Finding, Readings

MANY_PER_S = 50
LONG_MS = 3.0
"""A call of a command that keeps others waiting."""


def _times(now: float, healthy: float) -> str:
    return f"{now / healthy:.1f} ×" if healthy > 0 else "many times"


def _gets(of: Readings) -> str:
    seen, healthy = of.seen.get_ms, of.healthy.get_ms
    return f"p99 of a bystander's GET {healthy:.1f} → {seen:.1f} ms ({_times(seen, healthy)})"


def _pages(of: Readings) -> str:
    seen, healthy = of.seen.page_ms, of.healthy.page_ms
    return f"p99 of a page {healthy:.1f} → {seen:.1f} ms ({_times(seen, healthy)})"


def _changes(of: Readings) -> str:
    return f"the oldest change waited {of.healthy.oldest_s:.1f} → {of.seen.oldest_s:.1f} s"


def scan_storm(of: Readings) -> Finding:
    """SCAN holds much of the time, in many calls; only one that is taken off its core gets into the slow log."""
    scan = of.spent("SCAN")
    logged = of.slow.get("SCAN", (0, 0.0))[0]
    found = of.slow_gets and scan.share >= 0.4 and scan.per_s >= MANY_PER_S
    return Finding(
        found,
        f"SCAN took {scan.share:.0%} of the time in {scan.per_s:,.0f} calls a second of {scan.mean_us:,.0f} µs each, "
        f"of which the slow log got {logged}; the main thread was busy {of.busy:.0%}; {_gets(of)}.",
    )


def keys_command(of: Readings) -> Finding:
    """KEYS is in the slow log, and long."""
    keys = of.spent("KEYS")
    logged, longest = of.slow.get("KEYS", (0, 0.0))
    return Finding(
        of.slow_gets and logged >= 3 and keys.mean_us / 1000 >= LONG_MS and keys.share >= 0.1,
        f"the slow log got {logged} KEYS, the longest {longest:.0f} ms; {keys.per_s:.1f} a second took "
        f"{keys.share:.0%} of the time, {keys.mean_us / 1000:.1f} ms each over {of.keys:,} keys; {_gets(of)}.",
    )


def giant_index(of: Readings) -> Finding:
    """Few calls of SMEMBERS and UNLINK, and at least one of the two long."""
    read, removed = of.spent("SMEMBERS"), of.spent("UNLINK")
    longer_ms = max(read.mean_us, removed.mean_us) / 1000
    logged = [of.slow[name][1] for name in ("SMEMBERS", "UNLINK") if name in of.slow]
    return Finding(
        of.slow_gets and read.per_s > 0 and removed.per_s > 0 and longer_ms >= LONG_MS and bool(logged),
        f"SMEMBERS {read.mean_us / 1000:.1f} ms and UNLINK {removed.mean_us / 1000:.1f} ms a call in the mean, "
        f"{removed.per_s:.1f} calls a second; the longest of them in the slow log {max(logged, default=0):.0f} ms; "
        f"{_gets(of)}.",
    )


def eviction_cycle(of: Readings) -> Finding:
    """Entries are evicted by the thousand, at the limit of memory."""
    return Finding(
        of.slow_gets and of.evicted_per_s >= 100 and of.memory >= 0.95,
        f"{of.evicted_per_s:,.0f} entries evicted a second; memory came to {of.memory:.0%} of its limit; {_gets(of)}.",
    )


def unpipelined_deletes(of: Readings) -> Finding:
    """UNLINK is called once for each key, and changes wait."""
    removed = of.spent("UNLINK")
    return Finding(
        of.stale and removed.per_s >= 1000 and removed.mean_us < 100,
        f"{removed.per_s:,.0f} UNLINKs a second of {removed.mean_us:.1f} µs each, while the main thread was busy "
        f"{of.busy:.0%}; {_changes(of)}; {_gets(of)}.",
    )


def exhausted_pool(of: Readings) -> Finding:
    """Pages wait and go past the cache, while the way to the store is free and the store answers at once."""
    return Finding(
        of.slow_pages and not of.slow_gets and of.link_ms < 5 and of.past_cache_per_s >= 1,
        f"{_pages(of)}; {_gets(of)}; a PING on a connection of one's own took {of.link_ms:.2f} ms through the link; "
        f"{of.past_cache_per_s:.1f} pages a second went past the cache.",
    )


def slow_network(of: Readings) -> Finding:
    """A PING through the link is slow, one past it fast."""
    return Finding(
        of.slow_pages and of.link_ms >= 10 and of.link_ms >= 5 * of.direct_ms,
        f"a PING took {of.link_ms:.2f} ms through the storefront's link, {of.direct_ms:.2f} ms past it; {_pages(of)}; "
        f"{_gets(of)}.",
    )


def noisy_neighbour(of: Readings) -> Finding:
    """Other programs compute, and the store waits for a core."""
    waits = of.waited is None or of.waited >= 0.05
    told = (
        ""
        if of.waited is None
        else f"the store's main thread was ready and without a core {of.waited:.0%} of the time; "
    )
    return Finding(
        of.slow_gets and of.neighbours >= 0.5 and waits and of.busy < 0.7 and of.spent("SCAN").share < 0.2,
        f"{told}it was busy {of.busy:.0%}; programs of other teams used {of.neighbours:.1f} of {of.cores} cores; "
        f"{_gets(of)}.",
    )


def nothing(of: Readings) -> Finding:
    """None of the three figures is bad."""
    return Finding(
        not of.symptom,
        f"{_pages(of)}; {_gets(of)}; {_changes(of)}.",
    )

"""Claims about the eviction cycle: its phases, what amplifies it, and what ends it.

Every claim needs the cycles, and fails in a run without them. See `lab.claims.evictionrun` for how they are found.
"""

from __future__ import annotations

import numpy as np

from lab.claims.base import Claim, Result, need_phase
from lab.claims.evictionrun import FEWEST, need_cycles, p99_ms, pool, read_run, read_samples
from lab.claims.ratio import at_least
from lab.claims.texts import worded
from lab.results.cycles import FULL, below_limit, cost_us, cycles, evicted_per_insert, rate, seconds
from lab.results.folder import Run

ORIGINAL_SHARE = 0.20
"""Share of the requests that the original incident's server answered in its bursts: 5 000 of 25 000 a second."""
NEEDED = 1.3
"""Evictions per insert that inserts alone cannot explain."""


def three_phases() -> Claim:
    """Memory climbs to the limit, evictions burst, and memory falls without evictions: again and again.

    Evictions that begin while memory is not full have another cause, and refute the claim.
    """

    def check(run: Run) -> Result:
        found = read_run(run)
        early = below_limit(found.samples) / max(sum(sample.evicted for sample in found.samples), 1)
        text = found.cycles_in_words
        if found.cycles:
            climbing, evicting, calm = (
                np.median([seconds(getattr(cycle, part)) for cycle in found.cycles])
                for part in ("healthy", "burst", "recovery")
            )
            freed = np.median([c.burst[-1].used_mb - c.recovery[-1].used_mb for c in found.cycles])
            text += (
                f": {climbing:.1f} s climbing, {evicting:.1f} s evicting, {calm:.1f} s in which {freed:.0f} MB are "
                f"freed without an eviction (medians); {early:.1%} of the evictions began below the limit"
            )
        return Result(
            found.enough_cycles and early <= 0.01,
            text,
            {"cycles": float(len(found.cycles)), "early_share": early},
        )

    return worded("three-phases", check, fewest=FEWEST, full=FULL)


def burst_p99(times: float) -> Claim:
    """In the bursts bystanders wait a multiple of what they wait while memory climbs."""

    def p99s(run: Run) -> tuple[float, float]:
        found = need_cycles(run)
        return p99_ms(found.bursting), p99_ms(found.healthy)

    return at_least(
        "burst-p99",
        times,
        p99s,
        lambda burst, healthy: (
            f"p99 {healthy:.1f} ms while memory climbs, {burst:.0f} ms in the bursts ({burst / healthy:.0f} ×)"
        ),
        names=("burst_ms", "healthy_ms"),
    )


def coincide(share: float, times: float) -> Claim:
    """GETs slower than `times` the healthy p99 come mostly in the bursts.

    If the bursts had nothing to do with them, they would hold the same share of the slow GETs as of all GETs. Bursts
    that the phase's beginning or end cuts off count, too.
    """

    def check(run: Run) -> Result:
        found = need_cycles(run)
        slow = times * p99_ms(found.healthy) * 1000
        inside, outside = int((found.evicting > slow).sum()), int((found.elsewhere > slow).sum())
        part = inside / max(inside + outside, 1)
        time = len(found.evicting) / (len(found.evicting) + len(found.elsewhere))
        return Result(
            inside > 0 and part >= share,
            f"{inside} of {inside + outside} GETs slower than {times:g} × the healthy p99 came while keys were evicted "
            f"({part:.0%}; of all GETs {time:.0%})",
            {"share": part},
        )

    return worded("bursts-coincide", check, share=share, times=times)


def responses_drop(share: float) -> Claim:
    """In a burst the server answers fewer requests than arrive: this gap amplifies the burst.

    The measured text gives the answered share over all bursts and in their worst samples, beside the original's share.
    The main thread is never idle in a burst, so evictions take the time that the answers leave. An answer counts with
    its cost while memory climbs, without evictions.
    """

    def check(run: Run) -> Result:
        found = need_cycles(run)
        bursts = [sample for cycle in found.cycles for sample in cycle.burst]
        climbs = [sample for cycle in found.cycles for sample in cycle.healthy]
        healthy = rate(climbs)
        offered = sum(sample.offered_per_s * sample.interval_s for sample in bursts) / seconds(bursts)
        answered = rate(bursts) / offered
        worst = float(np.median([min(rate([sample]) for sample in c.burst) for c in found.cycles])) / offered
        evicting = max(1 - rate(bursts) * cost_us(climbs) / 1e6, 0.0)
        per_s = sum(sample.evicted for sample in bursts) / seconds(bursts)
        return Result(
            answered <= share and healthy > rate(bursts),
            f"of {offered:,.0f} requests/s offered {answered:.0%} are answered over the bursts, {worst:.0%} at the "
            f"worst of them (the original: {ORIGINAL_SHARE:.0%}), {healthy / offered:.0%} while memory climbs. "
            f"{per_s:,.0f} evictions/s take {evicting:.0%} of the main thread ({evicting / per_s * 1e6:.1f} µs each); "
            f"bursts of {seconds(bursts) / len(found.cycles):.1f} s, not 6 to 8, begin and end at the full rate",
            {"share": answered, "worst_share": worst, "healthy_share": healthy / offered},
        )

    return worded("responses-drop", check, share=share)


def more_than_needed() -> Claim:
    """Bursts evict more than their inserts need: something else takes the memory."""

    def check(run: Run) -> Result:
        found = need_cycles(run)
        each = [evicted_per_insert(cycle.burst) for cycle in found.cycles]
        together = evicted_per_insert([sample for cycle in found.cycles for sample in cycle.burst])
        return Result(
            together >= NEEDED,
            f"{together:.1f} evictions for each insert in the bursts (one by one: "
            f"{', '.join(f'{value:.1f}' for value in each)})",
            {"ratio": together, "least": min(each)},
        )

    return worded("evicts-more-than-inserts-need", check, needed=NEEDED)


def displaced(keys: float, clients: float) -> Claim:
    """The clients' buffers take the memory: keys disappear while mem_clients_normal grows.

    The server counts each connection's buffers once a second, and less often while it is stalled. So it reports only
    part of what they took, and reports it late. This is why samples of the recovery count too.
    """

    def check(run: Run) -> Result:
        found = need_cycles(run)
        lost, ratio, words = [], [], ""
        for cycle in found.cycles:
            full = cycle.healthy[-1]
            each_mb = (full.used_mb - full.clients_mb) / full.keys
            after = min(sample.keys for sample in cycle.burst)
            evicted_mb = (full.keys - after) * each_mb
            grown = max(sample.clients_mb for sample in (*cycle.burst, *cycle.recovery)) - full.clients_mb
            lost.append(1 - after / full.keys)
            ratio.append(grown / evicted_mb if evicted_mb > 0 else 0.0)
            if lost[-1] >= max(lost):
                words = f"the largest: {evicted_mb:.0f} MB of keys went, and clients' memory grew by {grown:.0f} MB"
        return Result(
            float(np.median(lost)) >= keys and float(np.median(ratio)) >= clients,
            f"a burst takes {np.median(lost):.0%} of the keys, and {np.median(ratio):.0%} of their memory turns up as "
            f"the clients' (medians); {words}",
            {"keys_lost": float(np.median(lost)), "buffers_ratio": float(np.median(ratio))},
        )

    return worded("buffers-displace-keys", check, keys=keys, clients=clients)


def ends_cycle(
    claim_id: str, phase_id: str, what: str, bound: float, no_eviction: bool = False, at_limit: bool = False
) -> Claim:
    """A changed condition ends the cycle: none is found, bystanders wait little, evictions are as needed.

    `no_eviction`: not a single eviction is allowed. `at_limit`: memory must be full all the same, so that only the
    changed condition can be the reason.
    """

    def check(run: Run) -> Result:
        found = read_run(run)
        phase = need_phase(run, phase_id)
        samples = read_samples(run, phase)
        values = pool(v for a, b, v in run.intervals(phase) if samples[0].start <= a and b <= samples[-1].t)
        waits, number = p99_ms(values), len(cycles(samples))
        evicted = sum(sample.evicted for sample in samples)
        first = next((i for i, sample in enumerate(samples) if sample.evicted), None)
        per_insert = evicted_per_insert(samples[first:]) if first is not None else 0.0
        fits = evicted == 0 if no_eviction else per_insert < NEEDED
        if at_limit:
            fits = fits and evicted > 0
        measured = (
            f"{what}: {number} cycles, a bystander's p99 beside the crowd {waits:.1f} ms, "
            + (f"{per_insert:.2f} evictions for each insert" if evicted else "nothing evicted")
            + f", {rate(samples) / samples[0].offered_per_s:.0%} of the offered requests answered"
        )
        if not found.enough_cycles:
            return Result(False, f"{measured}; but there is no cycle to end: {found.cycles_in_words}")
        burst = p99_ms(found.bursting)
        return Result(
            number == 0 and fits and waits * bound <= burst,
            f"{measured}; in the bursts p99 is {burst:.0f} ms ({burst / waits:.0f} ×)",
            {"cycles": float(number), "evicted_per_insert": per_insert, "p99_ratio": burst / waits},
        )

    evictions = "no eviction" if no_eviction else f"evictions < {NEEDED:g} × inserts"
    return Claim(
        claim_id,
        f"{what}: no cycle",
        f"none found, {evictions}{' (but some)' if at_limit else ''}, p99 of the bursts ≥ {bound:g} × the phase's",
        check,
    )

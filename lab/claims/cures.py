"""Claims about ways to invalidate, side by side at the same keys and load: waiting, work, memory, staleness.

Each way has two phases: ``WAY-cost``, with nothing but the single events of `loadtest.incidents.freshness`, and
``WAY-load``, at the same offered load as all others.
"""

from __future__ import annotations

from lab.claims.base import Claim, Finding, Missing, need_figure, need_phase
from lab.claims.ratio import at_least, at_most, waits_longer
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import UNKNOWN, count, ms, percent, short, sig, size, us

CAUSE, SEARCH, CURES = "scan", "keys", ("index", "hash", "generation")
WAYS = (CAUSE, SEARCH, *CURES)
NO_TIME_MS = 5.0
"""Staleness is sampled in steps: a time shorter than this says no more than that it is short, and counts as this."""


def _load(run: Run, way: str) -> PhaseRecord:
    return need_phase(run, f"{way}-load")


def _figure(run: Run, way: str, name: str) -> float:
    """A figure of the single events. Raises `Missing` when it was not measured."""
    return need_figure(need_phase(run, f"{way}-cost"), name)


RELIEF = "{ratio:.1f} × ({high:.1f} → {low:.2f} ms), at p90 {at_p90:.1f} ×"
"""What a cure did to the p99 of bystanders, in words."""


def relieves(way: str, times: float) -> Claim:
    """p99 of bystanders under SCAN is a multiple of p99 under a cure, at the same entries and offered load; p90 too."""
    return waits_longer(
        f"{way}-relieves",
        times,
        lambda run: (_load(run, CAUSE), _load(run, way)),
        RELIEF,
        in_keys=False,
    )


def keys_relieves_not(times: float) -> Claim:
    """KEYS in place of SCAN is no cure: its bystanders wait a multiple of what they wait under the index."""
    return waits_longer(
        "keys-relieves-not",
        times,
        lambda run: (_load(run, SEARCH), _load(run, "index")),
        "{high:.1f} ms under KEYS, {low:.2f} ms under the index ({ratio:.1f} ×, at p90 {at_p90:.1f} ×)",
        in_keys=False,
    )


def work_ranked(search_times: float, rank_times: float) -> Claim:
    """Execution time per event: a search costs most, a user's index much less, one hash or one number least.

    (The number of commands has no such order: see the table.)
    """

    def check(run: Run) -> Finding:
        cost = {way: _figure(run, way, "execution_per_event_us") for way in WAYS}
        least_search = min(cost[CAUSE], cost[SEARCH])
        most_whole = max(cost["hash"], cost["generation"])
        searched, ranked = least_search / max(cost["index"], 1e-9), cost["index"] / max(most_whole, 1e-9)
        return Finding(
            searched >= search_times and ranked >= rank_times,
            ", ".join(f"{way} {us(cost[way])}" for way in WAYS)
            + f": a search {sig(searched)} × the index, the index {sig(ranked)} × the dearer of the others",
            {"search_ratio": searched, "index_ratio": ranked},
        )

    return worded("work-ranked", check, search_times=search_times, rank_times=rank_times)


def generation_leaves(share: float, each: int) -> Claim:
    """After an event and a read of everything, only generation still has the user's old entries in memory as well.

    They stay until their TTL ends. No run waits for that; the claim counts the keys that are there.
    """

    def check(run: Run) -> Finding:
        left = {way: _figure(run, way, "left_per_event") / each for way in WAYS}
        others = max(abs(value) for way, value in left.items() if way != "generation")
        return Finding(
            left["generation"] >= 1 - share and others <= share,
            f"of {each} entries {left['generation'] * each:.1f} stay behind under generation, "
            f"{others * each:.1f} at most otherwise",
            {"generation": left["generation"], "others": others},
        )

    return worded("generation-leaves", check, rest=1 - share, share=share)


def hash_leaner(share: float) -> Claim:
    """Memory per entry: as fields of one hash, against keys of their own with an index."""
    name = "memory_per_entry_bytes"
    return at_most(
        "hash-leaner",
        share,
        lambda run: (_figure(run, "hash", name), _figure(run, "index", name)),
        lambda together, apart: f"{apart:.0f} → {together:.0f} bytes ({together / apart:.0%})",
    )


def sooner_fresh(times: float) -> Claim:
    """How long old values are served after an event was accepted; none may be served once each area has missed once.

    The work that an event needs to finish is the same work that bystanders wait for.
    """

    def check(run: Run) -> Finding:
        times_ms = {way: _figure(run, way, "stale_for_ms") for way in (CAUSE, *CURES)}
        stale = sum(_figure(run, way, "stale_entries") for way in WAYS)
        slowest = max(times_ms[way] for way in CURES)
        ratio = times_ms[CAUSE] / max(slowest, NO_TIME_MS)
        return Finding(
            ratio >= times and stale == 0,
            f"{times_ms[CAUSE]:.0f} ms under SCAN, {slowest:.1f} ms at most under the cures ({ratio:.1f} ×); "
            f"{stale:.0f} old values after that",
            {"ratio": ratio, "stale": stale},
        )

    return worded("sooner-fresh", check, times=times)


def race_stays(share: float) -> Claim:
    """The race of cache-aside: a value computed before an event and put after it, which the next read then gets.

    A delete misses an entry written after it. Under `generation` that entry is stored under an old version that no
    reader asks for.
    """

    def check(run: Run) -> Finding:
        tries = {way: _figure(run, way, "race_tries") for way in WAYS}
        served = {way: _figure(run, way, "raced_values") for way in WAYS}
        others = min(served[way] / max(tries[way], 1.0) for way in WAYS if way != "generation")
        return Finding(
            min(tries.values()) > 0 and served["generation"] == 0 and others >= share,
            "served: " + ", ".join(f"{way} {_of(served[way], tries[way])}" for way in WAYS),
            {"others": others, "generation": served["generation"], "tries": min(tries.values())},
        )

    return worded("race-stays", check, share=share)


def _of(part: float | None, whole: float | None) -> str:
    return UNKNOWN if part is None or whole is None else f"{count(part)} of {count(whole)}"


def generation_reads_twice(times: float) -> Claim:
    """What generation costs the readers: each read asks for the user's generation number first."""
    return at_least(
        "generation-reads-twice",
        times,
        lambda run: (reading(run, _load(run, "generation")), reading(run, _load(run, "index"))),
        lambda generation, index: (
            f"{index:.2f} commands for each read under the index, {generation:.2f} under generation"
        ),
    )


def reading(run: Run, phase: PhaseRecord) -> float:
    """Commands per read of the storefront, without the GETs of probes and other programs. Raises `Missing`."""
    probes = sum(probe["rate"] for probe in phase.probes.values())
    probes += run.facts.load.get("others_gets_per_second", 0.0)
    reads = run.facts.load.get("reads_per_second", 0.0)
    if not reads:
        raise Missing("nobody read from the storefront")
    asked = phase.rate("GET") + phase.rate("HGET") - probes
    if asked <= 0:
        raise Missing("the server counted no read but those of the probes")
    return asked / reads


def _reading_if_known(run: Run, phase: PhaseRecord | None) -> float | None:
    try:
        return reading(run, phase) if phase else None
    except Missing:
        return None


HEADINGS = (
    "p99 of a bystander",
    "main thread busy",
    "commands an event",
    "execution an event",
    "commands a read",
    "memory an entry",
    "entries left behind by an event",
    "old values served for",
    "served of those computed before an event and put after it",
)


def side_by_side(run: Run) -> list[list[str]]:
    """A row for each way, with its figures in the order of `HEADINGS`."""
    rows = []
    for way in WAYS:
        load, cost = run.phase(f"{way}-load"), run.phase(f"{way}-cost")
        first = load or cost
        if first is None:
            continue
        found = cost.figures if cost else {}
        rows.append(
            [
                # In a control another strategy takes the place of most ways.
                way if first.strategy == way else f"{first.strategy}, in place of {way}",
                ms(run.p99_ms(load)) if load else UNKNOWN,
                percent(load.utilisation) if load else UNKNOWN,
                short(found.get("commands_per_event")),
                us(found.get("execution_per_event_us")),
                sig(_reading_if_known(run, load), 2),
                size(found.get("memory_per_entry_bytes")),
                count(found.get("left_per_event")),
                ms(found.get("stale_for_ms")),
                _of(found.get("raced_values"), found.get("race_tries")),
            ]
        )
    return rows

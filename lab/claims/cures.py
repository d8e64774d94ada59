"""Claims that compare strategies at the same keys and load: waiting, work, memory, staleness.

Each strategy has two phases: ``STRATEGY-cost``, with nothing but the single events of `loadtest.incidents.freshness`,
and ``STRATEGY-load``, at the same offered load as all others.
"""

from __future__ import annotations

from lab.claims.base import Claim, Missing, Result, need_figure, need_phase
from lab.claims.ratio import at_least, at_most, waits_longer
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import UNKNOWN, count, ms, percent, short, sig, size, us

CAUSE, SEARCH, CURES = "scan", "keys", ("index", "hash", "generation")
STRATEGIES = (CAUSE, SEARCH, *CURES)
NO_TIME_MS = 5.0
"""Staleness is sampled in steps: a time shorter than this says no more than that it is short, and counts as this."""


def _load(run: Run, strategy: str) -> PhaseRecord:
    return need_phase(run, f"{strategy}-load")


def _figure(run: Run, strategy: str, name: str) -> float:
    """A figure of the single events. Raises `Missing` when it was not measured."""
    return need_figure(need_phase(run, f"{strategy}-cost"), name)


RELIEF = "{ratio:.1f} × ({high:.1f} → {low:.2f} ms), at p90 {at_p90:.1f} ×"
"""The change of the bystanders' p99 under a cure, in words."""


def relieves(strategy: str, times: float) -> Claim:
    """p99 of bystanders under SCAN is a multiple of p99 under a cure, at the same entries and offered load; p90 too."""
    return waits_longer(
        f"{strategy}-relieves",
        times,
        lambda run: (_load(run, CAUSE), _load(run, strategy)),
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

    def check(run: Run) -> Result:
        cost = {strategy: _figure(run, strategy, "execution_per_event_us") for strategy in STRATEGIES}
        least_search = min(cost[CAUSE], cost[SEARCH])
        dearest_other = max(cost["hash"], cost["generation"])
        searched, ranked = least_search / max(cost["index"], 1e-9), cost["index"] / max(dearest_other, 1e-9)
        return Result(
            searched >= search_times and ranked >= rank_times,
            ", ".join(f"{strategy} {us(cost[strategy])}" for strategy in STRATEGIES)
            + f": a search {sig(searched)} × the index, the index {sig(ranked)} × the dearer of the others",
            {"search_ratio": searched, "index_ratio": ranked},
        )

    return worded("work-ranked", check, search_times=search_times, rank_times=rank_times)


def generation_leaves(share: float, each: int) -> Claim:
    """After an event and a read of everything, only generation still has the user's old entries in memory as well.

    They stay until their TTL ends. No run waits for that; the claim counts the keys that are there.
    """

    def check(run: Run) -> Result:
        left = {strategy: _figure(run, strategy, "left_per_event") / each for strategy in STRATEGIES}
        others = max(abs(value) for strategy, value in left.items() if strategy != "generation")
        return Result(
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
    """Old values are served for a shorter time after an event was accepted, and never once each area has missed once.

    The work that an event needs to finish is the same work that bystanders wait for.
    """

    def check(run: Run) -> Result:
        times_ms = {strategy: _figure(run, strategy, "stale_for_ms") for strategy in (CAUSE, *CURES)}
        stale = sum(_figure(run, strategy, "stale_entries") for strategy in STRATEGIES)
        slowest = max(times_ms[strategy] for strategy in CURES)
        ratio = times_ms[CAUSE] / max(slowest, NO_TIME_MS)
        return Result(
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

    def check(run: Run) -> Result:
        tries = {strategy: _figure(run, strategy, "race_tries") for strategy in STRATEGIES}
        served = {strategy: _figure(run, strategy, "raced_values") for strategy in STRATEGIES}
        others = min(
            served[strategy] / max(tries[strategy], 1.0)
            for strategy in STRATEGIES
            if strategy != "generation"
        )
        return Result(
            min(tries.values()) > 0 and served["generation"] == 0 and others >= share,
            "served: "
            + ", ".join(f"{strategy} {_share(served[strategy], tries[strategy])}" for strategy in STRATEGIES),
            {"others": others, "generation": served["generation"], "tries": min(tries.values())},
        )

    return worded("race-stays", check, share=share)


def _share(part: float | None, whole: float | None) -> str:
    return UNKNOWN if part is None or whole is None else f"{count(part)} of {count(whole)}"


def generation_reads_twice(times: float) -> Claim:
    """Generation costs the readers a command: each read asks for the user's generation number first."""
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
        raise Missing("no reads were sent to the storefront")
    commands = phase.rate("GET") + phase.rate("HGET") - probes
    if commands <= 0:
        raise Missing("the server counted no read but those of the probes")
    return commands / reads


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
    """Return a row for each strategy, with its figures in the order of `HEADINGS`."""
    rows = []
    for strategy in STRATEGIES:
        load, cost = run.phase(f"{strategy}-load"), run.phase(f"{strategy}-cost")
        first = load or cost
        if first is None:
            continue
        figures = cost.figures if cost else {}
        rows.append(
            [
                # In a control another strategy takes the place of most of these.
                strategy if first.strategy == strategy else f"{first.strategy}, in place of {strategy}",
                ms(run.p99_ms(load)) if load else UNKNOWN,
                percent(load.utilisation) if load else UNKNOWN,
                short(figures.get("commands_per_event")),
                us(figures.get("execution_per_event_us")),
                sig(_reading_if_known(run, load), 2),
                size(figures.get("memory_per_entry_bytes")),
                count(figures.get("left_per_event")),
                ms(figures.get("stale_for_ms")),
                _share(figures.get("raced_values"), figures.get("race_tries")),
            ]
        )
    return rows

"""Claims about a cluster: searches, knee and pages when three nodes share the keys of one server.

The same events come in all phases. In the phases of the arm ``one`` one node has all slots, in those of ``three`` three
nodes share them; each node is limited to the same share of a core, so three can do three times as much. ``three-1`` has
the keys of ``one-2``. A node's counters are figures of the phase (see `lab.stacks.cluster`).
"""

from __future__ import annotations

import math
from statistics import median

from lab.claims.base import (
    Claim,
    Missing,
    Result,
    differ,
    need_arm,
    need_figure,
    need_p99,
    need_param,
    need_phase,
)
from lab.claims.texts import worded
from lab.results import operational, stats
from lab.results.basis import CALL_S, Basis, Costs, Range
from lab.results.folder import PhaseRecord, Run
from lab.results.knee import PATTERNS_PER_EVENT
from lab.results.numbers import ms, percent, sig
from lab.results.prediction import Question, knee_keys

ONE, THREE = "one", "three"
NODES = 3
PROBES = ("main", "node-2", "node-3")
"""The probes of the three nodes."""
MOST_DRIFT = 1.5
"""The most by which what a call costs may differ between the plateaus of one node and of three."""
BEYOND = 1.1
"""A knee that lies further than this beyond the largest plateau was not observed."""


def _finished(phase: PhaseRecord) -> float:
    """Events that the phase finished. Raises `Missing` for none."""
    done = phase.events.get("finished_per_s", 0.0) * phase.seconds
    if done <= 0:
        raise Missing(f"no event of {phase.id!r} was finished")
    return done


def _searched_us(phase: PhaseRecord) -> float:
    """Execution time of SCAN for each finished event, on all nodes together; 0 if nothing was searched."""
    return phase.commands.get("SCAN", {}).get("usec", 0.0) / _finished(phase)


def search_goes_everywhere(low: float, high: float) -> Claim:
    """With the same keys, an event visits as many of them on three nodes together as on one, and each is asked.

    Judged by the calls of SCAN, each of which visits COUNT keys. (Execution times cannot be compared: the server's
    clock goes on while it is throttled, and that depends on how much work comes at once.)
    """

    def check(run: Run) -> Result:
        one, three = need_phase(run, f"{ONE}-2"), need_phase(run, f"{THREE}-1")
        before = one.commands.get("SCAN", {}).get("calls", 0.0) / _finished(one)
        each = [need_figure(three, f"node_{node}_scans") / _finished(three) for node in range(1, NODES + 1)]
        if not before or not min(each):
            return Result(False, f"{sum(bool(calls) for calls in each)} of {NODES} nodes were searched")
        ratio, differs = sum(each) / before, differ(one, three)
        return Result(
            low <= ratio <= high and min(each) >= PATTERNS_PER_EVENT and not differs,
            f"{before:.1f} calls of SCAN for each event on one node, {sum(each):.1f} on {NODES} together ({sig(ratio)} "
            f"×): {', '.join(f'{calls:.1f}' for calls in each)}{differs}",
            {"ratio": ratio, "least_calls": min(each)},
        )

    return worded("search-goes-everywhere", check, low=low, high=high, patterns_per_event=PATTERNS_PER_EVENT)


def demand(phase: PhaseRecord, scan_count: int) -> float | None:
    """The work that arrives, as a share of what the nodes may do; above 1 they cannot keep up. None if unknown.

    Work is counted in SCAN calls, as in `lab.results.operational`: each node has an iteration for each pattern.
    """
    if phase.utilisation is None:
        return None
    nodes, served = round(need_param(phase, "shards")), phase.rate("SCAN")
    if not served or phase.utilisation <= operational.TIME_LEFT:
        return phase.utilisation  # all that arrives is served
    calls = PATTERNS_PER_EVENT * nodes * math.ceil(phase.keys / nodes / scan_count)
    return phase.utilisation * max(1.0, phase.events.get("offered_per_s", 0.0) * calls / served)


def _base(run: Run) -> float:
    """Return the share of a node that everything but the searches takes. It is the same on each of three as on one.

    (Most of it is the node's own probe, and the lab's look at its counters.)
    """
    return max(0.0, run.facts.calibration.get("base_utilisation", 0.0))


def knee(run: Run, arm: str) -> float | None:
    """The number of keys, on all nodes together, at which the demand reaches 1; None if it does not.

    An arm has few plateaus, far from each other. So the two beside the knee may be all that are near it.
    """
    known = [
        (phase.keys, found)
        for phase in need_arm(run, arm, 3)
        if (found := demand(phase, run.facts.scan_count)) is not None
    ]
    found = stats.saturation(
        [keys for keys, _ in known], [load for _, load in known], _base(run), operational.NEAR, least=2
    )
    largest = max((keys for keys, _ in known), default=0.0)
    return found if found is not None and found <= BEYOND * largest else None


def predicted_knee(run: Run, nodes: int) -> Range:
    """The keys that saturate so many nodes, as `bin/lab predict` works it out from the plateaus of one node."""
    points = tuple(
        (phase.keys, cost / 1e6 / PATTERNS_PER_EVENT / phase.keys)
        for phase in need_arm(run, ONE)
        if (cost := _searched_us(phase)) > 0 and phase.keys > 0
    )
    if not points:
        raise Missing("no search was measured on one node")
    keys, events = run.facts.keys, run.facts.load.get("events_per_second", 0.0)
    if events <= 0:
        raise Missing("the run does not say how many events a second there were")
    basis = Basis(
        source=f"{ONE} node",
        strategy="scan",
        patterns=PATTERNS_PER_EVENT,
        keys=keys,
        events=events,
        count=run.facts.scan_count,
        base=nodes * _base(run),  # of all nodes together: `predict` spreads it over them
        costs={"SCAN": Costs(points)},
        call_s=CALL_S,
        event_s={},
        floor_ms=0.0,
    )
    return knee_keys(basis, Question(keys, events, run.facts.scan_count, nodes, "scan"))


def _call_s(run: Run, arm: str) -> float:
    """A node's CPU time for one call of SCAN and what belongs to it, in seconds: the median of an arm's plateaus.

    A call visits COUNT keys whatever the number of nodes. So two arms differ only by the machine's speed.
    """
    costs = []
    for phase in need_arm(run, arm, 3):
        calls = phase.commands.get("SCAN", {}).get("calls", 0.0)
        if phase.utilisation is not None and calls:
            used = (phase.utilisation - _base(run)) * phase.seconds * need_param(phase, "shards")
            costs.append(used / calls)
    if not costs or (found := median(costs)) <= 0:
        raise Missing(f"no search was measured on {arm}")
    return found


def knee_moves(within: float) -> Claim:
    """The knee of three nodes lies at as many times the keys of one node's as was predicted from one node.

    A run takes minutes, and a machine may become faster or slower meanwhile: by a quarter was seen. Then a call costs
    less or more on the later plateaus, and the knee moves by as much. So the prediction takes in what a call of SCAN
    cost the nodes of each arm. Beyond `MOST_DRIFT` two arms cannot be compared.
    """

    def check(run: Run) -> Result:
        one, three = knee(run, ONE), knee(run, THREE)
        if one is None or three is None:
            where = " and ".join(arm for arm, found in ((ONE, one), (THREE, three)) if found is None)
            return Result(False, f"there was no knee among the plateaus of {where}")
        alone, all_three = predicted_knee(run, 1), predicted_knee(run, NODES)
        moved = all_three.likely / alone.likely
        speed = _call_s(run, ONE) / _call_s(run, THREE)
        wanted, observed = moved * speed, three / one
        off = observed / wanted - 1
        drifted = "" if 1 / MOST_DRIFT <= speed <= MOST_DRIFT else ", which changed too much"
        return Result(
            abs(off) <= within and not drifted,
            f"the knee moved from {one:,.0f} to {three:,.0f} keys, {observed:.2f} times as many; predicted "
            f"{wanted:.2f} ({off:+.1%}): {moved:.2f} by the nodes, {speed:.2f} by the machine's speed{drifted}",
            {
                "knee_one": one,
                "knee_three": three,
                "ratio": observed,
                "predicted": wanted,
                "off": off,
                "speed": speed,
                "predicted_one": alone.likely,
                "predicted_three": all_three.likely,
                "low_three": all_three.low,
                "high_three": all_three.high,
            },
        )

    return worded("knee-moves", check, within=within)


def knee_remains(times: float) -> Claim:
    """Beyond the knee p99 climbs on three nodes as on one: the last plateau against the first, in both arms."""

    def check(run: Run) -> Result:
        rises, texts = [], []
        for arm in (ONE, THREE):
            plateaus = need_arm(run, arm, 2)
            p99s = need_p99(run, plateaus[0]), need_p99(run, plateaus[-1])
            rises.append(p99s[1] / p99s[0])
            texts.append(
                f"{rises[-1]:.1f} × on {arm} ({ms(p99s[0])} → {ms(p99s[1])} at {plateaus[-1].keys:,.0f} keys)"
            )
        return Result(min(rises) >= times, ", ".join(texts), {"rise_one": rises[0], "rise_three": rises[1]})

    return worded("knee-remains", check, times=times)


def index_cures_every_shard(times: float) -> Claim:
    """At all keys, p99 on each node under the searches is a multiple of p99 under the index."""

    def check(run: Run) -> Result:
        before, after = need_arm(run, THREE, 2)[-1], need_phase(run, "index")
        p99s = [(need_p99(run, before, probe), need_p99(run, after, probe)) for probe in PROBES]
        ratios, differs = [search / index for search, index in p99s], differ(before, after)
        return Result(
            min(ratios) >= times and not differs,
            "; ".join(
                f"node {node}: {ratio:.1f} × ({ms(search)} → {ms(index)})"
                for node, (ratio, (search, index)) in enumerate(zip(ratios, p99s, strict=True), start=1)
            )
            + differs,
            {"least_ratio": min(ratios)},
        )

    return worded("index-cures-every-shard", check, times=times)


def slow_shard_spreads(most: float, tagged: tuple[float, float]) -> Claim:
    """With one slow node, about a third of the pages on one node are slow, and nearly all that are spread."""

    def check(run: Run) -> Result:
        phase = need_phase(run, "pages")
        spread, together = (need_figure(phase, f"{kind}_slow_share") for kind in ("spread", "tagged"))
        than_ms = need_figure(phase, "slow_ms")
        return Result(
            spread >= most and tagged[0] <= together <= tagged[1],
            f"slower than {ms(than_ms)}: {together:.0%} of the pages whose entries are on one node, "
            f"{spread:.0%} of those whose entries are spread",
            {"tagged": together, "spread": spread},
        )

    return worded("slow-shard-spreads", check, tagged=tagged, most=most)


def tags_keep_together(least_users: int) -> Claim:
    """All keys of a user are on one node and in one slot, and the users are on all nodes."""

    def check(run: Run) -> Result:
        phase = need_phase(run, "where")
        names = ("users", "nodes_per_user_most", "slots_per_user_most", "nodes_with_keys")
        users, nodes, slots, all_nodes = (need_figure(phase, name) for name in names)
        return Result(
            nodes == slots == 1 and all_nodes == NODES and users >= least_users,
            f"{users:,.0f} users on {all_nodes:.0f} nodes; nodes with keys of one user: at most {nodes:.0f}; slots: "
            f"at most {slots:.0f}",
            {"nodes": nodes, "slots": slots, "users": users},
        )

    return worded("tags-keep-together", check, nodes=NODES, least_users=least_users)


HEADINGS = ("phase", *(f"node {node}: busy, throttled" for node in range(1, NODES + 1)))


def node_rows(run: Run) -> list[list[str]]:
    """Return for each phase and node the busy share of its CPU limit, and the share of its periods it was throttled."""

    def cell(phase: PhaseRecord, node: int) -> str:
        busy, periods, throttled = (
            phase.figures.get(f"node_{node}_{name}") for name in ("busy_s", "periods", "held")
        )
        if busy is None or not periods or throttled is None:
            return "–"
        return f"{percent(busy / phase.seconds)}, {percent(throttled / periods)}"

    return [[phase.title, *(cell(phase, node) for node in range(1, NODES + 1))] for phase in run.phases]

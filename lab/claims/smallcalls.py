"""Claims about very many short calls: they saturate the server, and the slow log holds none of them."""

from __future__ import annotations

from lab.claims.base import Claim, Missing, Result, need_arm, need_p99, need_phase, need_utilisation
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run


def drowns(busy: float, done: float, times: float) -> Claim:
    """The server is saturated: its main thread busy, events left undone, bystanders waiting.

    A busy thread alone is no proof, because a server can be busy and keep up; waiting alone is none either.
    """

    def check(run: Run) -> Result:
        storm = need_phase(run, "storm")
        used, share = need_utilisation(storm), _done(storm)
        ratio = need_p99(run, storm) / need_p99(run, need_phase(run, "cure"))
        return Result(
            used >= busy and share <= done and ratio >= times,
            f"the main thread is busy {used:.0%} of the time, {share:.0%} of the events get done, bystanders' p99 is "
            f"{ratio:.1f} × what it is under the cure",
            {"utilisation": used, "done": share, "p99_ratio": ratio},
        )

    return worded("server-drowns", check, busy=busy, done=done, times=times)


def slowlog_empty(one_in: int, busy: float) -> Claim:
    """The slow log holds none of the calls that keep the server busy.

    To be exact, hardly any: the log times by the wall clock, so a call during which the machine took the server off its
    core gets in, however short it is. If the server is idle an empty log says nothing, and the claim fails.
    """

    def check(run: Run) -> Result:
        storm = need_phase(run, "storm")
        calls = storm.commands.get("SCAN", {}).get("calls", 0.0)
        entries = storm.slowlog.get("SCAN", {}).get("count", 0.0)
        used = need_utilisation(storm)
        threshold = run.facts.slowlog_threshold_us / 1000
        return Result(
            calls > 0 and entries * one_in <= calls and used >= busy,
            f"{entries:.0f} of {calls:,.0f} SCANs took longer than {threshold:g} ms, while the main thread was busy "
            f"{used:.0%} of the time",
            {"entries": entries, "calls": calls},
        )

    return worded("slow-log-empty", check, one_in=one_in, busy=busy)


def calls_are_short(share: float) -> Claim:
    """The mean execution time of SCAN is a small part of the slow log's threshold."""

    def check(run: Run) -> Result:
        storm = need_phase(run, "storm")
        took, threshold = storm.execution_us("SCAN"), run.facts.slowlog_threshold_us
        if took is None:
            return Result(False, "nothing was searched")
        return Result(
            took <= share * threshold,
            f"{took:.1f} µs, {took / threshold:.3%} of the threshold of {threshold / 1000:g} ms",
            {"call_us": took},
        )

    return worded("calls-are-short", check, share=share)


def calls_per_event(at_least: int, within: float) -> Claim:
    """The time of a call does not show how many calls an event makes, nor that they grow with the keys."""

    def check(run: Run) -> Result:
        looks = need_arm(run, "look", 2)
        first, top = looks[0], looks[-1]
        few, many, keys = _calls(first), _calls(top), top.keys / first.keys
        grown = many / few if few else 0.0
        return Result(
            many >= at_least and abs(grown / keys - 1) <= within,
            f"{few:,.0f} → {many:,.0f} calls ({grown:.1f} ×) from {first.keys:,.0f} to {top.keys:,.0f} keys "
            f"({keys:.1f} ×)",
            {"calls": many, "growth": grown, "keys_growth": keys},
        )

    return worded("calls-per-event", check, at_least=at_least, within=within)


def time_in_scan(share: float) -> Claim:
    """The command statistics name SCAN: they add up the calls that the slow log judges one by one."""

    def check(run: Run) -> Result:
        storm = need_phase(run, "storm")
        spent = {name: counted["usec"] for name, counted in storm.commands.items()}
        total = sum(spent.values())
        if not total:
            raise Missing("the server counted no command")
        scan = spent.get("SCAN", 0.0) / total
        most = max(spent, key=lambda name: spent[name])
        return Result(
            scan >= share, f"SCAN took {scan:.1%} of all execution time; most is {most}'s", {"share": scan}
        )

    return worded("time-goes-to-scan", check, share=share)


def index_cures(busy_times: float, p99_times: float) -> Claim:
    """The same rate of events at the same keys, invalidated by index: all get done, the server idles, p99 is low."""

    def check(run: Run) -> Result:
        before, after = need_phase(run, "storm"), need_phase(run, "cure")
        used, p99s = (
            (need_utilisation(before), need_utilisation(after)),
            (need_p99(run, before), need_p99(run, after)),
        )
        rates = _arrived(before), _arrived(after)
        alike = abs(rates[0] - rates[1]) <= 0.15 * max(rates) and abs(before.keys / after.keys - 1) <= 0.25
        return Result(
            used[0] >= busy_times * used[1] and p99s[0] >= p99_times * p99s[1] and _done(after) >= 0.8 and alike,
            f"the main thread is busy {used[0]:.0%} → {used[1]:.0%}, p99 {p99s[0]:.1f} → {p99s[1]:.2f} ms, "
            f"{_done(after):.0%} of the events get done"
            + ("" if alike else f", but {rates[0]:.1f} and {rates[1]:.1f} events/s, {before.keys:,.0f} and "
               f"{after.keys:,.0f} keys"),
            {"busy_ratio": used[0] / max(used[1], 1e-9), "p99_ratio": p99s[0] / p99s[1]},
        )  # fmt: skip

    return Claim(
        "index-cures",
        "the same events by index leave the server idle",
        f"busy ≤ 1/{busy_times:g}, p99 ≤ 1/{p99_times:g}, at the same rate and keys",
        check,
    )


def _arrived(phase: PhaseRecord) -> float:
    """Events per second, from the storefront and from the phase's load together."""
    return phase.events["offered_per_s"] + phase.figures.get("arrived_per_s", 0.0)


def _done(phase: PhaseRecord) -> float:
    """The share of the events that were finished."""
    done = phase.events["finished_per_s"] + phase.figures.get("finished_per_s", 0.0)
    return done / _arrived(phase) if _arrived(phase) else 0.0


def _calls(phase: PhaseRecord) -> float:
    """SCAN calls per event: as the load counted them, else by the server's counters."""
    if "calls_per_event" in phase.figures:
        return phase.figures["calls_per_event"]
    finished = phase.events["finished_per_s"]
    return phase.rate("SCAN") / finished if finished else 0.0

"""The sentences of the report that depend on the run's own figures."""

from __future__ import annotations

from dataclasses import dataclass

from lab.report.numbers import count, ms, setting, share, sig, times, us
from lab.report.parts import eyes, parts
from lab.report.scene import AFTER, BEFORE, Scene

VICTIMS = ("GET", "SET", "DEL", "UNLINK")


@dataclass(frozen=True)
class Figure:
    """One large number at the head of the page."""

    value: str
    label: str
    note: str


def verdict(scene: Scene) -> str:
    """The verdict in a sentence."""
    result = scene.result
    if scene.facts.interrupted:
        done = len(scene.run.phases)
        after = f"{done} phase{'' if done == 1 else 's'}"
        return f"This is a partial run: it was interrupted after {after}, so there is no verdict."
    if result is None:
        return "This run has not been judged: there is no verdict yet."
    if result.get("holds") is None:
        failed = [check["check"] for check in result.get("validity", []) if not check["ok"]]
        return f"No verdict: the run is not valid. Not fulfilled: {'; '.join(failed) or 'unknown'}."
    claims = [claim["holds"] for claim in result.get("claims", [])]
    applicable = sum(holds is not None for holds in claims)
    if scene.control:
        if result["holds"]:
            return f"As it should be: without the cause, all {applicable} applicable claims are refuted."
        held = sum(holds is True for holds in claims)
        return f"Not as it should be: {held} of {applicable} claims held without the cause."
    if result["holds"]:
        return f"All {applicable} applicable claims hold."
    return f"{sum(holds is False for holds in claims)} of {applicable} claims were refuted."


def mood(scene: Scene) -> str:
    """A sign for the verdict: as promised, not as promised, or none."""
    holds = scene.result.get("holds") if scene.result and not scene.facts.interrupted else None
    return {True: "✓", False: "✗", None: "?"}[holds]


def figures(scene: Scene) -> list[Figure]:
    """p99 with few keys, at the top, and after the fix."""
    first, top, after = scene.first(BEFORE), scene.top(BEFORE), scene.top(AFTER)
    before = scene.side_before
    found = []
    if first:
        found.append(Figure(ms(scene.p99(first)), f"p99 with {count(first.keys)} keys", before))
    if top and top is not first:
        found.append(
            Figure(
                ms(scene.p99(top)),
                f"p99 with {count(top.keys)} keys",
                f"{before}: {times(scene.rise)} the first",
            )
        )
    if after:
        found.append(
            Figure(
                ms(scene.p99(after)),
                f"p99 with {count(after.keys)} keys",
                f"{scene.side_after}: {_against(scene.cure)}",
            )
        )
    return found


def _against(cure: float | None) -> str:
    if cure is None:
        return "no comparison"
    return (
        f"{sig(cure)} times less"
        if cure >= 1.2
        else f"{sig(1 / cure)} × the value before"
        if cure > 0
        else "no comparison"
    )


def paragraph(scene: Scene) -> str:
    """What happened in this run, with its key figures."""
    first, top, after = scene.first(BEFORE), scene.top(BEFORE), scene.top(AFTER)
    if not first or not top or first is top or scene.p99(top) is None:
        return (
            "Too little was measured to tell the story: the key count never rose from one plateau to another."
        )
    said = [
        f"With {count(first.keys)} keys in the store, 99 of 100 GETs were answered within {ms(scene.p99(first))}. "
        f"With {count(top.keys)} keys, GETs sent at the same pace needed up to {ms(scene.p99(top))}: "
        f"{times(scene.rise)} as long."
    ]
    old, new = first.execution_us("GET"), top.execution_us("GET")
    if old is not None and new is not None:
        said.append(f"The server executed one GET in {us(old)} then and in {us(new)} now.")
    if scene.control:
        said[0] = said[0].removesuffix(" as long.") + " the first."
        said.append(
            "Nothing scans in this run: it has the keys, the events and the phases of the incident, but not its cause. "
            "A claim that held here would prove nothing there."
        )
        return " ".join(said)
    restart = scene.run.phase("restart")
    if restart and scene.p99(restart) is not None:
        said.append(f"A restart took the keys away, and p99 fell to {ms(scene.p99(restart))}.")
    back = scene.run.phase("return")
    if back and scene.p99(back) is not None:
        said.append(f"The keys came back, and so did the waiting: {ms(scene.p99(back))}.")
    if after and scene.p99(after) is not None:
        said.append(
            "With a SET that indexes each user's keys nothing scans any more; "
            f"{count(after.keys)} keys and the same events then meant a p99 of {ms(scene.p99(after))}"
            + (f", {sig(scene.cure)} times less." if scene.cure else ".")
        )
    else:
        said.append("The run ended before the fix was measured.")
    return " ".join(said)


def curves(scene: Scene) -> str:
    """What to look for in the timeline."""
    if scene.control:
        return "Follow the two curves: the key count rises and falls, and p99 does not care."
    return "Follow the two curves: p99 goes where the key count goes, until the fix parts them."


def commands(scene: Scene) -> str:
    """What to look for in the command rates."""
    if scene.control:
        return (
            "From the first phase on nothing scans: in the control every invalidation asks the index (SSCAN)."
        )
    few = (
        "Note how few SCAN calls a second it takes: counting calls shows nothing alarming, the work in each call does "
        "the harm."
    )
    if not scene.run.arm("fix") and not scene.run.arm(AFTER):
        return f"The run ended before the fix. {few}"
    return f"SCAN ends with the fix, and SSCAN, a look into one user's small index, takes its place. {few}"


def time_went(scene: Scene) -> str:
    """Execution, round trip and waiting at the top."""
    top = scene.top(BEFORE)
    if not top:
        return "No plateau was measured."
    part = parts(scene, top)
    if part.waiting is None:
        return "This server does not count execution time, so a p99 cannot be split here."
    return (
        f"At the top ({count(top.keys)} keys) a GET with a p99 of {ms(part.p99)} was executed in {ms(part.execution)} "
        f"and needed {ms(part.floor)} for the bare round trip to an idle server. The rest, {share(part.share)} of it, "
        "it stood in a queue. Execution and round trip are thinner than a line beside the waiting; "
        "the log axis on the right shows all three."
    )


def observers(scene: Scene) -> list[str]:
    """Where the p99s of the observers differ in this run, in numbers."""
    top, first = scene.top(BEFORE), scene.first(BEFORE)
    said = []
    if first:
        probe, _, app, locust = eyes(scene, first)
        said.append(
            f"With few keys: probe {ms(probe)}, application {ms(app)}, Locust {ms(locust)}. With so little to "
            "wait for, what each observer adds of its own decides: Locust's figure holds a whole HTTP request (Flask, "
            "the computation after a cache miss, JSON)."
        )
    if top and top is not first:
        probe, sent, app, locust = eyes(scene, top)
        said.append(
            f"At the top: probe {ms(probe)} from the intended time and {ms(sent)} from the send time, application "
            f"{ms(app)}, Locust {ms(locust)}. Here the queue outweighs what each observer adds."
        )
    return said + clocks(scene)


def clocks(scene: Scene) -> list[str]:
    """How far the probe's two clocks lie apart."""
    apart = [
        (due - sent, phase)
        for phase in scene.run.phases
        for due, sent in [eyes(scene, phase)[:2]]
        if due is not None and sent is not None
    ]
    if not apart:
        return []
    late, phase = max(apart, key=lambda pair: pair[0])
    return [
        f"The probe's two clocks lie at most {ms(max(late, 0.0))} apart (in “{scene.name(phase)}”): it sends on "
        "schedule and waits for nobody. In a client that awaits each answer before it sends again they would lie a "
        "whole stall apart."
    ]


def silence(scene: Scene) -> str:
    """What the slow log says and by whom it is silent."""
    entries = [row.get("command", "") for row in scene.run.slowlog]
    victims = {name: entries.count(name) for name in VICTIMS}
    threshold = setting(scene.facts.slowlog_threshold_us)
    heard = ", ".join(f"{n} × {name}" for name, n in victims.items() if n)
    if heard:
        return (
            f"Bystanders are in the slow log ({heard}): at the threshold of {threshold} some were slow to execute, "
            "not only to wait."
        )
    if not entries:
        return f"The slow log stayed empty at its threshold of {threshold}."
    return (
        f"No GET, SET, DEL or UNLINK is among the {count(len(entries))} entries at the threshold of {threshold}, "
        f"although a GET's p99 reached {ms(scene.p99(scene.top(BEFORE)))}. The slow log times execution, never the "
        "queue before it: the culprits are in it, the victims are not. With a smaller COUNT the culprits would be "
        "missing too."
    )


def knee(scene: Scene) -> str:
    """Prediction against observation."""
    predicted, observed = scene.predicted_knee, scene.observed_knee
    if predicted is None:
        return "Part of the load, before and after each plateau, foretold no saturation: there is no knee."
    said = f"Part of the load, before and after each plateau, predicted the knee at {count(predicted)} keys"
    if observed is None:
        return f"{said}; in this run the demand never reached the server's capacity."
    return (
        f"{said}; it was observed at {count(observed)} ({(predicted / observed - 1) * 100:+.1f} %).".replace(
            "-", "−"
        )
    )

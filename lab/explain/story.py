"""The story of a run, section by section. Every sentence is made from the run's data and turns with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lab.explain import evidence
from lab.explain.hypotheses import FIXES, HYPOTHESES
from lab.report.numbers import UNKNOWN, count, ms, percent, ratio, setting, share, short, sig, times, us
from lab.report.parts import parts
from lab.report.scene import Scene
from lab.runfolder import PhaseRecord
from lab.verdict import Verdict

BYSTANDER = "GET"
APART = 3.0
"""p99s that differ by less, from the best phase to the worst, are no incident."""
ALIKE = 2.0
"""Two single p99s that differ by less are called alike."""
BUSY = 0.7
"""A main thread with less to do has time to spare."""


@dataclass(frozen=True)
class Section:
    """A heading, sentences under it, and points of a list after them."""

    heading: str
    sentences: list[str]
    points: list[str]


@dataclass(frozen=True)
class Judged:
    """A run's claims and checks as result.json has them. `holds` is None where the run was not valid."""

    claims: list[dict[str, Any]]
    validity: list[dict[str, Any]]
    holds: bool | None

    @classmethod
    def of(cls, verdict: Verdict) -> Judged:
        """From a verdict just reached."""
        claims = [
            {"id": o.claim.id, "statement": o.claim.statement, "measured": o.measured, "holds": o.holds}
            for o in verdict.outcomes
        ]
        return cls(claims, [asdict(check) for check in verdict.checks], verdict.holds)

    @classmethod
    def read(cls, result: dict[str, Any]) -> Judged:
        """From result.json."""
        return cls(result["claims"], result["validity"], result["holds"])

    @property
    def held(self) -> list[dict[str, Any]]:
        """Claims that hold."""
        return [claim for claim in self.claims if claim["holds"]]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Claims that were measured and do not hold."""
        return [claim for claim in self.claims if claim["holds"] is False and not _open(claim)]

    @property
    def open(self) -> list[dict[str, Any]]:
        """Claims that the run says nothing about: not applicable, or not measured."""
        return [claim for claim in self.claims if _open(claim)]


def tell(scene: Scene, judged: Judged) -> list[Section]:
    """All sections; of a run in which no phase was finished only the one line that says so."""
    if not scene.run.phases:
        return [
            Section(
                "The scene", [_who(scene), "It ended before a phase was measured: there is no story."], []
            )
        ]
    sections = [
        the_scene(scene),
        what_rose(scene),
        where_time_went(scene),
        slow_log(scene),
        refuted(scene, judged),
        remains(scene, judged),
        fix(scene),
        cannot_tell(scene, judged),
    ]
    return [section for section in sections if section.sentences or section.points]


def the_scene(scene: Scene) -> Section:
    """What was run, and under what load."""
    facts, phases = scene.facts, scene.run.phases
    keys = [phase.keys for phase in phases]
    events, reads, probe = (facts.load.get(f"{name}_per_second") for name in ("events", "reads", "probe"))
    few, many = count(min(keys)), count(max(keys))
    held = few if few == many else f"{few} to {many}"
    asked = f"{sig(events)} events and " if events else ""
    lines = [
        _who(scene),
        f"It measured {len(phases)} phases in {count(scene.length)} s, with {held} keys in the store. The storefront "
        f"was asked for {asked}{sig(reads)} reads a second; beside it a bystander sent {sig(probe)} GETs a second on "
        "schedule, and waited for nobody.",
    ]
    used = list(dict.fromkeys(phase.strategy for phase in phases))
    if events:
        lines.append(f"An event invalidated what was cached for its user by {', then by '.join(used)}.")
    if facts.refutes:
        lines.append("It is a control: load and phases of the incident, without its cause.")
    return Section("The scene", lines, [])


def _who(scene: Scene) -> str:
    facts = scene.facts
    where = f"{facts.server} {facts.server_version}".strip() or "an unknown server"
    return f"{facts.scenario} ({facts.title}) on {where}, {facts.stack} stack, pace {facts.pace}, seed {facts.seed}."


def what_rose(scene: Scene) -> Section:
    """The bystander's p99 over the whole run, and what followed where something was raised."""
    worst, best = scene.worst, scene.best
    high, low = scene.p99(worst), scene.p99(best)
    if not worst or not best or high is None or low is None:
        return Section("What rose with what", ["The bystander recorded nothing, so no p99 is known."], [])
    apart = _apart(scene)
    if apart < APART:
        lines = [
            f"Nothing rose: the p99 of a bystander's GET stayed between {ms(low)} and {ms(high)} through all phases "
            f"({times(apart)}), so there is nothing to explain."
        ]
    else:
        lines = [
            f"The p99 of a bystander's GET was {ms(low)} at its best (“{scene.name(best)}”) and {ms(high)} at its "
            f"worst (“{scene.name(worst)}”): {times(apart)}."
        ]
    return Section("What rose with what", lines, [_row(row) for row in evidence.rows(scene)])


def _apart(scene: Scene) -> float:
    """How many times its best value the bystander's worst p99 was."""
    return ratio(scene.p99(scene.worst), scene.p99(scene.best)) or 1.0


def _row(row: evidence.Row) -> str:
    title = row.phases[0].title
    named = f"“{title}”" if all(phase.title == title for phase in row.phases) else f"“{row.phases[0].arm}”"
    if row.first:
        by = f"{times(row.last / row.first)}, {row.raised.text(row.first)} → {row.raised.text(row.last)}"
    else:
        by = f"{row.raised.text(row.first)} → {row.raised.text(row.last)}"
    said = f"{len(row.phases)} phases of {named}, {row.raised.label} raised ({by}): "
    return said + "; ".join(map(_change, row.changes)) + "."


def _change(change: evidence.Change) -> str:
    text = change.quantity.text
    span = f"{text(change.first)} → {text(change.last)}"
    if change.direction == "":
        return f"{change.quantity.label} went up and down ({span}, rank correlation {change.rank:.2f})"
    if change.direction == "level":
        return f"{change.quantity.label} stayed level ({span})"
    factor = change.factor
    known = (
        ""
        if factor in (0.0, float("inf"))
        else f"{times(factor)}, "
        if factor > 1
        else f"÷ {sig(1 / factor)}, "
    )
    return f"{change.quantity.label} {change.direction} ({known}{span}, rank correlation {change.rank:.2f})"


def where_time_went(scene: Scene) -> Section:
    """Execution, network and waiting where the bystander waited longest, and who kept the server busy."""
    worst = scene.worst
    if not worst:
        return Section("Where the time went", [], [])
    part, lines = parts(scene, worst), []
    if part.waiting is None:
        lines.append(
            f"In “{scene.name(worst)}” a GET's p99 was {ms(part.p99)}; it cannot be split, because "
            + (
                "the server did not count GETs' execution."
                if part.execution is None
                else "no idle PING was measured."
            )
        )
    else:
        queue = (part.share or 0.0) > 0.5 and _apart(scene) >= APART
        lines.append(
            f"In “{scene.name(worst)}” a GET's p99 was {ms(part.p99)}: {ms(part.execution)} of it execution on the "
            f"server, {ms(part.floor)} the network floor (an idle PING), and {ms(part.waiting)} waiting "
            f"({share(part.share)})." + (" The time went into a queue, not into the GET." if queue else "")
        )
    if worst.utilisation is not None:
        lines.append(f"The server's main thread was busy {percent(worst.utilisation)} of that phase.")
    if culprit := evidence.busiest(worst):
        name, part_of = culprit
        lines.append(
            f"{percent(part_of)} of the execution time went to {name}: {short(worst.rate(name))} calls a second of "
            f"{us(worst.execution_us(name))} each on average."
        )
    return Section("Where the time went", lines, [])


def slow_log(scene: Scene) -> Section:
    """Who is in the slow log, and whether it could have named those who waited."""
    threshold = scene.facts.slowlog_threshold_us
    entries: dict[str, int] = {}
    for row in scene.run.slowlog:
        if any(phase.t0 <= float(row["t"]) <= phase.t1 for phase in scene.run.phases):
            entries[row["command"]] = entries.get(row["command"], 0) + 1
    at = f"threshold {setting(threshold)}"
    named = ", ".join(
        f"{count(n)} × {name}" for name, n in sorted(entries.items(), key=lambda item: -item[1])[:5]
    )
    lines = [f"It holds {named} ({at})." if entries else f"It stayed empty ({at})."]
    worst = scene.worst
    executed = worst.execution_us("GET") if worst else None
    if victims := entries.get(BYSTANDER):
        lines.append(
            f"{count(victims)} of {count(sum(entries.values()))} entries are {BYSTANDER}, all that a bystander sends: "
            "those took long to execute, not only to wait."
        )
    elif worst and executed and (scene.p99(worst) or 0.0) * 1000 > threshold:
        lines.append(
            f"It cannot name a victim: it times execution, and a GET that took the client {ms(scene.p99(worst))} at "
            f"p99 was executed in {us(executed)}, 1/{count(threshold / executed)} of the threshold. "
            "Waiting is not in it."
        )
    culprit = evidence.busiest(worst) if worst else None
    if worst and culprit and culprit[0] not in (BYSTANDER, *entries) and (worst.utilisation or 0.0) >= BUSY:
        lines.append(
            f"Nor is {culprit[0]} in it, which kept the server busy: a call took {us(worst.execution_us(culprit[0]))} "
            f"on average. Many short calls saturate a server without one entry."
        )
    return Section("What the slow log shows", lines, [])


def refuted(scene: Scene, judged: Judged) -> Section:
    """Which explanations the claims that hold have refuted, and which are not refuted because their claims fail."""
    if scene.facts.refutes:
        return _of_control(judged)
    lines = []
    if judged.holds is None:
        lines.append("The run is not valid, so these are indications, not refutations.")
    verb = "refuted" if judged.holds is not None else "spoken against"
    points = [f"“{_hypothesis(claim)}”: {verb}. {_sentence(claim)}" for claim in judged.held]
    points += [
        f"“{_hypothesis(claim)}”: NOT refuted. The claim failed: {_sentence(claim)}"
        for claim in judged.failed
    ]
    return Section("Which hypotheses the run refutes", lines, points)


def _of_control(judged: Judged) -> Section:
    held = [f"It holds without the cause: {_sentence(claim)}" for claim in judged.held]
    tested = len(judged.held) + len(judged.failed)
    said = (
        f"All {tested} claims that were tested fail without the cause, as they should: what they saw in the incident "
        "was the cause's doing."
        if tested and not held
        else f"{len(held)} of {tested} claims hold although the cause is absent: they prove nothing about it."
    )
    return Section("Which hypotheses the run refutes", [said], held)


def _hypothesis(claim: dict[str, Any]) -> str:
    return HYPOTHESES.get(claim["id"], f"it is not so that {claim['statement']}")


def _sentence(claim: dict[str, Any]) -> str:
    """What was claimed, and what was measured; once only where the measured text begins with the same words."""
    stated, measured = claim["statement"], str(claim["measured"])
    text = measured if measured.startswith(stated.partition(":")[0]) else f"{stated}: {measured}"
    return (text if text.startswith("p99") else text[0].upper() + text[1:]).rstrip(".") + "."


def remains(scene: Scene, judged: Judged) -> Section:
    """What explanation is left, and how firmly."""
    if scene.facts.refutes:
        return Section("What remains", [], [])
    cause = scene.scenario.cause if scene.scenario and scene.scenario.cause else scene.facts.story
    if judged.holds is None:
        said = f"Nothing is concluded from a run that is not valid. The explanation under test was: {cause}."
    elif judged.failed or not judged.held:
        said = (
            f"The explanation “{cause}” is not shown by this run: {_claims(len(judged.failed))} of it failed."
        )
    elif judged.open:
        said = f"{cause[0].upper()}{cause[1:]}. All claims that could be tested hold, {len(judged.open)} could not be."
    else:
        said = f"{cause[0].upper()}{cause[1:]}. All {len(judged.held)} claims hold."
    return Section("What remains", [said], [])


def _claims(number: int) -> str:
    return f"{number} claim" if number == 1 else f"{number} claims"


def fix(scene: Scene) -> Section:
    """p99, main thread and the costliest command before and after the fix."""
    pairs = FIXES.get(scene.facts.scenario.removesuffix("-control"), ())
    points = []
    for before_id, after_id in pairs:
        before, after = _last(scene, before_id), _last(scene, after_id)
        if before and after:
            points.append(_turn(scene, before, after))
    lines = [] if points or not pairs else ["The run ended before the fix was measured."]
    return Section("What the fix changed", lines, points)


def _last(scene: Scene, name: str) -> PhaseRecord | None:
    arm = scene.run.arm(name)
    return arm[-1] if arm else scene.run.phase(name)


def _turn(scene: Scene, before: PhaseRecord, after: PhaseRecord) -> str:
    one, two = scene.p99(before), scene.p99(after)
    factor = ratio(one, two)
    outcome = (
        "no p99 to compare"
        if factor is None
        else f"a bystander's p99 fell, {ms(one)} → {ms(two)} (÷ {sig(factor)})"
        if factor >= ALIKE
        else f"a bystander's p99 stayed about the same, {ms(one)} → {ms(two)}"
        if factor > 1 / ALIKE
        else f"a bystander's p99 rose, {ms(one)} → {ms(two)}"
    )
    said = [outcome, f"the main thread was busy {percent(before.utilisation)} → {percent(after.utilisation)}"]
    culprit = evidence.busiest(before)
    name = culprit[0] if culprit else ""
    if name and not 1 / ALIKE < (ratio(after.rate(name), before.rate(name)) or 0.0) < ALIKE:
        said.append(
            f"{name} was called {short(before.rate(name))} → {short(after.rate(name))} times a second"
        )
    return (
        f"From “{scene.name(before)}” to “{scene.name(after)}” ({count(before.keys)} and {count(after.keys)} keys): "
        + "; ".join(said).replace(UNKNOWN, "unknown")
        + "."
    )


def cannot_tell(scene: Scene, judged: Judged) -> Section:
    """Failed checks of validity, claims that were not tested, and what no single run can say."""
    points = [
        f"Not valid: {check['check']} was not so ({check['detail']})."
        for check in judged.validity
        if not check["ok"]
    ]
    points += [f"Not tested: {_sentence(claim)}" for claim in judged.open]
    if scene.facts.interrupted:
        points.insert(
            0, f"The run was broken off after {len(scene.run.phases)} phases: whatever came later is missing."
        )
    points.append(
        "It is one run, on one machine: ratios and ranks carry over to others, milliseconds do not."
        + (
            " Client and server shared it, so the network is the loopback."
            if scene.facts.stack == "native"
            else ""
        )
    )
    return Section("What this run cannot tell", [], points)


def _open(claim: dict[str, Any]) -> bool:
    return claim["holds"] is None or str(claim["measured"]).startswith("not measured")

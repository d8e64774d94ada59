"""The text of the reveal in the terminal: figures before and after, look-alikes, hypotheses, cure, score."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from lab.blind.cause import CURE, Cause
from lab.blind.causes import CAUSES
from lab.blind.page import SessionFacts

BLOCKS = "▁▂▃▄▅▆▇█"
BEGAN = "│"
WIDEST = 60
"""The most samples in a chart; a longer session shows its latest."""


def chart(values: Sequence[tuple[float, float]]) -> str:
    """Draw (seconds since the cause began, value) as blocks on a log scale of at least a decade; `BEGAN` marks 0 s."""
    shown = list(values)[-WIDEST:]
    logs = [log10(max(value, 0.01)) for _, value in shown]
    low, high = min(logs), max(max(logs), min(logs) + 1.0)
    blocks = [BLOCKS[min(7, int(8 * (each - low) / (high - low)))] for each in logs]
    before = sum(at <= 0 for at, _ in shown)
    return "".join([*blocks[:before], BEGAN, *blocks[before:]])


def lines(facts: SessionFacts) -> list[str]:
    """The whole text, line by line."""
    journal, now = facts.journal, facts.now
    samples, was, became = facts.samples, facts.healthy, now.seen
    rows = (
        (
            "p99 of a page",
            [(at, sample.page_ms) for at, sample in samples],
            was.page_ms,
            became.page_ms,
            "ms",
        ),
        (
            "p99 of a bystander's GET",
            [(at, sample.get_ms) for at, sample in samples],
            was.get_ms,
            became.get_ms,
            "ms",
        ),
        (
            "the oldest price change",
            [(at, sample.oldest_s) for at, sample in samples],
            was.oldest_s,
            became.oldest_s,
            "s",
        ),
    )
    said = []
    for cause in facts.causes:
        said += [
            f"it was {cause.id}: {cause.title.lower()}.",
            cause.mechanism,
            "",
            f"{cause.evidence(now).text} (the last {now.seconds:.0f} s)",
            "",
        ]
    said += [
        f"what users saw, every few seconds; {BEGAN} marks where the cause began:",
        *(f"  {name:<24}  {chart(values)}  {a:.1f} → {b:.1f} {unit}" for name, values, a, b, unit in rows),
    ]
    for cause in facts.causes:
        it = cause.id if len(facts.causes) > 1 else "it"
        said += [
            "",
            f"causes that look like {it}, what tells them apart, and what this session's readings say:",
        ]
        for other, how in cause.alike.items():
            said.append(f"  {other}: {how}\n    here: {CAUSES[other].evidence(now).text}")
    if journal.hypotheses:
        said += ["", "your hypotheses:"]
        said += [f"  {hypothesis}: {_comment(hypothesis, facts.causes)}" for hypothesis in journal.hypotheses]
    if journal.task == CURE:
        said += ["", *journal.cure_lines()]
        said += [f"  {each.lever}: {each.text}" for each in journal.outcomes]
        for cause in facts.causes:
            of = f" of {cause.id}" if len(facts.causes) > 1 else ""
            said += [f"  a cure{of} is {lever}: {why}" for lever, why in cause.cures.items()]
            said += [f"  no cure{of} is {lever}: {why}" for lever, why in cause.tempting.items()]
    worth = [line for cause in facts.causes for line in journal.worth(cause.id)]
    said += ["", *worth, *journal.hypothesis_lines(), f"score: {journal.score} of {journal.full}"]
    return said


def _comment(hypothesis: str, causes: Sequence[Cause]) -> str:
    if hypothesis in {cause.id for cause in causes}:
        return "it is the cause" if len(causes) == 1 else "it is one of the causes"
    for cause in causes:
        if hypothesis in cause.alike:
            return f"a look-alike; refuted by: {cause.alike[hypothesis]}"
    return "wrong, and no look-alike of the cause"

"""The text of the reveal in the terminal: figures before and after, look-alikes, hypotheses, cure, score."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from lab.blind.cause import CURE
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
    cause, journal, now = facts.cause, facts.journal, facts.now
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
    said = [
        f"it was {cause.id}: {cause.title.lower()}.",
        cause.mechanism,
        "",
        f"{cause.evidence(now).text} (the last {now.seconds:.0f} s)",
        "",
        f"what users saw, every few seconds; {BEGAN} marks where the cause began:",
        *(f"  {name:<24}  {chart(values)}  {a:.1f} → {b:.1f} {unit}" for name, values, a, b, unit in rows),
        "",
        "causes that look like it, what tells them apart, and what this session's readings say:",
    ]
    for other, how in cause.alike.items():
        said.append(f"  {other}: {how}\n    here: {CAUSES[other].evidence(now).text}")
    if journal.hypotheses:
        said += ["", "your hypotheses:"]
        said += [
            f"  {hypothesis}: {_comment(hypothesis, cause.id, cause.alike)}"
            for hypothesis in journal.hypotheses
        ]
    if journal.task == CURE:
        said += ["", *journal.cure_lines()]
        said += [f"  {each.lever}: {each.text}" for each in journal.outcomes]
        said += [f"  a cure is {lever}: {why}" for lever, why in cause.cures.items()]
        said += [f"  no cure is {lever}: {why}" for lever, why in cause.tempting.items()]
    said += ["", *journal.worth(), f"score: {journal.score} of {journal.full}"]
    return said


def _comment(hypothesis: str, cause: str, alike: dict[str, str]) -> str:
    if hypothesis == cause:
        return "it is the cause"
    return (
        f"a look-alike; refuted by: {alike[hypothesis]}"
        if hypothesis in alike
        else "wrong, and no look-alike of the cause"
    )

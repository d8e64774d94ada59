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
    """Return the whole text, line by line."""
    journal, now = facts.journal, facts.now
    healthy, figures = facts.healthy, now.user_figures
    rows = (
        ("p99 of a page", "page_ms", "ms"),
        ("p99 of a bystander's GET", "get_ms", "ms"),
        ("the oldest price change", "oldest_s", "s"),
    )
    text = []
    for cause in facts.causes:
        text += [
            f"it was {cause.id}: {cause.title.lower()}.",
            cause.mechanism,
            "",
            f"{cause.evidence(now).text} (the last {now.seconds:.0f} s)",
            "",
        ]
    text += [
        f"figures of users, every few seconds; {BEGAN} marks the beginning of the cause:",
        *(
            f"  {name:<24}  {chart([(at, getattr(sample, field)) for at, sample in facts.samples])}  "
            f"{getattr(healthy, field):.1f} → {getattr(figures, field):.1f} {unit}"
            for name, field, unit in rows
        ),
    ]
    for cause in facts.causes:
        it = cause.id if len(facts.causes) > 1 else "it"
        text += [
            "",
            f"causes that look like {it}, the experiment that separates them, and this session's readings:",
        ]
        for other, how in cause.alike.items():
            text.append(f"  {other}: {how}\n    here: {CAUSES[other].evidence(now).text}")
    if journal.hypotheses:
        text += ["", "your hypotheses:"]
        text += [f"  {hypothesis}: {_comment(hypothesis, facts.causes)}" for hypothesis in journal.hypotheses]
    if journal.task == CURE:
        text += ["", *journal.cure_lines()]
        text += [f"  {each.lever}: {each.text}" for each in journal.outcomes]
        for cause in facts.causes:
            which = f" of {cause.id}" if len(facts.causes) > 1 else ""
            text += [f"  a cure{which} is {lever}: {why}" for lever, why in cause.cures.items()]
            text += [f"  no cure{which} is {lever}: {why}" for lever, why in cause.tempting.items()]
    worth = [line for cause in facts.causes for line in journal.worth(cause.id)]
    text += ["", *worth, *journal.hypothesis_lines(), f"score: {journal.score} of {journal.full}"]
    return text


def _comment(hypothesis: str, causes: Sequence[Cause]) -> str:
    if hypothesis in {cause.id for cause in causes}:
        return "it is the cause" if len(causes) == 1 else "it is one of the causes"
    for cause in causes:
        if hypothesis in cause.alike:
            return f"a look-alike; refuted by: {cause.alike[hypothesis]}"
    return "wrong, and no look-alike of the cause"

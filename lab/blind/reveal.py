"""What the reveal says in the terminal: the figures before and after, each look-alike, and where the notes led."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from lab.blind.causes import CAUSES
from lab.blind.page import Told

BLOCKS = "▁▂▃▄▅▆▇█"
BEGAN = "│"
WIDEST = 60
"""Characters of a chart; of a longer session the latest."""


def chart(values: Sequence[tuple[float, float]]) -> str:
    """Values with their seconds since the cause began: blocks on a log scale of a decade at least, and a bar there."""
    shown = list(values)[-WIDEST:]
    logs = [log10(max(value, 0.01)) for _, value in shown]
    low, high = min(logs), max(max(logs), min(logs) + 1.0)
    blocks = [BLOCKS[min(7, int(8 * (each - low) / (high - low)))] for each in logs]
    before = sum(at <= 0 for at, _ in shown)
    return "".join([*blocks[:before], BEGAN, *blocks[before:]])


def lines(told: Told) -> list[str]:
    """All of it."""
    cause, journal, now = told.cause, told.journal, told.now
    held = [(at, look) for at, look in told.samples]
    held, was, became = told.samples, told.healthy, now.seen
    rows = (
        ("p99 of a page", [(at, look.page_ms) for at, look in held], was.page_ms, became.page_ms, "ms"),
        (
            "p99 of a bystander's GET",
            [(at, look.get_ms) for at, look in held],
            was.get_ms,
            became.get_ms,
            "ms",
        ),
        (
            "the oldest price change",
            [(at, look.oldest_s) for at, look in held],
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
        f"what users saw, each few seconds; {BEGAN} is where it began:",
        *(f"  {name:<24}  {chart(values)}  {a:.1f} → {b:.1f} {unit}" for name, values, a, b, unit in rows),
        "",
        "what looks like it, what separates them, and what this session had of it:",
    ]
    for other, how in cause.alike.items():
        said.append(f"  {other}: {how}\n    here: {CAUSES[other].evidence(now).text}")
    if journal.hypotheses:
        said += ["", "your hypotheses:"]
        said += [
            f"  {hypothesis}: {_way(hypothesis, cause.id, cause.alike)}" for hypothesis in journal.hypotheses
        ]
    said += ["", *journal.worth(), f"score: {journal.score} of {journal.full}"]
    return said


def _way(hypothesis: str, cause: str, alike: dict[str, str]) -> str:
    if hypothesis == cause:
        return "it is the cause"
    return (
        f"a look-alike; refuted by: {alike[hypothesis]}"
        if hypothesis in alike
        else "off the way: it looks otherwise"
    )

"""Unpipelined deletes."""

from __future__ import annotations

from functools import partial

from lab.blind import evidence as shown
from lab.blind.cause import OLD_PRICES, Cause
from lab.blind.evidence import Spent
from lab.blind.prices import carry_out_changes, remove_in_parts
from lab.blind.readings import Finding, Readings, Seen
from lab.blind.sizing import CHANGER, Measured, Orders, prices


def evidence(of: Readings) -> Finding:
    """Found if changes wait long and UNLINK is called once for each key."""
    removed = of.spent("UNLINK")
    return Finding(
        of.stale and shown.one_by_one(of),
        f"{removed.per_s:,.0f} UNLINKs a second of {removed.mean_us:.1f} µs each, while the main thread was busy "
        f"{of.busy:.0%}; {of.changes_text}; {of.gets_text}.",
    )


def orders(_of: Measured, _strength: float) -> Orders:
    """Let the program that carries out price changes delete key by key."""
    return {CHANGER: prices("unpipelined-deletes")}


CAUSE = Cause(
    id="unpipelined-deletes",
    title="Unpipelined deletes",
    line="a program deletes tens of thousands of keys, one round trip each",
    mechanism="Each key costs a round trip, so a change takes as many as it has keys. The server and its bystanders "
    "are well; the changes queue up behind each other, and users see what was true long ago.",
    story=OLD_PRICES,
    evidence=evidence,
    orders=orders,
    disturb=partial(carry_out_changes, remove=partial(remove_in_parts, size=1)),
    typical={"seen": Seen(5.0, 1.0, 12.0), "commands": {"UNLINK": Spent(13_000, 0.02, 1.0)}},
    alike={
        "giant-index": "Bystanders' GETs are fast: nothing holds the server for long. UNLINK is called once "
        "for each key.",
        "nothing": "LLEN and LINDEX 0 of the queue of changes: it grows.",
        "slow-network": "A PING through the storefront's link is as fast as past it, pages are fast.",
        "exhausted-pool": "Pages are fast.",
    },
    cures={
        "batch program-1 250": "A change takes one round trip for 250 keys; the list of changes gets shorter.",
    },
    tempting={
        "stop program-1": "The round trips end, and so do the changes: the list of them grows for ever.",
    },
    hints=(
        "Not every complaint is about waiting. Which of the three figures is bad, and which are not?",
        "Changes wait for each other. What does the program that carries them out send, how often, and how "
        "long does it wait in between? MONITOR or tcpdump show it.",
        "The program sends an UNLINK for one key, waits for the answer, and sends the next, tens of thousands "
        "of times for each change: nothing is pipelined.",
    ),
    words=("unpipelined-deletes", "unpipelined", "sequential delete", "one by one"),
)

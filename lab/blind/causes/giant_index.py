"""A giant index set."""

from __future__ import annotations

from functools import partial
from socket import socket

from lab.blind import evidence as shown
from lab.blind.cause import OLD_PRICES, Cause
from lab.blind.evidence import Spent
from lab.blind.prices import INDEX, as_list, carry_out_changes
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import CHANGER, Measured, Orders, prices
from loadtest.resp import ask, command


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow, SMEMBERS and UNLINK are called, one of them is long, and one is in the slow log."""
    read, removed = of.spent("SMEMBERS"), of.spent("UNLINK")
    logged = [of.slow[name][1] for name in ("SMEMBERS", "UNLINK") if name in of.slow]
    return Finding(
        shown.giant_set(of),
        f"SMEMBERS {read.mean_us / 1000:.1f} ms and UNLINK {removed.mean_us / 1000:.1f} ms a call in the mean, "
        f"{removed.per_s:.1f} calls a second; the longest of them in the slow log {max(logged, default=0):.0f} ms; "
        f"{of.gets_text}.",
    )


def orders(_of: Measured, _strength: float) -> Orders:
    """Let the program that carries out price changes remove all prices in one piece."""
    return {CHANGER: prices("giant-index")}


def remove_whole(line: socket) -> None:
    """Remove all prices with two commands."""
    [found] = ask(line, command("SMEMBERS", INDEX))
    if found:
        ask(line, command("UNLINK", *as_list(found)))


CAUSE = Cause(
    id="giant-index",
    title="A giant index set",
    line="one index set has grown huge, and is read and deleted in one piece",
    mechanism="Every change reads the whole set with one SMEMBERS and deletes all that it names with one command. Both "
    "take as long as the set is large, and nobody else is served meanwhile.",
    story=OLD_PRICES,
    evidence=evidence,
    orders=orders,
    disturb=partial(carry_out_changes, remove=remove_whole),
    typical={
        "commands": {"SMEMBERS": Spent(1, 0.01, 9_000), "UNLINK": Spent(1, 0.04, 40_000)},
        "slow": {"SMEMBERS": (9, 12.0), "UNLINK": (9, 47.0)},
    },
    alike={
        "keys-command": "SLOWLOG GET: SMEMBERS and UNLINK with tens of thousands of arguments, no KEYS.",
        "scan-storm": "INFO commandstats: few calls, each long. A storm is many calls, each short.",
        "unpipelined-deletes": "Calls of UNLINK for each change: one, not one for each key.",
        "eviction-cycle": "INFO stats: evicted_keys stands still.",
    },
    cures={
        "batch program-1 250": "A change removes as much as before, in pieces so short that nobody waits for one.",
    },
    tempting={
        "strategy generation": "It changes what the storefront does with its own entries; the set is another team's.",
    },
    hints=(
        "Put the moments of slow GETs beside what the server does every few seconds.",
        "The slow log names more than one command, and all of them touch the same key, or come together. "
        "How many members does it have? (SCARD asks without reading.)",
        "One set has tens of thousands of members: it is read at once with SMEMBERS, and everything it "
        "names is deleted by a single UNLINK.",
    ),
    words=("giant-index", "giant index", "giantindex", "giant"),
)

"""A giant index set."""

from __future__ import annotations

from functools import partial
from socket import socket

from lab.blind.prices import INDEX, as_list, carry_out_changes
from lab.blind.readings import Readings
from lab.blind.sizing import CHANGER, Measured, Orders, prices
from lab.server import law, signs
from lab.server.figures import Evidence
from loadtest.resp import ask, command


def evidence(of: Readings) -> Evidence:
    """Found if GETs are slow because a whole set is read, and what it names is deleted, in one piece each."""
    held = [each for each in law.holders(of) if each.name in ("SMEMBERS", "UNLINK")]
    found = signs.evidence_of_holders(of, held)
    called = of.spent("SMEMBERS").per_s > 0 and of.spent("UNLINK").per_s > 0
    return Evidence(of.slow_gets and called and found.found, found.text)


def orders(_of: Measured, _strength: float) -> Orders:
    """Let the program that carries out price changes remove all prices in one piece."""
    return {CHANGER: prices("giant-index")}


def remove_whole(line: socket) -> None:
    """Remove all prices with two commands."""
    [found] = ask(line, command("SMEMBERS", INDEX))
    if found:
        ask(line, command("UNLINK", *as_list(found)))


disturb = partial(carry_out_changes, remove=remove_whole)

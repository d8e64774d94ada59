"""A giant index set."""

from __future__ import annotations

from functools import partial
from socket import socket

from lab.blind.prices import INDEX, array, run_price_changes
from lab.blind.readings import Readings
from lab.blind.sizing import CHANGER, Measurements, Orders, prices
from lab.server import law, signs
from lab.server.figures import Evidence
from loadtest.resp import ask, command


def evidence(readings: Readings) -> Evidence:
    """Found if GETs are slow because a whole set is read, and what it names is deleted, in one piece each."""
    held = [each for each in law.holders(readings) if each.name in ("SMEMBERS", "UNLINK")]
    found = signs.evidence_of_holders(readings, held)
    called = readings.spent("SMEMBERS").per_s > 0 and readings.spent("UNLINK").per_s > 0
    return Evidence(readings.slow_gets and called and found.found, found.text)


def orders(_measured: Measurements, _strength: float) -> Orders:
    """Let the program that carries out price changes remove all prices in one piece."""
    return {CHANGER: prices("giant-index")}


def remove_whole(line: socket) -> None:
    """Remove all prices with two commands."""
    [found] = ask(line, command("SMEMBERS", INDEX))
    if found:
        ask(line, command("UNLINK", *array(found)))


disturb = partial(run_price_changes, remove=remove_whole)

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
    """Found if GETs are slow because a whole set is read in one command, and its keys are deleted in one command."""
    holders = [each for each in law.holders(readings) if each.name in ("SMEMBERS", "UNLINK")]
    judged = signs.evidence_of_holders(readings, holders)
    called = readings.spent("SMEMBERS").per_s > 0 and readings.spent("UNLINK").per_s > 0
    return Evidence(readings.slow_gets and called and judged.found, judged.text)


def orders(_measured: Measurements, _strength: float) -> Orders:
    """Let the program that carries out price changes remove all prices in one command."""
    return {CHANGER: prices("giant-index")}


def remove_whole(line: socket) -> None:
    """Remove all prices with two commands."""
    [keys] = ask(line, command("SMEMBERS", INDEX))
    if keys:
        ask(line, command("UNLINK", *array(keys)))


disturb = partial(run_price_changes, remove=remove_whole)

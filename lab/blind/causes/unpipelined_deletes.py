"""Unpipelined deletes."""

from __future__ import annotations

from functools import partial

from lab.blind.prices import remove_in_parts, run_price_changes
from lab.blind.readings import Readings
from lab.blind.sizing import CHANGER, Measurements, Orders, prices
from lab.server import signs
from lab.server.figures import Evidence


def evidence(readings: Readings) -> Evidence:
    """Found if changes wait long and keys are deleted one by one."""
    one_by_one = signs.one_by_one(readings)
    return Evidence(
        readings.stale and one_by_one.found,
        f"{one_by_one.text.rstrip('.')}; {readings.changes_text}; {readings.p99_text}.",
    )


def orders(_measured: Measurements, _strength: float) -> Orders:
    """Let the program that carries out price changes delete key by key."""
    return {CHANGER: prices("unpipelined-deletes")}


disturb = partial(run_price_changes, remove=partial(remove_in_parts, size=1))

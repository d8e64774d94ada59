"""Unpipelined deletes."""

from __future__ import annotations

from functools import partial

from lab.blind.prices import carry_out_changes, remove_in_parts
from lab.blind.readings import Readings
from lab.blind.sizing import CHANGER, Measured, Orders, prices
from lab.server import signs
from lab.server.figures import Evidence


def evidence(of: Readings) -> Evidence:
    """Found if changes wait long and keys are deleted one by one."""
    found = signs.one_by_one(of)
    return Evidence(of.stale and found.found, f"{found.text.rstrip('.')}; {of.changes_text}; {of.p99_text}.")


def orders(_of: Measured, _strength: float) -> Orders:
    """Let the program that carries out price changes delete key by key."""
    return {CHANGER: prices("unpipelined-deletes")}


disturb = partial(carry_out_changes, remove=partial(remove_in_parts, size=1))

"""What a cause of a blind session is. Each is one file of `lab.blind.causes`: its text, evidence, size and program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import WELL, Measured, Orders
from loadtest.resp import Server


def changes_no_order(_of: Measured, _strength: float) -> Orders:
    """The orders of a cause that gives none."""
    return {}


@dataclass(frozen=True)
class Cause:
    """One possible answer.

    `line` says in a few words what it would be (it is no secret), `mechanism` why it does what it does. `alike` maps
    another cause's id to the experiment that tells the two apart. `hints` go from general to specific; only the last
    may name the cause. `words` are names of the cause that nothing a participant reads before the reveal may hold.

    `evidence` finds the cause in readings. `typical` are the readings in which it differs from a healthy scene, with
    figures of a common machine: an answer for another cause must rule them out. `orders` says what programs of the
    scene are told when it begins, solved from what this machine was measured to cost and from a strength (1.0 at first,
    more where no symptom shows). An order whose `kind` is the cause's id is carried out by `disturb`, in a program that
    is handed the order, an inbox that says when the next one comes, and the server.
    """

    id: str
    title: str
    line: str
    mechanism: str
    evidence: Callable[[Readings], Finding]
    alike: dict[str, str]
    hints: tuple[str, ...]
    words: tuple[str, ...]
    typical: Mapping[str, Any]
    orders: Callable[[Measured, float], Orders] = changes_no_order
    disturb: Callable[[Order, Inbox, Server], None] | None = None

    @property
    def finds_health(self) -> bool:
        """Whether its evidence is that no figure is bad."""
        return not self.typical

    def told_openly(self, spoilers: bool) -> str:
        """How a session begins whose cause is known by its name; what it does only with `spoilers`."""
        if spoilers:
            return f"{self.title}: {self.line}."
        return f"The scene of {self.id}. What it does is for you to find; --spoilers tells it here."

    def told(self, measured: Measured, strength: float = 1.0) -> Orders:
        """The orders of all programs under this cause: one without an order of its own goes on as before."""
        return WELL | self.orders(measured, strength)

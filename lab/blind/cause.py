"""The causes of blind sessions as a type (texts, evidence, orders, program), and the levels of sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Readings
from lab.blind.sizing import HEALTHY_ORDERS, Measurements, Orders
from lab.server import signs
from lab.server.figures import Evidence
from loadtest.resp import Server


@dataclass(frozen=True)
class Complaint:
    """A complaint of users. `is_true_in` returns whether the readings bear it out."""

    text: str
    is_true_in: Callable[[Readings], bool]


COMPLAINTS = {
    "everybody": Complaint(
        "Since this morning users complain that pages are slow, and other teams that use the same server complain, "
        "too. Nothing was released, says everybody.",
        lambda readings: readings.slower_pages and readings.slow_gets,
    ),
    "now-and-then": Complaint(
        "Since this morning the shop hangs now and then, users complain, and so do other teams that use the same "
        "server. Between two hangs all is well. Nothing was released, says everybody.",
        lambda readings: readings.slow_pages or readings.slow_gets,
    ),
    "pages-only": Complaint(
        "Since this morning users complain that they wait for pages. The other teams that use the same server have "
        "noticed nothing. Nothing was released, says everybody.",
        lambda readings: readings.slow_pages and not readings.slow_gets,
    ),
    "old-prices": Complaint(
        "Since this morning users complain: prices are old, say some; one has to wait, say others. Nothing was "
        "released, says everybody.",
        lambda readings: readings.stale or readings.slow_pages,
    ),
}
"""Several causes share each complaint, so a complaint gives no cause away."""
MORE_THAN_ONE = Complaint(
    "Since this morning people complain, and not all of them of the same thing. Nothing was released, says everybody. "
    "This session has two causes: both are to be named.",
    lambda readings: readings.symptom,
)

FIND, CURE = TASKS = ("find", "cure")
"""Tasks of a session: to name the cause, or to end it as well."""


@dataclass(frozen=True)
class Level:
    """A level. `pings`: `look ping` is allowed. `figures`: healthy values are shown. `causes` and `task`: defaults."""

    pings: bool
    figures: bool
    causes: int
    task: str


LEVELS = {
    1: Level(pings=True, figures=True, causes=1, task=FIND),
    2: Level(pings=False, figures=False, causes=1, task=FIND),
    3: Level(pings=False, figures=False, causes=2, task=CURE),
}
MOST_CAUSES = 2


def changes_no_order(_measured: Measurements, _strength: float) -> Orders:
    """Return no orders: the default of a cause that changes none."""
    return {}


def held_by_commands(cause: str) -> Callable[[Readings], Evidence]:
    """Return a function that looks for slow GETs, and for commands of this cause of a diagnosis that explain them."""

    def evidence(readings: Readings) -> Evidence:
        judged = signs.commands(cause)(readings)
        return Evidence(readings.slow_gets and judged.found, judged.text)

    return evidence


@dataclass(frozen=True)
class Cause:
    """A possible answer of a blind session: its texts, from `causes/texts.toml`, and its functions.

    `line` describes the cause in a few words and is public. `mechanism` explains its effect. `story` is the complaint
    with which a session begins. It is true under this cause (untrue if nothing is wrong), and other causes share it.
    `alike` maps another cause's id to the experiment that separates the two. `hints` go from general to specific;
    only the last may name the cause. `words` are names of the cause: no text that a participant reads before the reveal
    may contain one.

    `cures` maps a lever, as it is typed (`lab.blind.levers`), to the reason why it cures; each suffices alone.
    `tempting` maps a lever that seems to be a cure to the reason why it does not cure.

    `typical` has the figures in which the cause differs from a healthy scene on a common machine, in the form of an
    answer's evidence: an answer for another cause must rule them out. `evidence` looks for the cause in readings.
    `orders` returns the orders that the scene's programs get when the cause begins, computed from the measurements of
    this machine and from a strength (1.0 at first, more when the readings do not bear out the complaint). `disturb`
    carries out an order whose `kind` is the cause's id. A program of the scene calls it with the order, an inbox that
    shows whether a newer order has come, and the server.
    """

    id: str
    title: str
    line: str
    mechanism: str
    story: Complaint
    typical: str
    alike: Mapping[str, str]
    hints: tuple[str, ...]
    words: tuple[str, ...]
    cures: Mapping[str, str]
    tempting: Mapping[str, str]
    evidence: Callable[[Readings], Evidence]
    orders: Callable[[Measurements, float], Orders] = changes_no_order
    disturb: Callable[[Order, Inbox, Server], None] | None = None

    @property
    def finds_health(self) -> bool:
        """True if the evidence of this cause is that no figure is bad."""
        return not self.typical

    def opening_line(self, spoilers: bool, chapter: str | None = None) -> str:
        """Return the first line of a session whose cause was chosen; it describes the cause only with `spoilers`, and
        does not name it if it was chosen by its chapter.
        """
        if spoilers:
            return f"{self.title}: {self.line}."
        if chapter:
            return f"The scene of chapter {chapter}. Find out what is wrong."
        return f"The cause is {self.id}. Find out what it does; --spoilers describes it here."

    def all_orders(self, measured: Measurements, strength: float = 1.0) -> Orders:
        """Return the orders of all programs under this cause; programs that it does not use keep the healthy ones."""
        return orders_of([self], measured, strength)


def orders_of(causes: Sequence[Cause], measured: Measurements, strength: float = 1.0) -> Orders:
    """Return the orders of all programs under causes that are at work together; no two causes use the same program."""
    orders = dict(HEALTHY_ORDERS)
    for cause in causes:
        orders |= cause.orders(measured, strength)
    return orders

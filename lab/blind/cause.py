"""What a cause of a blind session is: its texts, evidence, orders and program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Readings
from lab.blind.sizing import WELL, Measured, Orders
from lab.server import signs
from lab.server.figures import Evidence
from loadtest.resp import Server


@dataclass(frozen=True)
class Story:
    """What people say while a cause is at work, and what has to be seen in the readings for that to be true."""

    text: str
    seen_in: Callable[[Readings], bool]


STORIES = {
    "everybody": Story(
        "Since this morning users complain that pages are slow, and other teams that use the same server complain, "
        "too. Nothing was released, says everybody.",
        lambda of: of.slower_pages and of.slow_gets,
    ),
    "now-and-then": Story(
        "Since this morning the shop hangs now and then, users complain, and so do other teams that use the same "
        "server. Between two hangs all is well. Nothing was released, says everybody.",
        lambda of: of.slow_pages or of.slow_gets,
    ),
    "pages-only": Story(
        "Since this morning users complain that they wait for pages. The other teams that use the same server have "
        "noticed nothing. Nothing was released, says everybody.",
        lambda of: of.slow_pages and not of.slow_gets,
    ),
    "old-prices": Story(
        "Since this morning users complain: prices are old, say some; one has to wait, say others. Nothing was "
        "released, says everybody.",
        lambda of: of.stale or of.slow_pages,
    ),
}
"""Several causes share each story, so it gives none away."""
MORE_THAN_ONE = Story(
    "Since this morning people complain, and not all of them of the same thing. Nothing was released, says everybody. "
    "This session has two causes: both are to be named.",
    lambda of: of.symptom,
)

FIND, CURE = TASKS = ("find", "cure")
"""What a session asks for: to name the cause, or to end it, too."""


def changes_no_order(_of: Measured, _strength: float) -> Orders:
    """Return no orders: the default of a cause that changes none."""
    return {}


def held_by_commands(cause: str) -> Callable[[Readings], Evidence]:
    """Make the evidence that GETs are slow because the commands of this cause of a diagnosis hold the server."""

    def look(of: Readings) -> Evidence:
        found = signs.commands(cause)(of)
        return Evidence(of.slow_gets and found.found, found.text)

    return look


@dataclass(frozen=True)
class Cause:
    """One possible answer of a blind session: its texts, from `causes/texts.toml`, and its functions.

    `line` describes the cause in a few words and is public. `mechanism` explains its effect. `story` is the complaint
    with which a session begins: true under this cause (mere hearsay if nothing is wrong), and shared with others.
    `alike` maps another cause's id to the experiment that tells the two apart. `hints` go from general to specific;
    only the last may name the cause. `words` are names of the cause: no text that a participant reads before the reveal
    may contain one.

    `cures` maps a lever, as it is typed (`lab.blind.levers`), to the reason why it cures; each suffices alone.
    `tempting` maps a lever that seems to be a cure to the reason why it is none.

    `typical` names, as an answer's evidence does, the figures in which the cause differs from a healthy scene on a
    common machine: an answer for another cause must rule them out. `evidence` looks for the cause in readings. `orders`
    returns what the scene's programs are told when the cause begins, computed from the measurements of this machine and
    from a strength (1.0 at first, more when the readings do not bear out the complaint). `disturb` carries out an order
    whose `kind` is the cause's id. A program of the scene calls it with the order, an inbox that says when the next
    order has come, and the server.
    """

    id: str
    title: str
    line: str
    mechanism: str
    story: Story
    typical: str
    alike: Mapping[str, str]
    hints: tuple[str, ...]
    words: tuple[str, ...]
    cures: Mapping[str, str]
    tempting: Mapping[str, str]
    evidence: Callable[[Readings], Evidence]
    orders: Callable[[Measured, float], Orders] = changes_no_order
    disturb: Callable[[Order, Inbox, Server], None] | None = None

    @property
    def finds_health(self) -> bool:
        """True if the evidence of this cause is that no figure is bad."""
        return not self.typical

    def opening_line(self, spoilers: bool) -> str:
        """The first line of a session whose cause was chosen; it says what the cause does only with `spoilers`."""
        if spoilers:
            return f"{self.title}: {self.line}."
        return f"The cause is {self.id}. Find out what it does; with --spoilers it is said here."

    def all_orders(self, measured: Measured, strength: float = 1.0) -> Orders:
        """The orders of all programs under this cause; programs that it does not use keep their healthy orders."""
        return orders_of([self], measured, strength)


def orders_of(causes: Sequence[Cause], measured: Measured, strength: float = 1.0) -> Orders:
    """The orders of all programs under causes that are at work together; no program may take orders of two."""
    found = dict(WELL)
    for cause in causes:
        found |= cause.orders(measured, strength)
    return found

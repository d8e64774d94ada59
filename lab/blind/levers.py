"""The levers of a session whose task is a cure: what an engineer may do to the parts of the scene.

`parse` checks the typed words, without a scene. `Levers.pull` pulls the lever. Most levers send an order to a program
of the scene (`lab.blind.sizing`), so they work alike on both stacks. All sessions have the same levers, so the list
does not reveal the cause.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis

from lab.blind.inbox import Order
from lab.blind.routes import Target, client
from lab.blind.sizing import CHANGER, HEALTHY_ORDERS, LINK, PROGRAMS, RESTING, WEB, Orders, prices
from lab.errors import StackError, UsageError
from lab.server.redis_cli import CliConnection, carry_out

RESTART_S = 15.0
"""Seconds that a restarted part is away; shorter than the check, so that its earlier effect returns within it."""
STOREFRONT = "storefront"
MOST_CONNECTIONS, LONGEST_WAIT_S, LARGEST_BATCH = 500, 10.0, 100_000
LEAST_PERCENT, MOST_PERCENT = 20, 90
"""With less, a program's periodic work would come more seldom than a check lasts, and the scene would seem cured."""
MEMORY_PERCENT = (50, 200)
"""Range of maxmemory in percent of its value when the cause began: the machine has not more for this server."""
USUAL_WAIT_S = 1.0
"""Seconds that a command waits for a connection where the pool was not limited before."""
POLICIES = ("noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl")
LONGEST_THRESHOLD_US = 10_000_000


class LeverTarget(Target, Protocol):
    """The parts of a scene that levers use."""

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program."""
        ...


@dataclass(frozen=True)
class Pull:
    """A lever with its arguments, checked as far as possible without a scene."""

    lever: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lever as it was typed."""
        return " ".join((self.lever, *self.arguments))


ArgumentCheck = Callable[[str], None]
"""Function that raises `UsageError` for an argument that a lever cannot take."""


def _number(low: float, high: float, subject: str, unit: str = "", whole: bool = False) -> ArgumentCheck:
    """Return the check of a number, with or without its unit."""

    def check(text: str) -> None:
        digits = text.removesuffix(unit)
        if not digits.replace(".", "", 1).isdecimal() or not low <= float(digits) <= high:
            raise UsageError(f"{subject} is a number from {low:g}{unit} to {high:g}{unit}, not {text!r}.")
        if whole and float(digits) % 1:
            raise UsageError(f"{subject} is a whole number.")

    return check


def _one_of(known: Iterable[str], kind: str) -> ArgumentCheck:
    """Return the check of a name."""

    def check(text: str) -> None:
        if text not in known:
            raise UsageError(f"there is no {kind} {text!r}; choose {', '.join(known)}.")

    return check


def _any(_text: str) -> None:
    """Accept any text: only the scene can check it."""


@dataclass(frozen=True)
class Lever:
    """A lever: its form as typed, its meaning, the function that pulls it, and the checks of its arguments (`takes`).

    `repeats`: the first argument may come several times. `settings`: the first argument is one of these settings, and
    the second its value, which must pass the setting's check.
    """

    form: str
    meaning: str
    pull: Callable[..., str]
    takes: tuple[ArgumentCheck, ...] = ()
    repeats: bool = False
    settings: Mapping[str, ArgumentCheck] = field(default_factory=dict)

    def check(self, arguments: Sequence[str]) -> None:
        """Raise `UsageError` for arguments that the lever cannot take."""
        takes = list(self.takes)
        if self.settings:
            takes = [
                _one_of(self.settings, "setting to change"),
                lambda value: self.settings[arguments[0]](value),
            ]
        if self.repeats:
            takes = takes[:1] * max(1, len(arguments) - len(takes) + 1) + takes[1:]
        if len(arguments) != len(takes):
            raise UsageError(f"this lever is typed as {self.form}.")
        for check, argument in zip(takes, arguments, strict=True):
            check(argument)


def parse(words: Sequence[str]) -> Pull:
    """Return the lever that these words name. Raises `UsageError` if there is none, or for arguments it cannot take."""
    name, *arguments = words or ("",)
    if name not in LEVERS:
        near = difflib.get_close_matches(name, LEVERS, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no lever {name!r}.{hint} `bin/lab blind levers` lists them.")
    LEVERS[name].check(arguments)
    return Pull(name, tuple(arguments))


def limited(order: Order, share: float) -> Order:
    """Return the order of a program that works at this share of its rate.

    It works less often, or computes for that share of the time, or uses fewer connections.
    """
    if "every_s" in order:
        return {**order, "every_s": order["every_s"] / share}
    if "threads" in order:
        return {**order, "share": share}
    return {
        name: max(1, round(value * share)) if name == "connections" else value
        for name, value in order.items()
    }


def _later(seconds: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


class Levers:
    """The levers of one scene, and the orders that its programs follow now."""

    def __init__(
        self, scene: LeverTarget, orders: Orders, later: Callable[[float, Callable[[], None]], Any] = _later
    ) -> None:
        """`orders` are those of the cause; `later` calls a function after so many seconds."""
        self._scene = scene
        self._cause_orders = dict(orders)
        self.orders = dict(orders)
        self._later = later
        self._maxmemory = 0
        self._lock = threading.Lock()
        self._closed = False

    def pull(self, pull: Pull) -> str:
        """Pull the lever; return a sentence on what was done.

        Raises `UsageError` when the lever does not fit the scene, `StackError` when a part does not answer; then
        nothing was changed.
        """
        return LEVERS[pull.lever].pull(self, *pull.arguments)

    def came_back(self, pull: Pull) -> str:
        """Return a sentence if a killed client has connected again; else, and for other levers, an empty text."""
        if pull.lever != "kill":
            return ""
        with contextlib.suppress(StackError):
            if any(row["name"] == pull.arguments[0] for row in self._clients()):
                return f" {pull.arguments[0]} has connected again."
        return ""

    def close(self) -> None:
        """Send no more orders, because the scene ends."""
        with self._lock:
            self._closed = True

    def _order(self, name: str, order: Order) -> None:
        self.orders[name] = order
        self._scene.order(name, order)

    def _clients(self) -> list[dict[str, str]]:
        with contextlib.closing(client(self._scene.server.url)) as line:
            try:
                return list(line.client_list())
            except redis.RedisError as error:
                raise StackError(f"the server does not answer CLIENT LIST: {error}") from None

    def _kill(self, target: str) -> str:
        connections = [row for row in self._clients() if target in (row.get("name"), row.get("addr"))]
        if not connections:
            raise UsageError(f"there is no connection {target!r} now: `bin/lab look clients` lists them.")
        for row in connections:
            if row.get("name") not in PROGRAMS:
                raise UsageError(
                    f"{target} is not closed: this lever closes only connections of {', '.join(PROGRAMS)}."
                )
        with contextlib.closing(client(self._scene.server.url)) as line:
            for row in connections:
                try:
                    line.client_kill_filter(_id=row["id"])
                except redis.ResponseError as error:
                    if "no such client" not in str(error).lower():  # it has closed by itself
                        raise UsageError(f"the server refuses CLIENT KILL: {error}.") from None
                except redis.RedisError as error:
                    raise StackError(f"the server does not answer CLIENT KILL: {error}") from None
        return f"closed {len(connections)} connections of {connections[0]['name']}."

    def _strategy(self, name: str) -> str:
        current = self._scene.web.ask("GET", "/settings/invalidation")
        _one_of(current["strategies"], "strategy")(name)
        self._scene.web.use(name, current["scan_count"])
        return f"the storefront's strategy was {current['strategy']}, and is {name}."

    def _server(self, setting: str, value: str) -> str:
        if setting == "maxmemory":
            self._maxmemory = self._maxmemory or self._scene.server.maxmemory()
            value = str(round(self._maxmemory * float(value.removesuffix("%")) / 100))
        # The end of the session puts it back.
        with contextlib.closing(CliConnection(self._scene.server.url)) as line:
            carry_out(line, ["CONFIG", "SET", setting, value], write=True)
        return f"the server's {setting} is {value}."

    def _pool(self, setting: str, value: str) -> str:
        order = dict(self.orders[WEB])
        order["wait_s"] = order["wait_s"] if order["size"] else USUAL_WAIT_S
        if setting == "size":
            order["size"] = int(float(value))
        elif not order["size"]:
            order = {**order, "size": MOST_CONNECTIONS, "wait_s": float(value.removesuffix("s"))}
        else:
            order["wait_s"] = float(value.removesuffix("s"))
        self._order(WEB, order)
        return f"the pool's {setting} is {value}."

    def _link(self, route: str) -> str:
        self._order(LINK, HEALTHY_ORDERS[LINK] if route == "standby" else self._cause_orders[LINK])
        return f"the storefront reaches the server over the {route} route."

    def _housekeeping(self, state: str) -> str:
        settings = ("sum_s", "every_s")
        order = {name: value for name, value in self.orders[WEB].items() if name not in settings}
        if state == "on":
            order |= {name: value for name, value in self._cause_orders[WEB].items() if name in settings}
        self._order(WEB, order)
        return f"the storefront's housekeeping is {state}."

    def _stop(self, *programs: str) -> str:
        for name in programs:
            self._order(name, RESTING)
        return f"stopped: {', '.join(programs)}."

    def _limit(self, *arguments: str) -> str:
        *names, percent = arguments
        for name in names:
            self._order(name, limited(self._cause_orders[name], float(percent.removesuffix("%")) / 100))
        return f"at {percent.removesuffix('%')} % of the rate: {', '.join(names)}."

    def _batch(self, name: str, keys: str) -> str:
        self._order(name, {**prices("changes"), "batch": int(float(keys))})
        return f"{name} removes {keys} keys with each command."

    def _restart(self, *names: str) -> str:
        parts = [WEB if name == STOREFRONT else name for name in names]
        for part in parts:
            if part != WEB and self.orders[part] == RESTING:
                self.orders[part] = self._cause_orders[part]
            self._scene.order(part, HEALTHY_ORDERS[WEB] if part == WEB else RESTING)

        def come_back() -> None:
            with self._lock:
                for part in [] if self._closed else parts:
                    self._scene.order(part, self.orders[part])

        self._later(RESTART_S, come_back)
        return f"restarted: {', '.join(names)}."

    def _leave(self) -> str:
        return "nothing was changed."


SETTINGS: Mapping[str, ArgumentCheck] = {
    "maxmemory": _number(*MEMORY_PERCENT, "maxmemory", "%"),
    "maxmemory-policy": _one_of(POLICIES, "policy"),
    "slowlog-log-slower-than": _number(0, LONGEST_THRESHOLD_US, "the threshold in µs"),
    "lazyfree-lazy-user-del": _one_of(("yes", "no"), "value"),
}
"""Setting of the server that a lever may change → the check of its value."""
POOL: Mapping[str, ArgumentCheck] = {
    "size": _number(1, MOST_CONNECTIONS, "the size of the pool", whole=True),
    "wait": _number(0, LONGEST_WAIT_S, "the wait for a connection", "s"),
}
LEVERS: dict[str, Lever] = {
    "kill": Lever(
        "kill CLIENT", "close the connections with this name or address (look clients)", Levers._kill, (_any,)
    ),
    "strategy": Lever(
        "strategy NAME", "switch the storefront's strategy of invalidation", Levers._strategy, (_any,)
    ),
    "server": Lever(
        "server SETTING VALUE",
        f"change a setting of the server: {', '.join(SETTINGS)} (maxmemory in % of what it was, 50% to 200%)",
        Levers._server, settings=SETTINGS,
    ),
    "pool": Lever(
        "pool size|wait N", "give the storefront's pool N connections, or let a command wait N seconds for one",
        Levers._pool, settings=POOL,
    ),
    "link": Lever(
        "link standby|primary", "send the storefront's requests to the server over the other route", Levers._link,
        (_one_of(("standby", "primary"), "route"),),
    ),
    "housekeeping": Lever(
        "housekeeping off|on", "switch off the storefront's periodic work besides pages, or switch it on again",
        Levers._housekeeping, (_one_of(("off", "on"), "state of the housekeeping"),),
    ),
    "stop": Lever(
        "stop PROGRAM...", "stop programs of other teams", Levers._stop,
        (_one_of(PROGRAMS, "program of this session"),), repeats=True,
    ),
    "limit": Lever(
        "limit PROGRAM... N%", f"let programs work at N % of their rate, {LEAST_PERCENT} to {MOST_PERCENT}",
        Levers._limit,
        (
            # The first program works when a change comes.
            _one_of([name for name in PROGRAMS if name != CHANGER], "program with a rate of its own"),
            _number(LEAST_PERCENT, MOST_PERCENT, "the rate that is left", "%"),
        ), repeats=True,
    ),
    "batch": Lever(
        f"batch {CHANGER} N", "let it remove N keys with each command", Levers._batch,
        (
            _one_of((CHANGER,), "program that removes keys,"),
            _number(1, LARGEST_BATCH, "the number of keys in a command", whole=True),
        ),
    ),
    "restart": Lever(
        "restart PART...",
        f"restart the {STOREFRONT} or a program, even a stopped one; it is away for {RESTART_S:g} s",
        Levers._restart, (_one_of((STOREFRONT, *PROGRAMS), "part to restart"),), repeats=True,
    ),
    "leave": Lever("leave", "change nothing, because nothing is wrong; the scene is checked", Levers._leave),
}  # fmt: skip

"""The levers of a session whose task is a cure: what an engineer may do to the parts of the scene.

`parse` checks what was typed, without a scene. `Levers.pull` then does it. Most levers send an order to a program of
the scene (`lab.blind.sizing`), so they work alike on both stacks. All sessions have the same levers, so they tell
nothing of the cause.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis

from lab.blind.inbox import Order
from lab.blind.sizing import CHANGER, LINK, PROGRAMS, RESTING, WEB, WELL, Orders, prices
from lab.errors import StackError, UsageError
from lab.stacks.by_hand import Line, carry_out
from lab.stacks.http import Storefront
from lab.stacks.server_stats import ServerObserver

RESTART_S = 15.0
"""Seconds that a restarted part is away; shorter than the check, so that what it did before shows again within it."""
STOREFRONT = "storefront"
WAYS = ("standby", "primary")
SWITCHED = ("off", "on")
MOST_CONNECTIONS, LONGEST_WAIT_S, LARGEST_BATCH = 500, 10.0, 100_000
LEAST_PERCENT, MOST_PERCENT = 20, 90
"""With less, what a program does now and then would come more seldom than a check lasts, and pass for cured."""
MEMORY_PERCENT = (50, 200)
"""Range of maxmemory in percent of its value when the cause began: the machine has no more for this server."""
USUAL_WAIT_S = 1.0
"""How long a command waits for a connection where the pool was not limited before."""
POLICIES = ("noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl")
LONGEST_THRESHOLD_US = 10_000_000


class LeverTarget(Protocol):
    """What the levers need of a scene."""

    @property
    def server(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def web(self) -> Storefront:
        """The storefront."""
        ...

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program."""
        ...


@dataclass(frozen=True)
class Pull:
    """A lever with its arguments, checked as far as that is possible without a scene."""

    lever: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lever as it was typed."""
        return " ".join((self.lever, *self.arguments))


@dataclass(frozen=True)
class Lever:
    """A lever as `bin/lab blind levers` lists it. `check` raises `UsageError` for arguments that it cannot take."""

    form: str
    meaning: str
    check: Callable[[Sequence[str]], None]


def _number(text: str, low: float, high: float, what: str, unit: str = "") -> float:
    """The number in `text`, without its unit. Raises `UsageError` when it is none, or outside the range."""
    digits = text.removesuffix(unit)
    if not digits.replace(".", "", 1).isdecimal() or not low <= float(digits) <= high:
        raise UsageError(f"{what} is a number from {low:g}{unit} to {high:g}{unit}, not {text!r}.")
    return float(digits)


def _one_of(text: str, known: Sequence[str], what: str) -> None:
    if text not in known:
        raise UsageError(f"there is no {what} {text!r}; choose {', '.join(known)}.")


def _count(arguments: Sequence[str], number: int, form: str) -> None:
    if len(arguments) != number:
        raise UsageError(f"this lever is typed as {form}.")


def _check_kill(arguments: Sequence[str]) -> None:
    _count(arguments, 1, "kill CLIENT, with a name or an address that `bin/lab blind look clients` shows")


def _check_strategy(arguments: Sequence[str]) -> None:
    _count(arguments, 1, "strategy NAME")


def _check_server(arguments: Sequence[str]) -> None:
    _count(arguments, 2, "server SETTING VALUE")
    setting, value = arguments
    _one_of(setting, tuple(SETTINGS), "setting to change")
    SETTINGS[setting](value)


def _check_pool(arguments: Sequence[str]) -> None:
    _count(arguments, 2, "pool size CONNECTIONS, or pool wait SECONDS")
    setting, value = arguments
    _one_of(setting, ("size", "wait"), "setting of the pool")
    if setting == "wait":
        _number(value, 0, LONGEST_WAIT_S, "the wait for a connection", "s")
    elif _number(value, 1, MOST_CONNECTIONS, "the size of the pool") % 1:
        raise UsageError("the size of the pool is a whole number.")


def _check_link(arguments: Sequence[str]) -> None:
    _count(arguments, 1, "link standby, or link primary")
    _one_of(arguments[0], WAYS, "way")


def _check_housekeeping(arguments: Sequence[str]) -> None:
    _count(arguments, 1, "housekeeping off, or housekeeping on")
    _one_of(arguments[0], SWITCHED, "state of the housekeeping")


def _check_programs(arguments: Sequence[str]) -> None:
    if not arguments:
        raise UsageError(f"name one or more of {', '.join(PROGRAMS)}.")
    for name in arguments:
        _one_of(name, PROGRAMS, "program of this session")


def _check_restart(arguments: Sequence[str]) -> None:
    if not arguments:
        raise UsageError(f"name one or more of {STOREFRONT}, {', '.join(PROGRAMS)}.")
    for name in arguments:
        _one_of(name, (STOREFRONT, *PROGRAMS), "part to restart")


def _check_limit(arguments: Sequence[str]) -> None:
    if len(arguments) < 2:
        raise UsageError("this lever is typed as limit PROGRAM... PERCENT.")
    _check_programs(arguments[:-1])
    _number(arguments[-1], LEAST_PERCENT, MOST_PERCENT, "the rate that is left", "%")
    if CHANGER in arguments:
        raise UsageError(f"{CHANGER} works when a change comes: it has no rate of its own to limit.")


def _check_batch(arguments: Sequence[str]) -> None:
    _count(arguments, 2, f"batch {CHANGER} KEYS")
    _one_of(arguments[0], (CHANGER,), "program that removes keys,")
    if _number(arguments[1], 1, LARGEST_BATCH, "the number of keys in a command") % 1:
        raise UsageError("the number of keys in a command is a whole number.")


def _check_leave(arguments: Sequence[str]) -> None:
    _count(arguments, 0, "leave, alone")


SETTINGS: dict[str, Callable[[str], object]] = {
    "maxmemory": lambda value: _number(value, *MEMORY_PERCENT, "maxmemory", "%"),
    "maxmemory-policy": lambda value: _one_of(value, POLICIES, "policy"),
    "slowlog-log-slower-than": lambda value: _number(value, 0, LONGEST_THRESHOLD_US, "the threshold in µs"),
    "lazyfree-lazy-user-del": lambda value: _one_of(value, ("yes", "no"), "value"),
}
"""Setting of the server that may be changed → what checks its value."""

LEVERS: dict[str, Lever] = {
    "kill": Lever("kill CLIENT", "close the connections with this name or address (look clients)", _check_kill),
    "strategy": Lever("strategy NAME", "let the storefront invalidate in another way", _check_strategy),
    "server": Lever(
        "server SETTING VALUE",
        f"change a setting of the server: {', '.join(SETTINGS)} (maxmemory in % of what it was, 50% to 200%)",
        _check_server,
    ),
    "pool": Lever(
        "pool size|wait N",
        "give the storefront's pool N connections, or let a command wait N seconds for one",
        _check_pool,
    ),
    "link": Lever("link standby|primary", "send what the storefront asks over the other way", _check_link),
    "housekeeping": Lever(
        "housekeeping off|on",
        "let the storefront do without what it does now and then beside the pages",
        _check_housekeeping,
    ),
    "stop": Lever("stop PROGRAM...", "stop programs of other teams", _check_programs),
    "limit": Lever(
        "limit PROGRAM... N%",
        f"let programs work at N % of their rate, {LEAST_PERCENT} to {MOST_PERCENT}",
        _check_limit,
    ),
    "batch": Lever(f"batch {CHANGER} N", "let it remove N keys with each command", _check_batch),
    "restart": Lever(
        "restart PART...",
        f"start the {STOREFRONT} or a program anew, also a stopped one; it is away for {RESTART_S:g} s",
        _check_restart,
    ),
    "leave": Lever("leave", "change nothing, as nothing is wrong; the scene is checked all the same", _check_leave),
}  # fmt: skip


def parse(words: Sequence[str]) -> Pull:
    """The lever that these words name. Raises `UsageError` when there is none, or for arguments it cannot take."""
    name, *arguments = words or ("",)
    if name not in LEVERS:
        near = difflib.get_close_matches(name, LEVERS, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no lever {name!r}.{hint} `bin/lab blind levers` lists them.")
    LEVERS[name].check(arguments)
    return Pull(name, tuple(arguments))


def limited(order: Order, share: float) -> Order:
    """The order of a program that works at this share of its rate.

    It works less often, or computes for that share of the time, or else uses fewer connections.
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
    """The levers of one scene, and the orders that are in force there."""

    def __init__(
        self, stack: LeverTarget, orders: Orders, later: Callable[[float, Callable[[], None]], Any] = _later
    ) -> None:
        """`orders` are those of the cause; `later` calls a function after some seconds."""
        self._stack = stack
        self._first = dict(orders)
        self.orders = dict(orders)
        self._later = later
        self._maxmemory = 0
        self._turn = threading.Lock()
        self._closed = False
        self._does: dict[str, Callable[[tuple[str, ...]], str]] = {
            "kill": self._kill,
            "strategy": self._strategy,
            "server": self._server,
            "pool": self._pool,
            "link": self._link,
            "housekeeping": self._housekeeping,
            "stop": self._stop,
            "limit": self._limit,
            "batch": self._batch,
            "restart": self._restart,
            "leave": lambda _: "nothing was changed.",
        }

    def pull(self, pull: Pull) -> str:
        """Pull the lever and say what was done.

        Raises `UsageError` when the lever does not fit the scene, `StackError` when a part does not answer; then
        nothing was changed.
        """
        return self._does[pull.lever](pull.arguments)

    def came_back(self, pull: Pull) -> str:
        """Say that a client that was killed is connected again; empty for other levers, and if it is not."""
        if pull.lever != "kill":
            return ""
        with contextlib.suppress(StackError):
            if any(row["name"] == pull.arguments[0] for row in self._clients()):
                return f" {pull.arguments[0]} has connected again."
        return ""

    def close(self) -> None:
        """Send no order any more: the scene ends."""
        with self._turn:
            self._closed = True

    def _order(self, name: str, order: Order) -> None:
        self.orders[name] = order
        self._stack.order(name, order)

    def _client(self) -> Any:
        return redis.Redis.from_url(
            self._stack.server.url, protocol=2, driver_info=None, socket_timeout=30, decode_responses=True,
            encoding_errors="replace",
        )  # fmt: skip

    def _clients(self) -> list[dict[str, str]]:
        with contextlib.closing(self._client()) as client:
            try:
                return list(client.client_list())
            except redis.RedisError as error:
                raise StackError(f"the server does not answer CLIENT LIST: {error}") from None

    def _kill(self, arguments: tuple[str, ...]) -> str:
        [wanted] = arguments
        found = [row for row in self._clients() if wanted in (row.get("name"), row.get("addr"))]
        if not found:
            raise UsageError(
                f"there is no connection {wanted!r} now: `bin/lab blind look clients` lists them."
            )
        for row in found:
            if row.get("name") not in PROGRAMS:
                raise UsageError(
                    f"{wanted} is somebody else's connection, and stays open: this lever closes those of "
                    f"{', '.join(PROGRAMS)}."
                )
        with contextlib.closing(self._client()) as client:
            for row in found:
                try:
                    client.client_kill_filter(_id=row["id"])
                except redis.ResponseError as error:
                    if "no such client" not in str(error).lower():  # it has gone by itself
                        raise UsageError(f"the server refuses CLIENT KILL: {error}.") from None
                except redis.RedisError as error:
                    raise StackError(f"the server does not answer CLIENT KILL: {error}") from None
        return f"closed {len(found)} connections of {found[0]['name']}."

    def _strategy(self, arguments: tuple[str, ...]) -> str:
        [name] = arguments
        now = self._stack.web.ask("GET", "/settings/invalidation")
        _one_of(name, tuple(now["strategies"]), "strategy")
        self._stack.web.use(name, now["scan_count"])
        return f"the storefront's strategy was {now['strategy']}, and is {name}."

    def _server(self, arguments: tuple[str, ...]) -> str:
        setting, value = arguments
        if setting == "maxmemory":
            self._maxmemory = self._maxmemory or self._stack.server.maxmemory()
            value = str(round(self._maxmemory * float(value.removesuffix("%")) / 100))
        # The end of the session puts it back.
        with contextlib.closing(Line(self._stack.server.url)) as line:
            carry_out(line, ["CONFIG", "SET", setting, value], write=True)
        return f"the server's {setting} is {value}."

    def _pool(self, arguments: tuple[str, ...]) -> str:
        setting, value = arguments
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

    def _link(self, arguments: tuple[str, ...]) -> str:
        [way] = arguments
        self._order(LINK, WELL[LINK] if way == "standby" else self._first[LINK])
        return f"the storefront reaches the server over the {way} way."

    def _housekeeping(self, arguments: tuple[str, ...]) -> str:
        [state] = arguments
        of_work = ("sum_s", "every_s")
        order = {name: value for name, value in self.orders[WEB].items() if name not in of_work}
        if state == "on":
            order |= {name: value for name, value in self._first[WEB].items() if name in of_work}
        self._order(WEB, order)
        return f"the storefront's housekeeping is {state}."

    def _stop(self, arguments: tuple[str, ...]) -> str:
        for name in arguments:
            self._order(name, RESTING)
        return f"stopped: {', '.join(arguments)}."

    def _limit(self, arguments: tuple[str, ...]) -> str:
        *names, percent = arguments
        for name in names:
            self._order(name, limited(self._first[name], float(percent.removesuffix("%")) / 100))
        return f"at {percent.removesuffix('%')} % of the rate: {', '.join(names)}."

    def _batch(self, arguments: tuple[str, ...]) -> str:
        name, keys = arguments
        self._order(name, {**prices("changes"), "batch": int(float(keys))})
        return f"{name} removes {keys} keys with each command."

    def _restart(self, arguments: tuple[str, ...]) -> str:
        parts = [WEB if name == STOREFRONT else name for name in arguments]
        for part in parts:
            if part != WEB and self.orders[part] == RESTING:
                self.orders[part] = self._first[part]
            self._stack.order(part, WELL[WEB] if part == WEB else RESTING)

        def come_back() -> None:
            with self._turn:
                for part in [] if self._closed else parts:
                    self._stack.order(part, self.orders[part])

        self._later(RESTART_S, come_back)
        return f"started anew: {', '.join(arguments)}."

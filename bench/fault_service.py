"""What the fault matrix asks of a storefront and of its state, whether its parts are processes or containers."""

from __future__ import annotations

import json
import re
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from lab.errors import StackError

READY_S = 20.0
REQUEST_S = 12.0
"""A read of a frozen server takes up to two times `APP_STORE_TIMEOUT_SECONDS` (5 s) before the storefront gives up."""
WARM_KEYS = 2_000
METRIC = re.compile(r"^(\w+)(?:\{[^}]*outcome=\"(\w+)\"[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


def ask(
    method: str, url: str, body: Any = None, seconds: float = REQUEST_S
) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own: status, headers, body. Raises OSError if there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), b""
    except (OSError, ValueError, EOFError) as error:
        raise OSError(str(error)) from error
    except Exception as error:  # http.client's errors about half an answer are no OSError
        raise OSError(repr(error)) from error


def wait_for(what: str, check: Callable[[], object], seconds: float = READY_S) -> None:
    """Wait until `check` is true. Raises `StackError` with `what` if it is not within `seconds`."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise StackError(f"{what} after {seconds:g} s.")
        time.sleep(0.03)


class AnyScene(Protocol):
    """What a cell needs of a scene, whether its parts are processes or containers.

    `notes`: what a fault counted; `given_up`: users whose events went with a state folder, at the moment `corrupt_from`
    (monotonic seconds).
    """

    notes: dict[str, int]
    given_up: set[int]
    corrupt_from: float

    @property
    def base(self) -> str:
        """The storefront's address at this moment."""
        ...

    @property
    def has_alarms(self) -> bool:
        """True if something watches the scene: alert rules, the health checks of containers."""
        ...

    def alarms(self) -> list[str]:
        """Alerts that fire and containers that are unhealthy, by name."""
        ...

    def status(self, path: str, seconds: float = REQUEST_S) -> int:
        """The status of a GET from the storefront; 0 if there is no answer."""
        ...

    def metrics(self) -> dict[str, float]:
        """What the invalidator says. Raises OSError if it does not answer."""
        ...

    def outbox(self) -> set[int]:
        """Users of the accepted events that are not handled. Raises sqlite3.Error."""
        ...

    def tracebacks(self) -> int:
        """The number of tracebacks in the logs."""
        ...

    def use(self, strategy: str) -> None:
        """Switch the strategy. Raises OSError if the storefront does not answer or refuses."""
        ...

    def prepare(self, strategy: str) -> None:
        """Empty the server, switch to the strategy, and fill it with entries of other users."""
        ...


def status_of(url: str, seconds: float) -> int:
    """The status of a GET; 0 if there is no answer."""
    try:
        return ask("GET", url, seconds=seconds)[0]
    except OSError:
        return 0


def users_in_outbox(database: Path) -> set[int]:
    """Users of the events in a state database. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=2)) as opened:
        return {int(row[0]) for row in opened.execute("SELECT user FROM outbox")}


def numbers_on(page: str) -> dict[str, float]:
    """The numbers of a page of metrics: metric (and the outcome behind it, if it has one) → the sum of its values."""
    found: dict[str, float] = {}
    for name, outcome, value in METRIC.findall(page):
        key = f"{name} {outcome}".strip()
        found[key] = found.get(key, 0.0) + float(value)
    return found


def switch(base: str, strategy: str) -> None:
    """Switch a storefront's strategy. Raises OSError if it does not answer or refuses."""
    status, _, _ = ask("PUT", f"{base}/settings/invalidation", {"strategy": strategy}, 6.0)
    if status != 200:
        raise OSError(f"the switch to {strategy} was answered with {status}")


def warm(base: str) -> None:
    """Let the warmer fill `WARM_KEYS` entries, and wait for it. Raises `StackError` if it takes too long."""
    ask("PUT", f"{base}/settings/warming", {"target_keys": WARM_KEYS, "restart": True})

    def filled() -> bool:
        told = json.loads(ask("GET", f"{base}/settings/warming")[2])
        return bool(told["state"] == "idle" and told["keys"] >= WARM_KEYS)

    wait_for("the warmer has not filled the server", filled)

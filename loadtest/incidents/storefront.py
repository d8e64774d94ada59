"""A client of the storefront's HTTP interface, over one kept connection, for the loads of single incidents."""

from __future__ import annotations

import http.client
import json
from argparse import ArgumentTypeError
from dataclasses import dataclass
from time import monotonic, sleep
from urllib.parse import urlsplit

from loadtest.arguments import Ending, option
from loadtest.resp import ANSWER_S, ConnectionLost, LoadFailed

ASK_SECONDS = 0.01
HIT, MISS = "shop; hit", "shop; fwd=miss"


def address(text: str) -> tuple[str, int]:
    """Parse an http:// URL; returns host and port."""
    parts = urlsplit(text)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port or parts.path.strip("/"):
        raise ArgumentTypeError(f"not an http://host:port address: {text}")
    return parts.hostname, port


@dataclass(frozen=True, kw_only=True)
class StorefrontPlan(Ending):
    """The options of every load that asks a storefront."""

    storefront: tuple[str, int] = option("the storefront's base URL: http://127.0.0.1:8000", address)


class Storefront:
    """A connection to the storefront. Methods raise `LoadFailed` for a refusal, `ConnectionLost` if it is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._name, self._where = f"the storefront at {host}:{port}", (host, port)
        self._line = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        self._cache_status = ""

    def another(self) -> Storefront:
        """Another connection to the same storefront."""
        return Storefront(*self._where)

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Send a request; returns the JSON answer."""
        text = None if body is None else json.dumps(body)
        try:
            self._line.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._line.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ConnectionLost(f"{self._name} does not answer {method} {path}: {error}") from None
        if answer.status >= 400 or not isinstance(content, dict):
            detail = content.get("detail", "") if isinstance(content, dict) else content
            raise LoadFailed(f"{self._name} refuses {method} {path}: {detail}")
        self._cache_status = answer.getheader("Cache-Status", "")
        return content

    def cached(self, user: int, name: str, cost_ms: int | None = None) -> bool:
        """Read a fragment; returns whether it came from the cache. After a miss the storefront has put it there.

        `cost_ms`: how long the storefront computes it after a miss; None for the usual time.
        """
        cost = "" if cost_ms is None else f"?miss_cost_ms={cost_ms}"
        self.ask("GET", f"/users/{user}/fragments/{name}{cost}")
        if self._cache_status not in (HIT, MISS):
            raise LoadFailed(
                f"{self._name} cannot use its server ({self._cache_status or 'no Cache-Status'})"
            )
        return self._cache_status == HIT

    def send_event(self, user: int) -> object:
        """Send an order event; returns the event's number. The event is then accepted, not yet done."""
        return self.ask("POST", f"/users/{user}/events", {"type": "order"})["event"]

    def await_end(self, user: int, event: object) -> None:
        """Wait until the event is done, asking every `ASK_SECONDS`. Raises `LoadFailed` after `ANSWER_S`."""
        end = monotonic() + ANSWER_S
        while self.ask("GET", f"/users/{user}/events/{event}")["state"] != "done":
            if monotonic() > end:
                raise LoadFailed(f"event {event} is not done after {ANSWER_S:g} s")
            sleep(ASK_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

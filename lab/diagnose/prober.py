"""An open-loop probe that asks only what a diagnosis may ask: PING and GET of a key that nobody has, in turn.

Request i is due at start + (i + u) / rate, at a random moment u of its slot: even spacing falls into step with what is
periodic in the server, and then never meets it. Its wait counts from then, whether or not earlier replies came. While a
reply is out nothing more is sent: a server that stalls is not handed a burst afterwards. A request that became due
meanwhile would have stood in the same queue, so it is counted as having waited until that reply came, and is not sent.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from lab.address import Address
from lab.diagnose.questions import ABSENT, Gone, Questions, Refused

COMMANDS = (("GET", ABSENT), ("PING",))
SEED = 7
LAST_REPLY_S = 2.0
"""For the reply that is out when the look ends."""


@dataclass(frozen=True)
class Probed:
    """One request. `due_s`: since the probe began; `waited_s`: to its reply; `sent`: whether it was sent.

    The wait of a request that was sent counts from its sending: nothing was out then, so if it was sent after it was
    due, this process was late by itself (`lag_s`), which is not the server's doing.
    """

    due_s: float
    waited_s: float
    lag_s: float = 0.0
    sent: bool = True


class Prober(threading.Thread):
    """Asks until it is stopped. `probed` grows; `lost` says why it ended before, if it did."""

    def __init__(self, address: Address, per_second: float) -> None:
        """Connects, and raises `Gone` or `Refused` where that or one of the commands is not possible."""
        super().__init__(daemon=True, name="prober")
        self._every = 1 / per_second
        self._questions = Questions(address, per_second=None)
        self._commands = [words for words in COMMANDS if self._may(words)]
        if not self._commands:
            raise Refused("neither PING nor GET is allowed")
        self.probed: list[Probed] = []
        self.lost: Gone | None = None
        self._ended = threading.Event()
        self._began = 0.0
        self._out_since: float | None = None

    def _may(self, words: tuple[str, ...]) -> bool:
        time.sleep(self._every)
        try:
            self._questions.ask(*words)
        except Refused:
            return False
        return True

    @property
    def sent(self) -> dict[str, int]:
        """How often it sent what."""
        return dict(self._questions.sent)

    def run(self) -> None:
        """Ask on schedule."""
        began, number = time.monotonic() + self._every, 0
        self._began = began
        moment = random.Random(SEED).random
        due = began + moment() * self._every
        try:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                self._out_since = at = time.monotonic()
                self._questions.ask(*self._commands[number % len(self._commands)])
                now = time.monotonic()
                self._out_since = None
                self.probed.append(Probed(due - began, now - at, at - due))
                while True:
                    number += 1
                    due = began + (number + moment()) * self._every
                    if due >= now:
                        break
                    self.probed.append(Probed(due - began, now - due, sent=False))
        except Gone as error:
            if not self._ended.is_set():  # `stop` closes the connection under a reply that is still out
                self.lost = error
        except Refused as error:
            self.lost = Gone(f"the server no longer answers PING and GET: {error}")

    def stop(self) -> None:
        """End. A request that is still out has waited until now, and counts so."""
        self._ended.set()
        self.join(LAST_REPLY_S)
        if (since := self._out_since) is not None:
            self.probed.append(Probed(since - self._began, time.monotonic() - since))
        self._questions.close()

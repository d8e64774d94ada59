"""An open-loop probe that sends only commands allowed to a diagnosis: PING and GET of an absent key, in turn.

Request i is due at start + (i + u) / rate, at a random moment u of its slot: with even spacing the requests could fall
into step with periodic work of the server, and never meet it. The schedule goes on whether or not earlier replies
came. While a reply is outstanding nothing more is sent, so a server that stalls gets no burst afterwards. A request
that becomes due in that time is not sent. It would have stood in the same queue, so it counts as having waited from
its due time until that reply came.
"""

from __future__ import annotations

import math
import random
import threading
import time

from lab.diagnose.questions import ABSENT, Gone, Late, Questions, Refused
from lab.server.address import Address
from lab.server.window import Probed

COMMANDS = (("GET", ABSENT), ("PING",))
SEED = 7
LAST_REPLY_S = 2.0
"""Seconds to wait at the end for an outstanding reply."""


class Prober(threading.Thread):
    """Sends requests until stopped, and collects them in `probed`. `lost` is the error that ended it early, if any.

    `began`: the moment (monotonic) from which `Probed.due_s` counts. `refused`: the commands that it leaves out, each
    with the reason.
    """

    def __init__(self, address: Address, per_second: float, until: float = math.inf) -> None:
        """Connect. Raises `Gone` when that is not possible, `Refused` when neither PING nor GET is allowed.

        `until`: the moment (monotonic) until which replies to the first PING and GET are waited for. One without a
        reply until then counts as allowed.
        """
        super().__init__(daemon=True, name="prober")
        self._every = 1 / per_second
        self._questions = Questions(address, per_second=None)
        self._questions.connect()
        self._questions.until = until
        self.refused: list[str] = []
        self._commands = [words for words in COMMANDS if self._is_allowed(words)]
        self._questions.until = math.inf
        if not self._commands:
            raise Refused("neither PING nor GET is allowed")
        self.probed: list[Probed] = []
        self.lost: Gone | None = None
        self._ended = threading.Event()
        self.began = 0.0
        self._outstanding_since: float | None = None

    def _is_allowed(self, words: tuple[str, ...]) -> bool:
        time.sleep(self._every)
        try:
            self._questions.ask(*words)
        except Late:
            return True
        except Refused as error:
            self.refused.append(f"{words[0]}: {error}")
            return False
        return True

    @property
    def sent(self) -> dict[str, int]:
        """Number of times that each command was sent."""
        return dict(self._questions.sent)

    def run(self) -> None:
        """Send requests on schedule until stopped."""
        began, number = time.monotonic() + self._every, 0
        self.began = began
        moment = random.Random(SEED).random
        due = began + moment() * self._every
        try:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                self._outstanding_since = at = time.monotonic()
                self._questions.ask(*self._commands[number % len(self._commands)])
                now = time.monotonic()
                self._outstanding_since = None
                self.probed.append(Probed(due - began, now - at, at - due))
                while True:
                    number += 1
                    due = began + (number + moment()) * self._every
                    if due >= now:
                        break
                    self.probed.append(Probed(due - began, now - due, sent=False))
        except Gone as error:
            if not self._ended.is_set():  # `stop` closes the connection while a reply is outstanding
                self.lost = error
        except Refused as error:
            self.lost = Gone(f"the server no longer answers PING and GET: {error}")

    def stop(self) -> None:
        """Stop. A request without a reply counts as having waited until now, and so do those that became due since."""
        self._ended.set()
        self.join(LAST_REPLY_S)
        if (since := self._outstanding_since) is not None:
            now = time.monotonic()
            self.probed.append(Probed(since - self.began, now - since))
            for number in range(1, math.ceil((now - since) / self._every)):
                due = since + number * self._every
                self.probed.append(Probed(due - self.began, now - due, sent=False))
        self._questions.close()

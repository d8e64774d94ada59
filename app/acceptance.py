"""Accepts a storefront's events, checks that it still can, and counts those that a corrupt state database lost.

The outbox is in the state database. An event that cannot be written there is refused, so a full or read-only state
folder loses none. The events in the outbox of a corrupt database are lost, and cannot be counted any more. But
there were no more than at the last count of the outbox, plus those accepted since.
"""

import logging
import math
import threading
import time

from app.state import State, StateError

TRY_EVERY_S = 1.0
"""The least time between two attempts to write, however often readiness is checked."""


class Acceptance:
    """Accepts the events of one storefront process. Thread-safe. Methods raise `StateError` if the state fails.

    Once the database was found corrupt, no event is accepted any more: an operator has to put it aside, and restart.
    Only one process may accept events in a state folder: `at_most_lost` does not know those of another.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._next_try = 0.0
        self._refusal: StateError | None = None
        self._unhandled = float("nan")
        self._lost = 0.0

    def accept(self, user: int, kind: str, traceparent: str | None) -> int:
        """Accept an event and return its id."""
        with self._lock:
            if self._refusal is not None and self._refusal.corrupt:
                raise self._refusal_again()
        # Not under the lock: another process may hold the database for seconds; `check` and `pending` do not wait then.
        try:
            number = self._state.add_event(user, kind, traceparent)
        except StateError as error:
            with self._lock:
                self._refuse(error)
            raise
        with self._lock:
            self._unhandled += 1
        return number

    def check(self) -> None:
        """Raise `StateError` if no event can be accepted at present.

        Writes at most once in `TRY_EVERY_S`. Between two attempts, and while another process holds the lock of the
        database, the last attempt stands, or an event that was refused since.
        """
        with self._lock:
            self._try()
            if self._refusal is not None:
                raise self._refusal_again()

    def pending(self) -> float:
        """Return the number of accepted events that are not finished."""
        with self._lock:
            try:
                self._unhandled = self._state.pending()
            except StateError as error:
                self._refuse(error)
                raise
            return self._unhandled

    def at_most_lost(self) -> float:
        """Return an upper bound of the accepted events lost with a corrupt database; 0 if it is not corrupt.

        NaN if it was corrupt before this process first read it.
        """
        return self._lost

    def _try(self) -> None:
        if time.monotonic() < self._next_try or (self._refusal is not None and self._refusal.corrupt):
            return
        try:
            self._state.ping()
            pending = self._state.try_event()
            if pending is not None:
                self._unhandled, self._refusal = pending, None
        except StateError as error:
            self._refuse(error)
        self._next_try = time.monotonic() + TRY_EVERY_S

    def _refuse(self, error: StateError) -> None:
        if self._refusal is not None and self._refusal.corrupt:
            return
        self._refusal = error
        if error.corrupt:
            self._lost = self._unhandled
            lost = "unknown" if math.isnan(self._lost) else f"{self._lost:.0f} at most"
            logging.getLogger("web").error(
                "no event is accepted any more; lost with the outbox: %s. %s", lost, error
            )

    def _refusal_again(self) -> StateError:
        """The last refusal, to be raised once more."""
        assert self._refusal is not None
        return StateError(str(self._refusal), self._refusal.corrupt)

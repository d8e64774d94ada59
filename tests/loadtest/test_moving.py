"""Moving over to fresh connections, and the schedule's options, against a server made for the purpose."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from loadtest.probe.openloop import due_times


class OnlyTheFirst:
    """Answers everything on its first connection; accepts further connections and never serves them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                connection, _ = self.listener.accept()
                self.accepted.append(connection)
                if len(self.accepted) == 1:
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except OSError:
            return

    def _serve(self, connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(b"+OK\r\n" * data.count(b"*"))

    def close(self) -> None:
        """Close everything."""
        for one in [self.listener, *self.accepted]:
            one.close()


@pytest.fixture
def only_the_first() -> Iterator[OnlyTheFirst]:
    """A server that serves only its first connection."""
    server = OnlyTheFirst()
    yield server
    server.close()


def test_a_connection_takes_over_only_when_it_is_served(
    only_the_first: OnlyTheFirst, start_probe: Any
) -> None:
    """A fresh connection that the server has not served yet gets no request: they stay on the former connection."""
    lines = start_probe("--url", only_the_first.url, "--reconnect-seconds", "0.3", "--duration", "1.5").end(
        None
    )

    assert len(only_the_first.accepted) > 1
    assert sum(line["received"] for line in lines) == sum(line["sent"] for line in lines) == 300
    assert sum(line["errors"] for line in lines) == 0


def test_intervals_end_on_the_wall_clock(only_the_first: OnlyTheFirst, start_probe: Any) -> None:
    """Whole intervals end at multiples of their length, so that those of two probes coincide."""
    words = ("--interval-seconds", "0.25", "--duration", "1.6", "--rate", "50")
    lines = start_probe("--url", only_the_first.url, *words).end(None)

    ends = [line["t"] % 0.25 for line in lines[:-1]]
    assert len(ends) >= 5
    assert all(min(end, 0.25 - end) < 0.06 for end in ends)


def test_jitter_keeps_the_rate(only_the_first: OnlyTheFirst, start_probe: Any) -> None:
    """Jittered arrivals are as many as even ones, and all are answered."""
    words = ("--arrivals", "jittered", "--seed", "7", "--duration", "1", "--rate", "100")
    lines = start_probe("--url", only_the_first.url, *words).end(None)

    assert sum(line["sent"] for line in lines) == 100
    assert sum(line["received"] for line in lines) == 100


def test_jitter_spreads_requests_over_their_slots() -> None:
    """The same seed gives the same times, another seed others, and each time lies in its own slot."""
    first, again, other = (list(due_times(1000, 100.0, seed, 50)) for seed in (1, 1, 2))

    assert first == again != other
    slot = 1_000_000_000 / 100.0
    assert all(1000 + i * slot - 1 <= due < 1000 + (i + 1) * slot for i, due in enumerate(first))
    assert list(due_times(1000, 100.0, None, 3)) == [1000, 1000 + int(slot), 1000 + int(2 * slot)]

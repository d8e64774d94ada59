"""N clients at once, each walking the whole keyspace with SCAN, over and over: what does a COUNT cost?

`python -m loadtest.incidents.iterations --url redis://127.0.0.1:6379 --count 1000 --concurrent 4` prints one JSON line
as it begins and one a second (t, calls, visited, iterations, longest_call_ms: so far), and a last one that holds the
`figures`:

    count, concurrent       as given on the command line
    calls_per_s             SCAN calls a second, of all clients together
    visited_per_s           keys that came back a second. Nothing is filtered, so these are the keys that the server
                            visited, whatever COUNT means to it: a measure of work that compares servers
    keys_per_call           mean number of keys that came back in a call
    iterations              full iterations that were finished
    iteration_s             median time of an iteration. If fewer iterations than clients were finished: what one would
                            take at the pace so far (time x clients x keys / keys visited)
    mean_call_ms, longest_call_ms
                            from send to reply, as this client saw them
    longest_in_iteration_ms the longest call of a finished iteration, the median over all of them: a single moment in
                            which something else held up this machine does not decide it. With no iteration finished:
                            longest_call_ms

Each client sends its next call when the reply has come (closed loop), over a connection of its own. It rests for
--rest-ms after each iteration (0), and for --rest-between after each call (0), as a share of that call's time: 1 is as
long as the call. The system lets it rest for whole milliseconds: a rest that was too long shortens the next ones, so
that they add up. `--command ping` is for controls, in which nothing is walked: an iteration is then a few PINGs,
whatever COUNT is.
"""

from __future__ import annotations

import math
import selectors
import statistics
import sys
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from time import monotonic, time
from time import perf_counter_ns as clock

import hiredis

from loadtest.arguments import ServerPlan, number, option
from loadtest.incidents.crowd_model import allow_files
from loadtest.process import Stop, run_load, say
from loadtest.resp import LoadFailed, Server, Stream, ask, command, connect

MOST_CLIENTS = 5_000
READ_BYTES = 1024 * 1024
TURN_S = 0.25
SPARE_FILES = 64
LATEST = 100_000
"""Number of the latest iterations over which medians are taken."""
MOST_SLACK_NS = 2_000_000
"""The most by which earlier rests that were too long shorten the next ones: a stall of the machine is no rest."""
PINGS = 10
"""PINGs of an iteration in a control."""


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the load: clients, COUNT, rests, duration."""

    count: int = option("COUNT of each call", number(1, 10**9, int), 10)
    concurrent: int = option("clients that iterate at once", number(1, MOST_CLIENTS, int), 1)
    command: str = option("ping: for controls, nothing is walked", default="scan", choices=("scan", "ping"))
    rest_ms: float = option("rest of a client after each iteration, in ms", number(0, 60_000), 0.0)
    rest_between: float = option(
        "rest of a client after each call, as a share of the call's time",
        number(0, 1_000),
        0.0,
        metavar="SHARE",
    )
    seconds: float = option("seconds until the load ends", number(0.1, 86_400), 3_600.0)


class Client(Stream):
    """A client: its connection, and the figures of its iteration under way. Times in ns.

    `calls`: 0 where an iteration begins. `cursor`: where it goes on. `owed`: for how long it still has to rest; below 0
    where it has rested too long.
    """

    def __init__(self, server: Server) -> None:
        """Connect and sign in. Raises `LoadFailed` or `ConnectionLost`."""
        super().__init__(connect(server), READ_BYTES)
        self.began = self.sent = self.calls = self.longest = self.owed = self.resting_since = 0
        self.cursor = b""

    def call(self, request: bytes) -> None:
        """Send a call, and note when."""
        self.sent = clock()
        self.send(request)


class Iterations:
    """All clients, in one loop."""

    def __init__(self, plan: Plan) -> None:
        allow_files(plan.concurrent + SPARE_FILES)
        with connect(plan.server) as line:
            self._keys = max(1, int(str(ask(line, command("DBSIZE"))[0])))
        self._plan, self._pings = plan, plan.command == "ping"
        self._rest_ns = round(plan.rest_ms * 1e6)
        self._nominal = PINGS if self._pings else math.ceil(self._keys / plan.count)
        clients = [Client(plan.server) for _ in range(plan.concurrent)]
        self._clients = {client.fd: client for client in clients}
        self.calls = self.visited = self.iterations = 0
        self._call_ns = self._longest = 0
        self._took_each = deque[int](maxlen=LATEST)
        self._longest_each = deque[int](maxlen=LATEST)
        self._resting: list[tuple[int, int]] = []  # a heap: when a rest ends, and its client's fd
        self._began = 0

    def run(self, stop: Stop) -> dict[str, float]:
        """Iterate until it is time to end; returns the figures."""
        selector = selectors.DefaultSelector()
        end, due = monotonic() + self._plan.seconds, monotonic() + 1.0
        self._began = clock()
        for client in self._clients.values():
            selector.register(client.fd, selectors.EVENT_READ)
            self._go_on(client)
        say(self._progress())
        while not stop.requested and monotonic() < end:
            for key, _ in selector.select(self._until_one_has_rested()):
                client = self._clients[key.fd]
                for reply in client.receive():
                    self._take(client, reply)
            if monotonic() >= due:
                due += 1.0
                say(self._progress())
        figures = self._figures()
        for client in self._clients.values():
            client.close()
        return figures

    def _until_one_has_rested(self) -> float:
        """Restart clients whose rest is over; returns how long the next one still rests, in s (`TURN_S` at most)."""
        now = clock()
        while self._resting and self._resting[0][0] <= now:
            client = self._clients[heappop(self._resting)[1]]
            client.owed = max(client.owed - (now - client.resting_since), -MOST_SLACK_NS)
            self._go_on(client)
        return min(TURN_S, (self._resting[0][0] - now) / 1e9) if self._resting else TURN_S

    def _go_on(self, client: Client) -> None:
        """Send a client's next call, or the first of a new iteration."""
        if not client.calls:
            client.began, client.longest, client.cursor = clock(), 0, b"0"
        client.call(
            command("PING") if self._pings else command("SCAN", client.cursor, "COUNT", self._plan.count)
        )

    def _take(self, client: Client, reply: object) -> None:
        now = clock()
        took = now - client.sent
        self.calls += 1
        self._call_ns += took
        client.calls += 1
        client.longest = max(client.longest, took)
        self._longest = max(self._longest, took)
        if isinstance(reply, hiredis.ReplyError):
            raise LoadFailed(f"the server refuses: {reply}")
        if self._pings:
            over = client.calls >= self._nominal
        elif isinstance(reply, list):
            client.cursor, over = reply[0], reply[0] == b"0"
            self.visited += len(reply[1])
        else:
            raise LoadFailed(f"that is no reply to SCAN: {reply!r}")
        client.owed += round(self._plan.rest_between * took)
        if over:
            self.iterations += 1
            self._took_each.append(now - client.began)
            self._longest_each.append(client.longest)
            client.owed += self._rest_ns
            client.calls = 0
        if client.owed > 0:
            client.resting_since = now
            heappush(self._resting, (now + client.owed, client.fd))
        else:
            self._go_on(client)

    def _progress(self) -> dict[str, object]:
        return {
            "t": time(),
            "calls": self.calls,
            "visited": self.visited,
            "iterations": self.iterations,
            "longest_call_ms": self._longest / 1e6,
        }

    def _iteration_s(self, elapsed: int) -> float:
        clients = len(self._clients)
        if self.iterations >= clients:
            return statistics.median(self._took_each) / 1e9
        done = self.calls / self._nominal if self._pings else self.visited / self._keys
        return elapsed / 1e9 * clients / done if done else 0.0

    def _figures(self) -> dict[str, float]:
        elapsed = clock() - self._began
        figures = {
            "count": self._plan.count,
            "concurrent": len(self._clients),
            "calls_per_s": self.calls / elapsed * 1e9,
            "visited_per_s": self.visited / elapsed * 1e9,
            "keys_per_call": self.visited / max(1, self.calls),
            "iterations": self.iterations,
            "iteration_s": self._iteration_s(elapsed),
            "mean_call_ms": self._call_ns / max(1, self.calls) / 1e6,
            "longest_call_ms": self._longest / 1e6,
            "longest_in_iteration_ms": statistics.median(self._longest_each or [self._longest]) / 1e6,
        }
        # People read these lines, too: more digits than were measured are noise.
        return {
            name: float(f"{value:.5g}") if isinstance(value, float) else value
            for name, value in figures.items()
        }


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Connect and iterate; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    return Iterations(plan).run(stop)


if __name__ == "__main__":
    sys.exit(run_load("iterations", __doc__, Plan, work))

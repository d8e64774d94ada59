"""Deletes many keys by several methods, and measures the keys a second of each.

`python -m loadtest.incidents.deletes --url redis://127.0.0.1:6379 --keys 100000` prints a JSON line for each
measurement (t, round, way, chunk, deleted, seconds, keys_per_s), and a last one that holds the `figures`:

    WAY_keys_per_s      keys deleted a second in the best of the rounds (a disturbance only makes a round longer)
    WAY_s               seconds to delete all keys of a round, the best again
    WAY_gain_x          WAY_keys_per_s / one_by_one_keys_per_s, where both were measured
    keys_per_s          the same as WAY_keys_per_s, where only one way was asked for
    round_trip_ms       median round trip of a PING on the connection that deletes: the effect of --rtt-ms
    rounds, keys, one_by_one_keys

Ways (all by the same client, a blocking socket with hiredis; a chunk is sent, all of its replies are awaited, then the
next):

    one_by_one          DEL key, wait for the reply, DEL the next
    pipelined           as many DELs as a chunk holds, one behind the other, then their replies
    transaction         the same between MULTI and EXEC, the default of pipelines in many clients
    variadic            UNLINK key key key ..., as many as a chunk holds

Each measurement writes keys of its own first (200-byte values, on a direct connection) and deletes them all. With
--rtt-ms the deletions go through a relay (`loadtest.incidents.delay`) that models latency and nothing else. When its
end is requested, it removes its keys.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic, perf_counter, time

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.process import Stop, run_load, say
from loadtest.resp import LoadFailed, Server, ask, command, connect

METHODS = ("one_by_one", "pipelined", "transaction", "variadic")
MOST_KEYS = 10_000_000
WRITE_CHUNK = 1_000
VALUE = "d" * 200
KEY_TTL_SECONDS = 3600
PINGS = 50


def parse_methods(text: str) -> tuple[str, ...]:
    """Parse names of methods with commas between them."""
    found = tuple(text.split(","))
    for method in found:
        if method not in METHODS:
            raise ArgumentTypeError(f"no such way: {method} (there are {', '.join(METHODS)})")
    return found


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the load: keys, methods, rounds."""

    ways: tuple[str, ...] = option(
        f"ways to delete, with commas: {', '.join(METHODS)}",
        parse_methods,
        ("one_by_one", "pipelined", "variadic"),
    )
    keys: int = option("keys to delete in each round", number(1, MOST_KEYS, int), 100_000)
    one_by_one_keys: int = option(
        "keys for one_by_one, which needs a round trip for each", number(1, MOST_KEYS, int), 10_000
    )
    chunk: int = option("keys in one chunk; 0: all", number(0, MOST_KEYS, int), 0)
    rtt_ms: float = option("round-trip time to add, in ms; 0: direct", number(0, 1_000), 0.0)
    rounds: int = option("least number of rounds", number(1, 10_000, int), 3)
    seconds: float = option("least number of seconds", number(0, 86_400), 0.0)
    prefix: str = option("own keys are PREFIX:0, PREFIX:1 ...", word, "deletes")


def requests(method: str, keys: list[str]) -> list[bytes]:
    """The commands that delete a chunk of keys."""
    if method == "variadic":
        return [command("UNLINK", *keys)]
    deletes = [command("DEL", key) for key in keys]
    return [command("MULTI"), *deletes, command("EXEC")] if method == "transaction" else deletes


def deleted(method: str, replies: list[object]) -> int:
    """Number of keys deleted, from the replies to `requests`. Raises `LoadFailed` if EXEC did nothing."""
    counts = replies[-1] if method == "transaction" else replies
    if not isinstance(counts, list):
        raise LoadFailed(f"EXEC did nothing: {counts}")
    return sum(count for count in counts if isinstance(count, int))


@contextlib.contextmanager
def delayed(server: Server, rtt_ms: float) -> Iterator[Server]:
    """The server behind a relay with that round-trip time; if it is 0, the server itself."""
    if not rtt_ms:
        yield server
        return
    words = [sys.executable, "-m", "loadtest.incidents.delay", "--rtt-ms", str(rtt_ms), "--until-stdin-ends"]
    address = f"redis://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    words += ["--url", address]  # without a password: the relay does not sign in
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relay:
        assert relay.stdin is not None
        assert relay.stdout is not None
        try:
            line = relay.stdout.readline()
            if not line:
                raise LoadFailed("the relay for --rtt-ms (loadtest.incidents.delay) did not start")
            yield replace(server, host="127.0.0.1", port=int(json.loads(line)["port"]))
        finally:
            relay.stdin.close()  # at the end of its stdin it ends


class Deletes:
    """Measures all methods, round after round."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rates: dict[str, list[float]] = {method: [] for method in plan.ways}
        self._times: dict[str, list[float]] = {method: [] for method in plan.ways}

    def run(self, stop: Stop) -> dict[str, float]:
        """Run at least as many rounds as planned, for at least as many seconds; returns the figures."""
        plan = self._plan
        with (
            delayed(plan.server, plan.rtt_ms) as delayed_server,
            connect(plan.server) as direct,
            connect(delayed_server) as line,
        ):
            trips = []
            for _ in range(PINGS):
                began = perf_counter()
                ask(line, command("PING"))
                trips.append(perf_counter() - began)
            end, rounds_done = monotonic() + plan.seconds, 0
            while not stop.requested and (rounds_done < plan.rounds or monotonic() < end):
                rounds_done += 1
                for method in plan.ways:
                    self._measure(method, rounds_done, direct, line, stop)
                    if stop.requested:
                        break
        return self._figures(rounds_done, statistics.median(trips))

    def _measure(
        self, method: str, round_number: int, direct: socket.socket, line: socket.socket, stop: Stop
    ) -> None:
        plan = self._plan
        count = plan.one_by_one_keys if method == "one_by_one" else plan.keys
        keys = [f"{plan.prefix}:{index}" for index in range(count)]
        chunk = 1 if method == "one_by_one" else plan.chunk or count
        for start in range(0, count, WRITE_CHUNK):
            part = keys[start : start + WRITE_CHUNK]
            ask(direct, *(command("SET", key, VALUE, "EX", KEY_TTL_SECONDS) for key in part))
        removed, began = 0, perf_counter()
        for start in range(0, count, chunk):
            removed += deleted(method, ask(line, *requests(method, keys[start : start + chunk])))
            if stop.requested:
                break
        took = perf_counter() - began
        if stop.requested:  # a measurement that was broken off does not count
            self._remove(keys, direct)
            return
        if removed != count:
            raise LoadFailed(f"only {removed} of {count} keys were there to be deleted")
        self._rates[method].append(removed / took)
        self._times[method].append(took)
        say(
            {
                "t": time(),
                "round": round_number,
                "way": method,
                "chunk": chunk,
                "deleted": removed,
                "seconds": took,
                "keys_per_s": removed / took,
            }
        )

    @staticmethod
    def _remove(keys: list[str], direct: socket.socket) -> None:
        for start in range(0, len(keys), WRITE_CHUNK):
            ask(direct, command("UNLINK", *keys[start : start + WRITE_CHUNK]))

    def _figures(self, rounds: int, round_trip_s: float) -> dict[str, float]:
        figures: dict[str, float] = {
            "rounds": rounds,
            "keys": self._plan.keys,
            "one_by_one_keys": self._plan.one_by_one_keys,
            "round_trip_ms": round_trip_s * 1000,
        }
        rates = {method: max(values) for method, values in self._rates.items() if values}
        for method, rate in rates.items():
            figures[f"{method}_keys_per_s"] = rate
            figures[f"{method}_s"] = min(self._times[method])
            if method != "one_by_one" and "one_by_one" in rates:
                figures[f"{method}_gain_x"] = rate / rates["one_by_one"]
        if len(rates) == 1:
            figures["keys_per_s"] = next(iter(rates.values()))
        return figures


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Measure all methods; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    return Deletes(plan).run(stop)


if __name__ == "__main__":
    sys.exit(run_load("deletes", __doc__, Plan, work))

"""Bystanders: as many GETs as the server can answer.

`python -m loadtest.incidents.bystanders --url redis://127.0.0.1:6379 --prefix mine` keeps `--connections` connections
busy with pipelines of `--pipeline` GETs (closed loop) of `--keys` keys of its own, PREFIX:bystander:000000000000 and so
on, which it writes before and removes afterwards. All keys exist. Each connection waits for its pipeline's replies
before it sends the next pipeline.

The throughput is read from the server's command statistics. The last line of output holds the `figures`:
bystander_connections and bystander_pipeline.
"""

from __future__ import annotations

import selectors
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.process import Stop, run_load, say
from loadtest.resp import ConnectionLost, LoadFailed, ask, command, connect

VALUE_BYTES = 200
"""The same size as the storefront's entries."""
CHECK_EVERY_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """How many GETs are on their way, and of which keys."""

    connections: int = option("connections kept busy", number(1, 500, int), 4)
    pipeline: int = option("GETs sent together", number(1, 1_000, int), 16)
    keys: int = option("own keys to GET", number(1, 100_000, int), 1_000)
    prefix: str = option("prefix of its own keys", word, "lab")
    seconds: float = option("seconds until the load ends", number(0.1, 86_400), 3_600.0)

    @property
    def names(self) -> list[str]:
        """The names of its keys."""
        return [f"{self.prefix}:bystander:{index:012d}" for index in range(self.keys)]


def press(plan: Plan, stop: Stop) -> dict[str, float]:
    """Write the keys, keep the load up, and remove them; return the figures. Raises `LoadFailed`, `ConnectionLost`."""
    life = int(plan.seconds) + 60
    with connect(plan.server) as line:
        ask(line, *(command("SET", name, "b" * VALUE_BYTES, "EX", life) for name in plan.names))
    try:
        keep_up(plan, stop)
    finally:
        with connect(plan.server) as line:
            ask(line, command("UNLINK", *plan.names))
    return {
        "bystander_connections": plan.connections,
        "bystander_pipeline": plan.pipeline,
    }


def keep_up(plan: Plan, stop: Stop) -> None:
    """Send pipelines of GETs until it is time to end. Raises `LoadFailed`, `ConnectionLost`.

    Every reply has the same length, so nothing is parsed: a pipeline is answered when all its bytes have come.
    """
    names, pipeline = plan.names, plan.pipeline
    batches = [
        b"".join(command("GET", names[(at + i) % plan.keys]) for i in range(pipeline))
        for at in range(0, plan.keys, pipeline)
    ]
    head = b"$%d\r\n" % VALUE_BYTES
    whole = pipeline * (len(head) + VALUE_BYTES + 2)
    end = time.monotonic() + plan.seconds
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        made = [opened.enter_context(connect(plan.server)) for _ in range(plan.connections)]
        lines = {line.fileno(): line for line in made}
        left, turn = dict.fromkeys(lines, whole), 0
        for fd, line in lines.items():
            selector.register(fd, selectors.EVENT_READ)
            line.sendall(batches[0])
        say({"note": f"bystander load: {plan.connections} connections, pipeline {pipeline}"})
        while not stop.requested and time.monotonic() < end:
            for fd in (key.fd for key, _ in selector.select(CHECK_EVERY_S)):
                data = lines[fd].recv(left[fd])
                if not data:
                    raise ConnectionLost("the server closed the connection")
                if left[fd] == whole and not data.startswith(head[: len(data)]):
                    raise LoadFailed(f"the server refuses: {data[:80].decode(errors='replace').strip()}")
                left[fd] -= len(data)
                if left[fd] == 0:
                    turn += 1
                    left[fd] = whole
                    lines[fd].sendall(batches[turn % len(batches)])


if __name__ == "__main__":
    sys.exit(run_load("bystanders", __doc__, Plan, press))

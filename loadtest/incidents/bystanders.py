"""Bystanders: as many GETs as the server can answer.

`python -m loadtest.incidents.bystanders --url redis://127.0.0.1:6379 --prefix mine` keeps `--connections` connections
busy with pipelines of `--pipeline` GETs (closed loop) of `--keys` keys of its own, PREFIX:bystander:000000000000 and so
on, which it writes before and removes afterwards. All keys exist. Each connection waits for its pipeline's replies
before it sends the next pipeline. `--processes` processes share the connections.

The throughput is read from the server's command statistics. The last line of output holds the `figures`:
bystander_connections and bystander_pipeline.
"""

from __future__ import annotations

import multiprocessing
import selectors
import signal
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.process import Stop, run_load, say
from loadtest.resp import ConnectionLost, LoadFailed, ask, command, connect

VALUE_BYTES = 200
"""The same size as the storefront's entries."""
CHECK_EVERY_S = 0.05
ENDING_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the load: connections, pipeline, keys, processes."""

    connections: int = option("connections kept busy", number(1, 500, int), 4)
    pipeline: int = option("GETs sent together", number(1, 1_000, int), 16)
    keys: int = option("own keys to GET", number(1, 100_000, int), 1_000)
    prefix: str = option("prefix of its own keys", word, "lab")
    processes: int = option("processes that send", number(1, 16, int), 2)
    seconds: float = option("seconds until the load ends", number(0.1, 86_400), 3_600.0)

    @property
    def names(self) -> list[str]:
        """The names of its keys."""
        return [f"{self.prefix}:bystander:{index:012d}" for index in range(self.keys)]


class Generator:
    """Processes of the lab, each with its share of the connections."""

    def __init__(self, plan: Plan) -> None:
        context, processes = multiprocessing.get_context("spawn"), min(plan.processes, plan.connections)
        shares = [len(range(i, plan.connections, processes)) for i in range(processes)]
        self._sending, self._awaited = context.Semaphore(0), processes
        self._processes: list[BaseProcess] = [
            context.Process(
                target=generate, args=(replace(plan, connections=share), self._sending), daemon=True
            )
            for share in shares
        ]
        for process in self._processes:
            process.start()

    def all_send(self) -> bool:
        """Return True once every process has sent its first GETs: a process takes up to a second to start."""
        while self._awaited and self._sending.acquire(block=False):
            self._awaited -= 1
        return not self._awaited

    def failure(self) -> str | None:
        """Return why a process ended by itself, or None while all go on."""
        ended = [process for process in self._processes if process.exitcode not in (None, -signal.SIGTERM)]
        return f"a process of the generator ended (exit code {ended[0].exitcode})" if ended else None

    def end(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(ENDING_S)


def generate(plan: Plan, sending: Semaphore) -> None:
    """Send pipelines of GETs until the process is ended, or shortly after it should have been.

    `sending` is released after the first pipelines.

    A failure ends the process with exit code 3.

    Every reply has the same length, so nothing is parsed: a pipeline is answered when all its bytes have come.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    names, pipeline = plan.names, plan.pipeline
    batches = [
        b"".join(command("GET", names[(at + i) % plan.keys]) for i in range(pipeline))
        for at in range(0, plan.keys, pipeline)
    ]
    head = b"$%d\r\n" % VALUE_BYTES
    reply_bytes = pipeline * (len(head) + VALUE_BYTES + 2)
    end = time.monotonic() + plan.seconds + ENDING_S
    try:
        opened = [connect(plan.server) for _ in range(plan.connections)]
        lines = {line.fileno(): line for line in opened}
        selector = selectors.DefaultSelector()
        left, turn = dict.fromkeys(lines, reply_bytes), 0
        for fd, line in lines.items():
            selector.register(fd, selectors.EVENT_READ)
            line.sendall(batches[0])
        sending.release()
        while time.monotonic() < end:
            for fd in (key.fd for key, _ in selector.select(CHECK_EVERY_S)):
                data = lines[fd].recv(left[fd])
                if not data:
                    raise ConnectionLost("the server closed the connection")
                if left[fd] == reply_bytes and not data.startswith(head[: len(data)]):
                    raise LoadFailed(f"the server refuses: {data[:80].decode(errors='replace').strip()}")
                left[fd] -= len(data)
                if left[fd] == 0:
                    turn += 1
                    left[fd] = reply_bytes
                    lines[fd].sendall(batches[turn % len(batches)])
    except (OSError, ConnectionLost, LoadFailed) as error:
        print(f"bystanders: {error}", file=sys.stderr, flush=True)
        sys.exit(3)


def press(plan: Plan, stop: Stop) -> dict[str, float]:
    """Write the keys, keep the load up, and remove them; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
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
    """Let the processes send until it is time to end; the first line is printed when all send.

    Raises `LoadFailed` if a process ends before.
    """
    generator, ready = Generator(plan), False
    end = time.monotonic() + plan.seconds
    try:
        while not stop.requested and time.monotonic() < end:
            if (failure := generator.failure()) and not stop.requested:
                raise LoadFailed(failure)
            if not ready and (ready := generator.all_send()):
                say({"note": f"bystander load: {plan.connections} connections, pipeline {plan.pipeline}"})
            time.sleep(CHECK_EVERY_S)
    finally:
        generator.end()


if __name__ == "__main__":
    sys.exit(run_load("bystanders", __doc__, Plan, press))

"""Bystanders: as many GETs as the server can answer, sent by redis-benchmark where that is installed.

`python -m loadtest.incidents.bystanders --url redis://127.0.0.1:6379 --prefix mine` keeps `--connections` connections
busy with pipelines of `--pipeline` GETs (closed loop) of `--keys` keys of its own, PREFIX:bystander:000000000000 and so
on, which it writes before and removes afterwards. redis-benchmark makes the load if it is on PATH. In three cases
`--processes` processes of the lab send the same instead: without redis-benchmark, with `--tool own`, and if the server
has a password, which redis-benchmark would show in the process list.

The throughput is read from the server's command statistics, so that it does not depend on the tool. The first line of
output names the tool, under ``note``; the last one holds the `figures`: bystander_connections, bystander_pipeline, and
redis_benchmark (1, or 0 for the lab's own processes).

(All keys exist. Each connection waits for its pipeline's replies before it sends the next pipeline.)
"""

from __future__ import annotations

import multiprocessing
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Protocol

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.process import Stop, run_load, say
from loadtest.resp import ConnectionLost, LoadFailed, Server, ask, command, connect

TOOL = "redis-benchmark"
VALUE_BYTES = 200
"""The same size as the storefront's entries."""
MOST_PER_SECOND = 5_000_000
"""More GETs a second than a server of one thread reaches: bounds the tool's requests in case it is never ended."""
CHECK_EVERY_S = 0.05
ENDING_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """How many GETs are on their way, of which keys, and who sends them."""

    connections: int = option("connections kept busy", number(1, 500, int), 4)
    pipeline: int = option("GETs sent together", number(1, 1_000, int), 16)
    keys: int = option("own keys to GET", number(1, 100_000, int), 1_000)
    prefix: str = option("prefix of its own keys", word, "lab")
    tool: str = option("own: never redis-benchmark", default="auto", choices=("auto", "own"))
    processes: int = option("processes of the lab's own generator", number(1, 16, int), 2)
    seconds: float = option("seconds until the load ends", number(0.1, 86_400), 3_600.0)

    @property
    def names(self) -> list[str]:
        """The names of its keys."""
        return [f"{self.prefix}:bystander:{index:012d}" for index in range(self.keys)]

    @property
    def uses_benchmark(self) -> bool:
        """True if redis-benchmark makes the load."""
        return self.tool == "auto" and not self.server.password and shutil.which(TOOL) is not None


class Tool(Protocol):
    """What makes the load."""

    def failure(self) -> str | None:
        """Why the load ended, or None while it goes on."""
        ...

    def end(self) -> None:
        """End the load."""
        ...


class Benchmark:
    """redis-benchmark, which runs until it is ended."""

    def __init__(self, plan: Plan) -> None:
        server, most = plan.server, int(min(2**31 - 1, plan.seconds * MOST_PER_SECOND))
        words = [TOOL, "-h", server.host, "-p", str(server.port), "--dbnum", str(server.database), "--csv"]
        words += ["-c", str(plan.connections), "-P", str(plan.pipeline), "-r", str(plan.keys)]
        words += ["-n", str(most), "GET", f"{plan.prefix}:bystander:__rand_int__"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def failure(self) -> str | None:
        """See `Tool`. An end by SIGTERM or SIGINT is no failure: the signal was meant for this process, too."""
        code = self._process.poll()
        if code is None or code in (-signal.SIGTERM, -signal.SIGINT):
            return None
        said = self._process.communicate()[0].decode(errors="replace").strip()
        return f"{TOOL} ended (exit code {code}): {said.rpartition(chr(10))[2]}"

    def end(self) -> None:
        """See `Tool`."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.communicate()


class Generator:
    """Processes of the lab, each with its share of the connections."""

    def __init__(self, plan: Plan) -> None:
        context, processes = multiprocessing.get_context("spawn"), min(plan.processes, plan.connections)
        shares = [len(range(i, plan.connections, processes)) for i in range(processes)]
        self._processes: list[BaseProcess] = [
            context.Process(target=generate, args=(replace(plan, connections=share),), daemon=True)
            for share in shares
        ]
        for process in self._processes:
            process.start()

    def failure(self) -> str | None:
        """See `Tool`."""
        ended = [process for process in self._processes if process.exitcode not in (None, -signal.SIGTERM)]
        return f"a process of the generator ended (exit code {ended[0].exitcode})" if ended else None

    def end(self) -> None:
        """See `Tool`."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(ENDING_S)


def generate(plan: Plan) -> None:
    """Send pipelines of GETs until the process is ended, or shortly after it should have been.

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
    whole = pipeline * (len(head) + VALUE_BYTES + 2)
    end = time.monotonic() + plan.seconds + ENDING_S
    try:
        opened = [connect(plan.server) for _ in range(plan.connections)]
        lines = {line.fileno(): line for line in opened}
        selector = selectors.DefaultSelector()
        left, turn = dict.fromkeys(lines, whole), 0
        for fd, line in lines.items():
            selector.register(fd, selectors.EVENT_READ)
            line.sendall(batches[0])
        while time.monotonic() < end:
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
    except (OSError, ConnectionLost, LoadFailed) as error:
        print(f"bystanders: {error}", file=sys.stderr, flush=True)
        sys.exit(3)


class Presence:
    """An idle connection that shows when the server is gone.

    redis-benchmark does not always notice: if the server goes while the tool's connections are being made, the tool
    loops for ever without a message (version 7.0, in 13 of 60 trials).
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connect()

    def _connect(self) -> None:
        self._line = connect(self._server)
        self._line.setblocking(False)

    def check(self) -> None:
        """Raise `ConnectionLost` if the server is gone. If it has only closed the idle connection, open a new one."""
        try:
            gone = not self._line.recv(1)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        if gone:
            self.close()
            self._connect()

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def version_of_tool() -> str:
    """The tool's own name and version, for the note."""
    done = subprocess.run([TOOL, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.partition("(")[0].strip() or TOOL


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
        "redis_benchmark": float(plan.uses_benchmark),
    }


def keep_up(plan: Plan, stop: Stop) -> None:
    """Let the tool send until it is time to end. Raises `LoadFailed`, `ConnectionLost`."""
    presence = Presence(plan.server)
    tool: Tool = Benchmark(plan) if plan.uses_benchmark else Generator(plan)
    what = version_of_tool() if plan.uses_benchmark else "a pipelined generator of the lab's own"
    say({"note": f"bystander load: {what}, {plan.connections} connections, pipeline {plan.pipeline}"})
    end = time.monotonic() + plan.seconds
    try:
        while not stop.requested and time.monotonic() < end:
            time.sleep(CHECK_EVERY_S)
            if (failure := tool.failure()) and not stop.requested:
                raise LoadFailed(failure)
            if not stop.requested:
                presence.check()
    finally:
        presence.close()
        tool.end()


if __name__ == "__main__":
    sys.exit(run_load("bystanders", __doc__, Plan, press))

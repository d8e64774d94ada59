"""`bin/lab probe`: shows how long a bystander of a server waits, second by second, at a fixed rate of requests.

It is the open-loop probe of the runs (`loadtest.probe`), with a table in place of JSON lines. The rows show this
machine's time, and the head the difference of the server's clock: the server may be on another machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lab import ROOT
from lab.errors import Interrupted, StackError, UsageError
from lab.foreign_text import shown
from lab.results import numbers
from lab.results.probe_line import read_probe_line
from lab.server import inside
from lab.server.processes import Child
from lab.server.servers import ADDRESS, IN_COMPOSE, SERVERS, scene_url
from loadtest.histogram import Histogram
from loadtest.probe import clocks
from loadtest.resp import ConnectionLost, LoadFailed, Server, connect

LATE_US = 1000
"""A request sent more than this after it was due is late: the probe or the machine held it up, not the server."""
PREFIX = "latency-lab:probe"
COLUMNS = (("sent", 7), ("on time", 8), ("late", 6), ("failed", 7), ("answered", 9))
WAITS = ("p50", "p99", "max")
SHORT = 0.75
"""An interval shorter than this share of a whole one is a remainder, and not comparable with the others."""


@dataclass(frozen=True)
class ProbeRow:
    """The requests of an interval, and their latencies in milliseconds, each from the moment the request was due.

    `sent` = `on_time` + `late`. `answered` is the number of samples behind the three latencies; a reply counts in the
    interval in which it came. `oldest_ms`: the wait of the oldest unanswered request at the end. `seconds`: the
    interval's length.
    """

    clock: str
    sent: int
    on_time: int
    late: int
    failed: int
    answered: int
    p50: float | None
    p99: float | None
    max: float | None
    oldest_ms: float
    seconds: float = 0.0

    def line(self, every: float = 0.0) -> str:
        """Return the row as a line of the table. A row that covers much less than `every` seconds says so."""
        cells = [f"{self.clock:<9}"]
        figures = asdict(self)
        cells += [f"{figures[name.replace(' ', '_')]:>{width},}" for name, width in COLUMNS]
        cells += [f"{numbers.ms(figures[name]):>9}" for name in WAITS]
        waits = f"  the oldest waits for {numbers.ms(self.oldest_ms)}" if self.oldest_ms > 1000 else ""
        part = f"  the last {self.seconds:.1f} s only" if self.seconds < SHORT * every else ""
        return " ".join(cells) + waits + part


HEADING = " ".join(
    [f"{'time':<9}", *(f"{name:>{width}}" for name, width in COLUMNS), *(f"{name:>9}" for name in WAITS)]
)


class ProbeTotals:
    """Intervals of the probe, added up."""

    def __init__(self) -> None:
        self.intended, self.lag = Histogram(), Histogram()
        self.failed = 0
        self.error = ""

    def row(self, clock: str, oldest_us: float = 0.0) -> ProbeRow:
        """Return the sum of all intervals as a row."""
        late = sum(count for value, count in self.lag.buckets() if value > LATE_US)
        found = self.intended
        top = max(found.counts, default=None)
        waits = (
            [found.percentile(50), found.percentile(99), found.buckets()[-1][0]] if top is not None else []
        )
        p50, p99, most = (each / 1000 for each in waits) if waits else (None, None, None)
        sent = self.lag.total
        return ProbeRow(
            clock, sent, sent - late, late, self.failed, found.total, p50, p99, most, oldest_us / 1000
        )

    def add(self, line: dict[str, Any]) -> None:
        """Add one interval: a line that the probe printed."""
        self.intended.add(Histogram.decode(line["intended"]))
        self.lag.add(Histogram.decode(line["lag"]))
        self.failed += int(line["errors"])
        self.error = line["last_error"] or self.error


def add_interval(found: dict[str, Any], total: ProbeTotals) -> ProbeRow:
    """Add an interval, a line of the probe, to `total`. Returns the interval's row."""
    one = ProbeTotals()
    one.add(found)
    total.add(found)
    row = one.row(time.strftime("%H:%M:%S", time.localtime(found["t"])), found["oldest_in_flight_us"])
    return replace(row, seconds=found["interval_s"])


@dataclass(frozen=True)
class ClockComparison:
    """The server's clock minus this machine's, in ms, ± `within_ms`; else the reason why it is unknown (`why`)."""

    ahead_ms: float | None = None
    within_ms: float | None = None
    why: str | None = None

    def __str__(self) -> str:
        if self.ahead_ms is None or self.within_ms is None:
            return f"the clocks could not be compared: {self.why}"
        if abs(self.ahead_ms) <= self.within_ms:
            most = numbers.ms(abs(self.ahead_ms) + self.within_ms)
            return f"the server's clock and this machine's differ by {most} at most"
        side = "ahead of" if self.ahead_ms > 0 else "behind"
        return (
            f"the server's clock is {numbers.ms(abs(self.ahead_ms))} {side} this machine's, "
            f"± {numbers.ms(self.within_ms)}"
        )


def compare_clocks(server: Server) -> ClockComparison:
    """Compare the server's clock with this machine's. Returns the result, or the reason why there is none."""
    try:
        found = clocks.compare(server)
    except (ConnectionLost, LoadFailed) as error:
        return ClockComparison(why=str(error))
    return ClockComparison(round(found.ahead_s * 1000, 4), round(found.within_s * 1000, 4))


def resolve_server(server: str | None) -> tuple[str, str]:
    """Return the server's URL, and the address to show. Raises `LabError` if none is named or it cannot be reached.

    A server of the compose stack is named by its service: then this command goes on in the container `lab`.
    """
    if server in {each.name for each in IN_COMPOSE}:
        if not inside.is_inside():
            inside.enter(sys.argv[1:])
        server = scene_url(SERVERS[server]).removesuffix("/0")
    url = server or os.environ.get(ADDRESS, "")
    if not url:
        raise UsageError(
            "name a server, as in bin/lab probe redis://127.0.0.1:6379, or start a scene in another terminal."
        )
    try:
        where = Server.from_url(url)
    except ValueError as error:
        raise UsageError(f"{str(error).partition(': ')[0]}. TLS and sockets: bin/lab diagnose.") from None
    try:
        connect(where).close()
    except (ConnectionLost, LoadFailed) as error:
        raise StackError(f"no probe was started: {error}.") from None
    return url, str(where)


@contextmanager
def running_probe(server: str | None, words: list[str]) -> Iterator[tuple[Child, str, ClockComparison]]:
    """Run a probe during the block. Yields the process, the server's address, and the comparison of the clocks.

    Raises `LabError` as `resolve_server`.
    """
    url, where = resolve_server(server)
    clock = compare_clocks(Server.from_url(url))
    with tempfile.TemporaryDirectory(prefix="latency-lab-") as folder:
        child = Child(
            "probe",
            [sys.executable, "-m", "loadtest.probe", *words, "--until-stdin-ends"],
            Path(folder) / "probe.log",
            env={ADDRESS: url},
            cwd=ROOT,
            pipe=True,
            stdin_open=True,
        )
        try:
            yield child, where, clock
        finally:
            child.stop()


def probe(
    server: Annotated[
        str | None,
        typer.Argument(
            help=f"redis://[user:password@]host:port, or a server of the compose stack by name; else {ADDRESS}, or "
            "that of the scene that runs.",
            metavar="[URL]",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds to send requests for.", min=1, max=86_400)] = 30.0,
    every: Annotated[float, typer.Option(help="Seconds that a row covers.", min=0.1, max=60)] = 1.0,
    rate: Annotated[float, typer.Option(help="Requests a second.", min=1, max=20_000)] = 200.0,
    connections: Annotated[int, typer.Option(help="Connections, used in turn.", min=1, max=500)] = 1,
    reconnect: Annotated[
        float | None, typer.Option(help="Seconds after which each connection is replaced.", min=0.05)
    ] = None,
    ping: Annotated[
        bool, typer.Option("--ping", help="Ask PING, which needs no key, in place of GET.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print rows and total as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Show how long a bystander of a server waits: GETs at an even rate, each timed from the moment it was due.

    It writes a hundred keys of its own (latency-lab:probe:*), which are gone after an hour; with --ping none. The head
    says how far the server's clock is from this machine's; the rows show this machine's time.
    """
    words = ["--rate", str(rate), "--connections", str(connections), "--duration", str(seconds)]
    words += ["--interval-seconds", str(min(every, seconds)), "--name", "by-hand", "--key-prefix", PREFIX]
    words += ["--command", "ping" if ping else "get", "--arrivals", "jittered"]
    words += ["--reconnect-seconds", str(reconnect)] if reconnect else []
    total, rows = ProbeTotals(), []
    interrupted = False
    with running_probe(server, words) as (child, where, clock):
        if not as_json:
            print(
                f"{where}: {rate:g} {'PING' if ping else 'GET'}s a second for {seconds:g} s\n"
                f"{clock}\n{HEADING}",
                flush=True,
            )
        while True:
            try:
                for line in child.lines():
                    if (found := read_probe_line(line)) is None:
                        continue
                    rows.append(add_interval(found, total))
                    if not as_json:
                        print(rows[-1].line(min(every, seconds)), flush=True)
                break
            except KeyboardInterrupt:
                interrupted = True
                child.finish()
        if child.exit_code():
            raise StackError(child.end_message())
    whole = replace(total.row("all"), seconds=sum(row.seconds for row in rows))
    if as_json:
        print(
            json.dumps(
                {
                    "server": where,
                    "clock": asdict(clock),
                    "rows": [asdict(row) for row in rows],
                    "total": asdict(whole),
                },
                indent=1,
            )
        )
    else:
        latest = numbers.ms(total.lag.buckets()[-1][0] / 1000) if whole.late else ""
        print(whole.line() + (f"  the latest left {latest} after it was due" if latest else ""))
        if total.error:
            print(f"the last failure: {shown(total.error)}")
    if interrupted:
        raise Interrupted("ended early; the figures cover the requests sent until then.")
    if not whole.answered:
        raise StackError(f"{where} gave no answer: {total.error or 'every request still waits'}.")

"""The examination of `bin/lab diagnose` on random scenes, so that no rule can be fitted to them.

    python -m bench.exam --scenes 300 --seed 1 --write

A scene is an activity on a server of its own, with the length of its calls, the share of the time that they take and
the number of clients drawn evenly on a logarithmic scale, and sometimes with a program that computes on one core. It is
*ill* if the p99 of a bystander, who is no part of the diagnosis, is at least five times its own before the activity
began, and 5 ms. An ill scene is right if the first cause that is named is one of the activity's. Any other scene is
right if no cause is named, but that the server is full where it is.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.exam_load import SIZED, UNSIZED
from bench.kit import ROOT, Evidence, OneLineParser, parse_names, server
from docs.pages.fromruns import table
from lab.diagnose.findings import answer_of, judge
from lab.diagnose.prober import Prober
from lab.diagnose.watch import watch
from lab.errors import LabError, StackError
from lab.server.address import read_address
from lab.server.processes import Child

RIGHT: dict[str, tuple[str, ...]] = {
    "scan": ("scan-storm",),
    "keys": ("keys-command",),
    **dict.fromkeys(("smembers", "hgetall", "lrange", "zrange", "sunionstore", "sort"), ("giant-index",)),
    "lrem": ("long-command",),
    "xrange": ("long-command",),
    "mget": ("many-at-once",),
    "script": ("lua-script",),
    "transaction": ("transaction",),
    "snapshots": ("fork",),
    "evictions": ("eviction-cycle",),
    "expiries": ("expiry-wave",),
    "connections": ("connection-storm",),
    "ordinary": ("saturated",),
    "blocked": (),
    "idle": (),
}
"""Activity → the causes that are right for it. `hot-big-key` is right as well where replies are what takes long."""
BIG_REPLIES = ("smembers", "hgetall", "lrange", "zrange", "xrange", "mget")
LENGTHS_MS, SHARES, CLIENTS = (1.0, 300.0), (0.02, 0.9), (1, 16)
NEIGHBOUR_SHARE = 0.15
"""Share of the scenes with another program that computes on one core."""
ILL_TIMES, ILL_MS = 5.0, 5.0
BEFORE_S, SETTLE_S, SECONDS = 3.0, 1.0, 10.0
READY_S = 60.0
COST_PER_S = 200.0
COMPUTES = "while True: sum(range(10_000))"


@dataclass(frozen=True)
class ExamRow:
    """A scene with its diagnosis, `said`. `beside`: another program computed.

    `before_ms`, `p99_ms`: p99 of the bystander without and with the activity.
    """

    activity: str
    server: str
    length_ms: float
    share: float
    clients: int
    beside: bool
    before_ms: float
    p99_ms: float
    busy: float
    said: str

    @property
    def ill(self) -> bool:
        """True if the bystander's p99 is far above its healthy one."""
        return self.p99_ms >= max(ILL_MS, ILL_TIMES * self.before_ms)

    @property
    def verdict(self) -> str:
        """right, other (a cause that is not there), silent (I cannot tell) or healthy (of an ill scene)."""
        right = (*RIGHT[self.activity], *(("hot-big-key",) if self.activity in BIG_REPLIES else ()))
        right += ("noisy-neighbour",) if self.beside else ()
        first = self.said.split(" + ")[0]
        if first in right or (first == "saturated" and self.busy >= 0.9):
            return "right"
        if first in ("nothing", "unknown"):
            return "right" if not self.ill else {"nothing": "healthy", "unknown": "silent"}[first]
        return "other"


def draw(dice: random.Random, servers: list[str]) -> tuple[str, str, float, float, int, bool]:
    """Activity, server, length of a call in ms, share of the time, clients, and whether a program computes beside."""

    def between(low: float, high: float) -> float:
        return math.exp(dice.uniform(math.log(low), math.log(high)))

    return (
        dice.choice([*SIZED, *UNSIZED]),
        dice.choice(servers),
        between(*LENGTHS_MS),
        between(*SHARES),
        round(between(*CLIENTS)),
        dice.random() < NEIGHBOUR_SHARE,
    )


class Bystander:
    """Asks on schedule, 50 times a second, apart from the diagnosis."""

    def __init__(self, url: str) -> None:
        self._prober = Prober(read_address(url, environ={}), 50.0)
        self._prober.start()

    def p99_ms(self) -> float:
        """p99 of the waits until now; ends it."""
        self._prober.stop()
        waits = sorted(1000 * each.waited_s for each in self._prober.probed)
        return waits[max(0, math.ceil(0.99 * len(waits)) - 1)] if waits else 0.0


def play(drawn: tuple[str, str, float, float, int, bool]) -> ExamRow:
    """Play a scene and diagnose it. Raises `LabError` if it cannot be started."""
    activity, product, length_ms, share, clients, beside = drawn
    with ExitStack() as stack:
        url = stack.enter_context(server(product))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        calm = Bystander(url)
        time.sleep(BEFORE_S)
        before_ms = calm.p99_ms()
        words = [
            sys.executable,
            "-m",
            "bench.exam_load",
            activity,
            url,
            str(length_ms),
            str(share),
            str(clients),
        ]
        load = Child("load", words, folder / "load.log", cwd=ROOT, pipe=True)
        stack.callback(load.stop)
        overdue = threading.Timer(READY_S, load.stop)
        overdue.start()
        ready = next(load.lines(), b"")
        overdue.cancel()
        if not ready:
            raise StackError(f"{activity} did not get ready within {READY_S:g} s")
        if beside:
            neighbour = Child("beside", [sys.executable, "-c", COMPUTES], folder / "beside.log")
            stack.callback(neighbour.stop)
        time.sleep(SETTLE_S)
        bystander = Bystander(url)
        window, _ = watch(read_address(url, environ={}), SECONDS)
        p99_ms = bystander.p99_ms()
        load.check()
        said = answer_of(judge(window))
        return ExamRow(
            activity, product, length_ms, share, clients, beside, before_ms, p99_ms, window.busy, said
        )


def cost(pairs: int) -> list[float]:
    """Ratio of a bystander's mean wait with a diagnosis to that without one, for pairs of neighbouring seconds.

    The server does ordinary work for half of the time. One diagnosis lasts the whole time, and is stopped and continued
    in turn.
    """
    with server("redis") as url, tempfile.TemporaryDirectory() as folder:
        words = ["-m", "bench.exam_load", "ordinary", url, "1", "0.5", "4"]
        load = Child("load", [sys.executable, *words], Path(folder) / "load.log", cwd=ROOT, pipe=True)
        looks = ["-m", "lab", "diagnose", url, "--seconds", str(2 * pairs + 60), "--json"]
        diagnosis = Child("diagnosis", [sys.executable, *looks], Path(folder) / "out.log", cwd=ROOT)
        try:
            next(load.lines())
            time.sleep(10 * SETTLE_S)  # starting Python takes a core
            prober = Prober(read_address(url, environ={}), COST_PER_S)
            prober.start()
            for number in range(2 * pairs):
                os.kill(diagnosis.pid, signal.SIGCONT if number % 4 in (0, 3) else signal.SIGSTOP)
                time.sleep(1.0)
            prober.stop()
        finally:
            os.kill(diagnosis.pid, signal.SIGCONT)
            diagnosis.stop()
            load.stop()
    seconds: list[list[float]] = [[] for _ in range(2 * pairs)]
    for each in prober.probed:
        if each.due_s < len(seconds):
            seconds[int(each.due_s)].append(each.waited_s)
    means = [statistics.fmean(waits) for waits in seconds]
    return [
        (one / neighbour if number % 2 == 0 else neighbour / one)
        for number, (one, neighbour) in enumerate(zip(means[::2], means[1::2], strict=True))
    ]


def score(records: dict[str, dict[str, list[dict[str, object]]]]) -> str:
    """The table of the page: for each activity the ill and the healthy scenes, and their diagnoses."""
    part = records["exam"]
    rows = [ExamRow(**each) for each in part["rows"]]  # type: ignore[arg-type] # as `asdict` wrote them
    lines = []
    for activity in [*RIGHT, "all"]:
        mine = [row for row in rows if activity in (row.activity, "all")]
        ill, healthy = [row for row in mine if row.ill], [row for row in mine if not row.ill]
        wrong = sorted({row.said for row in mine if row.verdict == "other"})
        counts = [
            sum(row.verdict == verdict for row in ill) for verdict in ("right", "other", "silent", "healthy")
        ]
        accused = sum(row.verdict == "other" for row in healthy)
        lines.append(
            [activity, str(len(ill)), *map(str, counts), str(len(healthy)), str(accused), ", ".join(wrong)]
        )
    heads = ["activity", "ill", "named first", "another cause", "cannot tell", "“nothing”", "not ill", "accused",
             "named wrongly"]  # fmt: skip
    return f"`{part['command']}` ({part['machine']}; {part['date']}):\n\n{table(heads, lines)}"


def price(records: dict[str, dict[str, float | str]]) -> str | None:
    """The sentence of the page on what a diagnosis costs; None where that was not measured yet."""
    if not (part := records.get("cost")):
        return None
    return (
        f"`{part['command']}` ({part['machine']}; {part['date']}): while a diagnosis goes on, a bystander of a server "
        f"that is half busy waits {part['ratio']:.3f} times as long in the mean ({part['low']:.3f} to "
        f"{part['high']:.3f}, the 95 % interval of {part['pairs']} pairs of seconds with and without it)."
    )


EVIDENCE = Evidence("docs/exam.json", {"docs/diagnose.md": {"exam": score, "cost": price}})


def main() -> int:
    """Hold the examination. Returns 0 if no scene has a cause that is not there, and no ill one is called healthy."""
    parser = OneLineParser(prog="bench.exam", description="The examination of bin/lab diagnose.")
    parser.add_argument("--scenes", type=int, default=300, help="number of scenes (300)")
    parser.add_argument("--seed", type=int, default=1, help="the scenes that are drawn (1)")
    parser.add_argument(
        "--only", action="append", choices=list(RIGHT), help="activity; may be repeated (all)"
    )
    parser.add_argument(
        "--servers",
        type=lambda text: parse_names(text, ("embedded", "redis"), "server"),
        default=["embedded", "redis"],
        help="servers, separated by commas (embedded,redis)",
    )
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the page's table")
    parser.add_argument(
        "--cost", type=int, metavar="PAIRS", help="only measure what a diagnosis costs a bystander"
    )
    options = parser.parse_args()
    if options.cost:
        logs = [math.log(each) for each in cost(options.cost)]
        mean, half = statistics.fmean(logs), 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = math.exp(mean - half), math.exp(mean + half)
        if options.write:
            EVIDENCE.keep("cost", "bench.exam", pairs=options.cost, ratio=math.exp(mean), low=low, high=high)
        print(
            f"a bystander's mean wait with a diagnosis: {math.exp(mean):.3f} times as long ({low:.3f} to {high:.3f})"
        )
        return 0
    dice, rows, failed = random.Random(options.seed), [], 0
    for number in range(1, options.scenes + 1):
        drawn = draw(dice, options.servers)
        if options.only and drawn[0] not in options.only:
            continue
        try:
            row = play(drawn)
        except LabError as error:
            failed += 1
            print(f"{number} {drawn}: {error}", flush=True)
            continue
        rows.append(row)
        print(
            f"{number} {row.activity} {row.server} {row.length_ms:.2f} ms {row.share:.2f} × {row.clients}"
            f"{' beside' if row.beside else ''}: p99 {row.before_ms:.1f} -> {row.p99_ms:.1f} ms, busy {row.busy:.0%}, "
            f"{'ill' if row.ill else 'well'}: {row.said}: {row.verdict}",
            flush=True,
        )
    if options.write:
        EVIDENCE.keep("exam", "bench.exam", rows=[asdict(row) for row in rows], failed=failed)
    ill = [row for row in rows if row.ill]
    bad = sum(row.verdict in ("other", "healthy") for row in rows)
    print(
        f"{sum(row.verdict == 'right' for row in ill)} of {len(ill)} ill scenes named, {bad} wrong, {failed} not held"
    )
    return 0 if rows and not bad and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

"""The examination of `bin/lab diagnose`: scenes whose cause it does not know. `make exam` makes the table of the docs.

    python -m bench.exam --times 3 --only scan-storm --write

First comes every cause of the blind sessions on a real scene, observed over the storefront's own way to the server,
without and with ordinary programs of other teams on that server. Then come loads that no session has, each on a server
of its own: healthy loads, two causes at once, causes outside the sessions, and three that none of the diagnosis's
causes explains, so that it has to say that it cannot tell. A row is right when the first named cause is the expected
one (with two causes: when both are named), or when none is named where none is expected.

`--write` keeps every row at once in docs/exam.json, and renews the table of docs/diagnose.md. The whole takes hours;
`--add` adds rows to those that are kept, so it can be held in parts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import redis

from bench.blind_trial import Trial
from bench.kit import ROOT, OneLineParser, server, typed, write_table
from docs.pages.fromruns import table
from lab.blind.causes import CAUSES
from lab.blind.scene import BlindStack
from lab.diagnose.findings import Judgement, answer_of, judge
from lab.diagnose.watch import watch
from lab.diagnose.window import LOOP_US
from lab.errors import LabError, UsageError
from lab.stacks.address import read_address
from lab.stacks.processes import Child

FILE, PAGE = ROOT / "docs/exam.json", ROOT / "docs/diagnose.md"
EXPECTED = {
    "idle": "nothing",
    "busy-30": "nothing",
    "busy-60": "nothing",
    "busy-80": "nothing",
    "many-at-once": "many-at-once",
    "full-sync": "full-sync",
    "slow-disk": "slow-disk",
    "two-at-once": "keys-command + lua-script",
    "bursts": "unknown",
    "held-back": "unknown",
    "paused": "unknown",
}
"""The right answer for each load without a session. See `right_answer`."""
NOT_THE_SERVERS: dict[str, tuple[str, ...]] = {
    "exhausted-pool": ("nothing",),
    "stalling-storefront": ("nothing",),
    "stalling-link": (),
}
"""What is right where the cause lies outside the server: `diagnose` sees the server only, and nothing is wrong with it.
Over a link that stalls now and then a bystander waits, and the server shows no reason: no answer. (A server whose
process is stopped would look the same.)"""
SETTLE_S = 6.0
PAUSE_S, PAUSED_EVERY_S = 0.15, 1.0


@dataclass(frozen=True)
class Row:
    """One diagnosis of one scene. `said`: the causes that were named, or nothing, or unknown.

    `others`: ordinary programs of other teams had an eighth of the server's time beside the scene's cause.
    """

    scene: str
    server: str
    expected: str
    said: str
    right: bool
    p99_ms: float
    busy: float
    others: bool = False


def is_right(expected: str, judgement: Judgement) -> bool:
    """True if the expected cause is named first, if both of two are named, or if none is where none is expected."""
    named = [each.cause.id for each in judgement.found]
    wanted = expected.split(" + ")
    if len(wanted) > 1:
        return set(wanted) <= set(named)
    return named[0] == expected if named else judgement.outcome == expected


def examine(scene: str, of: str, expected: str, url: str, seconds: float) -> Row:
    """Observe the server for that many seconds, and judge the diagnosis."""
    window, _ = watch(read_address(url, environ={}), seconds)
    judgement = judge(window)
    return Row(
        scene,
        of,
        expected,
        answer_of(judgement),
        is_right(expected, judgement),
        round(window.get_ms, 2),
        round(window.busy, 3),
    )


def session(cause: str, of: str, seconds: float, others: bool) -> Row:
    """A blind session, diagnosed over its storefront's way to the server."""
    found: list[Row] = []
    expected = " + ".join(NOT_THE_SERVERS.get(cause, (cause,))) or "unknown"
    with tempfile.TemporaryDirectory(prefix="lab-") as home:

        def inspect(trial: Trial) -> None:
            beside = loaded("others", trial.stack.server.url, Path(home)) if others else nullcontext()
            with beside:
                row = examine(cause, of, expected, trial.stack.link_url(), seconds)
            found.append(replace(row, others=others))

        Trial(
            CAUSES[cause],
            Path(home) / "session",
            looks=0,
            inspect=inspect,
            make=partial(BlindStack, server=of),
        ).run()
    return found[0]


@contextmanager
def loaded(name: str, url: str, folder: Path) -> Iterator[None]:
    """Run a load of `bench.exam_loads` in a process of its own. Enters after it has settled."""
    child = Child(
        "load", [sys.executable, "-m", "bench.exam_loads", name, url], folder / "load.log", cwd=ROOT
    )
    try:
        time.sleep(SETTLE_S)
        child.check()
        yield
    finally:
        child.stop()


@contextmanager
def paused(url: str) -> Iterator[None]:
    """Stop the server's process again and again (SIGSTOP, SIGCONT)."""
    client: redis.Redis = redis.Redis.from_url(url, protocol=2)
    pid = int(client.info("server")["process_id"])
    client.close()
    ended = threading.Event()

    def pause() -> None:
        while not ended.wait(PAUSED_EVERY_S - PAUSE_S):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=pause)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def right_answer(name: str, tells: Container[str]) -> str:
    """The right answer for a load on a server that tells these fields of INFO.

    Only the time that the main loop was held shows that writes wait for the disk. Redis before 7.2 does not tell it,
    so the diagnosis can know no cause there.
    """
    return "unknown" if name == "slow-disk" and LOOP_US not in tells else EXPECTED[name]


def plain(name: str, of: str, seconds: float) -> Row:
    """A load on a server of its own, diagnosed."""
    with server(of) as url, tempfile.TemporaryDirectory() as folder:
        client: redis.Redis = redis.Redis.from_url(url, protocol=2)
        expected = right_answer(name, client.info("all"))
        client.close()
        beside = paused(url) if name == "paused" else loaded(name, url, Path(folder))
        with beside:
            return examine(name, of, expected, url, seconds)


class Kept:
    """The file with the rows, written anew after each. Without a path nothing is kept."""

    def __init__(self, path: Path | None, seconds: float, add: bool) -> None:
        """`add`: keep the rows that are there. Raises `UsageError` if they were made otherwise."""
        self._path = path
        self._content: dict[str, Any] = {
            "cores": os.cpu_count(),
            "seconds": seconds,
            "sittings": [],
            "rows": [],
        }
        if path and add and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            for name in ("cores", "seconds"):
                if found.get(name) != self._content[name]:
                    raise UsageError(
                        f"{path} has rows with {name} {found.get(name)}, and here it is {self._content[name]}: leave "
                        "--add out to begin anew."
                    )
            self._content = found
        self._content["sittings"].append({"command": typed("bench.exam"), "date": str(date.today())})

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._content["rows"].append(asdict(row))
        if self._path:
            self._path.write_text(json.dumps(self._content, indent=1) + "\n", encoding="utf-8")

    def write_table(self, page: Path) -> None:
        """Renew the table of a page."""
        write_table(page, "exam", exam_table(self._content))


def exam_table(kept: dict[str, Any]) -> str:
    """A row for each scene and server: how many answers were right, and what was said otherwise."""
    scenes: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in kept["rows"]:
        scenes.setdefault((row["scene"], row["server"], row["expected"]), []).append(row)
    rows = []
    for names, sittings in scenes.items():
        wrong = sorted({row["said"] for row in sittings if not row["right"]})
        p99s = sorted(row["p99_ms"] for row in sittings)
        both = (_right([row for row in sittings if row["others"] is others]) for others in (False, True))
        rows.append([*names, *both, ", ".join(wrong), f"{p99s[len(p99s) // 2]:.1f}"])
    right = sum(row["right"] for row in kept["rows"])
    # Which scenes a sitting had is seen in the rows; the file has each command whole.
    commands = dict.fromkeys(each["command"].partition(" --")[0] for each in kept["sittings"])
    days = sorted(each["date"] for each in kept["sittings"])
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    parts = f", in {len(days)} parts" if len(days) > 1 else ""
    said = (
        f"`{', '.join(commands)}`{parts} ({when}) on {kept['cores']} cores, "
        f"{kept['seconds']:g} s of observation each: {right} of {len(kept['rows'])} right."
    )
    heads = [
        "scene",
        "server",
        "expected",
        "right",
        "right beside others",
        "said otherwise",
        "p99, ms (median)",
    ]
    return f"{said}\n\n{table(heads, rows)}"


def _right(rows: list[dict[str, Any]]) -> str:
    return f"{sum(row['right'] for row in rows)} of {len(rows)}" if rows else ""


def main() -> int:
    """Hold the examination; returns 0 when every scene was examined and all rows are right."""
    parser = OneLineParser(prog="bench.exam", description="The examination of bin/lab diagnose.")
    parser.add_argument("--times", type=int, default=3, help="times that each scene is diagnosed (3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds that a diagnosis observes (20)")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*CAUSES, *EXPECTED],
        help="scene to examine; may be repeated (all)",
    )
    parser.add_argument(
        "--servers",
        default="embedded,redis",
        help="servers for each scene, separated by commas (embedded,redis)",
    )
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the page's table")
    parser.add_argument("--add", action="store_true", help="keep the rows that are there")
    parser.add_argument(
        "--others",
        default="without,with",
        help="blind sessions without or with ordinary programs of other teams, separated by commas (without,with)",
    )
    asked = parser.parse_args()
    others = asked.others.split(",")
    if wrong := set(others) - {"without", "with"}:
        parser.error(f"--others knows without and with, not {min(wrong)!r}.")
    names = asked.only or [*CAUSES, *EXPECTED]
    try:
        kept = Kept(FILE if asked.write else None, asked.seconds, asked.add)
    except UsageError as error:
        parser.error(str(error))
    scenes: list[tuple[str, Callable[[], Row]]] = []
    for name in names:
        for of in asked.servers.split(","):
            if name in CAUSES:
                scenes += [
                    (name, partial(session, name, of, asked.seconds, each == "with")) for each in others
                ]
            else:
                scenes.append((name, partial(plain, name, of, asked.seconds)))
    rows: list[Row] = []
    failed = 0
    print(
        "| scene | server | expected | said | p99 ms | busy | right |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for _ in range(asked.times):
        for name, diagnose in scenes:
            try:
                row = diagnose()
            except (LabError, subprocess.SubprocessError) as error:
                print(f"| {name} | {error} |", flush=True)
                failed += 1
                continue
            rows.append(row)
            kept.add(row)
            if asked.write:
                kept.write_table(PAGE)
            print(
                f"| {row.scene} | {row.server} | {row.expected} | {row.said} | {row.p99_ms:.1f} | {row.busy:.0%} | "
                f"{'yes' if row.right else 'NO'} |",
                flush=True,
            )
    right = sum(row.right for row in rows)
    print(f"\n{right} of {len(rows)} right" + (f", {failed} could not be examined" if failed else ""))
    return 0 if right == len(rows) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

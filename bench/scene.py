"""Whole scenes, untouched, and then cured: `python -m bench.scene [--rounds 5] [--hold SECONDS] [--write FILE]`.

A round: the scene is brought up from nothing (`docker compose up`, or with `--native` what `bin/lab scene` starts), and
it is not touched until all keys are there, and for `--hold` seconds more. Then *index*, until p99 is below twice the
healthy p99; *scan*, until it is ill again; *Restart server*, until p99 is below twice the healthy p99. One row for each
round and server:

- rank correlation of keys and p99 of a bystander's GET while keys grow, over windows of ten seconds;
- events finished a second, as a share of the plan, from the first customer to the end of the hold;
- p99 with all keys (median of the hold), as a multiple of the healthy p99, and its drift from the first third of the
  hold to the last.

Exit code 0 if every row is as the lab promises: correlation at least 0.9, events within 5 % of the plan, at least 20
times the healthy p99, a drift of less than two, cured within 15 s by the index and by a restart. For the servers that
`--flat` names the promise is the opposite, since they let others in between: less than 5 times the healthy p99.

    COMPOSE_PROFILES=current python -m bench.scene --rounds 5 --flat dragonfly-current --write docs/scene.json
    python -m bench.scene --rounds 5 --native dragonfly --label "natively" --write docs/scene.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import INTERRUPTED, StackError
from lab.results.correlation import spearman
from lab.server.http import Http

WINDOW_S, EVERY_S = 10.0, 1.0
GROWS_WITHIN_S, UP_WITHIN_S = 900.0, 300.0
CORRELATES, ILL, CURED, FLAT, CURED_WITHIN_S = 0.9, 20.0, 2.0, 5.0, 15.0
RATE_WITHIN, DRIFT = 0.05, 2.0

Row = dict[str, Any]


@dataclass
class Round:
    """The figures of one server in one round. Times in seconds, p99 in ms."""

    server: str
    round: int
    healthy_p99_ms: float
    planned_events_per_second: float
    correlation: float
    events_of_plan: float
    keys: int
    p99_ms: float
    times_healthy: float
    drift: float
    index_cured_s: float
    restart_cured_s: float
    hold_s: float

    def broken(self, flat: bool) -> list[str]:
        """The promises that this round did not keep."""
        checks = {"events": abs(self.events_of_plan - 1) <= RATE_WITHIN}
        if flat:
            checks["flat"] = self.times_healthy < FLAT
        else:
            checks |= {
                "correlation": self.correlation >= CORRELATES,
                "times healthy": self.times_healthy >= ILL,
                "drift": 1 / DRIFT < self.drift < DRIFT,
                "index": self.index_cured_s <= CURED_WITHIN_S,
                "restart": self.restart_cured_s <= CURED_WITHIN_S,
            }
        return [name for name, kept in checks.items() if not kept]

    def line(self) -> str:
        """The row of the table."""
        cells = (
            self.server,
            self.round,
            f"{self.healthy_p99_ms:.1f} ms",
            f"{self.planned_events_per_second:.3g} /s",
            f"{self.events_of_plan:.1%}",
            f"{self.correlation:.2f}",
            f"{self.p99_ms:,.0f} ms at {self.keys:,}",
            f"{self.times_healthy:.0f} ×",
            f"{self.drift:.2f}",
            f"{self.index_cured_s:.0f} s",
            f"{self.restart_cured_s:.0f} s",
        )
        return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| server | round | healthy p99 | events planned | of the plan | rank correlation | p99 with all keys | "
    "of the healthy | drift | index cures in | restart cures in |\n" + "|---" * 11 + "|"
)


class Page:
    """The control page of a scene that is up."""

    def __init__(self, port: int) -> None:
        self._http = Http("the control page", f"http://127.0.0.1:{port}")

    def rows(self) -> dict[str, Row]:
        """Each server's state, by its name; empty while the page does not answer."""
        try:
            return {row["name"]: row for row in self._http.ask("GET", "/api/state")["servers"]}
        except StackError:
            return {}

    def act(self, action: str, **body: Any) -> None:
        """Pull the same lever on every server."""
        for server in self.rows():
            self._http.ask("POST", f"/api/servers/{server}/{action}", body)

    def watch(
        self, until: Callable[[dict[str, Row]], bool], seconds: float
    ) -> list[tuple[float, dict[str, Row]]]:
        """Read the state once a second until `until` is true of it. Raises `StackError` after `seconds`."""
        seen, began = [], time.monotonic()
        while True:
            rows = self.rows()
            seen.append((time.monotonic(), rows))
            if rows and until(rows):
                return seen
            if time.monotonic() - began > seconds:
                states = {name: row["status"] for name, row in rows.items()}
                raise StackError(f"not so after {seconds:g} s: {states}")
            time.sleep(EVERY_S)

    def seconds_until(self, check: Callable[[Row], bool], limit: float) -> dict[str, float]:
        """Seconds from now until each server's row passes `check`; infinity if it does not within the limit."""
        began = time.monotonic()
        found: dict[str, float] = {}
        while True:
            rows, now = self.rows(), time.monotonic() - began
            found |= {name: now for name, row in rows.items() if name not in found and check(row)}
            if now > limit or (rows and len(found) == len(rows)):
                return {name: found.get(name, float("inf")) for name in rows}
            time.sleep(0.5)


def is_healthy(row: Row) -> bool:
    """True if p99 is known, and below twice the healthy p99."""
    return bool(row["p99_ms"] and row["p99_ms"] < CURED * row["healthy_p99_ms"])


def every_window(seen: list[tuple[float, Row]]) -> list[Row]:
    """Return one row for every ten seconds: the page's p99 covers the last ten."""
    windows: list[tuple[float, Row]] = []
    for at, row in seen:
        if row["p99_ms"] and (not windows or at - windows[-1][0] >= WINDOW_S - EVERY_S / 2):
            windows.append((at, row))
    return [row for _, row in windows]


def play_round(page: Page, number: int, hold_s: float) -> list[Round]:
    """Watch a scene that is coming up, cure it twice, and return the figures of each server."""
    page.watch(lambda rows: all(row["phase"] == "running" for row in rows.values()), UP_WITHIN_S)
    grown = page.watch(lambda rows: all(row["all_keys"] for row in rows.values()), GROWS_WITHIN_S)
    end = time.monotonic() + hold_s
    level_looks = page.watch(lambda _: time.monotonic() > end, hold_s + 60)
    page.act("strategy", strategy="index")
    index = page.seconds_until(is_healthy, 120)
    time.sleep(WINDOW_S)
    page.act("strategy", strategy="scan")
    time.sleep(3 * WINDOW_S)
    page.act("restart")
    page.watch(lambda rows: all(row["up"] and not row["restarting"] for row in rows.values()), 60)
    restart = page.seconds_until(is_healthy, 120)
    found = []
    for name in level_looks[-1][1]:
        growth = [(at, rows[name]) for at, rows in grown if name in rows]
        level = [(at, rows[name]) for at, rows in level_looks if name in rows]
        (began, first), (ended, last) = growth[0], level[-1]
        done = (last["events_finished"] - first["events_finished"]) / (ended - began)
        rising = every_window([(at, row) for at, row in growth if not row["all_keys"]])
        windows = [row["p99_ms"] for row in every_window(level)]
        part = max(1, len(windows) // 3)
        p99 = statistics.median(windows)
        found.append(
            Round(
                server=f"{name} ({last['product']})",
                round=number,
                healthy_p99_ms=last["healthy_p99_ms"],
                planned_events_per_second=last["events_planned_per_second"],
                correlation=spearman([row["keys"] for row in rising], [row["p99_ms"] for row in rising]),
                events_of_plan=done / last["events_planned_per_second"],
                keys=last["keys"],
                p99_ms=p99,
                times_healthy=p99 / last["healthy_p99_ms"],
                drift=statistics.median(windows[-part:]) / statistics.median(windows[:part]),
                index_cured_s=index[name],
                restart_cured_s=restart[name],
                hold_s=hold_s,
            )
        )
    return found


@contextmanager
def on_docker() -> Iterator[int]:
    """The scene of `docker compose up`, from nothing; yields the control page's port."""

    def compose(*arguments: str) -> None:
        done = subprocess.run(
            ["docker", "compose", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise StackError(
                f"docker compose {' '.join(arguments)} failed: {' '.join(done.stderr.split())[-300:]}"
            )

    everything = ("--profile", "*", "down", "--volumes")
    compose(*everything)
    try:
        compose("up", "--detach", "--wait", "--wait-timeout", "300")
        yield int(os.environ.get("CONTROL_PORT") or 8080)
    finally:
        compose(*everything)


@contextmanager
def natively(server: str, port: int) -> Iterator[int]:
    """The scene of `bin/lab scene` on one server; yields the control page's port."""
    scene = subprocess.Popen(
        [ROOT / "bin" / "lab", "scene", "--server", server, "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield port
    finally:
        scene.terminate()
        scene.wait(60)


def keep(path: Path, label: str, command: str, found: list[Round]) -> None:
    """Write the rounds to the file under `label`, beside those of other servers, with the machine and the command."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rounds = content.setdefault("rounds", {})
    rounds[label] = {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "command": command,
        "rows": [asdict(one) for one in found],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench.scene", description="Whole scenes, untouched and then cured."
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hold", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument(
        "--native", metavar="SERVER", help="without Docker, on this server (bin/lab list names them)"
    )
    parser.add_argument("--port", type=int, default=8080, help="of the control page, with --native")
    parser.add_argument(
        "--flat", action="append", default=[], metavar="SERVER", help="whose p99 must not follow the keys"
    )
    parser.add_argument(
        "--label", default="docker compose up", help="under which name --write keeps the rows"
    )
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    print(HEAD, flush=True)
    found: list[Round] = []
    broken: list[str] = []
    try:
        for number in range(1, options.rounds + 1):
            with natively(options.native, options.port) if options.native else on_docker() as port:
                for one in play_round(Page(port), number, options.hold):
                    print(one.line(), flush=True)
                    found.append(one)
                    if names := one.broken(one.server.partition(" ")[0] in options.flat):
                        broken.append(f"{one.server}, round {number}: not as promised: {', '.join(names)}")
    except StackError as error:
        print(f"bench.scene: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if options.write and found:
            keep(options.write, options.label, f"python -m bench.scene {shlex.join(sys.argv[1:])}", found)
    print("\n".join(broken) or "Everything as promised.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

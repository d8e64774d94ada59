"""The fault matrix: what becomes of accepted events while parts fail? `python -m bench.faults`, or `make faults`.

Every fault (`bench.fault_kinds`) meets every strategy, and one cell of each row switches the strategy again and again.
A cell sends 400 events, 60 a second, to real processes on 127.0.0.1, and does its fault in the middle of that. It is
red if an accepted event is lost, if an entry computed before a handled event is served (beyond what a strategy's
docstring admits), if the first success or an empty outbox comes later than 10 s after the fault's end, or if a process
logs a traceback. Where the state folder is corrupt the outbox is gone: then nothing may be accepted, readiness must be
red, and what was in the outbox is counted as given up.

The faults of containers, and of Prometheus, Grafana and Locust, on which no process here depends, are not part of it.
Exit code 0: no red cell; 1: a red cell; 2: bad arguments; 3: no scene comes up here; 130: interrupted. `--write FILE`
keeps each row as soon as it is done, for docs/faults.md; a row needs all strategies for that.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.fault_cell import STRATEGIES, Plan, run_cell
from bench.fault_kinds import FAULTS, Fault
from bench.fault_scene import Scene, own_mounts
from bench.kit import OneLineParser, interrupts_raise, keep, names_of
from lab.errors import CLAIM_FAILED, HOLDS, INTERRUPTED, STACK_BROKE, StackError
from lab.stacks.processes import uninterrupted
from lab.stacks.servers import SERVERS

START_S = 4.0
"""About how long the processes of a row take to start and to end."""
DOWN = "the scene did not come up or back"
FIRST_USER, USERS_EACH = 1_000_000, 1_000
"""The warmer fills users from 1 on; each cell has users of its own."""


class Rows:
    """Runs the cells of one fault after the other, on one scene as long as that stays whole."""

    def __init__(self, fault: Fault, server: str, folder: Path) -> None:
        self._fault, self._server, self._folder = fault, server, folder
        self._scene: Scene | None = None
        self._started = 0

    def cell(self, strategy: str, plan: Plan, first_user: int) -> dict[str, Any]:
        """Run the cell of a strategy. Raises `StackError` or OSError if the scene does not come up."""
        if self._scene is not None and not self._scene.whole():
            self.end()
        if self._scene is None:
            self._started += 1
            folder = self._folder / str(self._started)
            folder.mkdir(parents=True)
            fault = self._fault
            self._scene = Scene(folder, self._server, fault.proxy, fault.small, fault.traced)
            self._scene.up()
        return run_cell(self._scene, self._fault, strategy, plan, first_user)

    def end(self) -> None:
        """End all processes."""
        if self._scene is not None:
            with uninterrupted():
                self._scene.down()
            self._scene = None


def run_row(
    name: str, fault: Fault, strategies: Sequence[str], server: str, plan: Plan, folder: Path, first_user: int
) -> list[dict[str, Any]]:
    """The cells of one fault, printed as they come. A scene that does not come up or back makes its cell red."""
    rows, cells = Rows(fault, server, folder / name), []
    try:
        for number, strategy in enumerate(strategies):
            began = time.monotonic()
            try:
                cell = rows.cell(strategy, plan, first_user + number * USERS_EACH)
            except (StackError, OSError, sqlite3.Error) as error:
                cell = {"red": [f"{DOWN}: {' '.join(str(error).split())[:200]}"]}
                rows.end()
            cells.append({"strategy": strategy, **cell})
            print(line(name, cells[-1], time.monotonic() - began), flush=True)
    finally:
        rows.end()
    return cells


def line(name: str, cell: dict[str, Any], seconds: float) -> str:
    """A cell in one line."""
    if "accepted" not in cell:
        return f"RED   {name} × {cell['strategy']}: {'; '.join(cell['red'])}"
    figures = ", ".join(
        f"{cell[key]} {said}"
        for key, said in (
            ("accepted", "accepted"),
            ("refused", "refused"),
            ("lost", "lost"),
            ("stale", "stale"),
            ("late", "late"),
        )
    )
    times = f"recovered {_seconds(cell['recovered_s'])}, drained {_seconds(cell['drained_s'])}"
    verdict = f"RED ({'; '.join(cell['red'])})" if cell["red"] else "green"
    return (
        f"{verdict}   {name} × {cell['strategy']}: {figures}; {cell['failed']} of {cell['reads']} reads failed; "
        f"{times}; {cell['said']} [{seconds:.0f} s]"
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def expected_s(faults: Sequence[Fault], strategies: int, plan: Plan) -> float:
    """How long the cells take, by arithmetic. A backlog that empties slowly takes longer."""
    return sum(
        START_S + strategies * plan.slower(fault.slower).seconds for fault in faults if not fault.not_here
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = OneLineParser(prog="bench.faults", description="What becomes of events while parts fail.")
    parser.add_argument(
        "--faults",
        type=lambda text: names_of(text, list(FAULTS), "fault"),
        default=list(FAULTS),
        metavar="NAME,...",
        help=f"{', '.join(FAULTS)} (all)",
    )
    parser.add_argument(
        "--strategies",
        type=lambda text: names_of(text, STRATEGIES, "strategy"),
        default=list(STRATEGIES),
        metavar="NAME,...",
        help=f"{', '.join(STRATEGIES)} (all)",
    )
    parser.add_argument("--server", choices=list(SERVERS), default="embedded", help="(embedded)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows, for the table in the docs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the logs of all processes there")
    options = parser.parse_args(arguments)
    if options.write and options.strategies != list(STRATEGIES):
        parser.error("--write keeps whole rows: leave --strategies out")
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("bench.faults: interrupted; every process has ended", file=sys.stderr)
        return INTERRUPTED
    except (StackError, OSError) as error:
        print(f"bench.faults: {' '.join(str(error).split())}", file=sys.stderr)
        return STACK_BROKE


def _run(options: argparse.Namespace) -> int:
    plan, chosen = Plan(), {name: FAULTS[name] for name in options.faults}
    faults = [fault for fault in chosen.values() if not fault.not_here]
    if any(fault.small for fault in faults):
        try:
            own_mounts()
        except OSError as error:
            raise StackError(f"a small file system for the state folder cannot be had: {error}") from error
    cells = len(faults) * len(options.strategies)
    minutes = expected_s(faults, len(options.strategies), plan) / 60
    print(f"{cells} cells, about {minutes:.0f} minutes", flush=True)
    began, red, done = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        for number, (name, fault) in enumerate(chosen.items()):
            row: dict[str, Any] = {"fault": name, "title": fault.title, "server": options.server}
            if fault.not_here:
                print(f"not applicable here: {name}: {fault.not_here}", flush=True)
                row["not_here"] = fault.not_here
            else:
                first = FIRST_USER + number * len(STRATEGIES) * USERS_EACH
                row["cells"] = run_row(
                    name, fault, options.strategies, options.server, plan, options.out or Path(folder), first
                )
                if not done and all("accepted" not in cell for cell in row["cells"]):
                    raise StackError(row["cells"][0]["red"][0])
                red += sum(bool(cell["red"]) for cell in row["cells"])
                done += len(row["cells"])
                print(
                    f"{done} of {cells} cells after {(time.monotonic() - began) / 60:.1f} minutes", flush=True
                )
            keep(options.write, f"{options.server} {name}", "bench.faults", **row)
    print(f"{red} of {done} cells are red")
    return CLAIM_FAILED if red else HOLDS


if __name__ == "__main__":
    interrupts_raise()
    sys.exit(main())

"""The fault matrix: what becomes of accepted events while parts fail? `python -m bench.faults`, or `make faults`.

Every fault (`bench.fault_kinds`) meets every strategy, and one cell of each row switches the strategy again and again.
A cell sends 400 events, 60 a second, to real processes on 127.0.0.1, and does its fault in the middle of that. It is
red if an accepted event is lost, if an entry computed before a handled event is served (beyond what a strategy's
docstring admits), if the first success or an empty outbox comes later than 10 s after the fault's end, or if a process
logs a traceback. Where the state folder is corrupt the outbox is gone: then nothing may be accepted, readiness must be
red, and what was in the outbox is counted as given up.

With `--stack compose` it is the same for the containers that `make up` started: another list of faults, half a minute
each, so that alerts have time to fire (`bench.fault_compose`).

Exit code 0: no red cell; 1: a red cell; 2: bad arguments; 3: no scene comes up here; 130: interrupted. `--write FILE`
keeps each row as soon as it is done, for docs/faults.md; a row needs all strategies for that.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench import fault_compose
from bench.fault_cell import STRATEGIES, Plan, run_cell
from bench.fault_compose import FAULTS as CONTAINERS
from bench.fault_compose import ComposeScene
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


class Rows(Protocol):
    """Runs the cells of one fault after the other."""

    def cell(self, strategy: str, plan: Plan, first_user: int) -> dict[str, Any]:
        """Run the cell of a strategy. Raises `StackError` or OSError if the scene does not come up or back."""
        ...

    def end(self) -> None:
        """Leave nothing of these cells behind."""
        ...


class NativeRows:
    """Cells on one scene of processes as long as that stays whole, then on a new one."""

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
            self._scene = Scene(folder, self._server, fault.proxy, fault.small, fault.traced, fault.stepped)
            self._scene.up()
        return run_cell(self._scene, self._fault, strategy, plan, first_user)

    def end(self) -> None:
        """End all processes."""
        if self._scene is not None:
            with uninterrupted():
                self._scene.down()
            self._scene = None


class ComposeRows:
    """Cells on the running compose stack, which all faults share."""

    def __init__(self, fault: Fault, scene: ComposeScene) -> None:
        self._fault, self._scene = fault, scene

    def cell(self, strategy: str, plan: Plan, first_user: int) -> dict[str, Any]:
        """Run the cell of a strategy. Raises `StackError` or OSError if the stack does not come back."""
        return run_cell(self._scene, self._fault, strategy, plan, first_user)

    def end(self) -> None:
        """What a fault left behind is put back before the next cell, or at the end of all."""
        with uninterrupted():
            self._scene.mend()


def run_row(
    name: str, rows: Rows, strategies: Sequence[str], plan: Plan, first_user: int
) -> list[dict[str, Any]]:
    """The cells of one fault, printed as they come. A scene that does not come up or back makes its cell red."""
    cells = []
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
        "--stack", choices=["native", "compose"], default="native",
        help="processes of its own, or the containers that `make up` started (native)",
    )  # fmt: skip
    parser.add_argument(
        "--faults",
        metavar="NAME,...",
        help=f"native: {_listed(FAULTS)}; compose: {_listed(CONTAINERS)} (all)",
    )
    parser.add_argument(
        "--strategies", metavar="NAME,...",
        help=f"native: {_listed(STRATEGIES)}; compose: {_listed(fault_compose.STRATEGIES)} (all)",
    )  # fmt: skip
    parser.add_argument("--server", choices=list(SERVERS), help="(native: embedded; compose: redis)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows, for the table in the docs")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="native: keep the logs of all processes there"
    )
    options = parser.parse_args(arguments)
    native = options.stack == "native"
    known, strategies = (FAULTS, STRATEGIES) if native else (CONTAINERS, fault_compose.STRATEGIES)
    try:
        faults = names_of(options.faults, list(known), "fault") if options.faults is not None else list(known)
        chosen = (
            names_of(options.strategies, strategies, "strategy")
            if options.strategies is not None
            else strategies
        )
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if options.write and list(chosen) != list(strategies):
        parser.error("--write keeps whole rows: leave --strategies out")
    if options.out and not native:
        parser.error("--out is for processes; see the logs of containers with docker compose logs")
    matrix = Matrix(
        options.stack, options.server or ("embedded" if native else "redis"), {name: known[name] for name in faults},
        tuple(chosen), Plan() if native else fault_compose.PLAN,
    )  # fmt: skip
    try:
        return _native(matrix, options.write, options.out) if native else _compose(matrix, options.write)
    except KeyboardInterrupt:
        left = "every process has ended" if native else "the stack is as it was"
        print(f"bench.faults: interrupted; {left}", file=sys.stderr)
        return INTERRUPTED
    except (StackError, OSError) as error:
        print(f"bench.faults: {' '.join(str(error).split())}", file=sys.stderr)
        return STACK_BROKE


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


@dataclass(frozen=True)
class Matrix:
    """What is measured: faults by name, and strategies."""

    stack: str
    server: str
    faults: dict[str, Fault]
    strategies: tuple[str, ...]
    plan: Plan


def _native(matrix: Matrix, write: Path | None, out: Path | None) -> int:
    if any(fault.small and not fault.not_here for fault in matrix.faults.values()):
        try:
            own_mounts()
        except OSError as error:
            raise StackError(f"a small file system for the state folder cannot be had: {error}") from error
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        place = out or Path(folder)
        return _run(matrix, write, lambda name, fault: NativeRows(fault, matrix.server, place / name))


def _compose(matrix: Matrix, write: Path | None) -> int:
    scene = ComposeScene(matrix.server)
    try:
        scene.up()
        return _run(matrix, write, lambda _, fault: ComposeRows(fault, scene))
    finally:
        with uninterrupted():
            scene.down()


def _run(matrix: Matrix, write: Path | None, rows_of: Callable[[str, Fault], Rows]) -> int:
    faults = [fault for fault in matrix.faults.values() if not fault.not_here]
    cells = len(faults) * len(matrix.strategies)
    minutes = expected_s(faults, len(matrix.strategies), matrix.plan) / 60
    print(f"{cells} cells, about {minutes:.0f} minutes", flush=True)
    began, red, done = time.monotonic(), 0, 0
    for number, (name, fault) in enumerate(matrix.faults.items()):
        row: dict[str, Any] = {
            "stack": matrix.stack,
            "fault": name,
            "title": fault.title,
            "server": matrix.server,
        }
        if fault.not_here:
            print(f"not applicable here: {name}: {fault.not_here}", flush=True)
            row["not_here"] = fault.not_here
        else:
            first = FIRST_USER + number * len(STRATEGIES) * USERS_EACH
            row["cells"] = run_row(name, rows_of(name, fault), matrix.strategies, matrix.plan, first)
            if not done and all("accepted" not in cell for cell in row["cells"]):
                raise StackError(row["cells"][0]["red"][0])
            red += sum(bool(cell["red"]) for cell in row["cells"])
            done += len(row["cells"])
            print(f"{done} of {cells} cells after {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
        keep(write, f"{matrix.stack} {matrix.server} {name}", "bench.faults", **row)
    print(f"{red} of {done} cells are red")
    return CLAIM_FAILED if red else HOLDS


if __name__ == "__main__":
    interrupts_raise()
    sys.exit(main())

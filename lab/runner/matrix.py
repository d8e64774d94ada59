"""`lab run ID --servers`: a scenario, or all, on one server after the other, and a matrix of scenario × server.

The matrix (matrix.json, matrix.html) is written anew after every server. Each server's series has a folder of its own
beside it, with the summary and the run folders that `lab run all` makes.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.errors import HOLDS, INTERRUPTED, STACK_BROKE, LabError, UsageError
from lab.results.folder import make_folder, new_folder, write_json
from lab.runner.run import Request, check_names, host_facts
from lab.runner.series import Series, words_for, worst
from lab.scenarios.model import Scenario
from lab.stacks.servers import SERVERS, find_server


@dataclass
class Matrix:
    """The series of several servers, as matrix.json holds them. `servers`: the names, in the order they were given.

    `ended`: the exit code of what ended it in the middle of a series.
    """

    folder: Path
    pace: str
    seed: int
    scenarios: Sequence[Scenario]
    servers: Sequence[str]
    started: str
    series: dict[str, Series] = field(default_factory=dict)
    seconds: float = 0.0
    ended: int = HOLDS

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended it."""
        return self.ended == INTERRUPTED or any(one.interrupted for one in self.series.values())

    @property
    def exit_code(self) -> int:
        """130 if interrupted; else 3 if a run broke, 1 if a claim failed, 4 if a run was not valid, or 0."""
        return worst([*(one.exit_code for one in self.series.values()), self.ended])

    @property
    def command(self) -> str:
        """The command that repeats it."""
        words = ["bin/lab", "run", *words_for(self.scenarios), "--pace", self.pace]
        words += ["--servers", ",".join(self.servers)]
        for name in self.servers:
            words += ["--server-path", SERVERS[name].path] if SERVERS[name].path else []
        return shlex.join([*words, "--seed", str(self.seed)])

    def content(self) -> dict[str, Any]:
        """The content of matrix.json."""
        return {
            "command": self.command,
            "pace": self.pace,
            "seed": self.seed,
            "started": self.started,
            "seconds": self.seconds,
            "host": host_facts(),
            "servers": [self._server(name) for name in self.servers if name in self.series],
            "not_run": [name for name in self.servers if name not in self.series],
            "scenarios": [
                {
                    "id": scenario.id,
                    "title": scenario.title,
                    "symptom": scenario.symptom,
                    "refutes": scenario.refutes,
                    "cells": {name: self._cell(name, scenario.id) for name in self.servers},
                }
                for scenario in self.scenarios
            ],
            "interrupted": self.interrupted,
            "exit_code": self.exit_code,
        }

    def write(self, page: Callable[[Path, dict[str, Any]], Path]) -> None:
        """Write matrix.json and, by `page`, matrix.html. Raises `StackError` where the folder cannot be written."""
        content = self.content()
        write_json(self.folder / "matrix.json", content)
        page(self.folder, content)

    def _server(self, name: str) -> dict[str, Any]:
        """One server: its product, version and options, its verdict, and where its summary is.

        Product and version are what its runs found, and the options those of the command line.
        """
        one = self.series[name]
        options = SERVERS[name].options
        products = [" ".join((found, *options)) for found in one.products]
        return {
            "name": name,
            "product": ", ".join(products),
            "exit_code": one.exit_code,
            "verdict": one.verdict,
            "seconds": one.seconds,
            "summary": f"{name}/summary.html",
        }

    def _cell(self, name: str, scenario: str) -> dict[str, Any] | None:
        """One run: verdict, claims by outcome, headline, and the main thread's time for a visited key in µs.

        The time is that of the calibration, before the load began. A scenario that was left out has the reason only;
        None: not run.
        """
        if name not in self.series:
            return None
        one = self.series[name]
        if why := one.left_out.get(scenario):
            return {"left_out": why}
        entry = next((entry for entry in one.entries if entry.scenario == scenario), None)
        if entry is None:
            return None
        return {
            "exit_code": entry.exit_code,
            "holds": entry.holds,
            "verdict": entry.verdict,
            "said": entry.said,
            "headline": entry.headline,
            "refuted": [claim["id"] for claim in entry.claims if claim["holds"] is False],
            "held": [claim["id"] for claim in entry.claims if claim["holds"]],
            "not_applicable": [claim["id"] for claim in entry.claims if claim["holds"] is None],
            "visited_key_us": entry.visited_key_us,
            "report": f"{name}/{entry.report}" if entry.report else None,
        }


def names_of(given: str) -> list[str]:
    """The servers that `--servers` names, separated by commas.

    Raises `UsageError` for a server that there is not, one that is named twice, or fewer than two; `StackError` for one
    that is not on this machine.
    """
    names = [name for word in given.split(",") if (name := word.strip())]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--servers names {twice} twice.")
    if len(names) < 2:
        raise UsageError(
            "--servers takes two servers or more, separated by commas; for one there is --server."
        )
    for name in names:
        find_server(name).require()
    return names


def run_matrix(
    wanted: Sequence[Scenario],
    servers: Sequence[str],
    pace: str,
    seed: int,
    out: Path | None,
    run: Callable[[str, Path], Series],
    page: Callable[[Path, dict[str, Any]], Path],
    say: Callable[[str], None],
) -> Matrix:
    """Run the series on one server after the other. A run that breaks ends nothing; Ctrl-C ends all.

    The matrix is written after each server, and whatever ends it.

    `run` runs the series on a server into a folder, `page` writes the page of the matrix, and `say` announces each
    server. Raises `UsageError`, before anything is created, for an unknown pace or where the folder cannot be made.
    """
    for scenario in wanted:
        check_names(Request(scenario, servers[0], pace, None, seed, None))
    started = datetime.now(UTC)
    folder = make_folder(out) if out else new_folder(f"{started:%Y%m%d-%H%M%S}-servers")
    matrix = Matrix(folder.resolve(), pace, seed, wanted, servers, started.isoformat(timespec="seconds"))
    begun = time.monotonic()
    for number, name in enumerate(servers, start=1):
        try:
            say(f"server {number} of {len(servers)}: {name}")
            matrix.series[name] = run(name, matrix.folder / name)
        except KeyboardInterrupt:
            matrix.ended = INTERRUPTED
            raise
        except BaseException as error:
            matrix.ended = error.exit_code if isinstance(error, LabError) else STACK_BROKE
            raise
        finally:
            matrix.seconds = time.monotonic() - begun
            matrix.write(page)
        if matrix.interrupted:
            break
    return matrix

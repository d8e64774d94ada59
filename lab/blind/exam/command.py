"""`bin/lab exam`: sealed scenes in a row for a person, for `bin/lab diagnose`, or for any program."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab import ROOT
from lab.blind.cause import CURE, FIND, TASKS
from lab.blind.exam import results
from lab.blind.exam.candidates import Program
from lab.blind.exam.scenes import Scene, draw
from lab.blind.exam.sitting import Row, Sitting
from lab.blind.levels import LEVELS, MOST_CAUSES
from lab.blind.past import new_folder
from lab.blind.session_socket import home
from lab.errors import CLAIM_FAILED, HOLDS, LabError, UsageError
from lab.results.folder import write_json
from lab.stacks.servers import check_stack

HUMAN, DIAGNOSE = "human", "diagnose"
EXAMINEE = "lab.diagnose.examinee"
NOT_THE_SERVERS: dict[str, tuple[str, ...]] = {
    "exhausted-pool": ("nothing",),
    "stalling-storefront": ("nothing",),
    "stalling-link": (),
}
"""What is right for `diagnose`, which sees the server only, where the cause lies outside the server: that nothing is
wrong with it. Over a link that stalls now and then a bystander waits, and the server shows no reason: no answer."""
LARGEST_SEED = 2**31


def exam(
    candidate: Annotated[
        str,
        typer.Option(
            "--for",
            help="human: a person, in a second terminal. diagnose: bin/lab diagnose. Or the command of a program that "
            "talks JSON over stdin and stdout.",
            metavar="human|diagnose|COMMAND",
        ),
    ],
    scenes: Annotated[int, typer.Option(help="Number of scenes.")] = 5,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Number that chooses the causes, to give several candidates the same. Left out: at random.",
            min=0,
            max=LARGEST_SEED,
        ),
    ] = None,
    causes: Annotated[
        int | None,
        typer.Option(
            help="Causes at work in each scene; if left out, two in every fourth.", min=1, max=MOST_CAUSES
        ),
    ] = None,
    level: Annotated[
        int,
        typer.Option(
            help="Level of each session, as in `bin/lab blind start`.", min=min(LEVELS), max=max(LEVELS)
        ),
    ] = 1,
    task: Annotated[str, typer.Option(help="find: name the causes. cure: end them, too.")] = FIND,
    stack: Annotated[
        str, typer.Option(help="native, or compose: the stack that `make up` started.")
    ] = "native",
    minutes: Annotated[float, typer.Option(help="Minutes for each scene.", min=0.1, max=24 * 60)] = 10.0,
    same_user: Annotated[
        bool,
        typer.Option(
            "--same-user", help="Run the program as the user who examines it: the result is on trust."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the result in this file, as JSON.", metavar="FILE")
    ] = None,
) -> None:
    """Examine somebody with sealed scenes in a row. Exit code 0 if all were solved, else 1."""
    check_stack(stack)
    if task not in TASKS:
        raise UsageError(f"there is no task {task!r}; choose {FIND} or {CURE}.")
    if out and not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}.")
    drawn_from = secrets.randbelow(LARGEST_SEED) if seed is None else seed
    drawn = draw(drawn_from, scenes, causes)
    program = program_of(candidate, same_user)
    trusted = seed is not None or program is None or not program.apart
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    rows: list[Row] = []
    interrupted = False
    for scene in drawn:
        console.print(f"\n[bold]scene {scene.number} of {scenes}[/bold]")
        examiner = Examiner(
            scenes, minutes, stack, task, level, lambda text: console.print(text, markup=False)
        )
        try:
            row = examiner.examine(scene, program.again() if program else None)
        except KeyboardInterrupt:
            interrupted = True
            break
        rows.append(of_the_server(row) if candidate == DIAGNOSE else row)
        console.print("  ".join(results.cells(rows[-1])), markup=False)
    result = results.Result(candidate, stack, level, task, drawn_from, trusted, rows)
    if out:
        write_json(out, result.as_dict())
    if as_json:
        print(json.dumps(result.as_dict(), indent=1))
    else:
        results.show(Console(highlight=False), result)
    if interrupted:
        raise KeyboardInterrupt
    raise typer.Exit(HOLDS if all(row.good for row in rows) else CLAIM_FAILED)


def program_of(candidate: str, same_user: bool) -> Program | None:
    """The program to examine; None for a person. Raises `UsageError` for a command that cannot be split into words."""
    if candidate == HUMAN:
        return None
    if candidate == DIAGNOSE:  # the lab's own: it may run as whoever runs the lab
        return Program(shlex.join([sys.executable, "-m", EXAMINEE]), same_user=True, folder=ROOT)
    return Program(candidate, same_user)


def of_the_server(row: Row) -> Row:
    """The row of somebody who sees the server only: right is what can be known there (`NOT_THE_SERVERS`)."""
    expected = {name for cause in row.causes for name in NOT_THE_SERVERS.get(cause, (cause,))}
    if len(row.causes) > 1:  # something is wrong with the server, whatever else is
        expected.discard("nothing")
    return replace(row, right=not row.ended and set(row.answers) == expected)


@dataclass(frozen=True)
class Examiner:
    """Holds one scene after the other, each in a folder of its own; `say` tells a person what happens."""

    of: int
    minutes: float
    stack: str
    task: str
    level: int
    say: Callable[[str], None]

    def examine(self, scene: Scene, program: Program | None) -> Row:
        """Hold a scene. One that cannot be held is told in the row."""
        from lab.blind.compose import ComposeBlindStack
        from lab.blind.scene import BlindStack, SceneStack

        make: Callable[[Path], SceneStack] = ComposeBlindStack if self.stack == "compose" else BlindStack
        say = self.say if program is None else _quiet
        folder = new_folder(home())
        folder.parent.mkdir(parents=True, exist_ok=True)
        if program and program.apart:
            folder.parent.chmod(0o700)  # what earlier sessions had is nobody else's business
        sitting = Sitting(
            scene, self.of, self.minutes, folder, say, make, self.task, LEVELS[self.level], program
        )
        try:
            sitting.run()
        except LabError as error:
            names = tuple(cause.id for cause in scene.causes)
            return Row(scene.number, scene.kind, names, ended=str(error))
        return sitting.row()


def _quiet(_text: str) -> None:
    """Say nothing: a program is told all in its first line."""

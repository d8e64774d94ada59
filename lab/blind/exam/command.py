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
from lab.blind.commands import LevelNumber, Minutes, StackName, Task
from lab.blind.compose import ComposeBlindStack
from lab.blind.exam import results
from lab.blind.exam.candidates import Program
from lab.blind.exam.scenes import Scene, draw
from lab.blind.exam.sitting import Row, Sitting
from lab.blind.levels import LEVELS, MOST_CAUSES
from lab.blind.past import new_folder
from lab.blind.scene import BlindStack, SceneStack
from lab.blind.session_socket import home, make
from lab.errors import CLAIM_FAILED, HOLDS, STACK_BROKE, LabError, UsageError
from lab.stacks.servers import check_exam_stack

HUMAN, DIAGNOSE = "human", "diagnose"
EXAMINEE = "lab.diagnose.examinee"
NOT_THE_SERVERS: dict[str, tuple[str, ...]] = {
    "exhausted-pool": ("nothing",),
    "stalling-storefront": ("nothing",),
    "stalling-link": (),
}
"""What is right for `diagnose`, which sees the server only, where the cause lies outside the server: that nothing is
wrong with it. Over a link that stalls now and then a bystander waits, and the server shows no reason: no answer. (A
server whose process is stopped would look the same.)"""
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
            help="Causes at work in each scene; if left out, two in every fourth, or as the level has it.",
            min=1,
            max=MOST_CAUSES,
        ),
    ] = None,
    level: LevelNumber = 1,
    task: Task = None,
    stack: StackName = "native",
    minutes: Minutes = 10.0,
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
    check_exam_stack(stack)
    if task is not None and task not in TASKS:
        raise UsageError(f"there is no task {task!r}; choose {FIND} or {CURE}.")
    task = task or LEVELS[level].task
    if causes is None and LEVELS[level].causes > 1:
        causes = LEVELS[level].causes
    drawn_from = secrets.randbelow(LARGEST_SEED) if seed is None else seed
    drawn = draw(drawn_from, scenes, causes)
    program = program_of(candidate, same_user)
    trusted = seed is not None or program is None or not program.apart
    rows: list[Row] = []
    result = results.Result(candidate, stack, level, task, drawn_from, trusted, scenes, rows)
    _keep(out, result)
    home_of(program)  # before anything is said: where it cannot be made, nothing begins
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    examiner = Examiner(
        scenes, minutes, stack, task, level, lambda text: console.print(text, markup=False, emoji=False)
    )
    interrupted = False
    for scene in drawn:
        console.print(f"\n[bold]scene {scene.number} of {scenes}[/bold]")
        row, interrupted = examiner.examine(scene, program.again() if program else None)
        rows.append(of_the_server(row) if candidate == DIAGNOSE else row)
        console.print("  ".join(results.cells(rows[-1])), markup=False, emoji=False)
        _keep(out, result)
        if interrupted:
            break
    if as_json:
        print(json.dumps(result.as_dict(), indent=1))
    else:
        results.show(Console(highlight=False), result)
    if interrupted:
        raise KeyboardInterrupt
    if not all(row.held for row in rows):
        raise typer.Exit(STACK_BROKE)
    raise typer.Exit(HOLDS if all(row.good for row in rows) else CLAIM_FAILED)


def _keep(out: Path | None, result: results.Result) -> None:
    """Write the result so far; the first time is before the first scene. Raises `UsageError` where that cannot be."""
    if out is None:
        return
    try:
        out.write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror}.") from None


def program_of(candidate: str, same_user: bool) -> Program | None:
    """The program to examine; None for a person. Raises `UsageError` for a command that cannot be split into words."""
    if candidate == HUMAN:
        return None
    if candidate == DIAGNOSE:  # the lab's own: it may run as whoever runs the lab
        return Program(shlex.join([sys.executable, "-m", EXAMINEE]), same_user=True, folder=ROOT)
    return Program(candidate, same_user)


def of_the_server(row: Row) -> Row:
    """The row of somebody who sees the server only: right is what can be known there (`NOT_THE_SERVERS`).

    Points do not matter there: they are for evidence.
    """
    expected = {name for cause in row.causes for name in NOT_THE_SERVERS.get(cause, (cause,))}
    if len(row.causes) > 1:  # something is wrong with the server, whatever else is
        expected.discard("nothing")
    wrong = sum(answer not in expected for answer in row.answers)
    return replace(row, right=not row.ended and set(row.answers) == expected, wrong=wrong, points=0, full=0)


@dataclass(frozen=True)
class Examiner:
    """Holds one scene after the other, each in a folder of its own; `say` tells a person what happens."""

    of: int
    minutes: float
    stack: str
    task: str
    level: int
    say: Callable[[str], None]

    def examine(self, scene: Scene, program: Program | None) -> tuple[Row, bool]:
        """Hold a scene. Returns its row, and whether Ctrl-C ended it; the row tells why a scene ended early.

        Raises `UsageError` where no scene can be held at all, as while another session runs.
        """
        make: Callable[[Path], SceneStack] = ComposeBlindStack if self.stack == "compose" else BlindStack
        say = self.say if program is None else _quiet
        folder = new_folder(home_of(program))
        sitting = Sitting(
            scene, self.of, self.minutes, folder, say, make, self.task, LEVELS[self.level], program
        )
        try:
            sitting.run()
        except KeyboardInterrupt:
            return sitting.row("interrupted"), True
        except UsageError as error:
            if not sitting.begun_at:
                raise
            return sitting.row(str(error)), False
        except LabError as error:
            return sitting.row(str(error)), False
        except Exception as error:  # a fault of the lab in one scene must not keep the next from its turn
            return sitting.row(f"a fault in the lab itself, {error!r}"), False
        return sitting.row(), False


def home_of(program: Program | None) -> Path:
    """The folder for a candidate's sessions, made if it is not there.

    A person's is that of all sessions, where `bin/lab blind` finds them. A program that runs as another user gets one
    that is closed to it, since the pages of earlier scenes name their causes.
    """
    folder = home() if program is None or not program.apart else home() / "exam"
    make(folder)
    if folder != home():
        folder.chmod(0o700)
    return folder


def _quiet(_text: str) -> None:
    """Say nothing: a program is told all in its first line."""

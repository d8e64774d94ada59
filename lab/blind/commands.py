"""`bin/lab blind`: find a hidden cause by experiment."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from lab.blind.cause import CURE, FIND, LEVELS, MOST_CAUSES, TASKS, Cause
from lab.blind.causes import CAUSES, CHAPTERS, choose, choose_two, find
from lab.blind.figures import OF_COMMANDS, figures_in
from lab.blind.readings import READINGS
from lab.blind.session_folders import new_folder, revealed
from lab.blind.session_socket import ask, home
from lab.errors import UsageError
from lab.server import inside
from lab.server.inside import STACK_HELP
from lab.server.servers import check_stack

LARGEST_SEED = 2**31
NOT_IN_THE_SCENE = ("noisy-neighbour",)
"""Causes that pin the server to a core, which is not possible from the container `lab`."""
POLL_S = 1.0
app = typer.Typer(
    name="blind",
    help="Find a hidden cause by experiment: start it in one terminal, investigate in another, then reveal.",
    rich_markup_mode=None,
)
StackName = Annotated[str | None, typer.Option("--stack", help=STACK_HELP)]
Minutes = Annotated[
    float, typer.Option(help="Minutes after which the session ends by itself.", min=0.1, max=24 * 60)
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task", help="find: name the cause. cure: end it, too, with the levers of `bin/lab blind levers`."
    ),
]
LevelNumber = Annotated[
    int,
    typer.Option(
        "--level",
        help="1: all readings. 2: no look ping, and no baseline is given. 3: the same, two causes, and a cure.",
        min=min(LEVELS),
        max=max(LEVELS),
    ),
]


@app.command()
def start(
    seed: Annotated[
        int | None,
        typer.Option(
            help="Number that chooses the cause, the same one each time. A person who knows the number can find the "
            "cause. Left out: at random.",
            min=0,
            max=LARGEST_SEED,
        ),
    ] = None,
    stack: StackName = None,
    minutes: Minutes = 60.0,
    task: Task = None,
    level: LevelNumber = 1,
    causes: Annotated[
        int | None,
        typer.Option(
            help="Causes at work together, all to be named; if left out, the level decides.",
            min=1,
            max=MOST_CAUSES,
        ),
    ] = None,
) -> None:
    """Start the scene with a sealed cause, and show what users see until Ctrl-C, the reveal, or time is up."""
    several = (causes or LEVELS[level].causes) > 1
    in_scene = _enter_scene_if_chosen(stack)
    drawn = random_seed(home(), several) if seed is None else seed
    while in_scene and set(_ids(drawn, several)) & set(NOT_IN_THE_SCENE):
        drawn = random_seed(home(), several) if seed is None else drawn + 1
    _play(None, drawn, chosen(drawn, several), in_scene, minutes, task, level)


@app.command("open")
def open_cause(
    cause: Annotated[
        str,
        typer.Argument(
            help="A chapter's number, or a cause that `bin/lab blind causes` lists.", metavar="CHAPTER|CAUSE"
        ),
    ],
    stack: StackName = None,
    minutes: Minutes = 60.0,
    task: Task = None,
    level: LevelNumber = 1,
    spoilers: Annotated[bool, typer.Option("--spoilers", help="Describe the cause at the start.")] = False,
) -> None:
    """Start the same scene with a cause that you choose and know, to try out which readings show it."""
    found = find(CHAPTERS.get(cause, cause))
    in_scene = _enter_scene_if_chosen(stack)
    if in_scene and found.id in NOT_IN_THE_SCENE:
        raise UsageError(
            f"{found.id} cannot be played in the scene: there the lab does not choose the server's core. Play it with "
            "--stack native."
        )
    _play(
        found.opening_line(spoilers, cause if cause in CHAPTERS else None),
        None,
        (found,),
        in_scene,
        minutes,
        task,
        level,
    )


def look(
    what: Annotated[
        str,
        typer.Argument(
            help="users, history, slowlog, commands, clients, memory, ping, waits, processes or key.",
            metavar="WHAT",
        ),
    ] = "users",
    name: Annotated[str, typer.Argument(help="The key's name, for look key only.", metavar="[NAME]")] = "",
) -> None:
    """Take a raw reading of the running session, uninterpreted, as redis-cli, ps and top would show it."""
    print(ask({"verb": "look", "what": what, "name": name}))


@app.command()
def note(
    text: Annotated[str, typer.Argument(help="A thought, an experiment, a finding.", metavar="[TEXT]")] = "",
    hypothesis: Annotated[
        str, typer.Option(help="A cause that you suspect, before you test it: worth points.", metavar="CAUSE")
    ] = "",
) -> None:
    """Write down a thought or a hypothesis with its time. Notes cost nothing, and are shown on the final page."""
    if hypothesis:
        find(hypothesis)
    elif not text.strip():
        raise UsageError(
            'the note is empty: bin/lab blind note "...", or bin/lab blind note --hypothesis CAUSE.'
        )
    print(ask({"verb": "note", "text": text, "hypothesis": hypothesis}))


@app.command()
def hint() -> None:
    """Ask for the next hint, from general to specific. Hints cost points: 5, 10, 20."""
    print(ask({"verb": "hint"}))


@app.command()
def answer(
    cause: Annotated[str, typer.Argument(help="A cause that `bin/lab blind causes` lists.", metavar="CAUSE")],
    evidence: Annotated[
        str,
        typer.Option(
            help="Readings with figures: link.p50 = 42 ms; server.p50 = 0.1 ms. Other words are kept, not judged."
        ),
    ] = "",
) -> None:
    """Name the cause, with evidence, which is compared with the lab's own readings. A wrong answer costs 20 points."""
    find(cause)
    figures_in(evidence)
    print(ask({"verb": "answer", "cause": cause, "evidence": evidence}))


@app.command()
def cure(
    words: Annotated[
        list[str],
        typer.Argument(
            help="A lever that `bin/lab blind levers` lists, and its arguments.", metavar="LEVER..."
        ),
    ],
) -> None:
    """Pull a lever, and wait for the check, which takes 30 s or more. A lever that does not cure costs 10 points."""
    from lab.blind.levers import parse

    parse(words)
    print(ask({"verb": "cure", "words": words}), flush=True)
    while not (outcome := ask({"verb": "checked"})):
        time.sleep(POLL_S)
    print(outcome)


@app.command("levers")
def list_levers() -> None:
    """List the levers of a session with `--task cure`, one a line."""
    from lab.blind.levers import LEVERS

    for lever in LEVERS.values():
        print(f"{lever.form:<24}  {lever.meaning}")


@app.command("readings")
def list_readings() -> None:
    """List the readings that an answer's evidence can name, with their units and the commands that show them."""
    rows = [(each.name, each.unit, each.meaning, each.shown_by) for each in READINGS.values()]
    for name, unit, meaning, shown_by in (*rows, *OF_COMMANDS):
        print(f"{name:<16} {unit:<6} {meaning} ({shown_by})")


@app.command()
def reveal() -> None:
    """Show the cause and the evidence that would have shown it, write a page to keep, and end the scene."""
    print(ask({"verb": "reveal"}))


@app.command()
def causes() -> None:
    """List the possible answers, one a line."""
    for cause in CAUSES.values():
        print(f"{cause.id:<20}  {cause.line}")


def chosen(seed: int, several: bool) -> tuple[Cause, ...]:
    """Return the cause of a seed, or the two that are at work together."""
    return choose_two(seed) if several else (choose(seed),)


def random_seed(folder: Path, several: bool = False) -> int:
    """Return a seed of other causes than those of the last two sessions in this folder that were revealed."""
    known = revealed(folder)
    while True:
        seed = secrets.randbelow(LARGEST_SEED)
        if "+".join(_ids(seed, several)) not in known:
            return seed


def _ids(seed: int, several: bool) -> list[str]:
    return [cause.id for cause in chosen(seed, several)]


def _enter_scene_if_chosen(stack: str | None) -> bool:
    """Continue in the container `lab` if the session belongs in the scene; return whether this process is there.

    Raises `UsageError` for an unknown stack.
    """
    stack = inside.chosen(stack)
    check_stack(stack)
    if inside.is_elsewhere(stack):
        inside.enter(sys.argv[1:])
    return stack == inside.COMPOSE


def _play(
    announced: str | None,
    seed: int | None,
    causes: tuple[Cause, ...],
    in_scene: bool,
    minutes: float,
    task: str | None,
    level: int,
) -> None:
    """Play a session, in the running scene (`in_scene`) or in one of its own.

    `announced`: the first line of an exercise whose cause is known; None for a sealed one.
    """
    task = task or LEVELS[level].task
    if task not in TASKS:
        raise UsageError(f"there is no task {task!r}; choose {FIND} or {CURE}.")
    from lab.blind.scene import BlindStack
    from lab.blind.scene_stack import SceneBlindStack
    from lab.blind.session import Session, complaint

    def say(text: str) -> None:
        print(text, flush=True)

    Session(
        causes,
        seed,
        minutes,
        new_folder(home()),
        say,
        announced or complaint(causes).text,
        sealed=announced is None,
        make=SceneBlindStack if in_scene else BlindStack,
        task=task,
        level=LEVELS[level],
    ).run()

"""The command line of the lab: its commands and their exit codes."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from lab import __version__, errors
from lab.blind.session_socket import server_url
from lab.errors import Interrupted, LabError
from lab.foreign_text import shown
from lab.server.checks import CheckResult
from lab.server.processes import interruptions_raise
from lab.server.servers import ADDRESS, SERVERS

GROUPS = {
    "Reproduce": {
        "list": "lab.runner.command:list_scenarios",
        "run": "lab.runner.command:run",
        "report": "lab.runner.command:report",
    },
    "Learn": {
        "scene": "lab.cli:scene",
        "blind": "lab.blind.commands:app",
        "look": "lab.blind.commands:look",
        "probe": "lab.server.probe_cli:probe",
    },
    "At work": {
        "diagnose": "lab.diagnose.command:diagnose",
        "predict": "lab.diagnose.predict:predict",
    },
    "More": {
        "doctor": "lab.cli:doctor",
        "redis": "lab.server.redis_cli:redis",
        "load": "lab.server.load_cli:load",
        "replay": "lab.replay.command:replay",
        "export": "lab.diagnose.export:export",
        "clean": "lab.stacks.foreign:clean",
    },
}
"""Commands by purpose, each with the function or group that carries it out. A module is imported only for its own
command, because importing all of them takes most of a second."""
PLACES = {name: place for group in GROUPS.values() for name, place in group.items()}
RENAMED = {
    ("explain",): ("report", "--story"),
    ("compare",): ("report",),
    ("record",): ("replay", "--record"),
    ("blind", "look"): ("look",),
}
"""Commands of 0.1, and the words that stand for them now; they work until 0.3."""
RAW = {name: {"ignore_unknown_options": True, "allow_interspersed_args": False} for name in ("redis", "load")}
"""Commands whose words are passed on unchanged, options and negative numbers included."""


class Grouped(TyperGroup):
    """Lists the commands in `GROUPS`, each with the whole first sentence of its help; those under "More" by name only,
    unless `everything` is set.
    """

    everything = False

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                if title == "More" and not self.everything:
                    formatter.write_text(f"{', '.join(names)}: `lab help all` shows what they do.")
                    continue
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
                )


def build(names: Iterable[str] = PLACES) -> typer.Typer:
    """Return the command line with these commands."""
    app = typer.Typer(
        cls=Grouped,
        name="lab",
        help="Reproduce published Redis latency incidents, and judge every run by its claims.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name in names:
        module, _, function = PLACES[name].partition(":")
        found = getattr(import_module(module), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, context_settings=RAW.get(name))(found)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lab {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version, and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass  # the callback of --version does the work


def doctor(
    scene: Annotated[
        bool,
        typer.Option(
            "--scene", help="Check the scene that make up started: every page and lever that a workshop uses."
        ),
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            help="With --scene: folder for doctor.html, with pictures of the dashboards if Chromium is installed."
        ),
    ] = Path("runs/doctor"),
) -> None:
    """Show what is missing on this machine, and how to fix it; with --scene whether a workshop could begin."""
    from lab.scene.doctor import examine, outcome

    console = Console(markup=False, highlight=False)

    def say(result: CheckResult) -> None:
        mark = "ok  " if result.ok else "MISS" if result.needed else "opt "
        console.print(f"{mark} {result.name}: {result.detail}", soft_wrap=True, markup=False)

    if scene:
        from lab.scene.rehearsal import rehearse

        may_begin = rehearse(out, say).may_begin
        console.print(
            f"\n{'A workshop could begin.' if may_begin else 'Repair the lines marked MISS first.'}"
        )
        console.print(f"page: {out / 'doctor.html'}", soft_wrap=True)
        if not may_begin:
            raise typer.Exit(errors.STACK_BROKE)
        return
    results = examine()
    for result in results:
        say(result)
    console.print(f"\n{outcome(results)}")
    if not all(result.ok for result in results if result.needed):
        raise typer.Exit(errors.STACK_BROKE)


def scene(
    server: Annotated[
        str, typer.Option(help=f"{', '.join(SERVERS)}; if left out, the embedded Valkey.")
    ] = "embedded",
    port: Annotated[
        int, typer.Option(help="Port of the control page; the others take free ones.", min=1, max=65535)
    ] = 8080,
    keys: Annotated[
        int | None,
        typer.Option(help="Keys that there will be at the most (120,000).", min=1000, max=50_000_000),
    ] = None,
    healthy: Annotated[
        bool,
        typer.Option(
            "--healthy", help="No incident: the cache is full, and p99 stays low until you change something."
        ),
    ] = False,
    prometheus_port: Annotated[
        int | None, typer.Option(help="Port of Prometheus; a free one if left out.", min=1, max=65535)
    ] = None,
) -> None:
    """Bring up the scene without Docker: storefront, load, control page; it stays until Ctrl-C."""
    from lab.blind.diagnostics import answering_looks
    from lab.scene.native_scene import play

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        play(
            server,
            port,
            keys,
            healthy,
            prometheus_port,
            say,
            lambda scene: answering_looks(scene, scene.users),
        )
    except KeyboardInterrupt:
        raise Interrupted("the scene was ended; nothing of it is left.") from None


def main() -> int:
    """Entry point. From here on, Ctrl-C, SIGTERM and SIGHUP shut the lab down in order."""
    interruptions_raise()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a character that the terminal lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    return run_command(sys.argv[1:])


def run_command(arguments: list[str]) -> int:
    """Run one command line; return its exit code (see `lab.errors`). An error is one line on stderr."""
    for old, new in RENAMED.items():
        if tuple(arguments[: len(old)]) == old:
            arguments = [*new, *arguments[len(old) :]]
            print(f"lab: `{' '.join(old)}` is `{' '.join(new)}` from 0.2 on.", file=sys.stderr)
    if arguments[:1] in (["run"], ["report"]) and "--spoilers" in arguments:
        arguments = [word for word in arguments if word != "--spoilers"]
        print("lab: --spoilers is the default from 0.2 on; --quiet-cause hides the cause.", file=sys.stderr)
    if arguments[:1] == ["help"]:
        Grouped.everything = arguments[1:] == ["all"]
        arguments = [*(arguments[1:] if not Grouped.everything else ()), "--help"]
    first = arguments[0] if arguments else ""
    if first in ("probe", "redis", "load") and ADDRESS not in os.environ and (url := server_url()):
        os.environ[ADDRESS] = url  # the scene in the other terminal, unless the command line names a server
    # `--help`, or a word that is no command, needs all of them.
    names = [first] if first in PLACES else [] if first == "--version" else PLACES
    command = typer.main.get_command(build(names))
    try:
        code = command.main(args=arguments or ["--help"], prog_name="lab", standalone_mode=False)
        if not arguments:
            return errors.USAGE
        if code == errors.INTERRUPTED:  # Typer's way of passing on KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else errors.HOLDS
    except typer.Abort:
        return _complain("interrupted.", errors.INTERRUPTED)
    except typer.TyperException as error:
        words = error.format_message() if hasattr(error, "format_message") else str(error)
        return _complain(
            f"{words} `lab --help` and `lab COMMAND --help` list commands and options.", errors.USAGE
        )
    except KeyboardInterrupt:
        left = "nothing of the scene is left" if first == "blind" else "samples so far are kept"
        return _complain(f"interrupted; every process was ended, {left}.", errors.INTERRUPTED)
    except LabError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return errors.HOLDS
    except Exception as error:
        return _complain(f"a fault in the lab itself, {error!r}. {_keep_trace()}", errors.STACK_BROKE)


def _keep_trace() -> str:
    """Write the traceback of the exception being handled to a file; return a sentence that names the file."""
    with tempfile.NamedTemporaryFile("w", prefix="lab-fault-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return f"Please report it with {file.name}."


def _complain(message: str, code: int) -> int:
    print("lab: " + shown(" ".join(message.split())), file=sys.stderr)
    return code

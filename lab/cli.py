"""The command line of the lab: which commands there are, and how one ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from types import FrameType
from typing import Annotated

import typer

from lab import __version__, errors, verbs
from lab.blind.commands import app as blind
from lab.diagnose.command import diagnose
from lab.diagnose.export import export
from lab.diagnose.predict import predict
from lab.errors import LabError
from lab.replay.command import record, replay
from lab.runner.explain import explain
from lab.stacks.by_hand import redis
from lab.stacks.bystander import probe
from lab.stacks.foreign import clean
from lab.stacks.processes import INTERRUPTIONS, ignore_interruptions

app = typer.Typer(
    name="lab",
    help="Reproduce published Redis latency incidents, and judge every run by its claims.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(blind)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version, and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass  # the callback of --version does the work


app.command("list")(verbs.list_scenarios)
for command in (
    verbs.doctor,
    verbs.run,
    verbs.scene,
    verbs.report,
    verbs.compare,
    explain,
    diagnose,
    export,
    predict,
    probe,
    clean,
    record,
    replay,
):
    app.command()(command)
# Words after the first go to the server unchanged, options and negative numbers included.
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(redis)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    ignore_interruptions()  # a second Ctrl-C must not break off the shutdown
    raise KeyboardInterrupt


def main() -> int:
    """Entry point. From here on, Ctrl-C, SIGTERM and SIGHUP shut the lab down in order."""
    for number in INTERRUPTIONS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup has SIGHUP ignored: keep that
            signal.signal(number, _interrupt)
    return run_command(sys.argv[1:])


def run_command(arguments: list[str]) -> int:
    """Run one command line; return its exit code (see `lab.errors`). An error is one line on stderr."""
    command = typer.main.get_command(app)
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
        return _complain("interrupted; every process was ended, samples so far are kept.", errors.INTERRUPTED)
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
    print("lab: " + " ".join(message.split()), file=sys.stderr)
    return code

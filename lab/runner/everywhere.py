"""`bin/lab run ID --server all`: one scenario on every server that this machine has, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from lab.errors import StackError, Unfit
from lab.results.folder import Run, make_folder, new_folder
from lab.runner.phases import Display
from lab.runner.run import Request
from lab.runner.series import Pages, one_run, worst
from lab.scenarios.model import Scenario
from lab.server.servers import SERVERS


def servers_here(scenario: Scenario, say: Callable[[str], None]) -> list[str]:
    """Return the servers that can run a scenario here. `say` gets a line on each other one, with the reason.

    Raises `StackError` if there is none.
    """
    found = []
    for name, server in SERVERS.items():
        if server.find() is None:
            say(f"{name} is left out. {server.install}")
        elif unfit := server.unfit_for(scenario.server_settings):
            say(f"{name} is left out. {unfit}.")
        else:
            found.append(name)
    if not found:
        raise StackError(f"no server on this machine can run {scenario.id}.")
    return found


def run_everywhere(
    scenario: Scenario,
    request: Callable[[str, Path], Request],
    out: Path | None,
    pages: Pages,
    display: Callable[[], AbstractContextManager[Display]],
    say: Callable[[str], None],
) -> tuple[Path, list[Run], int]:
    """Run a scenario on every server; a run that breaks does not end the others.

    Returns the folder, the finished runs, and the exit code of the whole. `request` makes the request for one server
    and its folder; `say` announces each run and its outcome.
    """
    names = servers_here(scenario, say)
    folder = make_folder(out) if out else new_folder(f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{scenario.id}-all")
    codes = []
    for number, name in enumerate(names, start=1):
        say(f"{number} of {len(names)}: {scenario.id} on {name}")
        try:
            entry = one_run(request(name, folder / name), pages, display)
        except Unfit as error:
            say(f"{name} is left out. {error}")
            continue
        codes.append(entry.exit_code)
        say(f"{name}: {entry.verdict}. {entry.outcome}")
    finished = [Run(folder / name) for name in names if (folder / name / "result.json").is_file()]
    return folder, finished, worst(codes)

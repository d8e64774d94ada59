"""`lab run all`: one scenario after the other, each into a folder of its own, and a summary of them.

The summary (summary.json, summary.html) is rewritten after every run, so that an interruption loses no finished run.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import errors, scenarios
from lab.claims import wording
from lab.errors import LabError, Unfit
from lab.results.folder import Run, make_folder, new_folder, write_json
from lab.runner.phases import Display
from lab.runner.run import Request, cannot_hold, check_names, conduct
from lab.scenarios.model import Scenario
from lab.server.servers import SERVERS, STACKS

ALL = "all"
"""The word that stands for every scenario on the command line."""


@dataclass
class Entry:
    """A run of the series. `holds` is None without a verdict; `error`: why a run broke.

    `report` is a path within the series' folder; `headline` the scenario's foremost claim, as judged.
    """

    scenario: str
    title: str
    symptom: str
    cause: str
    refutes: bool
    exit_code: int
    seconds: float
    holds: bool | None = None
    server: str = ""
    claims: list[dict[str, Any]] = field(default_factory=list)
    headline: dict[str, Any] | None = None
    invalid: list[str] = field(default_factory=list)
    report: str | None = None
    error: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        if self.exit_code == errors.INTERRUPTED:
            return "interrupted"
        if self.error:
            return "broke"
        return wording.NOT_VALID if self.holds is None else wording.tally(self.claims, self.refutes)

    @property
    def outcome(self) -> str:
        """The headline's measurement, or the reason why there is none."""
        if self.error:
            return self.error
        if self.invalid:
            return "not fulfilled: " + "; ".join(self.invalid)
        return self.headline["measured"] if self.headline else ""


@dataclass(frozen=True)
class Pages:
    """Functions that write a page and return its path: `report` that of a run, `summary` that of the series."""

    report: Callable[[Run], Path]
    summary: Callable[[Path, dict[str, Any]], Path]


@dataclass
class RunSeries:
    """A series of runs, the content of summary.json.

    `left_out`: scenario → why it cannot be run on this server. `unfit`: product and version of a server that turned out
    unfit once started.
    """

    folder: Path
    command: str
    server: str
    stack: str
    pace: str
    seed: int
    planned: list[str]
    started: str
    left_out: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    unfit: str = ""

    @property
    def exit_code(self) -> int:
        """130 if interrupted; else 3 if a run broke, 1 if a claim failed, 4 if a run was not valid, or 0."""
        return errors.INTERRUPTED if self.interrupted else worst([entry.exit_code for entry in self.entries])

    @property
    def verdict(self) -> str:
        """The verdict in a sentence."""
        good = sum(entry.exit_code == errors.HOLDS for entry in self.entries)
        return wording.series(good, len(self.entries), len(self.planned), self.interrupted)

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return {
            "command": self.command,
            "server": self.server,
            "stack": self.stack,
            "pace": self.pace,
            "seed": self.seed,
            "started": self.started,
            "seconds": self.seconds,
            "planned": self.planned,
            "left_out": self.left_out,
            "interrupted": self.interrupted,
            "exit_code": self.exit_code,
            "verdict": self.verdict,
            "runs": [
                {**asdict(entry), "verdict": entry.verdict, "said": entry.outcome} for entry in self.entries
            ],
        }

    def write(self, pages: Pages) -> None:
        """Write summary.json and summary.html. Raises `StackError` if the folder cannot be written."""
        content = self.summary()
        write_json(self.folder / "summary.json", content)
        pages.summary(self.folder, content)


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of several runs or series.

    130 if one was interrupted; else 3 if one broke, 1 if a claim failed, 4 if one was not valid, or 0.
    """
    if errors.INTERRUPTED in codes:
        return errors.INTERRUPTED
    if any(code not in (errors.HOLDS, errors.CLAIM_FAILED, errors.NOT_VALID) for code in codes):
        return errors.STACK_BROKE
    return errors.CLAIM_FAILED if errors.CLAIM_FAILED in codes else max(codes, default=errors.HOLDS)


def chosen(controls: bool) -> list[Scenario]:
    """Return every scenario, the main incident first. `controls`: the controls too."""
    return [scenario for scenario in scenarios.catalogue().values() if controls or not scenario.refutes]


def run_series(
    wanted: Sequence[Scenario],
    request: Callable[[Scenario, Path], Request],
    out: Path | None,
    pages: Pages,
    display: Callable[[], AbstractContextManager[Display]],
    say: Callable[[str], None],
) -> RunSeries:
    """Run the scenarios one after the other. A run that breaks does not end the series; Ctrl-C does.

    Scenarios that cannot be run on the server are left out, some only once the server runs (by its version); `say` gets
    the reason. `request` makes the request for one scenario and its folder, `display` opens the progress of one run,
    and `say` announces each run. Raises `UsageError` or `StackError`, before anything is created, if a request cannot
    be carried out.
    """
    first = [request(scenario, Path(scenario.id)) for scenario in wanted]
    server, *_ = [check_names(one) for one in first]
    if first[0].stack == "native":
        server.require()
    unfit = {
        scenario.id: server.unfit_for(scenario.server_settings, first[0].stack)
        or cannot_hold(scenario).removesuffix(".")
        for scenario in wanted
    }
    left_out = {name: why for name, why in unfit.items() if why}
    for name, why in left_out.items():
        say(f"{name} is left out. {why}.")
    command = _command(first[0], wanted)
    wanted = [scenario for scenario in wanted if scenario.id not in left_out]
    started = datetime.now(UTC)
    folder = make_folder(out) if out else new_folder(f"{started:%Y%m%d-%H%M%S}-{ALL}")
    folder = folder.resolve()
    series = RunSeries(
        folder,
        command,
        first[0].server_name,
        first[0].stack,
        first[0].pace,
        first[0].seed,
        [scenario.id for scenario in wanted],
        started.isoformat(timespec="seconds"),
        left_out,
    )
    begun = time.monotonic()
    for number, scenario in enumerate(wanted, start=1):
        say(f"{number} of {len(wanted)}: {scenario.id}")
        at = time.monotonic()
        try:
            entry = one_run(request(scenario, folder / scenario.id), pages, display)
        except Unfit as error:
            series.planned.remove(scenario.id)
            series.unfit = error.server
            series.left_out[scenario.id] = str(error).removesuffix(".")
            series.seconds = time.monotonic() - begun
            say(f"{scenario.id} is left out. {error}")
            series.write(pages)
            continue
        except KeyboardInterrupt:
            entry = _entry(scenario, errors.INTERRUPTED)
            series.interrupted = True
        if entry.report is None:
            entry.report = _partial_report(folder, pages, scenario)
        entry.seconds = time.monotonic() - at
        series.seconds = time.monotonic() - begun
        series.entries.append(entry)
        series.write(pages)
        if series.interrupted:
            break
    return series


def one_run(request: Request, pages: Pages, display: Callable[[], AbstractContextManager[Display]]) -> Entry:
    """Carry out one run and its report. The entry has the error that ended the run. Raises `Unfit`."""
    scenario = request.scenario
    try:
        with display() as shown:
            finished, verdict = conduct(request, shown)
            shown.say("drawing the report")
            report = pages.report(finished)
    except Unfit:
        raise
    except LabError as error:
        return _entry(scenario, error.exit_code, error=" ".join(str(error).split()))
    except Exception as error:  # a fault of the lab in one scenario must not end the series
        return _entry(scenario, errors.STACK_BROKE, error=f"a fault in the lab itself, {error!r}")
    entry = _entry(scenario, verdict.exit_code)
    entry.holds = verdict.holds
    entry.server = f"{finished.facts.server} {finished.facts.server_version}"
    entry.claims = (finished.result() or {}).get("claims", [])
    entry.headline = next((claim for claim in entry.claims if claim["id"] == scenario.headline), None)
    entry.invalid = [check.check for check in verdict.checks if not check.ok]
    entry.report = f"{report.parent.name}/{report.name}"
    return entry


def _partial_report(folder: Path, pages: Pages, scenario: Scenario) -> str | None:
    """Write the report of a run that did not finish. Returns its path, or None if there is nothing to report."""
    try:
        path = pages.report(Run(folder / scenario.id))
    except (
        Exception
    ):  # it broke before its first phase: the entry has its error, and there is nothing to draw
        return None
    return f"{path.parent.name}/{path.name}"


def _entry(scenario: Scenario, exit_code: int, error: str = "") -> Entry:
    return Entry(
        scenario.id,
        scenario.title,
        scenario.symptom,
        scenario.cause,
        scenario.refutes,
        exit_code,
        0.0,
        error=error,
    )


def _command(request: Request, wanted: Sequence[Scenario]) -> str:
    words = ["bin/lab", "run", ALL, "--pace", request.pace]
    if any(scenario.refutes for scenario in wanted):
        words.insert(3, "--controls")
    if request.stack != "native":
        words += ["--stack", request.stack]
    if request.server_name != STACKS[request.stack]:
        words += ["--server", request.server_name]
    if given := SERVERS[request.server_name].path:
        words += ["--server-path", given]
    return shlex.join([*words, "--seed", str(request.seed)])

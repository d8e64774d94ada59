"""`lab run all`: what a run that fails, breaks or is interrupted means for the others, and what is written down."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab import scenarios
from lab.claims.verdict import Verdict, write_result
from lab.cli import run_command
from lab.errors import StackError, Unfit, UsageError
from lab.report import write_report, write_summary
from lab.results.folder import Run
from lab.runner import series
from lab.runner.everywhere import run_everywhere
from lab.runner.judging import reach
from lab.runner.run import Request
from lab.runner.series import Pages, RunSeries, chosen, run_series
from lab.server.servers import SERVERS
from tests.lab.doctored import build_run
from tests.lab.labkit import tree, typed

MAIN, CONTROL = scenarios.find("key-growth"), scenarios.find("control")
OTHER = scenarios.find("keys-command")
Ending = Callable[[Request], tuple[Run, Verdict]]


def ends_with(cause: str, **more: Any) -> Ending:
    """Return a run that reaches a verdict; `cause` and `more` are arguments of `build_run`."""

    def run(request: Request) -> tuple[Run, Verdict]:
        assert request.out
        done = build_run(request.out, cause, **more)
        verdict = reach(done)
        write_result(done, verdict)
        return done, verdict

    return run


def raises(error: BaseException) -> Ending:
    """Return a run that raises this error."""

    def run(request: Request) -> tuple[Run, Verdict]:
        raise error

    return run


def blank(run: Run) -> Path:
    """Write a page that stands for the run's report: drawing one takes a second."""
    page = run.folder / "report.html"
    page.write_text("")
    return page


class Stage:
    """Runs a series whose runs end as the test says, and records what is said meanwhile."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out = out
        self.said: list[str] = []
        self.server: str | None = None
        self.stack, self.pace = "native", "quick"
        self.report: Callable[[Run], Path] = blank
        self.endings: dict[str, Ending] = {}
        monkeypatch.setattr(
            series, "conduct", lambda request, shown: self.endings[request.scenario.id](request)
        )

    def runs(self, **endings: Ending) -> RunSeries:
        """Run a series of these scenarios, each with its ending."""
        self.endings = {name.replace("_", "-"): ending for name, ending in endings.items()}
        return run_series(
            [scenarios.find(name) for name in self.endings],
            lambda scenario, folder: Request(
                scenario, self.server, self.pace, None, 1, folder, stack=self.stack
            ),
            self.out,
            Pages(self.report, write_summary),
            lambda: nullcontext(self),  # type: ignore[arg-type]
            self.said.append,
        )

    def say(self, text: str) -> None:
        """Ignore what a run tells while it goes on."""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage for a series in a folder of the test's own."""
    return Stage(tmp_path / "all", monkeypatch)


def test_each_runs_into_a_folder_of_its_own_and_the_summary_tells_of_all(stage: Stage) -> None:
    """The summary tells of every run; an incident that holds and a refuted control are as promised: exit code 0."""
    stage.report = write_report
    done = stage.runs(key_growth=ends_with("scan"), control=ends_with("index"))
    assert [entry.exit_code for entry in done.entries] == [0, 0]
    assert (done.exit_code, done.verdict) == (0, "All 2 runs are as promised.")
    assert stage.said == ["1 of 2: key-growth", "2 of 2: control"]
    written = json.loads((stage.out / "summary.json").read_text())
    assert (written["exit_code"], written["planned"]) == (0, ["key-growth", "control"])
    assert [run["scenario"] for run in written["runs"]] == ["key-growth", "control"]
    assert written["runs"][0]["verdict"] == f"all {len(MAIN.claims)} hold"
    assert "as it should be" in written["runs"][1]["verdict"]
    assert written["runs"][0]["headline"]["id"] == MAIN.headline
    page = (stage.out / "summary.html").read_text()
    for name in written["planned"]:
        assert f'href="{name}/report.html"' in page
        assert (stage.out / name / "report.html").is_file()


def test_one_that_breaks_does_not_keep_the_next_from_its_turn(stage: Stage) -> None:
    """A broken stack or a fault of the lab does not end the series; both are told, and the exit code is 3."""
    done = stage.runs(
        keys_command=raises(StackError("the replica\ndoes not answer.")),
        control=raises(ZeroDivisionError("by nought")),
        key_growth=ends_with("scan"),
    )
    assert [entry.exit_code for entry in done.entries] == [3, 3, 0]
    assert [entry.verdict for entry in done.entries[:2]] == ["broke", "broke"]
    assert done.entries[0].outcome == "the replica does not answer."
    assert done.entries[1].outcome == "a fault in the lab itself, ZeroDivisionError('by nought')"
    assert [entry.report for entry in done.entries[:2]] == [None, None]
    assert (done.exit_code, done.verdict) == (3, "1 of 3 runs are as promised.")
    page = (stage.out / "summary.html").read_text()
    assert "the replica does not answer." in page
    assert "ZeroDivisionError" in page


def test_one_that_breaks_in_the_middle_has_a_report_of_what_was_measured(stage: Stage) -> None:
    """A run that breaks midway has a report of the samples taken so far."""

    def breaks(request: Request) -> tuple[Run, Verdict]:
        assert request.out
        build_run(request.out)
        raise StackError("the server does not answer.")

    done = stage.runs(key_growth=breaks)
    assert (done.entries[0].exit_code, done.entries[0].report) == (3, "key-growth/report.html")


def test_ctrl_c_ends_the_series_and_keeps_what_was_done(stage: Stage) -> None:
    """Ctrl-C ends the series with exit code 130, keeps finished runs and names those that were not run."""
    done = stage.runs(
        control=ends_with("index"), key_growth=raises(KeyboardInterrupt()), keys_command=ends_with("scan")
    )
    assert [entry.exit_code for entry in done.entries] == [0, 130]
    assert (done.exit_code, done.interrupted) == (130, True)
    assert done.verdict == "Interrupted: 1 of 3 runs were as promised until then."
    written = json.loads((stage.out / "summary.json").read_text())
    assert written["runs"][1]["verdict"] == "interrupted"
    assert "Not run: keys-command." in (stage.out / "summary.html").read_text()


def test_a_claim_that_fails_and_a_run_that_is_not_valid_are_told_apart(stage: Stage) -> None:
    """A control whose claims hold has failed; a run that is not valid has no verdict."""
    done = stage.runs(
        control=ends_with("index", p99_ms={f"grow-{i}": 10.0 * i for i in range(1, 8)}),
        key_growth=ends_with("scan", doctor=lambda facts: setattr(facts, "interrupted", True)),
    )
    control, main = done.entries
    assert (main.exit_code, main.verdict, main.holds) == (4, "not valid", None)
    assert main.outcome.startswith("not fulfilled: ")
    assert (control.exit_code, control.holds, done.exit_code) == (1, False, 1)
    assert re.fullmatch(rf"[1-9] of {len(CONTROL.claims)} held without the cause", control.verdict)


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, 1], 1), ([4, 1, 0], 1), ([0, 4], 4), ([1, 3, 4], 3), ([0, 2], 3), ([], 0)],
)
def test_worst_exit_code_stands_for_all(codes: list[int], code: int) -> None:
    """A broken run outweighs a failed claim, and a failed claim outweighs a run without a verdict."""
    done = RunSeries(Path(), "", "", "native", "quick", 1, [], "")
    done.entries = [series._entry(MAIN, each) for each in codes]
    assert done.exit_code == code


def test_what_a_server_cannot_do_is_left_out_and_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario that needs a setting the server lacks is left out, which is told and is no failure of the series."""
    monkeypatch.setitem(SERVERS, "dragonfly", replace(SERVERS["dragonfly"], find=lambda: "/somewhere"))
    stage.server = "dragonfly"
    done = stage.runs(eviction_cycle=raises(AssertionError()), key_growth=ends_with("scan"))
    assert stage.said[0].startswith(
        "eviction-cycle is left out. dragonfly has no maxmemory-policy: its cache_mode"
    )
    assert (done.planned, done.exit_code) == (["key-growth"], 0)
    assert list(json.loads((stage.out / "summary.json").read_text())["left_out"]) == ["eviction-cycle"]
    assert (
        "eviction-cycle is left out. dragonfly has no maxmemory-policy"
        in (stage.out / "summary.html").read_text()
    )


def test_what_a_server_shows_it_cannot_do_is_left_out(stage: Stage) -> None:
    """Redis 7 knows cluster mode, and searches all slots there: one-slot says so once the server runs."""
    unfit = raises(Unfit("redis 7.0.15 searches all slots.", "redis 7.0.15"))
    done = stage.runs(one_slot=unfit, key_growth=ends_with("scan"), control=ends_with("index"))
    assert (done.planned, done.exit_code) == (["key-growth", "control"], 0)
    assert "one-slot is left out. redis 7.0.15 searches all slots." in stage.said
    written = json.loads((stage.out / "summary.json").read_text())
    assert written["left_out"] == {"one-slot": "redis 7.0.15 searches all slots"}
    assert written["verdict"] == "All 2 runs are as promised."


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("pace", "hurried", "there is no pace 'hurried'"),
        ("stack", "nomad", "there is no stack 'nomad'"),
        ("server", "memcached", "there is no server 'memcached'"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_created(
    stage: Stage, field: str, value: str, said: str
) -> None:
    """An unknown pace, stack or server is refused before anything is created."""
    setattr(stage, field, value)
    with pytest.raises(UsageError, match=said):
        stage.runs(key_growth=raises(AssertionError()))
    assert not stage.out.exists()


@pytest.mark.parametrize(
    "option", [("--keys", "20000"), ("--url", "redis://127.0.0.1:1"), ("--port", "7000")]
)
def test_options_for_one_scenario_are_refused(option: tuple[str, str], tmp_path: Path) -> None:
    """`lab run all` refuses an option for one scenario: one line, exit code 2."""
    answer = typed("run", "all", *option, cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert f"{option[0]} is for one run" in answer.err
    assert tree(tmp_path) == []


def test_controls_are_run_where_they_are_wanted() -> None:
    """`all` chooses every incident, and with the controls every scenario of the catalogue."""
    assert all(not scenario.refutes for scenario in chosen(controls=False))
    assert chosen(controls=True) == list(scenarios.catalogue().values())
    assert len(chosen(controls=False)) == 12


@pytest.mark.parametrize("spoilers", [False, True])
def test_spoilers_reach_runs_and_summary(
    spoilers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lab run all` shows the causes at the start of each run, on the summary's page and in the terminal;
    `--quiet-cause` hides them.
    """
    asked = []

    def breaks(request: Request, _shown: object) -> tuple[Run, Verdict]:
        asked.append(request.spoilers)
        raise StackError("the server does not answer.")

    monkeypatch.setattr(series, "conduct", breaks)
    words = ["run", "all", "--pace", "quick", "--out", str(tmp_path / "all")]
    assert run_command([*words, *([] if spoilers else ["--quiet-cause"])]) == 3
    assert asked == [spoilers] * len(chosen(controls=False))
    page = (tmp_path / "all" / "summary.html").read_text()
    assert ("<details open>" in page, "<details>" in page) == (spoilers, not spoilers)
    assert ("no verdict because" in capsys.readouterr().out) != spoilers


def test_every_server_that_is_here_gets_its_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are not here are left out in one line; a run that breaks ends no other, and is told."""
    here = ("embedded", "redis")
    for name, row in list(SERVERS.items()):
        found = "file" if name in here else None
        monkeypatch.setitem(SERVERS, name, replace(row, find=partial(str, found) if found else lambda: None))
    endings = {"embedded": ends_with("scan"), "redis": raises(StackError("redis does not answer."))}
    monkeypatch.setattr(series, "conduct", lambda request, shown: endings[request.server](request))
    folder, runs, code = run_everywhere(
        MAIN,
        lambda name, place: Request(MAIN, name, "quick", None, 1, place),
        stage.out,
        Pages(blank, write_summary),
        lambda: nullcontext(stage),  # type: ignore[arg-type]
        stage.said.append,
    )
    assert (folder, [run.folder.name for run in runs], code) == (stage.out, ["embedded"], 3)
    assert [line for line in stage.said if "left out" in line] == [
        f"{name} is left out. {row.install}" for name, row in SERVERS.items() if name not in here
    ]
    assert "redis: broke. redis does not answer." in stage.said

"""`lab run all --servers`: the matrix of scenario × server, and servers given by their files."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import report, scenarios
from lab.claims.verdict import Verdict
from lab.cli import run_command
from lab.errors import (
    CLAIM_FAILED,
    HOLDS,
    INTERRUPTED,
    NOT_VALID,
    STACK_BROKE,
    USAGE,
    StackError,
    Unfit,
    UsageError,
)
from lab.report import matrix
from lab.results.folder import Run
from lab.runner import series
from lab.runner.run import Request, command_of
from lab.stacks import servers
from lab.stacks.servers import SERVERS, add_servers
from tests.lab.labkit import tree, typed
from tests.lab.runner.test_series import blank, ends_with

MAIN, OTHER = scenarios.find("key-growth"), scenarios.find("eviction-cycle")
PROGRAM = str(shutil.which("true"))


@pytest.fixture(autouse=True)
def own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers that a test adds are gone after it; Dragonfly and Redis seem to be installed."""
    before = dict(SERVERS)
    for name in ("dragonfly", "redis"):
        monkeypatch.setitem(SERVERS, name, replace(SERVERS[name], find=lambda: PROGRAM))
    yield
    for name in set(SERVERS) - set(before):
        del SERVERS[name]
    SERVERS.update(before)


def doctored(cause: str = "scan", **more: Any) -> Callable[[Request, object], tuple[Run, Verdict]]:
    """Return a run that reaches a verdict; `cause` and `more` are arguments of `build_run`."""
    return lambda request, _shown: ends_with(cause, **more)(request)


FLAT = {f"grow-{number}": 1.0 for number in range(1, 8)}
"""The p99 of a run in which nothing happened."""


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """Let runs end without a server: as the incident's claims say, or on a server that is named here by this error."""
    raised: dict[str, BaseException] = {}

    def conduct(request: Request, shown: object) -> tuple[Run, Verdict]:
        if error := raised.get(request.server_name):
            raise error
        return doctored()(request, shown)

    monkeypatch.setattr(series, "conduct", conduct)
    monkeypatch.setattr(series, "chosen", lambda controls: [MAIN, OTHER])
    monkeypatch.setattr(report, "write_report", lambda run, spoilers: blank(run))
    return raised


def run(folder: Path, names: str, *more: str, scenario: str = "all") -> tuple[int, dict[str, Any]]:
    """Run the matrix of these servers; return the exit code and what matrix.json holds."""
    code = run_command(
        ["run", scenario, "--servers", names, "--pace", "quick", "--out", str(folder / "out"), *more]
    )
    return code, json.loads((folder / "out" / "matrix.json").read_text())


def test_a_row_for_each_scenario_and_a_column_for_each_server(
    endings: dict[str, BaseException], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell has verdict, headline, cost of a visited key and report; or why the scenario cannot be run there."""
    code, content = run(tmp_path, "embedded,dragonfly")
    assert code == HOLDS
    assert [row["id"] for row in content["scenarios"]] == ["key-growth", "eviction-cycle"]
    cells = content["scenarios"][0]["cells"]
    assert list(cells) == ["embedded", "dragonfly"]
    assert cells["embedded"]["verdict"] == f"all {len(MAIN.claims)} hold"
    assert cells["embedded"]["headline"]["id"] == MAIN.headline
    assert cells["embedded"]["visited_key_us"] > 0
    assert (tmp_path / "out" / cells["embedded"]["report"]).is_file()
    other = content["scenarios"][1]["cells"]
    assert "dragonfly has no maxmemory-policy" in other["dragonfly"]["left_out"]
    assert other["embedded"]["holds"] is True
    assert [server["product"] for server in content["servers"]] == ["valkey 9.1.2", "valkey 9.1.2"]
    assert content["command"] == "bin/lab run all --pace quick --servers embedded,dragonfly --seed 1"
    said = capsys.readouterr()
    assert "3 of 3 runs on 2 servers ended as their scenarios promise." in said.out
    assert "server 2 of 2: dragonfly" in said.err


def test_one_scenario_can_be_run_on_several_servers(
    endings: dict[str, BaseException], tmp_path: Path
) -> None:
    """The matrix has its row alone. A server that lacks what it is made of is told by its version, too."""
    endings["redis"] = Unfit("redis 7.0.15 searches all slots.", "redis 7.0.15")
    code, content = run(tmp_path, "embedded,redis", scenario="eviction-cycle")
    assert code == HOLDS
    assert [row["id"] for row in content["scenarios"]] == ["eviction-cycle"]
    assert content["scenarios"][0]["cells"]["embedded"]["holds"] is True
    assert content["scenarios"][0]["cells"]["redis"] == {"left_out": "redis 7.0.15 searches all slots"}
    assert [server["product"] for server in content["servers"]] == ["valkey 9.1.2", "redis 7.0.15"]
    assert content["servers"][1]["verdict"] == "Nothing could be run here."
    assert content["command"] == "bin/lab run eviction-cycle --pace quick --servers embedded,redis --seed 1"
    summary = json.loads((tmp_path / "out" / "embedded" / "summary.json").read_text())
    assert summary["command"] == "bin/lab run eviction-cycle --pace quick --seed 1"


def test_a_product_is_told_with_the_options_of_the_command_line(
    endings: dict[str, BaseException], tmp_path: Path
) -> None:
    """So that the same program can be compared with other options."""
    _, content = run(tmp_path, "redis,redis-io", "--server-path", f"redis-io={PROGRAM} --io-threads 2")
    assert [server["product"] for server in content["servers"]] == [
        "valkey 9.1.2",
        "valkey 9.1.2 --io-threads 2",
    ]
    assert f"--server-path 'redis-io={PROGRAM} --io-threads 2'" in content["command"]


def test_the_page_folds_what_tells_the_causes(endings: dict[str, BaseException], tmp_path: Path) -> None:
    """The page has outcomes, versions and costs in the open; headlines and refuted claims are folded."""
    _, content = run(tmp_path, "embedded,dragonfly")
    page = (tmp_path / "out" / "matrix.html").read_text()
    for server in ("embedded", "dragonfly"):
        assert f'href="{server}/summary.html"' in page
        assert (tmp_path / "out" / server / "summary.html").is_file()
    headline = content["scenarios"][0]["cells"]["embedded"]["headline"]["statement"]
    before, after = page.split("<details", 1)
    assert headline not in before
    assert headline in after
    assert "µs" in before
    assert "<details open" in matrix.render(content, spoilers=True)


def test_a_server_that_is_held_has_no_cost_of_a_key(
    endings: dict[str, BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock goes on while it is held, so the figure of its calibration is not one of a visited key."""
    monkeypatch.setattr(series, "chosen", lambda controls: [replace(MAIN, node_share=0.25)])
    monkeypatch.setattr(series, "cannot_hold", lambda scenario: "")
    _, content = run(tmp_path, "embedded,redis")
    cell = content["scenarios"][0]["cells"]["embedded"]
    assert cell["holds"] is True
    assert cell["visited_key_us"] is None


def test_a_server_that_breaks_does_not_keep_the_next_from_its_turn(
    endings: dict[str, BaseException], tmp_path: Path
) -> None:
    """Its runs are told as broken, and the exit code is 3."""
    endings["redis"] = StackError("the server does not answer.")
    code, content = run(tmp_path, "redis,embedded")
    assert code == STACK_BROKE
    assert content["scenarios"][0]["cells"]["redis"]["verdict"] == "broke"
    assert content["scenarios"][0]["cells"]["embedded"]["holds"] is True
    assert matrix.verdict(content) == "2 of 4 runs on 2 servers ended as their scenarios promise."


def test_ctrl_c_ends_all_and_keeps_what_was_done(endings: dict[str, BaseException], tmp_path: Path) -> None:
    """The exit code is 130; the matrix names the servers that had no turn."""
    endings["redis"] = KeyboardInterrupt()
    code, content = run(tmp_path, "embedded,redis,dragonfly")
    assert code == INTERRUPTED
    assert content["not_run"] == ["dragonfly"]
    assert content["scenarios"][0]["cells"]["dragonfly"] is None
    assert content["scenarios"][0]["cells"]["embedded"]["holds"] is True
    assert matrix.verdict(content).startswith("Interrupted. 2 of 3 runs")


def test_a_refuted_claim_is_named_where_it_was_refuted(
    endings: dict[str, BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1, and the folded part names server, scenario and claims."""
    monkeypatch.setattr(series, "conduct", doctored(p99_ms=FLAT))
    code, content = run(tmp_path, "embedded,redis")
    assert code == CLAIM_FAILED
    (first, *_) = matrix.reasons(content)
    assert first.startswith("key-growth on embedded: refuted are ")
    assert matrix.cell_text(content["scenarios"][0]["cells"]["embedded"]).startswith("✗ ")


def test_a_run_that_is_not_valid_refutes_nothing(
    endings: dict[str, BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claims were judged, but do not count: nothing is called refuted."""
    monkeypatch.setattr(
        series, "conduct", doctored(p99_ms=FLAT, doctor=lambda facts: setattr(facts, "interrupted", True))
    )
    code, content = run(tmp_path, "embedded,redis")
    assert code == NOT_VALID
    assert matrix.reasons(content) == []
    assert matrix.cell_text(content["scenarios"][0]["cells"]["redis"]) == "? not valid"


def test_a_control_whose_claims_hold_is_told(
    endings: dict[str, BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What held without the cause is named."""
    monkeypatch.setattr(
        series, "conduct", doctored("index", p99_ms={name: 10.0 * int(name[-1]) for name in FLAT})
    )
    monkeypatch.setattr(series, "chosen", lambda controls: [scenarios.find("control")])
    code, content = run(tmp_path, "embedded,redis")
    assert code == CLAIM_FAILED
    assert matrix.reasons(content)[0].startswith("control on embedded: claims hold without the cause: ")


def test_whatever_ends_it_the_matrix_is_written(
    endings: dict[str, BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two runs, too: the servers that were done are there."""
    written = series.Series.write
    monkeypatch.setattr(
        series.Series,
        "write",
        lambda self, pages: (
            written(self, pages) if self.server == "embedded" else raise_(KeyboardInterrupt())
        ),
    )
    code, content = run(tmp_path, "embedded,redis")
    assert code == INTERRUPTED
    assert [server["name"] for server in content["servers"]] == ["embedded"]
    assert content["not_run"] == ["redis"]
    assert content["interrupted"]
    assert content["exit_code"] == INTERRUPTED


@pytest.mark.parametrize(
    ("error", "wanted"), [(KeyboardInterrupt(), INTERRUPTED), (StackError("no disk."), STACK_BROKE)]
)
def test_a_matrix_without_a_server_has_the_code_of_what_ended_it(
    error: BaseException,
    wanted: int,
    endings: dict[str, BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first series ended before its end: nobody who reads the file takes that for success."""
    monkeypatch.setattr(series.Series, "write", lambda self, pages: raise_(error))
    code, content = run(tmp_path, "embedded,redis")
    assert code == wanted
    assert content["exit_code"] == wanted
    assert content["interrupted"] is (wanted == INTERRUPTED)
    assert content["not_run"] == ["embedded", "redis"]


def raise_(error: BaseException) -> None:
    """Raise it."""
    raise error


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["all", "--servers", "embedded"], "--servers takes two servers or more", USAGE),
        (["all", "--servers", "embedded,embedded"], "--servers names embedded twice", USAGE),
        (["all", "--servers", "embedded,memcached"], "there is no server 'memcached'", USAGE),
        (["all", "--servers", "embedded,keydb"], "there is no keydb on this machine", STACK_BROKE),
        (["all", "--servers", "embedded,redis", "--pace", "warp"], "quick, standard, full", USAGE),
        (
            ["all", "--servers", "embedded,redis", "--server", "redis"],
            "leave --server and --stack out",
            USAGE,
        ),
        (
            ["all", "--servers", "embedded,redis", "--stack", "compose"],
            "leave --server and --stack out",
            USAGE,
        ),
        (["nothing", "--servers", "embedded,redis"], "there is no scenario 'nothing'", USAGE),
        (["key-growth", "--servers", "embedded,redis", "--keys", "9"], "--keys is for one run", USAGE),
        (["key-growth", "--servers", "embedded,redis", "--controls"], "--controls is for `bin/lab", USAGE),
        (["key-growth", "--server-path", "redis"], "--server-path takes NAME=FILE, not 'redis'", USAGE),
        (["key-growth", "--server-path", "mysql=/bin/true"], "--server-path takes NAME=FILE", USAGE),
        (["key-growth", "--server-path", "redis=/nowhere"], "/nowhere is no program", USAGE),
        (["key-growth", "--server-path", "redis=/nowhere --x 1"], ": /nowhere is no program", USAGE),
        (["key-growth", "--server-path", "redis=/bin/true 'x"], "/bin/true 'x is no program", USAGE),
        (["key-growth", "--server-path", "redis= "], "--server-path takes NAME=FILE", USAGE),
        (["key-growth", "--server-path", "redis-../x=/bin/true"], "--server-path takes NAME=FILE", USAGE),
        (["key-growth", "--server-path", "redis-=/bin/true"], "--server-path takes NAME=FILE", USAGE),
        (
            ["key-growth", "--server-path", "redis=/bin/true"],
            "--server-path names redis, which is not run",
            USAGE,
        ),
        (
            ["all", "--servers", "embedded,redis", "--server-path", "redis-8.4=/bin/true"],
            "--server-path names redis-8.4, which is not run",
            USAGE,
        ),
        (
            ["key-growth", "--url", "redis://127.0.0.1:1", "--server-path", "redis=/bin/true"],
            "leave --stack and --url out",
            USAGE,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line(
    words: list[str], said: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and nothing is created."""
    monkeypatch.setitem(SERVERS, "keydb", replace(SERVERS["keydb"], find=lambda: None))
    answer = typed("run", *words, cwd=tmp_path)
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert tree(tmp_path) == []


def test_a_file_takes_the_place_of_a_servers_binary() -> None:
    """NAME=FILE replaces the binary; with a label it is one more server, with all else as the first has it."""
    add_servers([f"redis={PROGRAM}", f"redis-8.4={PROGRAM}"])
    assert SERVERS["redis"].require() == SERVERS["redis-8.4"].require() == PROGRAM
    assert SERVERS["redis-8.4"].command(7000, "/tmp")[0] == PROGRAM
    assert SERVERS["redis-8.4"].arguments == SERVERS["redis"].arguments
    assert list(SERVERS)[-1] == "redis-8.4"


def test_a_relative_file_is_meant_from_where_the_person_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of a run work in another folder."""
    (tmp_path / "server").write_text("#!/bin/sh\n")
    (tmp_path / "server").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    add_servers(["redis-own=./server"])
    assert SERVERS["redis-own"].require() == str(tmp_path / "server")


def test_the_command_that_repeats_a_run_names_the_file() -> None:
    """Without it the name of the server would mean nothing, or another binary."""
    given = f"redis-8.4={PROGRAM}"
    add_servers([given])
    request = Request(MAIN, "redis-8.4", "quick", None, 1, None)
    assert f"--server redis-8.4 --server-path {given}" in command_of(request)
    assert "--server-path" not in command_of(replace(request, server="redis"))


def test_options_of_the_program_follow_the_labs_own() -> None:
    """So they win where both name one. The matrix tells them with the product, and the command has them in quotes."""
    given = f"redis-io={PROGRAM} --io-threads 2 --save '900 1'"
    add_servers([given])
    server = SERVERS["redis-io"]
    assert server.command(7000, "/tmp")[-6:] == ["--io-threads", "2", "--save", "900 1", "--port", "7000"]
    command = command_of(Request(MAIN, "redis-io", "quick", None, 1, None))
    assert shlex.split(command)[-3] == given


def test_a_file_with_blanks_in_its_path_is_one_word(tmp_path: Path) -> None:
    """Where such a file is there. Elsewhere the words behind the first are options."""
    file = tmp_path / "my server"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    add_servers([f"redis-own={file}"])
    assert SERVERS["redis-own"].require() == str(file) and SERVERS["redis-own"].options == ()


def test_a_name_without_a_file_adds_nothing() -> None:
    """What was named before the bad one does not matter: the command ends."""
    with pytest.raises(UsageError, match="NAME=FILE"):
        add_servers(["redis-8.4="])
    assert "redis-8.4" not in servers.SERVERS

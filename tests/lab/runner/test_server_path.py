"""Servers given by their files (`--server-path`)."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import scenarios
from lab.errors import USAGE, UsageError
from lab.runner.run import Request, command_of
from lab.server.servers import SERVERS, add_servers
from tests.lab.labkit import tree, typed

MAIN = scenarios.find("key-growth")
PROGRAM = str(shutil.which("true"))


@pytest.fixture(autouse=True)
def own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers that a test adds are gone after it; Redis seems to be installed."""
    before = dict(SERVERS)
    monkeypatch.setitem(SERVERS, "redis", replace(SERVERS["redis"], find=lambda: PROGRAM))
    yield
    for name in set(SERVERS) - set(before):
        del SERVERS[name]
    SERVERS.update(before)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["key-growth", "--server-path", "redis"], "--server-path takes NAME=FILE, not 'redis'"),
        (["key-growth", "--server-path", "mysql=/bin/true"], "--server-path takes NAME=FILE"),
        (["key-growth", "--server-path", "redis=/nowhere"], "/nowhere is no program"),
        (["key-growth", "--server-path", "redis=/nowhere --x 1"], ": /nowhere is no program"),
        (["key-growth", "--server-path", "redis=/bin/true 'x"], "/bin/true 'x is no program"),
        (["key-growth", "--server-path", "redis= "], "--server-path takes NAME=FILE"),
        (["key-growth", "--server-path", "redis-../x=/bin/true"], "--server-path takes NAME=FILE"),
        (["key-growth", "--server-path", "redis-=/bin/true"], "--server-path takes NAME=FILE"),
        (
            ["key-growth", "--server-path", "redis=/bin/true"],
            "--server-path names redis, which is not run",
        ),
        (
            ["all", "--server", "redis", "--server-path", "redis-8.4=/bin/true"],
            "--server-path names redis-8.4, which is not run",
        ),
        (
            ["key-growth", "--url", "redis://127.0.0.1:1", "--server-path", "redis=/bin/true"],
            "leave --stack and --url out",
        ),
        (["all", "--server", "all"], "--server all is for one scenario"),
        (["key-growth", "--server", "all", "--json"], "--json is for a run on one server"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    """One line, and nothing is created."""
    answer = typed("run", *words, cwd=tmp_path)
    assert answer.is_one_line(USAGE), answer
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
    """So they win where both name one. The command has them in quotes."""
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
    assert "redis-8.4" not in SERVERS

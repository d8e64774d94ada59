"""Bad input: one clear line on stderr, the exit code of the contract, no traceback, and nothing created."""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from lab import scenarios
from lab.cli import GROUPS, build, main, run_command
from lab.results.folder import RunFacts
from lab.scene.doctor import outcome, packages
from lab.server.checks import CheckResult
from lab.server.servers import ADDRESS
from tests.app.servicekit import free_port
from tests.lab.doctored import build_run
from tests.lab.labkit import LAB, ROOT, Answer, lab, tree, typed

BAD_USAGE = {
    "unknown scenario": (["run", "key-growht"], "did you mean 'key-growth'?"),
    "scenario in capitals": (["run", "CONTROL"], "no scenario 'CONTROL'"),
    "no scenario": (["run"], "Missing argument 'ID'"),
    "two scenarios": (["run", "control", "key-growth"], "key-growth"),
    "no keys": (["run", "key-growth", "--keys", "0"], "--keys must be between 10,000 and 50,000,000, not 0"),
    "keys in words": (["run", "key-growth", "--keys", "many"], "--keys"),
    "negative keys": (["run", "key-growth", "--keys", "-5"], "not -5"),
    "half a key": (["run", "key-growth", "--keys", "20000.5"], "--keys"),
    "too many keys": (["run", "key-growth", "--keys", "1000000000000"], "50,000,000"),
    "unknown pace": (["run", "key-growth", "--pace", "warp"], "quick, standard, full"),
    "unknown server": (["run", "key-growth", "--server", "memcached"], "embedded, valkey, redis"),
    "unknown stack": (["run", "key-growth", "--stack", "cloud"], "native"),
    "seed in words": (["run", "key-growth", "--seed", "lucky"], "--seed"),
    "negative seed": (["run", "key-growth", "--seed", "-1"], "--seed"),
    "port 0": (["run", "key-growth", "--port", "0"], "--port"),
    "port above all ports": (["run", "key-growth", "--port", "65536"], "--port"),
    "url of another kind": (
        ["run", "key-growth", "--url", "http://127.0.0.1"],
        "--url must begin with redis://",
    ),
    "url without a host": (["run", "key-growth", "--url", "redis://"], "--url names no host"),
    "url without a scheme": (
        ["run", "key-growth", "--url", "127.0.0.1:6379"],
        "--url must begin with redis://",
    ),
    "url with a word as port": (
        ["run", "key-growth", "--url", "redis://127.0.0.1:x/0", "--yes"],
        "--url must have a port",
    ),
    "url with a port above all": (
        ["run", "key-growth", "--url", "redis://127.0.0.1:99999/0"],
        "--url must have a port",
    ),
    "url with a broken address": (
        ["run", "key-growth", "--url", "redis://[::1/0"],
        "--url holds a broken IPv6 address",
    ),
    "url with a word as database": (
        ["run", "key-growth", "--url", "redis://127.0.0.1:1/x"],
        "--url must name its database",
    ),
    "option without its value": (["run", "key-growth", "--pace"], "--pace"),
    "unknown command": (["walk"], "No such command 'walk'"),
    "unknown option": (["list", "--yaml"], "No such option: --yaml"),
    "unknown option of run": (["run", "key-growth", "--fast"], "No such option: --fast"),
    "report of nothing": (["report"], "Missing argument 'DIR...'"),
    "report of a folder that is not there": (["report", "nowhere"], "nowhere is not a run folder"),
    "report of another folder": (["report", "."], "is not a run folder"),
    "a story of two runs": (["report", "--story", "one", "two"], "name one run folder"),
}


@pytest.mark.parametrize("what", BAD_USAGE)
def test_bad_usage_is_one_line_and_exit_2(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A wrong command line gets one line that names the mistake and exit code 2; no file is created."""
    arguments, said = BAD_USAGE[what]
    monkeypatch.chdir(tmp_path)
    code = run_command(arguments)
    answer = Answer(code, *capfd.readouterr())

    assert answer.is_one_line(2), answer
    assert said in answer.err
    assert answer.out == ""
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    ("option", "commands"),
    [
        (("--pace", "warp"), ("run key-growth", "run all")),
        (("--stack", "cloud"), ("run key-growth", "run all", "blind start", "blind open nothing")),
        (("--server", "memcached"), ("run key-growth", "run all", "scene")),
        (("--stack", "compose", "--server", "embedded"), ("run key-growth", "run all")),
    ],
)
def test_commands_refuse_the_same_in_the_same_words(
    option: tuple[str, ...],
    commands: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pace, stack or server that there is not is refused by every command alike, before anything is created."""
    monkeypatch.chdir(tmp_path)
    answers = [Answer(run_command([*words.split(), *option]), *capsys.readouterr()) for words in commands]
    assert all(answer.is_one_line(2) for answer in answers), answers
    assert len({answer.err for answer in answers}) == 1, answers
    assert tree(tmp_path) == []


@pytest.mark.parametrize(("out", "code"), [(".", 2), ("/", 2), ("file/x.html", 3)])
def test_a_comparison_needs_a_file_to_write_to(out: str, code: int, tmp_path: Path) -> None:
    """`lab report --out` of a folder, or below a file, is refused in one line."""
    (tmp_path / "file").touch()
    run = str(ROOT / "docs" / "runs" / "key-growth")
    answer = typed("report", run, run, "--out", out, cwd=tmp_path)
    assert answer.is_one_line(code), answer


def test_compare_of_no_run_folders_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """`lab report` of folders that are no run folders is refused in one line."""
    answer = typed("report", "one", "two", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert tree(tmp_path) == []


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/lab-run", "/dev/null"])
def test_output_folder_that_cannot_be_written_is_refused(out: str, tmp_path: Path) -> None:
    """A path that cannot become a folder is refused before anything is started, even for root."""
    (tmp_path / "file").write_text("mine")
    answer = typed("run", "key-growth", "--pace", "quick", "--out", out, cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert f"--out {out} cannot be written" in answer.err
    assert tree(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_folder_without_permission_is_refused(tmp_path: Path) -> None:
    """An output folder without write permission is refused with the system's reason."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    answer = typed("run", "key-growth", "--out", str(locked / "run"), cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "Permission denied" in answer.err
    assert tree(tmp_path) == ["locked"]


def test_output_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    """An output folder that is not empty is refused and left as it was."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "result.json").write_text("{}")
    answer = typed("run", "key-growth", "--out", "old", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "--out old is not empty" in answer.err
    assert tree(tmp_path) == ["old", "old/result.json"]


def test_taken_port_is_refused(tmp_path: Path) -> None:
    """A port that is already in use is refused by its number, and nothing is created."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        answer = typed("run", "key-growth", "--port", str(port), cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert f"port {port} is taken" in answer.err
    assert tree(tmp_path) == []


@pytest.mark.parametrize("more", [[], ["--yes"]])
def test_url_to_nothing_is_one_line_and_exit_3(more: list[str], tmp_path: Path) -> None:
    """If no server answers at --url, one line gives the address and the reason, also with --yes; nothing is created."""
    port = free_port()
    answer = typed("run", "key-growth", "--url", f"redis://127.0.0.1:{port}/0", *more, cwd=tmp_path)
    assert answer.is_one_line(3), answer
    assert f"127.0.0.1:{port}" in answer.err
    assert "refused" in answer.err
    assert tree(tmp_path) == []


def test_url_to_something_else_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """A port that accepts connections but never answers is refused in one line, within seconds."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        answer = typed("run", "key-growth", "--url", url, cwd=tmp_path)
    assert answer.is_one_line(3), answer
    assert tree(tmp_path) == []


def test_server_that_is_not_installed_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """A --server that is not installed is refused with the command that installs it, and nothing is created."""
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    for name in ("sh", "dirname", "cksum", "cat", "python3"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    answer = typed("run", "key-growth", "--server", "redis", cwd=work, PATH=str(programs))
    assert answer.is_one_line(3), answer
    assert "apt install redis-server" in answer.err
    assert tree(work) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"phases": []}', '{"phases": [{"id": 1}]}', "\x00\xff"], ids=repr
)
def test_report_of_a_broken_run_is_one_line_and_exit_2(content: str, tmp_path: Path) -> None:
    """A broken run.json is named in one line, and nothing is written beside it."""
    (tmp_path / "run.json").write_text(content)
    answer = typed("report", ".", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "run.json: " in answer.err
    assert tree(tmp_path) == ["run.json"]


def test_report_of_a_scenario_that_is_gone_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """The run of a scenario that this lab does not know is not judged, and its folder is left as it was."""

    def doctor(facts: RunFacts) -> None:
        facts.scenario = "key-grow"

    build_run(tmp_path / "run", doctor=doctor)
    before = tree(tmp_path)
    answer = typed("report", "run", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "did you mean 'key-growth'?" in answer.err
    assert tree(tmp_path) == before


def test_list_shows_every_scenario_with_its_claims(tmp_path: Path) -> None:
    """`lab list` names each scenario, its source and every claim."""
    answer = lab("list", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    text = " ".join(answer.out.split())
    for scenario in scenarios.catalogue().values():
        assert scenario.id in text
        assert scenario.source in text
        for claim in scenario.claims:
            assert claim.statement in text


def test_list_as_json_is_the_catalogue(tmp_path: Path) -> None:
    """`lab list --json` prints the catalogue as JSON, and nothing else."""
    answer = lab("list", "--json", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    listed = json.loads(answer.out)
    known = scenarios.catalogue()
    assert [entry["id"] for entry in listed] == list(known)
    for entry in listed:
        scenario = known[entry["id"]]
        assert (entry["title"], entry["source"]) == (scenario.title, scenario.source)
        assert [claim["id"] for claim in entry["claims"]] == [claim.id for claim in scenario.claims]
        assert all(claim["statement"] and claim["bound"] for claim in entry["claims"])


def test_doctor_names_each_finding_and_mends(tmp_path: Path) -> None:
    """`lab doctor` exits 0 exactly when nothing needed is missing, and changes nothing."""
    answer = lab("doctor", cwd=tmp_path)
    assert answer.code == (3 if "MISS" in answer.out else 0)
    assert answer.err == ""
    for word in ("Python", "packages", "server embedded", "cores", "memory", "disk"):
        assert word in answer.out
    assert answer.out.splitlines()[-1].startswith("Not ready" if answer.code else "Ready")
    assert tree(tmp_path) == []


def test_doctor_asks_for_the_packages_of_the_lock_and_no_others(tmp_path: Path) -> None:
    """A required package that is not installed is reported as missing, by its name."""
    assert packages().ok
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "stack.in").write_text(
        "# The load.\nlocust==2.47.0\nredis[hiredis]==8.1.0\n"
    )
    (tmp_path / "requirements" / "lab.in").write_text("-r stack.in\nno-such-package\n")
    result = packages(tmp_path)
    assert not result.ok
    assert result.detail.startswith("no-such-package missing")


@pytest.mark.parametrize(
    ("needed", "missing", "said"),
    [((), (), "Ready."), ((), ("docker",), "Ready for runs"), (("memory",), ("docker",), "Not ready")],
)
def test_doctor_says_in_a_sentence_whether_one_may_begin(
    needed: tuple[str, ...], missing: tuple[str, ...], said: str
) -> None:
    """`lab doctor` says "Ready" if only an optional part such as Docker is missing, "Not ready" if a needed one is."""
    results = [CheckResult("Python", True, "3.11")]
    results += [CheckResult(what, False, "") for what in needed]
    results += [CheckResult(what, False, "", needed=False) for what in missing]
    assert outcome(results).startswith(said)


def test_every_command_is_in_one_group_of_the_help(tmp_path: Path) -> None:
    """`lab --help` lists each command once, under the heading of what it is for."""
    lists = typer.main.get_command(build())
    assert isinstance(lists, TyperGroup)
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(lists.commands)
    first, every = lab("--help", cwd=tmp_path).out, lab("help", "all", cwd=tmp_path).out
    listed = [re.findall(r"^  ([a-z]+)  +[A-Z]", page, re.MULTILINE) for page in (first, every)]
    assert listed == [[name for name in grouped if name not in GROUPS["More"]], grouped]
    assert len(listed[0]) <= 9


def test_the_words_of_the_last_release_work_and_name_the_new_ones(tmp_path: Path) -> None:
    """`lab explain` is carried out as `lab report --story`, after a line that says so."""
    old, new = (lab(*words, "nothing-here", cwd=tmp_path) for words in (["explain"], ["report", "--story"]))
    assert old.err == f"lab: `explain` is `report --story` from 0.2 on.\n{new.err}"
    assert old.code == new.code


@pytest.mark.parametrize("command", [[], ["list"], ["doctor"], ["run"], ["report"]])
def test_help_is_help(command: list[str], tmp_path: Path) -> None:
    """`--help` of every command prints its usage on stdout and does nothing else."""
    answer = lab(*command, "--help", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert "Usage: lab" in answer.out
    assert tree(tmp_path) == []


def test_version_is_the_changelogs_newest(tmp_path: Path) -> None:
    """`lab --version` names the version that CHANGELOG.md begins with."""
    answer = lab("--version", cwd=tmp_path)
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert (answer.code, answer.out) == (0, f"lab {newest.split()[1]}\n")


def test_no_command_shows_the_help_and_is_bad_usage(tmp_path: Path) -> None:
    """`lab` alone lists its commands and exits with code 2."""
    answer = lab(cwd=tmp_path)
    assert answer.code == 2
    assert "run" in answer.out
    assert "report" in answer.out


def test_output_into_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`lab list | head -1` leaves no traceback."""
    done = subprocess.run(
        f"'{LAB}' list --json | head -c 1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


INTERRUPTED_IN_AN_EXEC = """
import typer.main

class Command:
    def main(self, **_):
        exec("raise KeyboardInterrupt")

typer.main.get_command = lambda app: Command()
"""


def test_exit_code_of_an_interruption_is_that_of_the_contract(tmp_path: Path) -> None:
    """Ctrl-C within an exec() of text exits with code 130 too; CPython by itself would then die of the signal."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IN_AN_EXEC)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "list"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.startswith("lab: interrupted")
    assert done.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_modules_are_read(tmp_path: Path, number: signal.Signals) -> None:
    """A signal during the import of modules gets one line and exit code 130: no traceback, no death by the signal."""
    slow = "import sys, time\nprint('reading', flush=True)\ntime.sleep(600)\n"
    (tmp_path / "typer.py").write_text(slow)
    early = subprocess.Popen(
        [sys.executable, "-m", "lab", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert early.stdout is not None and early.stdout.readline() == "reading\n"
    early.send_signal(number)
    assert early.communicate(timeout=20)[1] == "lab: interrupted; nothing was started.\n"
    assert early.returncode == 130


def test_a_terminal_that_lacks_a_sign_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a message with a sign such as ≥ would end a command as a fault of the lab."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    monkeypatch.setattr("sys.argv", ["lab", "≥"])
    monkeypatch.setattr("lab.cli.interruptions_raise", lambda: None)  # pytest keeps its own handlers
    assert main() == 2
    assert b"'?'" in written.getvalue()


def test_a_load_goes_to_the_scene_of_the_other_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lab load` hands on its words unchanged, with the address of the scene; a load that there is not is one line."""
    started: list[tuple[list[str], str]] = []
    monkeypatch.setenv(ADDRESS, "")  # so that its absence is put back
    monkeypatch.delenv(ADDRESS)
    monkeypatch.setattr("lab.cli.server_url", lambda: "redis://127.0.0.1:7")
    monkeypatch.setattr(os, "execv", lambda _, words: started.append((words[2:], os.environ[ADDRESS])))
    assert run_command(["load", "iterations", "--count", "10"]) == 0
    assert started == [(["-m", "loadtest.incidents.iterations", "--count", "10"], "redis://127.0.0.1:7")]
    assert run_command(["load", "pages"]) == 2
    assert "there is no load pages: name one of bystanders," in capsys.readouterr().err
    assert len(started) == 1

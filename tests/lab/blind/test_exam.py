"""`bin/lab exam`: which scenes it has, how a program talks with it, and what counts as right."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from lab.blind import judging
from lab.blind.causes import CAUSES, PAIRS
from lab.blind.exam import candidates, results
from lab.blind.exam.candidates import Program
from lab.blind.exam.command import NOT_THE_SERVERS, Examiner, of_the_server, program_of
from lab.blind.exam.scenes import Scene, draw
from lab.blind.exam.sitting import Row, Sitting
from lab.blind.journal import Journal
from lab.blind.levels import LEVELS
from lab.cli import run_command
from lab.diagnose.examinee import answers
from lab.diagnose.findings import Judgement
from lab.errors import CLAIM_FAILED, HOLDS, INTERRUPTED, STACK_BROKE, USAGE, UsageError
from tests.app.servicekit import eventually
from tests.lab.labkit import tree, typed

PAPER = {"scene": 1, "answers": {}}
TALK = """
import json, sys
paper = json.loads(sys.stdin.readline())
def ask(**words):
    print(json.dumps(words), flush=True)
    return json.loads(sys.stdin.readline())
"""
"""The beginning of a program that asks."""


def program(folder: Path, text: str) -> Program:
    """A program with this text, run by the user of the test."""
    file = folder / "candidate.py"
    file.write_text(TALK + text)
    return Program(f"{sys.executable} {file}", same_user=True)


class Session:
    """Answers requests as a session would, and keeps them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, words: dict[str, Any]) -> str:
        self.asked.append(words)
        if words["verb"] == "answer" and words["cause"] not in CAUSES:
            raise UsageError(f"there is no cause {words['cause']!r}.")
        return "said"


def test_every_cause_comes_before_one_comes_again() -> None:
    """In as many scenes as there are causes each has one; the same seed draws the same, another seed another order."""
    drawn = draw(7, len(CAUSES), 1)
    assert {scene.causes[0].id for scene in drawn} == set(CAUSES)
    assert draw(7, len(CAUSES), 1) == drawn
    assert draw(8, len(CAUSES), 1) != drawn
    assert [scene.number for scene in drawn] == list(range(1, len(CAUSES) + 1))


def test_every_fourth_has_two_causes_unless_it_is_said() -> None:
    """With 2 each scene has a pair, all pairs before one comes again; each scene is counted in its group."""
    assert [len(scene.causes) for scene in draw(1, 8, None)] == [1, 1, 1, 2, 1, 1, 1, 2]
    twos = draw(1, len(PAIRS), 2)
    assert {tuple(cause.id for cause in scene.causes) for scene in twos} == set(PAIRS)
    kinds = {scene.kind for scene in draw(1, 4 * len(CAUSES), None)}
    assert kinds == {"one cause", "two causes", "nothing"}


def test_no_scene_is_no_examination() -> None:
    """Fewer than one is refused."""
    with pytest.raises(UsageError, match="--scenes must be 1 or more, not 0"):
        draw(1, 0, None)


def test_a_program_asks_what_a_person_asks(tmp_path: Path) -> None:
    """Requests reach the session in their order, and its answers the program."""
    session = Session()
    ended = program(
        tmp_path,
        "said = ask(verb='look', what='commands')\n"
        "assert said == {'text': 'said', 'code': 0}, said\n"
        "assert paper == {'scene': 1, 'answers': {}}\n"
        "ask(verb='answer', cause='nothing', evidence='all is well here')\n"
        "print(json.dumps({'verb': 'done'}), flush=True)\n",
    ).sit(PAPER, session)
    assert ended == ""
    assert [words["verb"] for words in session.asked] == ["look", "answer"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            "print('no JSON', flush=True); said = json.loads(sys.stdin.readline())",
            "one JSON object in a line",
        ),
        ("print('[1]', flush=True); said = json.loads(sys.stdin.readline())", "one JSON object in a line"),
        ("said = ask(verb='reveal')", "there is no verb 'reveal'"),
        ("said = ask(word='look')", "there is no verb None"),
        ("said = ask(verb=[])", "there is no verb []"),
        (
            "print('[' * 90000, flush=True); said = json.loads(sys.stdin.readline())",
            "one JSON object in a line",
        ),
        ("said = ask(verb='note', text=chr(0xD800))", "one JSON object in a line"),
        ("said = ask(verb='answer', evidence='no cause')", "lacks a word"),
        ("said = ask(verb='answer', cause='ttl', evidence='')", "there is no cause 'ttl'"),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused(request_: str, said: str, tmp_path: Path) -> None:
    """The program hears why, with code 2, and may go on. It cannot reveal: that would tell the cause."""
    session = Session()
    ended = program(
        tmp_path,
        f"{request_}\nassert said['code'] == 2, said\nassert {said!r} in said['text'], said\nask(verb='hint')",
    ).sit(PAPER, session)
    assert ended == ""
    assert session.asked[-1] == {"verb": "hint"}


def test_a_program_that_breaks_is_told(tmp_path: Path) -> None:
    """Its exit code stands in the row; a program that ends without an answer is none that broke."""
    assert program(tmp_path, "sys.exit(7)").sit(PAPER, Session()) == "the program ended with exit code 7"
    assert program(tmp_path, "").sit(PAPER, Session()) == ""
    killed = "import os\nos.kill(os.getpid(), 9)"
    assert program(tmp_path, killed).sit(PAPER, Session()) == "the program ended with exit code -9"


def test_when_the_time_is_up_the_program_is_ended_with_its_children(tmp_path: Path) -> None:
    """A program that sleeps, or ignores its end, does not keep the examination."""
    sleeper = program(
        tmp_path,
        "import os, signal, subprocess, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '300'])\nask(verb='note', text=str(child.pid))\ntime.sleep(300)\n",
    )
    children: list[int] = []

    def session(words: dict[str, Any]) -> str:
        children.append(int(words["text"]))
        return "said"

    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(sleeper.sit(PAPER, session)))
    thread.start()
    eventually(lambda: children)
    sleeper.stop()
    thread.join(20)
    assert said == ["the time was up"]
    eventually(lambda: not psutil.pid_exists(children[0]) or psutil.Process(children[0]).status() == "zombie")


def test_a_process_that_is_left_behind_does_not_keep_the_examination(tmp_path: Path) -> None:
    """A program that ends while a process in a session of its own still holds its output has ended."""
    left: list[int] = []

    def session(words: dict[str, Any]) -> str:
        left.append(int(words["text"]))
        return "said"

    leaves = program(
        tmp_path,
        "import subprocess\nchild = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "ask(verb='note', text=str(child.pid))\nsys.exit(4)\n",
    )
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(leaves.sit(PAPER, session)), daemon=True)
    thread.start()
    thread.join(30)
    psutil.Process(left[0]).kill()
    assert said == ["the program ended with exit code 4"]


def test_a_program_that_asks_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a most number of requests."""
    monkeypatch.setattr(candidates, "MOST_REQUESTS", 20)
    asks = program(tmp_path, "while True:\n    ask(verb='look', what='users')\n")
    assert asks.sit(PAPER, Session()) == "the program asked more than 20 times"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a program as another user")
def test_a_program_runs_as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may read neither a file that only root may read, nor the environment of the examiner, and has none of it."""
    (tmp_path / "secret").write_text("scan-storm")
    (tmp_path / "secret").chmod(0o600)
    tmp_path.chmod(0o755)
    code = f"""
import json, os, sys
sys.stdin.readline()
said = [str(os.environ.get("EXAMINERS"))]
for place in ({str(tmp_path / "secret")!r}, f"/proc/{{os.getppid()}}/environ"):
    try:
        open(place).read()
        said.append("read")
    except OSError as error:
        said.append(type(error).__name__)
print(json.dumps({{"verb": "note", "text": " ".join(said)}}), flush=True)
"""
    session = Session()
    apart = Program(shlex.join(["python3", "-c", code]))
    assert apart.apart
    monkeypatch.setenv("EXAMINERS", "own")
    assert apart.sit(PAPER, session) == ""
    assert session.asked[0]["text"] == "None PermissionError PermissionError"


def test_what_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    """A missing program, a text that is no command, and a file that is no program."""
    with pytest.raises(UsageError, match="there is no program no-such-program"):
        Program("no-such-program", same_user=True)
    with pytest.raises(UsageError, match="No closing quotation"):
        Program("'half")
    with pytest.raises(UsageError, match="--for takes human, diagnose"):
        Program(" ")
    (tmp_path / "empty").write_bytes(b"\x7fELF")
    (tmp_path / "empty").chmod(0o755)
    with pytest.raises(UsageError, match="cannot be started: Exec format error"):
        Program(str(tmp_path / "empty"), same_user=True).sit(PAPER, Session())


def row(causes: str, answered: str, **more: Any) -> Row:
    """A row with these causes and answers, separated by blanks."""
    return Row(1, "one cause", tuple(causes.split()), tuple(answered.split()), **more)


@pytest.mark.parametrize(
    ("causes", "answered", "right"),
    [
        ("scan-storm", "scan-storm", True),
        ("scan-storm", "lua-script", False),
        ("scan-storm", "", False),
        ("nothing", "nothing", True),
        ("exhausted-pool", "nothing", True),
        ("exhausted-pool", "exhausted-pool", False),
        ("scan-storm", "lua-script scan-storm", False),
        ("stalling-link", "", True),
        ("stalling-link", "nothing", False),
        ("keys-command slow-network", "slow-network keys-command", True),
        ("keys-command slow-network", "slow-network", False),
        ("exhausted-pool unpipelined-deletes", "unpipelined-deletes", True),
    ],
)
def test_what_is_right_for_somebody_who_sees_the_server_only(causes: str, answered: str, right: bool) -> None:
    """Where the cause lies outside, it is right to find nothing wrong with the server, or to give no answer."""
    assert of_the_server(row(causes, answered)).right is right


def test_a_scene_that_could_not_be_held_is_not_right() -> None:
    """No answer counts as right only where somebody looked."""
    assert not of_the_server(row("stalling-link", "", ended="the server does not answer.")).right


def test_the_causes_outside_the_server_are_causes() -> None:
    """No name is left over from a cause that there is no more."""
    assert set(NOT_THE_SERVERS) <= set(CAUSES)


def test_results_are_counted_by_kind() -> None:
    """`nothing` and scenes with two causes are counted apart."""
    rows = [
        Row(1, "one cause", ("scan-storm",), ("scan-storm",), True, 0, 90, 100),
        Row(2, "one cause", ("lua-script",), ("keys-command",), False, 1, 0, 100),
        Row(3, "nothing", ("nothing",), ("nothing",), True, 0, 80, 100),
        Row(4, "two causes", ("a", "b"), (), False, 0, 0, 100, ended="the time was up"),
    ]
    result = results.Result("x", "native", 1, "find", 7, False, 6, rows)
    assert result.counts() == {
        "one cause": {"scenes": 2, "right": 1, "points": 90, "full": 200},
        "nothing": {"scenes": 1, "right": 1, "points": 80, "full": 100},
        "two causes": {"scenes": 1, "right": 0, "points": 0, "full": 100},
    }
    assert json.loads(json.dumps(result.as_dict()))["rows"][3]["ended"] == "the time was up"
    assert results.cells(rows[3])[1:4] == ["a + b", "–", "not right"]
    shown = io.StringIO()
    results.show(Console(file=shown, width=200), result)
    assert "4 of 6 scenes were held" in shown.getvalue()


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], bool]]:
    """What scenes end with, in their order (fields of their rows, and whether Ctrl-C ended it); none is held."""
    coming: list[tuple[dict[str, Any], bool]] = []

    def examine(_self: Examiner, scene: Scene, _program: object) -> tuple[Row, bool]:
        fields, interrupted = coming.pop(0)
        names = tuple(cause.id for cause in scene.causes)
        return Row(scene.number, scene.kind, names, **fields), interrupted

    monkeypatch.setattr(Examiner, "examine", examine)
    return coming


RIGHT = {"right": True, "points": 90, "full": 100}


@pytest.mark.parametrize(
    ("ends", "code", "held"),
    [
        ([(RIGHT, False), (RIGHT, False)], HOLDS, 2),
        ([(RIGHT, False), ({"full": 100}, False)], CLAIM_FAILED, 2),
        ([(RIGHT, False), ({**RIGHT, "cured": False}, False)], CLAIM_FAILED, 2),
        ([({"held": False, "ended": "the server does not answer."}, False), (RIGHT, False)], STACK_BROKE, 2),
        ([({"full": 100, "ended": "interrupted"}, True)], INTERRUPTED, 1),
    ],
)
def test_the_exit_code_and_what_is_kept(
    ends: list[tuple[dict[str, Any], bool]],
    code: int,
    held: int,
    outcomes: list[tuple[dict[str, Any], bool]],
    tmp_path: Path,
) -> None:
    """All solved, one not, one not cured, one that was not held, Ctrl-C: each row that there is, is kept."""
    outcomes += ends
    out = tmp_path / "result.json"
    assert run_command(["exam", "--for", "human", "--scenes", "2", "--out", str(out)]) == code
    kept = json.loads(out.read_text())
    assert (len(kept["rows"]), kept["planned"]) == (held, 2)


def test_level_three_has_two_causes_and_a_cure(
    outcomes: list[tuple[dict[str, Any], bool]], tmp_path: Path
) -> None:
    """As in `bin/lab blind start`, unless something else is asked for."""
    out = tmp_path / "result.json"
    for more, task, causes in (([], "cure", 2), (["--task", "find", "--causes", "1"], "find", 1)):
        outcomes.append((RIGHT, False))
        run_command(["exam", "--for", "human", "--scenes", "1", "--level", "3", "--out", str(out), *more])
        kept = json.loads(out.read_text())
        assert (kept["task"], len(kept["rows"][0]["causes"])) == (task, causes)


@pytest.mark.parametrize(
    ("answered", "right"), [(["scan-storm"], True), (["lua-script", "scan-storm"], False), ([], False)]
)
def test_a_scene_is_right_if_nothing_else_was_named(answered: list[str], right: bool, tmp_path: Path) -> None:
    """So naming every cause in turn is not right."""
    scene = Scene(1, (CAUSES["scan-storm"],))
    sitting = Sitting(scene, 1, 1.0, tmp_path, print, lambda _: None, "find", LEVELS[1], None)  # type: ignore[arg-type,return-value]
    assert not sitting.row("it did not come up").held
    sitting.begun_at = 1.0
    sitting.journal = Journal(
        scene.causes, tmp_path / "notes", lambda *_: judging.Judgement((), False, (), ())
    )
    for cause in answered:
        sitting.journal.answer(cause, "four words of evidence")
    assert sitting.row().right is right
    assert sitting.row("interrupted").ended == "interrupted"


def test_diagnose_names_what_it_finds_and_nothing_else() -> None:
    """At most as many causes as there are; none where it cannot tell."""
    assert answers(Judgement("nothing", "", (), ()), 1) == [("nothing", "nothing is wrong with the server")]
    assert answers(Judgement("unknown", "", (), ()), 1) == []


def test_a_person_needs_no_program_and_diagnose_is_the_labs_own() -> None:
    """The lab's own program needs no other user; a stranger's gets one where that can be."""
    assert program_of("human", same_user=False) is None
    own = program_of("diagnose", same_user=False)
    assert own is not None
    assert not own.apart


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--for'"),
        (["--for", "human", "--scenes", "0"], "--scenes must be 1 or more"),
        (["--for", "human", "--causes", "3"], "--causes"),
        (["--for", "human", "--task", "guess"], "there is no task 'guess'"),
        (["--for", "human", "--stack", "cloud"], "there is no stack 'cloud'"),
        (["--for", "human", "--level", "4"], "--level"),
        (["--for", "'half"], "No closing quotation"),
        (["--for", "human", "--out", "nowhere/result.json"], "--out nowhere/result.json cannot be written"),
        (["--for", "human", "--out", "."], "--out . cannot be written: Is a directory"),
        (["--for", "no-such-program"], "there is no program no-such-program"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    """One line, exit code 2, and nothing is created."""
    answer = typed("exam", *words, cwd=tmp_path, LAB_BLIND_HOME=str(tmp_path / "home"))
    assert answer.is_one_line(USAGE), answer
    assert said in answer.err
    assert tree(tmp_path) == []

"""`bin/lab blind` as people use it: a session from start to reveal, bad input, and Ctrl-C, with nothing left behind."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from lab import ROOT
from lab.blind.causes import CAUSES, choose
from lab.blind.figures import OF_COMMANDS
from lab.blind.judging import GUESS, SHOWN
from lab.blind.levers import LEVERS
from lab.blind.readings import READINGS
from lab.blind.session_socket import address
from tests.lab.labkit import Answer, Running, lab, tree

BEFORE = {
    "look": ["look"],
    "note": ["note", "hypothesis: it is the pool"],
    "hint": ["hint"],
    "answer": ["answer", "slow-network", "--evidence", "a ping took forty milliseconds"],
    "cure": ["cure", "leave"],
    "reveal": ["reveal"],
}
BAD = {
    "unknown cause": (["answer", "slow-netwrok", "--evidence", "x"], "Did you mean slow-network?"),
    "unknown cause to open": (["open", "the-moon"], "no cause 'the-moon'"),
    "negative seed": (["start", "--seed", "-1"], "--seed"),
    "no time": (["start", "--minutes", "0"], "--minutes"),
    "unknown stack": (["start", "--stack", "cloud"], "no stack 'cloud'"),
    "unknown task": (["start", "--task", "win"], "no task 'win'; choose find or cure"),
    "unknown lever": (["cure", "kil", "program-2"], "Did you mean kill?"),
    "lever that lacks an argument": (["cure", "kill"], "typed as kill CLIENT"),
    "no lever": (["cure"], "LEVER"),
    "unknown verb": (["guess"], "No such command 'guess'"),
    "note without text": (["note"], "the note is empty"),
    "hypothesis that is no cause": (["note", "--hypothesis", "the-moon"], "no cause 'the-moon'"),
    "unknown reading": (["answer", "slow-network", "--evidence", "lnk.p50 = 3 ms"], "Did you mean link.p50?"),
    "figure without a unit": (
        ["answer", "slow-network", "--evidence", "link.p50 = 3"],
        "a number and a unit (ms",
    ),
}
SEED = next(seed for seed in range(100) if choose(seed).id == "slow-network")
BECAUSE = "a PING through the link took 40 ms, past it a tenth of one"


def blind(home: Path, *arguments: str) -> Answer:
    """Run a `lab blind` command as a participant would."""
    verb = () if arguments[0] == "look" else ("blind",)
    return lab(*verb, *arguments, cwd=home.parent, LAB_BLIND_HOME=str(home))


def start(home: Path, *arguments: str) -> Running:
    """Start a blind session in the background."""
    return Running(*arguments, cwd=home.parent, verb="blind", LAB_BLIND_HOME=str(home))


def output(home: Path) -> str:
    """Return what the session has printed so far."""
    return (home.parent / "stdout.txt").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder of blind sessions; it does not exist yet."""
    return tmp_path / "blind"


@pytest.mark.parametrize("verb", BEFORE)
def test_every_verb_needs_a_running_session(verb: str, home: Path) -> None:
    """Without a session every verb says in one line how to start one, and creates nothing."""
    answer = blind(home, *BEFORE[verb])
    assert answer.is_one_line(2), answer
    assert "no blind session runs. Start one in another terminal: bin/lab blind start." in answer.err
    assert not home.exists()


@pytest.mark.first(7)
@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_one_line(what: str, home: Path) -> None:
    """A misspelt cause, a bad seed or an unknown verb gets one line and exit code 2; nothing is created."""
    arguments, words = BAD[what]
    answer = blind(home, *arguments)
    assert answer.is_one_line(2), answer
    assert words in answer.err
    assert not home.exists()


def test_the_possible_answers_are_public(home: Path) -> None:
    """`bin/lab blind causes` lists every cause, one a line, with or without a session."""
    lines = blind(home, "causes").out.splitlines()
    assert [line.split()[0] for line in lines] == list(CAUSES)


def test_what_can_be_named_is_public(home: Path) -> None:
    """`bin/lab blind readings` lists every reading with its unit and what shows it, with or without a session."""
    lines = blind(home, "readings").out.splitlines()
    assert [line.split()[:2] for line in lines][:2] == [["page.p99", "ms"], ["get.p99", "ms"]]
    assert all("(" in line for line in lines) and len(lines) == len(READINGS) + len(OF_COMMANDS)


def test_the_levers_are_public(home: Path) -> None:
    """`bin/lab blind levers` lists every lever, one a line, with or without a session."""
    lines = blind(home, "levers").out.splitlines()
    assert [line.split()[0] for line in lines] == list(LEVERS)


def test_the_facilitators_answers_list_every_cure() -> None:
    """The row of each cause in the facilitator's answers names all its cures and tempting levers."""
    rows = (ROOT / "workshop" / "facilitator" / "answers.md").read_text().splitlines()
    for cause in CAUSES.values():
        [row] = [row for row in rows if row.startswith(f"| *{cause.id}* |")]
        assert [lever for lever in (*cause.cures, *cause.tempting) if f"`{lever}`" not in row] == []


def read(home: Path) -> str:
    """Return the figures that a participant would name as evidence, read from what the session shows."""
    ping = blind(home, "look", "ping").out.splitlines()
    direct, link = (
        next(line.split()[-2] for line in ping if line.startswith(way)) for way in ("to the", "through")
    )
    users = blind(home, "look", "users").out
    gets, oldest = re.findall(r"GET +([0-9.]+) ms +oldest price change +([0-9.]+) s", users)[-1]
    return f"link.p50 = {link} ms; server.p50 = {direct} ms; get.p99 = {gets} ms; change.oldest = {oldest} s"


@pytest.mark.whole
def test_a_session_from_start_to_reveal(home: Path) -> None:
    """A session with look, note, hint, a wrong and a right answer and reveal leaves a page and notes, no process."""
    with start(home, "start", "--seed", str(SEED)) as session:
        session.until(lambda: "the session" in blind(home, "note", "too early").err or output(home), 30)
        session.until(lambda: "Ctrl-C here ends everything" in output(home))
        assert len(session.seen) >= 10
        second = blind(home, "start")
        assert second.is_one_line(2), second
        assert "a blind session or a scene runs already" in second.err
        for what, words in {
            "users": "p99 of a page", "slowlog": "SLOWLOG LEN", "commands": "calls/s", "clients": "CLIENT LIST",
            "memory": "used_memory", "ping": "through the storefront's link", "processes": "program-4",
        }.items():  # fmt: skip
            assert words in blind(home, "look", what).out
        assert "users, history, slowlog" in blind(home, "look", "dice").err
        history = blind(home, "look", "history").out
        assert "The cause began at" in history and len(history.splitlines()) >= 4 and "GET p99 ms" in history
        assert blind(home, "note", "hypothesis: the way is slow").code == 0
        assert "5 points; 95 of 100 left" in blind(home, "hint").out
        assert "no, that is not it" in blind(home, "answer", "nothing", "--evidence", BECAUSE).out
        assert "lnk.p50" in blind(home, "answer", "slow-network", "--evidence", "lnk.p50 = 40 ms").err
        for hypothesis in ("exhausted-pool", "slow-network"):
            assert blind(home, "note", "--hypothesis", hypothesis).code == 0
        right = blind(home, "answer", "slow-network", "--evidence", read(home)).out
        assert (
            right.startswith("right. ") and "The figures show the cause." in right and "not true" not in right
        ), right
        points = int(right.split()[1])
        revealed = blind(home, "reveal")
        ended = session.answer()
        assert session.left() == []
    assert ended.code == 0, ended
    assert revealed.code == 0
    assert "it was slow-network" in revealed.out
    assert GUESS + SHOWN - 15 < points <= 75 and f"score: {points} of 100" in revealed.out
    assert "exhausted-pool: a look-alike; refuted by:" in revealed.out and "│" in revealed.out
    [folder] = [path for path in home.iterdir() if path.is_dir()]
    assert tree(folder)[-2:] == ["notes.txt", "page.html"]
    page = (folder / "page.html").read_text()
    for words in (
        "A slow network",
        f"{points} of 100 points",
        "look-alikes ruled out",
        "hypothesis: the way is slow",
        "An exhausted connection pool",
    ):
        assert words in page
    assert "http" not in page.replace("http://www.w3.org", ""), "the page must open offline"
    assert "hypothesis: the way is slow" in (folder / "notes.txt").read_text()
    assert not address(home).exists()


@pytest.mark.parametrize(
    "stage", ["starting the storefront", pytest.param("something happens", marks=pytest.mark.whole)]
)
def test_ctrl_c_while_starting_leaves_nothing(stage: str, home: Path) -> None:
    """Ctrl-C at any stage prints one line, exits with code 130, ends every process and removes the socket."""
    with start(home, "open", "noisy-neighbour") as session:
        session.until(lambda: stage in output(home))
        session.signal(signal.SIGINT)
        answer = session.answer()
        assert session.seen
        assert session.left() == []
    assert answer.is_one_line(130), answer
    assert not address(home).exists()


def test_a_killed_session_leaves_no_processes_and_its_socket_counts_as_none(home: Path) -> None:
    """After SIGKILL of a session its processes end by themselves, and its socket no longer answers."""
    with start(home, "open", "nothing") as session:
        session.until(lambda: "filling" in output(home))
        session.family()
        session.signal(signal.SIGKILL)
        session.process.wait()
        assert session.left(seconds=10) == []
    assert address(home).exists()
    assert "no blind session runs" in blind(home, "reveal").err


def test_a_home_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """LAB_BLIND_HOME below a file is refused in one line that names the variable."""
    answer = lab("blind", "open", "nothing", cwd=tmp_path, LAB_BLIND_HOME="/dev/null/x")
    assert answer.is_one_line(2), answer
    assert "Set LAB_BLIND_HOME" in answer.err

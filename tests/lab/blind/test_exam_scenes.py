"""`bin/lab exam` on real scenes: a program that works, one that cheats, and `bin/lab diagnose`."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lab.blind.exam.scenes import draw
from lab.cli import run_command

pytestmark = pytest.mark.whole

WORKS = """
import json, sys
paper = json.loads(sys.stdin.readline())
def ask(**words):
    print(json.dumps(words), flush=True)
    return json.loads(sys.stdin.readline())
assert paper["causes"] == 1 and paper["usual"] and "scan-storm" in paper["answers"], paper
assert "commands" in paper["looks"] and "link.p50" in paper["readings"], paper
ask(verb="note", hypothesis="nothing")
shown = ask(verb="look", what="commands")
assert shown["code"] == 0 and "SCAN" in shown["text"].upper(), shown
said = ask(verb="answer", cause="CAUSE", evidence="the commands of the server say so")
assert said["text"].startswith("right"), said
print(json.dumps({"verb": "done"}), flush=True)
"""

CHEATS = """
import json, os, pathlib, re, sys
paper = json.loads(sys.stdin.readline())
names = re.compile("|".join(map(re.escape, sorted(paper["answers"]))))
seen = []
def search(path):
    try:
        seen.extend(names.findall(pathlib.Path(path).read_bytes().decode("latin-1")))
    except OSError:
        pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        for what in ("cmdline", "environ", "comm"):
            search(f"/proc/{pid}/{what}")
        try:
            for open_file in os.listdir(f"/proc/{pid}/fd"):
                search(f"/proc/{pid}/fd/{open_file}")
        except OSError:
            pass
for folder, _, files in os.walk("PLACE"):
    for file in files:
        search(os.path.join(folder, file))
print(json.dumps({"verb": "note", "text": "seen: " + " ".join(sorted(set(seen)))}), flush=True)
sys.stdin.readline()
"""


def seed_of(cause: str) -> int:
    """The first seed whose first scene has this cause."""
    return next(seed for seed in range(1000) if draw(seed, 1, 1)[0].causes[0].id == cause)


def examine(out: Path, text: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Examine a program with this text; return the exit code and the result."""
    program = shlex.join(["python3", "-c", text])
    code = run_command(["exam", "--for", program, "--out", str(out), "--scenes", "1", "--causes", "1", *more])
    return code, json.loads(out.read_text())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own for its sessions."""
    monkeypatch.setenv("LAB_BLIND_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_program_that_looks_and_answers(home: Path, tmp_path: Path) -> None:
    """It is told the scene, sees readings, names the cause, and gets its points; the seed was given: on trust."""
    seed = seed_of("scan-storm")
    text = WORKS.replace("CAUSE", "scan-storm")
    code, result = examine(tmp_path / "out.json", text, "--seed", str(seed), "--same-user")
    (row,) = result["rows"]
    assert row["ended"] == "", row
    assert (code, row["right"], row["answers"]) == (0, True, ["scan-storm"])
    assert row["points"] > 0
    assert result["on_trust"] is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a program as another user")
def test_a_cheat_finds_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process table, environments, open files and the session's folder tell it nothing; the result is sealed.

    The same search finds a name in a file beside them that everybody may read.
    """
    seed = seed_of("scan-storm")
    monkeypatch.setattr(secrets, "randbelow", lambda _: seed)
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to other users
        Path(place).chmod(0o755)
        (Path(place) / "decoy").write_text("giant-index")
        monkeypatch.setenv("LAB_BLIND_HOME", f"{place}/home")
        code, result = examine(tmp_path / "out.json", CHEATS.replace("PLACE", place))
        (notes,) = Path(place).rglob("notes.txt")
        seen = notes.read_text().partition("seen:")[2].split()
    (row,) = result["rows"]
    assert (code, row["right"], row["ended"]) == (1, False, ""), row
    assert result["on_trust"] is False
    assert "giant-index" in seen
    assert "scan-storm" not in seen


def test_diagnose_is_examined(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It finds a cause that lies on the server, and no more than that counts for it."""
    seed = seed_of("lua-script")
    code = run_command(
        ["exam", "--for", "diagnose", "--scenes", "1", "--causes", "1", "--seed", str(seed), "--json"]
    )
    result = json.loads(capsys.readouterr().out)
    assert (code, result["rows"][0]["answers"]) == (0, ["lua-script"]), result
    assert result["counts"] == {"one cause": {**result["counts"]["one cause"], "scenes": 1, "right": 1}}

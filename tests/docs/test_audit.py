"""`make audit` writes what the database of vulnerabilities says; without one it says so."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

import pytest

from docs.pages import audit
from docs.pages.wheels import LOCKS, checksums

CLEAN = {
    "dependencies": [{"name": "flask", "version": "3", "vulns": []}, {"name": "x", "skip_reason": "none"}]
}
VULNERABLE = {
    "dependencies": [
        {
            "name": "flask",
            "version": "3",
            "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"], "aliases": []}],
        },
        {"name": "rich", "version": "1", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]},
    ]
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with lock files."""
    (tmp_path / "docs").mkdir()
    for name in LOCKS:
        (tmp_path / name).write_text(f"{name}\n")
    return tmp_path


def tool(said: str, complaint: str = "", code: int = 0) -> list[str]:
    """A stand-in for pip-audit that says something, if it is given the lock file."""
    program = (
        "import pathlib, sys; assert pathlib.Path(sys.argv[1]).read_text() == 'requirements.lock\\n';"
        f"print({said!r}); print({complaint!r}, file=sys.stderr); sys.exit({code})"
    )
    return [sys.executable, "-c", program]


def test_nothing_found_is_kept(root: Path) -> None:
    """The file has the day, the checksums of the lock files and the number of packages."""
    assert audit.main([], root, tool(json.dumps(CLEAN))) == 0
    assert json.loads((root / audit.FILE).read_text()) == {
        "date": date.today().isoformat(),
        "locks": checksums(root),
        "packages": 2,
        "findings": [],
    }


def test_a_vulnerability_is_kept_and_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is found is in the file and on the screen, with the version that mends it; the exit code is 1."""
    assert audit.main([], root, tool(json.dumps(VULNERABLE), code=1)) == 1
    assert [one["id"] for one in json.loads((root / audit.FILE).read_text())["findings"]] == [
        "PYSEC-1",
        "PYSEC-2",
    ]
    assert capsys.readouterr().out.splitlines() == [
        "audit: flask 3 has PYSEC-1, mended in 3.1",
        "audit: rich 1 has PYSEC-2, mended in no version yet",
        "audit: 2 packages, 2 known vulnerabilities",
    ]


@pytest.mark.parametrize("said", ["", "[]", "{}", "nothing"])
def test_without_a_database_it_is_one_line(root: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If the database cannot be reached nothing is written, and one line has the tool's reason; the exit code is 3."""
    assert audit.main([], root, tool(said, "Traceback\nConnectionError: no route", 1)) == 3
    assert not (root / audit.FILE).exists()
    complaint = capsys.readouterr().err
    assert complaint == "audit: the database of vulnerabilities cannot be asked: ConnectionError: no route\n"


def test_a_lock_file_that_was_not_audited_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--due` says in a line that there was no audit, or one of other lock files, and nothing after an audit."""
    assert audit.main(["--due"], root) == 0
    assert capsys.readouterr().out == (
        "audit: the lock files were never audited for known vulnerabilities: make audit\n"
    )
    audit.main([], root, tool(json.dumps(CLEAN)))
    capsys.readouterr()
    assert audit.main(["--due"], root) == 0
    assert capsys.readouterr().out == ""
    (root / LOCKS[1]).write_text("another\n")
    assert audit.main(["--due"], root) == 0
    assert capsys.readouterr().out == (
        f"audit: the last audit, of {date.today().isoformat()}, was of other lock files: make audit\n"
    )


def test_other_arguments_are_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument that there is not is one line, exit code 2."""
    assert audit.main(["--now"], root) == 2
    assert capsys.readouterr().err.count("\n") == 1

"""The steps of docs/adding.md work: in a copy of the tree its files are made and its commands typed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lab import errors
from lab.claims.texts import TEXTS
from tests.docs.pagekit import ROOT
from tests.docs.shell import Answer, execute
from tests.lab.claims.checknames import FORCE

PAGE = (ROOT / "docs" / "adding.md").read_text()
FENCE = re.compile(
    r"(?:<!-- (?P<how>new|in): (?P<path>\S+?)(?:, after: (?P<anchor>.+?))? -->\n)?"
    r"```(?P<language>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)
BLOCKS = list(FENCE.finditer(PAGE))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the tree with everything that the page adds."""
    tree = tmp_path_factory.mktemp("adding") / "lab"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    for name in files:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    for block in BLOCKS:
        if block["how"] == "new":
            assert not (tree / block["path"]).exists(), f"{block['path']} is there already"
            (tree / block["path"]).write_text(block["text"])
        elif block["how"] == "in":
            before = (tree / block["path"]).read_text()
            after = before.replace(block["anchor"] + "\n", block["anchor"] + "\n" + block["text"])
            (tree / block["path"]).write_text(after)
    yield tree


def typed(tree: Path, line: str) -> Answer:
    """Type a line of the page in the copy and return the answer."""
    assert line in PAGE
    return execute(line, tree, {"PYTHONPATH": str(tree)})


COMMANDS = [line for block in BLOCKS if block["language"] == "sh" for line in block["text"].splitlines()]
"""The page's commands. A run may end with any verdict: it depends on the machine, and the page does not promise it."""


def test_every_line_that_the_page_adds_has_its_place() -> None:
    """The line after which a block is put in is in the file, once; the page shows such blocks."""
    places = [(block["path"], block["anchor"]) for block in BLOCKS if block["how"] == "in"]
    assert places
    for path, anchor in places:
        found = (ROOT / path).read_text().count(anchor + "\n")
        assert found == 1, f"{path} has {anchor!r} {found} times"


def test_the_modules_of_the_page_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new module is executed, in the page's order: its imports exist, and what it makes has all its fields.

    What the page adds to other Python files is not there. The modules need it only when their functions are called.
    """
    made: dict[str, object] = {}
    for block in BLOCKS:
        if block["language"] == "toml":
            for claim, words in tomllib.loads(block["text"]).items():
                monkeypatch.setitem(TEXTS, claim, words)
        if block["how"] == "new" and block["language"] == "python":
            module = ModuleType(block["path"].removesuffix(".py").replace("/", "."))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(compile(block["text"], block["path"], "exec"), module.__dict__)
            made |= vars(module)
    assert {"invalidate", "waits_less", "SCENARIO", "disturb"} <= set(made)


@pytest.mark.whole
@pytest.mark.parametrize("line", COMMANDS)
def test_what_the_page_has_typed_works(line: str, tree: Path) -> None:
    """Every command works: tests pass and are not all skipped, incident and cause are listed, the run has a verdict."""
    answer = typed(tree, line)
    if " run " in line:
        assert answer.code in (errors.HOLDS, errors.CLAIM_FAILED, errors.NOT_VALID), answer.output
        written = tree / "docs" / "runs" / "turns" / "result.json"
        assert written.exists(), answer.output
        result = json.loads(written.read_text())
        assert [claim["id"] for claim in result["claims"]] == ["turns-wait-less"]
        assert not result["claims"][0]["measured"].startswith("not measured")
        assert [phase["strategy"] for phase in result["phases"]] == ["scan", "scan-in-turn"]
        (force,) = [check for check in result["validity"] if check["check"] == FORCE]
        assert force["ok"], force["detail"]
        return
    assert answer.code == 0, answer.output
    if "pytest" in line:
        assert re.search(r"\d+ passed", answer.output), answer.output
    if line == "bin/lab list":
        assert "turns" in answer.output
    if line == "bin/lab blind causes":
        assert "sorted-lists" in answer.output


@pytest.mark.whole
def test_the_copy_is_in_order(tree: Path) -> None:
    """The code that the page adds passes the linter, the type checker and the import rules, as in `make check`."""
    programs = ROOT / ".venv" / "bin"
    check = [str(programs / "python"), "-m"]
    for command in (
        [*check, "ruff", "check", "app", "lab", "tests"],
        [*check, "ruff", "format", "--check", "app", "lab", "tests"],
        [*check, "mypy"],
        [str(programs / "lint-imports"), "--no-cache"],
    ):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

"""The house of the lab stays small: CONTRIBUTING.md shows all of it at one glance."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from lab import ROOT

LINES, FILES = 4000, 25
"""The most that a package may have, without the packages in it."""
LARGER = {"lab/blind": (4075, 26)}
"""Packages that are larger today: their ceiling, to be lowered as they shrink, and never to be raised."""
BESIDE = {"__init__.py", "__main__.py", "cli.py", "errors.py", "foreign_text.py", "templates.py"}
ROOT_ENTRIES = 28
README_WORDS = 1200
"""As `wc -w` counts them, marks and bars of tables included."""


def packages(root: Path) -> dict[str, tuple[int, int]]:
    """Package → lines and files of Python, of all that is no test."""
    found: dict[str, tuple[int, int]] = {}
    for top in ("app", "bench", "console", "docs", "grafana", "lab", "loadtest"):
        for path in (root / top).rglob("*.py"):
            name = path.parent.relative_to(root).as_posix()
            lines, files = found.get(name, (0, 0))
            found[name] = lines + len(path.read_text(encoding="utf-8").splitlines()), files + 1
    return found


def too_large(root: Path) -> list[str]:
    """The packages above their bound."""
    return [
        f"{name}: {lines} lines in {files} files"
        for name, (lines, files) in packages(root).items()
        for most in [LARGER.get(name, (LINES, FILES))]
        if lines > most[0] or files > most[1]
    ]


def test_no_package_is_larger_than_its_bound() -> None:
    """Each package has at most so many lines and files; a ceiling above that is needed, or it goes."""
    assert too_large(ROOT) == []
    found = packages(ROOT)
    assert [name for name in LARGER if found[name][0] <= LINES and found[name][1] <= FILES] == []


def test_a_package_that_grows_is_noticed(tmp_path: Path) -> None:
    """A file too many and a line too many are named."""
    for name, files, lines in (
        ("app", FILES + 1, 1),
        ("console", 1, LINES + 1),
        ("lab/new", FILES, LINES // FILES),
    ):
        (tmp_path / name).mkdir(parents=True)
        for number in range(files):
            (tmp_path / name / f"part{number}.py").write_text("pass\n" * lines)
    assert too_large(tmp_path) == ["app: 26 lines in 26 files", "console: 4001 lines in 1 files"]


def test_few_files_stand_beside_the_packages() -> None:
    """Beside its packages `lab/` has its command line, its errors and its templates only."""
    entries = [path for path in (ROOT / "lab").iterdir() if not path.name.startswith((".", "__pycache"))]
    assert {path.name for path in entries if path.is_file()} == BESIDE


def test_one_file_says_where_the_lab_is() -> None:
    """The folder of the lab is worked out in `lab/__init__.py`; all other modules import it from there."""
    files = [path for path in (ROOT / "lab").rglob("*.py") if re.search(r"(?m)^ROOT = ", path.read_text())]
    assert files == [ROOT / "lab" / "__init__.py"]


def test_the_readme_stays_short() -> None:
    """README.md is read in some minutes: what is longer belongs on a page of its own."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS


def test_the_root_has_few_entries() -> None:
    """Files and folders of the repository that a visitor sees first are few."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert len({name.partition("/")[0] for name in tracked.splitlines()}) <= ROOT_ENTRIES


def test_a_native_run_opens_no_file_about_containers() -> None:
    """What a run imports before its stack is chosen names no container, so a reader of a native run meets none."""
    code = "import lab.runner.run, sys; print(*(name for name in sys.modules if name.startswith('lab.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & {"lab.stacks.scene", "lab.scene.engine", "lab.replay.docker"}

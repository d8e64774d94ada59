"""The house of the lab stays small: README.md shows all of it at one glance."""

from __future__ import annotations

import re

from lab import ROOT

ROOMS = 9
BESIDE = {"__init__.py", "__main__.py", "cli.py", "errors.py", "templates.py"}
README_WORDS = 1200
"""As `wc -w` counts them, marks and bars of tables included."""


def test_the_lab_has_nine_packages_at_most_and_few_files_beside_them() -> None:
    """`lab/` has at most nine packages, and beside them only its command line, its errors and its templates."""
    entries = [path for path in (ROOT / "lab").iterdir() if not path.name.startswith((".", "__pycache"))]
    packages = [path.name for path in entries if path.is_dir()]
    assert len(packages) <= ROOMS, packages
    assert {path.name for path in entries if path.is_file()} == BESIDE


def test_one_file_says_where_the_lab_is() -> None:
    """The folder of the lab is worked out in `lab/__init__.py`; all other modules import it from there."""
    files = [path for path in (ROOT / "lab").rglob("*.py") if re.search(r"(?m)^ROOT = ", path.read_text())]
    assert files == [ROOT / "lab" / "__init__.py"]


def test_the_readme_stays_short() -> None:
    """README.md is read in some minutes: what is longer belongs on a page of its own."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS

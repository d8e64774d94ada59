"""Pages about runs: each one HTML file that needs nothing else, whose figures come from run folders alone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.errors import StackError, UsageError
from lab.results.folder import Run

__all__ = ["write_comparison", "write_report", "write_summary"]


def write_report(run: Run, spoilers: bool = False) -> Path:
    """Write report.html into the run folder, in one piece. A full disk raises `StackError` in one line.

    Parts that reveal the cause are folded, and phases have neutral names, unless `spoilers` is given.
    """
    from lab.report.page import render
    from lab.report.view import RunView

    return _write(run.folder / "report.html", render(RunView(run, spoilers)).encode())


def write_summary(folder: Path, summary: dict[str, Any], spoilers: bool = False) -> Path:
    """Write summary.html of a series of runs into its folder, from the content of summary.json; see `write_report`."""
    from lab.report.summary import render

    return _write(folder / "summary.html", render(summary, spoilers).encode())


def write_comparison(runs: Sequence[Run], path: Path, spoilers: bool = False) -> Path:
    """Write the page that puts several runs side by side; see `write_report`. Raises `UsageError` for a folder."""
    if not path.name or path.is_dir():
        raise UsageError(f"{path} is a folder: name a file.")
    from lab.report.comparison import render

    return _write(path, render(runs, spoilers).encode())


def _write(path: Path, content: bytes) -> Path:
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StackError(
            f"cannot write {path}: {error.strerror}. Free some space, or name another place."
        ) from error
    return path

"""`lab report --story`: a run in plain sentences, on the terminal."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError, UsageError

if TYPE_CHECKING:
    from lab.claims.verdict import Verdict
    from lab.report.conclusions import Section

WIDEST = 110


def tell(folder: Path) -> int:
    """Print the story of a run in plain sentences; return the exit code of its verdict.

    Raises `UsageError` when it is not a run folder, or is damaged.
    """
    sections, verdict = read(folder)
    width = min(WIDEST, max(40, shutil.get_terminal_size((WIDEST, 24)).columns))
    print(text(sections, width))
    return verdict.exit_code


def read(folder: Path) -> tuple[list[Section], Verdict]:
    """Return the explanation and the verdict of a run folder. Raises `UsageError` if it is none, or damaged."""
    from lab.report.conclusions import Judged
    from lab.report.prose import sections
    from lab.report.view import RunView
    from lab.results.folder import Run
    from lab.runner.judging import reach

    run = Run(folder)
    try:
        verdict = reach(run)
        return sections(RunView(run), Judged.from_verdict(verdict)), verdict
    except LabError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise UsageError(f"{folder} is damaged ({error!r}): run the scenario again.") from error


def text(sections: list[Section], width: int) -> str:
    """Return sections as lines of at most `width` characters."""
    blocks = []
    for section in sections:
        lines = [section.heading, "-" * len(section.heading)]
        lines += textwrap.wrap(" ".join(section.sentences), width)
        for point in section.points:
            lines += textwrap.wrap(point, width, initial_indent="  * ", subsequent_indent="    ")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)

"""`bin/lab load`: a load of `loadtest/incidents` against the scene of the other terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lab import ROOT
from lab.errors import UsageError

FOLDER = ROOT / "loadtest" / "incidents"


def load(
    words: Annotated[
        list[str],
        typer.Argument(help="A load, and its options; --help lists them.", metavar="NAME OPTION..."),
    ],
) -> None:
    """Run a load by hand against the scene of the other terminal, or against the server of --url."""
    name, *options = words
    known = sorted(
        path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
    )
    if name not in known:
        raise UsageError(f"there is no load {name}: name one of {', '.join(known)}.")
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"loadtest.incidents.{name}", *options])

"""Templates of pages, filled strictly: a name that nobody gave is an error, and what is put in is escaped."""

from __future__ import annotations

from pathlib import Path

import jinja2


def templates(folder: Path) -> jinja2.Environment:
    """The templates of a folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

"""Page templates, filled strictly: an undefined name is an error, and every value is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2


@cache  # an environment keeps what it compiled: several pages are made of one template
def templates(folder: Path) -> jinja2.Environment:
    """The Jinja environment for the templates of a folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

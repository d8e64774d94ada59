"""Page templates, filled strictly: an undefined name is an error, and every value is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2


@cache  # an environment caches compiled templates, and several pages share one template
def templates(folder: Path) -> jinja2.Environment:
    """Return the Jinja environment for the templates of a folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

"""JSON from outside: files that somebody may have altered, lines of other processes."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: The text is no JSON, or it has brackets in brackets, deeper than Python reads. (`json.loads` raises
            RecursionError for the latter.)
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets in brackets, too deep to be read") from None

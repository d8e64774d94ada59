"""JSON from outside: files that may have been altered, lines of other processes."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is no JSON, or it has brackets in brackets, deeper than Python reads. (`json.loads` raises
            RecursionError for the latter.)
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets in brackets, too deep to be read") from None

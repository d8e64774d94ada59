"""Text that a server or one of its users chose, made safe to show.

A key, a version or an error message may hold control characters, with which a terminal sets its clipboard or its title
and clears its screen, or marks that change the direction in which letters are read.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 except tab and newline, DEL, C1, and the marks of the bidirectional algorithm (Unicode Standard Annex 9)."""


def shown(text: str) -> str:
    r"""Return the text with unsafe characters as ``\xNN`` or ``\uNNNN``."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)

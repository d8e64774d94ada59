"""The causes of blind sessions: every module of this folder defines one as its CAUSE."""

from __future__ import annotations

import difflib
import hashlib
import pkgutil
from importlib import import_module

from lab.blind.cause import Cause
from lab.errors import UsageError

_MODULES = sorted(module.name for module in pkgutil.iter_modules(__path__))
CAUSES: dict[str, Cause] = {
    cause.id: cause for cause in (import_module(f"{__name__}.{name}").CAUSE for name in _MODULES)
}


def find(text: str) -> Cause:
    """The cause with this id. Raises `UsageError` when there is none, and suggests the nearest."""
    known = text.strip().lower().replace(" ", "-").replace("_", "-")
    if known in CAUSES:
        return CAUSES[known]
    near = difflib.get_close_matches(known, CAUSES, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no cause {text!r}.{hint} `bin/lab blind causes` lists them.")


def choose(seed: int) -> Cause:
    """The cause of a seed, the same on every machine and stack.

    Seeds form blocks of as many as there are causes; within a block every cause occurs once. So groups that are given
    consecutive seeds do not all get the same cause.
    """
    block, place = divmod(seed, len(CAUSES))

    def drawn(cause: Cause) -> bytes:
        return hashlib.sha256(f"lab blind {block} {cause.id}".encode()).digest()

    return sorted(CAUSES.values(), key=drawn)[place]

"""The causes of blind sessions: each has its texts in texts.toml, and a module of this folder with its functions.

A module has `evidence`, and `orders` and `disturb` if the cause needs them (`lab.blind.cause.Cause`).
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from lab.blind.cause import COMPLAINTS, Cause
from lab.errors import UsageError

FUNCTIONS = ("evidence", "orders", "disturb")


def _cause(name: str, texts: dict[str, Any]) -> Cause:
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    functions = {each: getattr(module, each) for each in FUNCTIONS if hasattr(module, each)}
    texts |= {
        "story": COMPLAINTS[texts["story"]],
        "hints": tuple(texts["hints"]),
        "words": tuple(texts["words"]),
    }
    return Cause(name, **texts, **functions)


CAUSES: dict[str, Cause] = {
    name: _cause(name, texts)
    for name, texts in sorted(tomllib.loads(Path(__file__).with_name("texts.toml").read_text()).items())
}


PAIRS: tuple[tuple[str, str], ...] = (
    ("exhausted-pool", "unpipelined-deletes"),
    ("giant-index", "slow-network"),
    ("keys-command", "slow-network"),
    ("lua-script", "slow-network"),
    ("lua-script", "unpipelined-deletes"),
    ("slow-network", "unpipelined-deletes"),
    ("stalling-link", "unpipelined-deletes"),
    ("stalling-storefront", "unpipelined-deletes"),
)
"""Causes that can be at work together: they use different programs, and each leaves the other's evidence visible."""


CHAPTERS = {
    "2": "scan-storm",
    "3": "keys-command",
    "5": "eviction-cycle",
    "6": "unpipelined-deletes",
    "7": "giant-index",
}
"""Chapter of the guide → the cause of its scene. A learner opens it by the number, which does not name the cause."""


def find(text: str) -> Cause:
    """Return the cause with this id. Raises `UsageError`, with the nearest id, if there is none."""
    known = text.strip().lower().replace(" ", "-").replace("_", "-")
    if known in CAUSES:
        return CAUSES[known]
    near = difflib.get_close_matches(known, CAUSES, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no cause {text!r}.{hint} `bin/lab blind causes` lists them.")


def choose(seed: int) -> Cause:
    """Return the cause of a seed, the same on every machine and stack.

    Seeds form blocks whose size is the number of causes; within a block every cause occurs once. So groups with
    consecutive seeds do not all get the same cause.
    """
    return CAUSES[_drawn(seed, list(CAUSES))]


def choose_two(seed: int) -> tuple[Cause, Cause]:
    """Return two causes that are at work together, chosen by a seed in the manner of `choose`."""
    one, other = _drawn(seed, ["+".join(pair) for pair in PAIRS]).split("+")
    return CAUSES[one], CAUSES[other]


def _drawn(seed: int, names: list[str]) -> str:
    block, place = divmod(seed, len(names))
    return sorted(names, key=lambda name: hashlib.sha256(f"lab blind {block} {name}".encode()).digest())[
        place
    ]

"""The words of claims, from texts.toml: what each claim says, its bound, and the explanation that it refutes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from lab.claims.base import Claim, Result
from lab.results.folder import Run

TEXTS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
REFUTES: dict[str, str] = {claim_id: text["refutes"] for claim_id, text in TEXTS.items()}
"""Claim id → a wrong explanation of the symptoms, refuted when the claim holds."""


def worded(claim_id: str, check: Callable[[Run], Result], **bounds: object) -> Claim:
    """The claim of that id with its words. `bounds` are the figures that its words name in braces."""
    text = TEXTS[claim_id]
    return Claim(claim_id, text["says"].format(**bounds), text["bound"].format(**bounds), check)

"""The committed runs get the same verdict as before, claim by claim and word for word."""

from __future__ import annotations

from typing import Any

import pytest

from lab.results.folder import Run
from tests.lab.claims import verdicts
from tests.lab.claims.bending import RECORDS

TOLERANCE = 1e-6
"""Relative: another processor may round the last digits differently."""


def rounded(value: Any) -> Any:
    """The same value, in which each number is compared with a tolerance."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    if isinstance(value, float):
        return pytest.approx(value, rel=TOLERANCE, abs=1e-12)
    return value


def test_every_run_has_a_verdict_kept() -> None:
    """A record without a kept verdict is noticed, and so is a verdict whose record is gone."""
    assert sorted(verdicts.recorded()) == verdicts.records()


@pytest.mark.parametrize("record", verdicts.records())
def test_a_committed_run_is_judged_as_before(record: str) -> None:
    """Each claim and each check says of a committed run what it said when the verdict was kept."""
    assert verdicts.as_json(Run(RECORDS / record)) == rounded(verdicts.recorded()[record])

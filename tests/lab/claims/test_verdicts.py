"""The committed runs and the synthetic runs get the same verdict as before, claim by claim and word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.results.folder import Run
from tests.lab.claims import incomplete, verdicts
from tests.lab.claims.altered import RECORDS

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
    """A record or a scenario without a kept verdict is noticed, and so is a verdict whose run is gone."""
    assert set(verdicts.kept()) == {*verdicts.records(), *verdicts.synthetic()}


@pytest.mark.parametrize("record", verdicts.records())
def test_a_committed_run_is_judged_as_before(record: str) -> None:
    """Each claim and each check says of a committed run what it said when the verdict was kept."""
    assert verdicts.told(Run(RECORDS / record)) == rounded(verdicts.kept()[record])


@pytest.mark.parametrize("run", verdicts.synthetic())
def test_a_synthetic_run_is_judged_as_before(run: str, folder: Path) -> None:
    """The same for the healthy run and the control of each scenario."""
    assert verdicts.told(verdicts.synthetic()[run](folder)) == rounded(verdicts.kept()[run])


@pytest.mark.parametrize("run", incomplete.RUNS)
def test_what_is_missing_is_told_as_before(run: str, folder: Path) -> None:
    """Without one phase, figure, command or load, each claim says what is missing, or that it does not need it."""
    assert incomplete.told(run, folder) == incomplete.kept()[run]

"""Marks the tests that reach the code of a claim, for `make mutate`."""

from __future__ import annotations

import os
import runpy

import pytest

from lab import scenarios

MODULES = [name.replace("-", "_") for name in scenarios.catalogue()]


@pytest.fixture(autouse=True)
def claims_are_made_in_each_test(request: pytest.FixtureRequest) -> None:
    """Make the claims that a test judges once more, while mutmut notes which functions the test calls.

    A claim is made when its scenario is imported, before any test, so mutmut would ask the first test alone.
    """
    params = getattr(getattr(request.node, "callspec", None), "params", {})
    record = str(params.get("record", "")).replace("-", "_")
    if os.environ.get("MUTANT_UNDER_TEST") == "stats" and record:
        module = next(name for name in MODULES if record.startswith(name))
        runpy.run_module(f"lab.scenarios.{module}")

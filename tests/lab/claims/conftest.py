"""Which tests reach the code of a claim, for `make mutate`."""

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
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        params = getattr(getattr(request.node, "callspec", None), "params", {})
        if module := _module(params):
            runpy.run_module(f"lab.scenarios.{module}")


def _module(params: dict[str, object]) -> str | None:
    """Return the module of the scenario that a test judges by its parameters: its own, its record's, or the oldest."""
    for name in ("module", "record", "run"):
        if isinstance(told := params.get(name), str):
            known = told.removeprefix("synthetic ").removesuffix(" control").replace("-", "_")
            return next((module for module in MODULES if known.startswith(module)), None)
    return "key_growth" if "claim" in params else None

"""Proofs that the claims of each scenario can fail: one module a scenario, with its `PROOFS`.

(The proofs of key-growth, the oldest scenario, are in tests/lab/claims/doctorings.py: its runs have their own builder.)
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.lab.plain import Proofs


def proofs() -> dict[str, Proofs]:
    """Return the proofs by the name of the scenario's module."""
    return {
        module.name: importlib.import_module(f"{__name__}.{module.name}").PROOFS
        for module in pkgutil.iter_modules(__path__)
    }

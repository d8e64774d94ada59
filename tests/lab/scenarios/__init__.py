"""Proofs that the claims of each scenario can fail: a module for each scenario's, with its `PROOFS`.

(Those of key-growth, the oldest, are in tests/lab/claims/doctorings.py: its runs have a builder of their own.)
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.lab.plain import Proofs


def proofs() -> dict[str, Proofs]:
    """Proofs by the name of the scenario's module."""
    return {
        module.name: importlib.import_module(f"{__name__}.{module.name}").PROOFS
        for module in pkgutil.iter_modules(__path__)
    }

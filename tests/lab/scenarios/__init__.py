"""Proofs that the claims of each scenario can fail: one module a scenario, with its `PROOFS`.

(The proofs of key-growth, the oldest scenario, are in tests/lab/claims/doctorings.py: its runs have their own builder.)
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.lab.plain import Proofs


def proofs() -> dict[str, Proofs]:
    """Return the proofs by the name of the scenario's module.

    Claims that only other servers can answer are in a module's `ELSEWHERE` (server → proofs), as "MODULE on SERVER".
    """
    found = {}
    for name in (module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        found[name] = module.PROOFS
        found |= {f"{name} on {server}": more for server, more in getattr(module, "ELSEWHERE", {}).items()}
    return found

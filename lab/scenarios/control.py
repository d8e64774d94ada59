"""`control`: the load, phases and calibration of `key-growth` without its cause.

Every invalidation uses the index from the beginning. A claim that held here would be no evidence of anything.
"""

from __future__ import annotations

from dataclasses import replace

from lab.scenarios import key_growth

SCENARIO = replace(
    key_growth.SCENARIO,
    id="control",
    title="key-growth without its cause",
    story="The same keys, events, reads and phases, but nothing scans: every claim of key-growth must be refuted.",
    source="no-fault control of key-growth",
    phases=key_growth.phases("index"),
    refutes=True,
)

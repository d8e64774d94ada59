"""What a scenario is made of: phases, load, server settings and claims with their bounds. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.claims import Claim


@dataclass(frozen=True)
class ProbeSpec:
    """One more open-loop probe, beside the main one, during a phase."""

    name: str
    connections: int = 1
    reconnect_seconds: float | None = None


@dataclass(frozen=True)
class Phase:
    """One stretch of a run: what is set, how many keys are cached, and how long it is measured.

    `keys` is a fraction of the run's key count; `weight` multiplies the pace's plateau length. `arm` groups
    phases for the claims. `empty` restarts the store first (or empties the lab's own keys where the lab did not
    start the store). `foretell` has the demand predicted, at part of the load, before and after the plateau.
    """

    id: str
    arm: str
    title: str
    strategy: str
    keys: float
    weight: float = 1.0
    empty: bool = False
    foretell: bool = False
    probes: tuple[ProbeSpec, ...] = ()


@dataclass(frozen=True)
class Pace:
    """How long a run may take: seconds per plateau, settling time before each, and the key count.

    Where events are few a plateau takes longer: until it has seen enough of them to be judged (`lab.validity`).
    """

    plateau_s: float
    settle_s: float
    keys: int


@dataclass(frozen=True)
class Scenario:
    """One incident: its story in a line, its source, what is done, and what must be true of the result.

    `knee_at` is the fraction of the key count at which the calibrated event rate saturates the server.
    `scan_count` is the COUNT of each SCAN. `refutes` marks a control: its run is as it should be when every
    applicable claim fails.
    """

    id: str
    title: str
    story: str
    source: str
    phases: tuple[Phase, ...]
    claims: tuple[Claim, ...]
    paces: dict[str, Pace]
    knee_at: float
    scan_count: int
    reads_per_second: float = 40.0
    probe_per_second: float = 200.0
    slowlog_threshold_us: int = 10_000
    fragments_per_user: int = 20
    refutes: bool = False
    server_settings: dict[str, str] = field(default_factory=dict)

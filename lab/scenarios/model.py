"""The types of a scenario's parts: phases, load, server settings and claims with their bounds. Data only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lab.claims import Claim
from lab.results.folder import Run
from lab.results.schema import PlannedPhase


@dataclass(frozen=True)
class ProbeSpec:
    """A further open-loop probe during a phase, in addition to the main one.

    `replica`: it asks the replica. `node`: the node of a cluster that it asks, from 1.
    """

    name: str
    connections: int = 1
    reconnect_seconds: float | None = None
    replica: bool = False
    node: int = 1


@dataclass(frozen=True)
class LoadSpec:
    """A further load in a phase: a process ``python -m loadtest.incidents.MODULE ARGUMENTS``, with the server's URL in
    PROBE_URL.

    The load prints JSON lines, which are kept in loads.jsonl. The ``figures`` (name → number) in its last line become
    the phase's. So it must print that line even when it is stopped (SIGTERM, or the end of stdin). Any exit code
    but 0 breaks the run, with the last line of its stderr.

    Names in braces in its arguments are filled in: {keys}, {seed}, {seconds} (the phase's length), {prefix} (of keys
    that the lab may write), {storefront} (the beginning of the storefront's keys), {web} (the storefront's address),
    {users} and {each} (the storefront's users, and entries of each), {beyond} (the first user id beyond those), the
    names in the pace's `sizes`, and {PHASE[FIGURE]}: a figure of an earlier phase.

    `self_terminating`: the load starts with the measurement, and the phase lasts until it ends. Otherwise the load runs
    as long as the phase. `cpu_bound`: the load may use all the CPU it gets, as a closed loop does. `reports_ready`: the
    load prints a line as soon as it is under way, and nothing is measured before that.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    self_terminating: bool = False
    cpu_bound: bool = False
    reports_ready: bool = False


@dataclass(frozen=True)
class Phase:
    """A phase of a run: its settings, how many keys are cached, and how long it is measured.

    `keys` is a fraction of the run's key count; `weight` multiplies the pace's plateau length. `arm` groups phases for
    the claims. `empty` restarts the server first (or deletes the lab's own keys where the lab did not start the
    server). `predict`: the demand is predicted from part of the load, before and after the plateau. `events` is the
    share of the run's events offered in this phase, or, with `events_from`, a multiple of an earlier phase's figure,
    written PHASE[FIGURE]. `scan_count` replaces the scenario's COUNT. `params` are figures by which claims and charts
    distinguish phases. `shards`: how many nodes a scenario's cluster has in this phase; where it differs from the phase
    before, the phase must be `empty`. `neutral` replaces a title that would reveal the cause.
    """

    id: str
    arm: str
    title: str
    strategy: str
    keys: float
    weight: float = 1.0
    empty: bool = False
    predict: bool = False
    probes: tuple[ProbeSpec, ...] = ()
    loads: tuple[LoadSpec, ...] = ()
    events: float = 1.0
    events_from: str = ""
    scan_count: int | None = None
    params: dict[str, float] = field(default_factory=dict)
    shards: int = 1
    neutral: str = ""

    def named(self, spoilers: bool) -> str:
        """Return the phase's title with `spoilers`; else its neutral title, if it has one."""
        return self.title if spoilers or not self.neutral else self.neutral


@dataclass(frozen=True)
class Pace:
    """The size of a run: seconds per plateau, settling time before each, and the key count.

    Where events are rare a plateau takes longer, until it has seen enough of them to be judged (`lab.claims.validity`).
    `sizes` are further numbers that the loads' arguments may name. `loads_mb`: memory of loads, replica and probes, in
    the server or in their own processes, beside the keys. `most_mb`: the most memory that the keys take, where the
    server has a limit. A phase that was not measured fairly is measured again, at most `attempts` times in all. All
    repetitions of a run together take at most as long as `repeats` plateaus.
    """

    plateau_s: float
    settle_s: float
    keys: int
    sizes: dict[str, float] = field(default_factory=dict)
    loads_mb: float = 0.0
    most_mb: float = math.inf
    attempts: int = 3
    repeats: float = 16.0


@dataclass(frozen=True)
class Chart:
    """A chart of phases in the report. Quantities are names that `lab.report.quantities` knows.

    `kind` is ``lines`` (y over x, one line per value of `by`), ``bars`` (y for each phase title) or ``heat`` (x and
    `by` span the cells, y is the colour); `arm` restricts these to the phases of one arm.

    The kind ``moments`` draws the lines that the loads of the phase with the id `x` printed, over time. `y` names
    fields of the lines, separated by blanks; each gets a panel. The time is shaded where the field `by` is above zero.

    For a run whose keys grow before the cure and after it there are ``plateaus`` (p99 over the keys, with a line
    through the plateaus below the knee), ``percentiles`` (few keys, all keys, and after the cure) and ``demand``
    (arriving work as a share of the server's capacity, over the keys).
    """

    id: str
    title: str
    kind: str
    x: str = ""
    y: str = ""
    by: str = ""
    arm: str = ""
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """A table in the report. `rows` reads its rows from the run: one cell per heading, the first of which is a name.

    A figure that was not measured is a dash. Cells are formatted for people, so that other texts can use them too.
    """

    caption: str
    headings: tuple[str, ...]
    rows: Callable[[Run], list[list[str]]]


@dataclass(frozen=True)
class Arms:
    """The arms in which keys grow: under the cause (`rising`), and after the fix (`cured`); '' for none."""

    rising: str = ""
    cured: str = ""


@dataclass(frozen=True)
class Scenario:
    """An incident: its story in a line, its source, its phases, and the claims on its result.

    `knee_at` is the fraction of the key count at which the calibrated event rate saturates the server; `load_share`
    of that rate is offered. If `knee_at` is None nothing is calibrated, and `events_per_second` are offered.
    `searching` is the strategy by which the calibration has the server searched, and `scan_count` the COUNT of each
    SCAN; if it is 0, that of the command line, or else the server's own (`lab.server.servers`). `refutes` marks a
    control: its run is as it should be when every applicable claim fails. `replica`: the primary has a replica.
    `own_server`: the scenario changes settings that the lab must not change on a foreign server. `server_core`: the
    lab's own server and the probes have a core of their own (`lab.stacks.own_core`). `timeout_s` is how long the
    storefront of a native run, and the lab, wait for one answer of the server: a stalled server is the subject
    here, and not an error. `patience_s` is how long a customer of a native run waits for a page. `node_share`: the
    server is a cluster, each node of which is limited to this share of a core; 0 for no cluster. `fixes` are pairs
    of phases (or of arms, whose last phases are meant), before and after a fix, which `report --story` compares.
    `symptom` (what people saw) and `cause` (what it was) are a few words each, for tables of incidents. `headline`
    is the id of the headline claim, which is shown first in reports, summaries and tables.
    """

    id: str
    title: str
    story: str
    source: str
    phases: tuple[Phase, ...]
    claims: tuple[Claim, ...]
    paces: dict[str, Pace]
    knee_at: float | None
    scan_count: int
    load_share: float = 1.0
    events_per_second: float = 0.0
    reads_per_second: float = 40.0
    probe_per_second: float = 200.0
    slowlog_threshold_us: int = 10_000
    fragments_per_user: int = 20
    refutes: bool = False
    searching: str = "scan"
    replica: bool = False
    own_server: bool = False
    server_core: bool = False
    timeout_s: float = 30.0
    patience_s: float = 10.0
    node_share: float = 0.0
    server_settings: dict[str, str] = field(default_factory=dict)
    arms: Arms = Arms()
    fixes: tuple[tuple[str, str], ...] = ()
    charts: tuple[Chart, ...] = ()
    listings: tuple[Listing, ...] = ()
    symptom: str = ""
    cause: str = ""
    headline: str = ""

    def plan(self, pace: Pace, keys: int) -> list[PlannedPhase]:
        """Return the plan of a run at a pace, with that many keys at the top."""
        return [
            PlannedPhase(
                id=phase.id,
                arm=phase.arm,
                strategy=phase.strategy,
                keys=phase.keys * keys,
                seconds=0.0
                if any(load.self_terminating for load in phase.loads)
                else pace.plateau_s * phase.weight,
                events=phase.events,
                events_from=phase.events_from,
                probes=[probe.name for probe in phase.probes if not probe.replica],
                loads=[load.name for load in phase.loads],
                params=dict(phase.params),
            )
            for phase in self.phases
        ]


def control_of(scenario: Scenario, story: str, **changes: Any) -> Scenario:
    """Return the scenario's control: the same without its cause, by these changes, so that every claim is refuted."""
    named = {
        "id": f"{scenario.id}-control",
        "title": f"{scenario.id} without its cause",
        "source": f"no-fault control of {scenario.id}",
    }
    return replace(scenario, **{**named, "story": story, "refutes": True, **changes})

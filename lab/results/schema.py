"""The run folder as types: the fields of run.json, and the columns of the files beside it.

`read_facts` refuses a file that does not fit, with one line that names file, field and what was expected.
`docs/run-folder.md` and `docs/run.schema.json` are made from this module (`make docs`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from lab.errors import UsageError

SCHEMA: Literal[2] = 2
FIRST_SECOND, LAST_SECOND = 1_500_000_000.0, 10_000_000_000.0
"""The moments of a run must lie between these unix seconds. Moments in milliseconds do not."""


def _has(*names: str) -> AfterValidator:
    """A validator: the mapping must hold at least these names."""

    def check(value: dict[str, float]) -> dict[str, float]:
        missing = [name for name in names if name not in value]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return value

    return AfterValidator(check)


Number = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=FIRST_SECOND, le=LAST_SECOND)]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Counters = Annotated[dict[str, Amount], _has("calls", "usec")]
Events = Annotated[
    dict[str, Amount], _has("asked_per_s", "offered_per_s", "finished_per_s", "in_flight_end", "failures")
]
Probed = Annotated[dict[str, Amount], _has("sent", "received", "errors", "rate", "lag_p99_us")]
StackName = Literal["native", "compose"]
STRICT = ConfigDict(extra="forbid", strict=True, validate_default=True)


@dataclass
class Mark:
    """An intervention in the run: a restart, a switch of the strategy."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    t: Moment
    kind: Name
    text: str


@dataclass
class PlannedPhase:
    """The plan of one phase, written before anything was measured.

    `keys`: cached entries. `seconds`: the shortest length of the measurement; 0 where the phase's loads end it.
    `events`: the offered share of the run's events, or, with `events_from`, a multiple of an earlier phase's figure,
    written PHASE[FIGURE]. `probes`: names of the probes beside the main one, without those of a replica, which a stack
    may lack. `loads`: names of the phase's own loads. `params`: figures by which claims distinguish phases.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: Name
    arm: Name
    strategy: Name
    keys: Amount
    seconds: Amount
    events: Amount
    events_from: str
    probes: list[Name]
    loads: list[Name]
    params: dict[str, Number]


@dataclass
class PhaseRecord:
    """The measurements of one phase. Times are unix seconds.

    `commands`: the server's counters over the phase, `commands[NAME] = {"calls": n, "usec": execution time}`.
    `utilisation`: busy share of the server's main thread, from its CPU time. `active`: the share of the time in which
    it was at work by the server's own clock; None where the server does not report it. `forecasts`: demands predicted
    from part of the load, just before and just after the phase (see `lab.runner.calibration`); empty where nothing was
    predicted. `events`: invalidation events offered and finished per second, those in flight at the end, and failed
    requests; where forecasts were made also `server_s`, the server's CPU time per event, measured until all were done.
    `client_p99_ms`: p99 of a GET as other observers saw it: `app` (its own histogram) and `locust` (the HTTP request).
    `machine`: shares of the machine's cores, and for how long server and probe waited for one, where the system reports
    it (`lab.server.processes.CpuMeter`). `params`: the scenario's figures of the phase. `figures`: what its loads
    measured, and of a cluster the counters of each node (`lab.stacks.cluster`). `attempt`: the number of this
    measurement of the phase, from 1. `unfair`: why the measurement was not fair, in clauses (`lab.claims.fairness`).
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: Name
    arm: Name
    title: str
    strategy: Name
    t0: Moment
    t1: Moment
    keys: Amount
    commands: dict[str, Counters] = field(default_factory=dict)
    utilisation: Amount | None = None
    active: Amount | None = None
    forecasts: list[Number] = field(default_factory=list)
    events: Events = field(default_factory=dict)
    slowlog: dict[str, dict[str, Amount]] = field(default_factory=dict)
    client_p99_ms: dict[str, Amount | None] = field(default_factory=dict)
    probes: dict[str, Probed] = field(default_factory=dict)
    machine: dict[str, Amount] = field(default_factory=dict)
    processes: dict[str, Amount] = field(default_factory=dict)
    memory_mb: dict[str, Amount] = field(default_factory=dict)
    params: dict[str, Number] = field(default_factory=dict)
    figures: dict[str, Number] = field(default_factory=dict)
    attempt: Annotated[int, Field(ge=1)] = 1
    unfair: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Length of the phase."""
        return self.t1 - self.t0

    @property
    def predicted_demand(self) -> float | None:
        """The mean of the forecasts, a share of a whole core; None where nothing was predicted."""
        return sum(self.forecasts) / len(self.forecasts) if self.forecasts else None

    def execution_us(self, command: str) -> float | None:
        """Mean execution time of a command on the server in this phase, or None if it never ran."""
        counters = self.commands.get(command)
        return counters["usec"] / counters["calls"] if counters and counters["calls"] else None

    def rate(self, command: str) -> float:
        """Calls per second of a command in this phase."""
        return self.commands.get(command, {}).get("calls", 0.0) / self.seconds


@dataclass
class RunFacts:
    """Everything about a run except its latencies and its verdict.

    `despite_noise`: why the machine was too busy at the start, where the run was started all the same; else empty.
    `plan`: the phases in the order in which they were to be measured. `whole_scans`: true if a SCAN call always visits
    COUNT keys, false if the server may return earlier. `cpu_bound`: processes that are meant to use all the CPU they
    get. `discarded`: attempts of phases that were not measured fairly and were repeated, in the order of the run.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    scenario: Name
    title: str
    story: str
    source: str
    refutes: bool
    server: str
    server_version: str
    stack: StackName
    pace: Name
    seed: Annotated[int, Field(ge=0)]
    keys: Annotated[int, Field(ge=1)]
    started: str
    command: str
    host: dict[str, str | int | float]
    load: dict[str, Amount]
    scan_count: Annotated[int, Field(ge=1)]
    slowlog_threshold_us: Annotated[int, Field(ge=0)]
    plan: list[PlannedPhase]
    calibration: dict[str, Number] = field(default_factory=dict)
    phases: list[PhaseRecord] = field(default_factory=list)
    discarded: list[PhaseRecord] = field(default_factory=list)
    cannot: dict[str, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    interrupted: bool = True
    whole_scans: bool = True
    cpu_bound: list[str] = field(default_factory=list)
    despite_noise: str = ""
    schema: Literal[2] = SCHEMA


FACTS = TypeAdapter(RunFacts)


def read_facts(path: Path) -> RunFacts:
    """Read run.json and check the type of every field.

    Raises:
        UsageError: one line that names file, field and what was expected.
    """
    try:
        facts = FACTS.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path.parent} is not a run folder: it has no run.json.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {_first(error)}.") from None
    for phase in (*facts.phases, *facts.discarded):
        if phase.t1 <= phase.t0:
            raise UsageError(f"{path}: phase {phase.id} should end after it begins (t1 after t0).")
    return facts


def _first(error: ValidationError) -> str:
    """The first error, in words."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return f"it is not JSON, or was cut off ({first['msg'].removeprefix('Invalid JSON: ')})"
    if first["type"] == "unexpected_keyword_argument" or first["type"] == "extra_forbidden":
        return f"{where} is a field that this version of the lab does not know; another one wrote it"
    if first["type"] in ("missing", "missing_argument"):
        return f"{where} is missing"
    if where == "schema":
        return f"schema is {first['input']!r:.20}, and this version of the lab reads {SCHEMA}"
    text = first["msg"].removeprefix("Value error, ")
    return f"{where or 'its content'}: {text[0].lower()}{text[1:]}, not {first['input']!r:.40}"


# -- the files beside run.json -----------------------------------------------------------------------------------------

TEXT, NUMBER = "text", "number"


@dataclass(frozen=True)
class Column:
    """A column of a table: its meaning, whether it holds text or numbers, and whether a cell may be empty."""

    name: str
    kind: str
    meaning: str
    may_be_empty: bool = True


def _share(name: str, whose: str) -> Column:
    return Column(name, NUMBER, f"share of a core that {whose} used")


COMMANDS = ("GET", "SET", "UNLINK", "SCAN", "KEYS", "SSCAN")
"""Commands that have two columns in samples.csv in every run. Every other command that was called gets the same two
columns, except those in `OBSERVERS`."""
OBSERVERS = frozenset(
    (
        "AUTH",
        "CLIENT",
        "COMMAND",
        "CONFIG",
        "DBSIZE",
        "HELLO",
        "INFO",
        "PING",
        "REPLCONF",
        "SELECT",
        "SETRANGE",
        "SLOWLOG",
    )
)
"""Commands with which the lab observes the server (SETRANGE: see `lab.server.server_stats`) and clients open their
connections."""
MORE = re.compile(r"([a-z0-9_.|-]+)_(per_s|exec_us)")
"""The column names of another command. Its columns are empty until its first call."""


def command_columns(command: str) -> tuple[Column, Column]:
    """The two columns of a command: how often it was called, and how long a call took."""
    name = command.lower()
    return (
        Column(f"{name}_per_s", NUMBER, f"calls of {command} a second"),
        Column(f"{name}_exec_us", NUMBER, f"mean execution time of {command} on the server"),
    )


SAMPLES: tuple[Column, ...] = (
    Column("t", NUMBER, "Unix time, seconds", False),
    Column("phase", TEXT, "the phase's id, or calibration", False),
    Column("attempt", NUMBER, "which attempt of the phase"),
    Column("strategy", TEXT, "the strategy that is set"),
    Column("keys", NUMBER, "keys on the server (DBSIZE)"),
    Column("probe_p50_ms", NUMBER, "median of the main probe's last interval, from the intended time"),
    Column("probe_p99_ms", NUMBER, "p99 of the same"),
    Column("app_p99_ms", NUMBER, "p99 of a GET by the storefront's own histogram, over the second"),
    Column("utilisation", NUMBER, "busy share of the server's main thread"),
    *(column for command in COMMANDS for column in command_columns(command)),
    Column("events_finished_per_s", NUMBER, "invalidation events finished a second"),
    Column("events_in_flight", NUMBER, "invalidation events being carried out"),
    Column("events_pending", NUMBER, "accepted events not done yet"),
    Column("memory_mb", NUMBER, "the server's used memory"),
    Column("clients", NUMBER, "connections to the server"),
    _share("cpu_store", "the server"),
    _share("cpu_web", "the storefront's web process"),
    _share("cpu_invalidator", "the invalidator"),
    _share("cpu_locust", "the load generator"),
    _share("cpu_probe", "all probes"),
    _share("cpu_lab", "the lab itself"),
    Column("machine_busy", NUMBER, "cores busy on the machine"),
    Column("machine_steal", NUMBER, "cores that the hypervisor took"),
    Column(
        "machine_others", NUMBER, "cores that other programs used, without those that a run can do without"
    ),
)
SLOWLOG: tuple[Column, ...] = (
    Column("t", NUMBER, "Unix time of the entry, whole seconds", False),
    Column("command", TEXT, "the command's name", False),
    Column("duration_us", NUMBER, "how long it took on the server, microseconds", False),
)
OLDER = frozenset({"attempt"})
"""Columns that files of earlier versions may lack."""


def check_table(
    path: Path, columns: Iterable[Column], rows: list[dict[str, str]], head: list[str], whole: bool
) -> None:
    """Check a table against its columns. If it is not `whole`, its last row may be cut.

    Raises:
        UsageError: one line that names file, line, column and what was expected.
    """
    known = {column.name: column for column in columns}
    if "get_per_s" in known:
        known = {name: Column(name, NUMBER, "of another command") for name in _command_columns(head)} | known
    missing = [name for name in known if name not in head and name not in OLDER]
    unknown = [name for name in head if name not in known]
    if (head or rows) and (missing or unknown):
        text = f"column {missing[0]} is missing" if missing else f"column {unknown[0]!r:.40} is unknown"
        raise UsageError(f"{path}: {text}.")
    before = -math.inf
    for number, row in enumerate(rows, start=2):
        for name in head:
            problem = _wrong_cell(known[name], row.get(name))
            if problem and not (number == len(rows) + 1 and not whole):
                raise UsageError(f"{path}, line {number}: {name} should be {problem}.")
        moment = _number(row.get("t"))
        if "phase" in known and moment is not None:
            if moment < before:
                raise UsageError(f"{path}, line {number}: t should not go back.")
            before = moment


def _command_columns(head: Iterable[str]) -> set[str]:
    """The columns that come as a pair for one command, whatever its name."""
    found = Counter(match[1] for name in head if (match := MORE.fullmatch(name)))
    return {
        f"{command}_{what}" for command, times in found.items() for what in ("per_s", "exec_us") if times == 2
    }


def _wrong_cell(column: Column, cell: object) -> str | None:
    """Return what a wrong cell should be instead, as the end of a sentence; None if the cell is right."""
    if not isinstance(cell, str):
        return f"{'a number' if column.kind == NUMBER else 'text'}, but the line ends before this column"
    if not cell:
        return (
            None if column.may_be_empty else f"{'a number' if column.kind == NUMBER else 'text'}, not empty"
        )
    if column.kind == NUMBER and _number(cell) is None:
        return f"a number, not {cell!r:.40}"
    return None


def _number(cell: object) -> float | None:
    try:
        value = float(str(cell))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def check_load_line(path: Path, number: int, line: object) -> Mapping[str, Any]:
    """Check a line of loads.jsonl: an object that names its phase and load, with finite numbers only. Returns the line.

    Raises:
        UsageError: one line that names file, line, field and what was expected.
    """
    if not isinstance(line, dict):
        raise UsageError(f"{path}, line {number}: should be an object, not {line!r:.40}.")
    for name in ("phase", "load"):
        if not isinstance(line.get(name), str):
            raise UsageError(f"{path}, line {number}: {name} should be text, not {line.get(name)!r:.40}.")
    for name, value in line.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{path}, line {number}: {name} should be a number, not {value}.")
    return line

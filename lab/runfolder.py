"""A run folder: what a run writes while it goes on, and all that claims and report read.

run.json      what was run, where, and what each phase did (rewritten whole after every phase)
samples.csv   one row a second, for people and for the timeline
probe.hlog    latency of every probe in short intervals (HdrHistogram log, microseconds, tags
              NAME-intended and NAME-service)
slowlog.csv   entries of the server's slow log as they appeared
loads.jsonl   what the scenario's own loads said, line by line, each with its phase and name
result.json   the verdict, written last and in one piece: a folder without it is a partial run
report.html   the report
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from lab.errors import StackError, UsageError
from lab.histograms import values_of

Latencies = NDArray[np.float64]
SCHEMA = 1


@dataclass
class PhaseRecord:
    """What one phase did. Times are unix seconds, `commands` are the server's counters over the phase.

    `commands[NAME] = {"calls": n, "usec": execution time}`; `utilisation` is the busy share of the server's
    main thread; `forecasts` are the demands that part of the load, just before and just after, foretold (see
    `lab.calibration`; empty where nothing was); `events` holds invalidation events offered and finished per second,
    those in flight at the end, and failed requests; `client_p99_ms` holds other observers' p99 of a GET: `app` (its
    own histogram) and `locust` (the HTTP request). `params` are the scenario's figures of the phase, `figures` what its
    loads measured.
    """

    id: str
    arm: str
    title: str
    strategy: str
    t0: float
    t1: float
    keys: float
    commands: dict[str, dict[str, float]] = field(default_factory=dict)
    utilisation: float | None = None
    forecasts: list[float] = field(default_factory=list)
    events: dict[str, float] = field(default_factory=dict)
    slowlog: dict[str, dict[str, float]] = field(default_factory=dict)
    client_p99_ms: dict[str, float | None] = field(default_factory=dict)
    probes: dict[str, dict[str, float]] = field(default_factory=dict)
    machine: dict[str, float] = field(default_factory=dict)
    processes: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    params: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the phase."""
        return self.t1 - self.t0

    @property
    def predicted_demand(self) -> float | None:
        """The mean of the forecasts."""
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
    """Everything about a run but its latencies and its verdict.

    `whole_scans`: whether one SCAN call goes on until COUNT keys were looked at, or the server may return earlier.
    `greedy`: processes that are meant to take what CPU they get.
    """

    scenario: str
    title: str
    story: str
    source: str
    refutes: bool
    server: str
    server_version: str
    stack: str
    pace: str
    seed: int
    keys: int
    started: str
    command: str
    host: dict[str, Any]
    load: dict[str, float]
    scan_count: int
    slowlog_threshold_us: int
    calibration: dict[str, Any] = field(default_factory=dict)
    phases: list[PhaseRecord] = field(default_factory=list)
    cannot: dict[str, str] = field(default_factory=dict)
    marks: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = True
    whole_scans: bool = True
    greedy: list[str] = field(default_factory=list)
    schema: int = SCHEMA


class RunWriter:
    """Writes a run folder. A full disk or a lost permission raises `StackError` in one line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._hlog: TextIO = (folder / "probe.hlog").open("w")
            self._samples: TextIO = (folder / "samples.csv").open("w", newline="")
            self._slowlog: TextIO = (folder / "slowlog.csv").open("w", newline="")
            self._loads: TextIO = (folder / "loads.jsonl").open("w")
            self._hlog.write("#[Histogram log format version 1.3]\n#[Interval unit: microseconds]\n")
            self._hlog.write(
                '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
            )
            self._slowlog.write("t,command,duration_us\n")
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._columns: list[str] | None = None

    def probe(self, name: str, line: dict[str, Any]) -> None:
        """Append one interval of a probe (its own JSON line) to the histogram log."""
        start, length = line["t"] - line["interval_s"], line["interval_s"]
        for kind in ("intended", "service"):
            top = line["max_us"] or 0
            self._write(self._hlog, f"Tag={name}-{kind},{start:.3f},{length:.3f},{top:.3f},{line[kind]}\n")

    def sample(self, row: dict[str, float | str | None]) -> None:
        """Append one row to samples.csv; the first row settles the columns."""
        if self._columns is None:
            self._columns = list(row)
            self._write(self._samples, ",".join(self._columns) + "\n")
        values = (row.get(column) for column in self._columns)
        self._write(self._samples, ",".join(_cell(value) for value in values) + "\n")

    def slow(self, t: float, command: str, duration_us: int) -> None:
        """Append one entry of the slow log."""
        self._write(self._slowlog, f"{t:.3f},{command},{duration_us}\n")

    def load(self, phase: str, name: str, line: dict[str, Any]) -> None:
        """Append one line of a load."""
        self._write(self._loads, json.dumps({"phase": phase, "load": name, **line}) + "\n")

    def facts(self, facts: RunFacts) -> None:
        """Write run.json in one piece."""
        write_json(self.folder / "run.json", asdict(facts))

    def close(self) -> None:
        """Flush and close; safe to call twice."""
        for file in (self._hlog, self._samples, self._slowlog, self._loads):
            try:
                file.close()
            except OSError as error:
                raise _cannot_write(self.folder, error) from error

    def _write(self, file: TextIO, text: str) -> None:
        if file.closed:
            return
        try:
            file.write(text)
            file.flush()
        except OSError as error:
            raise _cannot_write(self.folder, error) from error


def _cell(value: float | str | None) -> str:
    return (
        ""
        if value is None
        else f"{value:.6g}"
        if isinstance(value, float) and abs(value) < 1e6
        else str(value)
    )


class CannotWrite(StackError):
    """The run folder cannot be written any more: a full disk, a lost permission."""


def _cannot_write(folder: Path, error: OSError) -> CannotWrite:
    return CannotWrite(
        f"cannot write to {folder}: {error.strerror}. Free some space or choose another --out."
    )


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that the file is either the old one or the new one, never half of it."""
    draft = path.with_suffix(".json.part")
    try:
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.replace(path)
    except OSError as error:
        raise _cannot_write(path.parent, error) from error
    finally:
        draft.unlink(missing_ok=True)  # there only if something went wrong, Ctrl-C included


def make_folder(folder: Path) -> Path:
    """Create an empty run folder; one that cannot be written, or already holds a run, is a `UsageError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"--out {folder} is not empty. Choose a new folder: a run never overwrites another."
            )
        probe = folder / ".write-test"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"--out {folder} cannot be written: {error.strerror}. Choose another folder."
        ) from error
    return folder


def new_folder(name: str) -> Path:
    """Create a run folder of that name under runs/, with a number behind it where there is one already."""
    folder, attempt = Path("runs") / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            attempt += 1
            folder = folder.with_name(f"{name}-{attempt}")
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}. Name another place with --out."
            ) from error


class Run:
    """A run folder read back. Raises `UsageError` when the folder is not one, or lacks a part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            raw = json.loads((folder / "run.json").read_text())
            phases = [PhaseRecord(**phase) for phase in raw.pop("phases")]
            self.facts = RunFacts(**raw, phases=phases)
        except FileNotFoundError:
            raise UsageError(f"{folder} is not a run folder: it has no run.json.") from None
        except TypeError as error:  # fields that this version does not know, or lacks
            raise UsageError(
                f"{folder}/run.json was written by another version of the lab ({error}): run the scenario again."
            ) from error
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise UsageError(f"{folder}/run.json cannot be read: {error}") from error

    @property
    def phases(self) -> list[PhaseRecord]:
        """Finished phases in the order of the run."""
        return self.facts.phases

    def arm(self, name: str) -> list[PhaseRecord]:
        """The phases of one arm, in order."""
        return [phase for phase in self.phases if phase.arm == name]

    def phase(self, phase_id: str) -> PhaseRecord | None:
        """A phase by its id."""
        return next((phase for phase in self.phases if phase.id == phase_id), None)

    @cached_property
    def _intervals(self) -> dict[str, list[tuple[float, float, Latencies]]]:
        """Tag → (start, end, latencies in µs) of each probe interval."""
        found: dict[str, list[tuple[float, float, Latencies]]] = {}
        try:
            lines = (self.folder / "probe.hlog").read_text().splitlines()
        except OSError as error:
            raise UsageError(f"{self.folder}/probe.hlog cannot be read: {error.strerror}") from error
        for line in lines:
            if not line.startswith("Tag="):
                continue
            try:
                tag, start, length, _, encoded = line.split(",")
                found.setdefault(tag[4:], []).append(
                    (float(start), float(start) + float(length), values_of(encoded))
                )
            except Exception:  # the last line of an interrupted run may be cut anywhere
                continue
        return found

    def intervals(
        self, phase: PhaseRecord, probe: str = "main", kind: str = "intended"
    ) -> list[tuple[float, float, Latencies]]:
        """(start, end, latencies in µs) of the intervals in which a probe recorded something in a phase.

        An interval belongs to the phase that its middle lies in. The probes' intervals begin and end at the same
        moments, so two probes in one phase are compared over the same time.
        """
        return [
            (start, end, values)
            for start, end, values in self._intervals.get(f"{probe}-{kind}", [])
            if phase.t0 <= (start + end) / 2 < phase.t1 and len(values)
        ]

    def latencies(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> list[Latencies]:
        """Latencies in µs that a probe recorded in a phase, one array per interval."""
        return [values for _, _, values in self.intervals(phase, probe, kind)]

    def p99_ms(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> float | None:
        """p99 of a phase in milliseconds; None where the probe recorded nothing."""
        parts = self.latencies(phase, probe, kind)
        return float(np.percentile(np.concatenate(parts), 99)) / 1000 if parts else None

    @cached_property
    def samples(self) -> list[dict[str, str]]:
        """Rows of samples.csv."""
        return self._rows("samples.csv")

    @cached_property
    def slowlog(self) -> list[dict[str, str]]:
        """Rows of slowlog.csv."""
        return self._rows("slowlog.csv")

    @cached_property
    def loads(self) -> list[dict[str, Any]]:
        """Lines of loads.jsonl; a run of a scenario without loads of its own has none."""
        try:
            lines = (self.folder / "loads.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.folder}/loads.jsonl cannot be read: {error.strerror}") from error
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:  # the last line of an interrupted run
                continue
        return found

    def _rows(self, name: str) -> list[dict[str, str]]:
        try:
            with (self.folder / name).open(newline="") as file:
                return list(csv.DictReader(file))
        except OSError as error:
            raise UsageError(f"{self.folder}/{name} cannot be read: {error.strerror}") from error

    def result(self) -> dict[str, Any] | None:
        """The verdict, or None for a partial run."""
        try:
            content = json.loads((self.folder / "result.json").read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder}/result.json cannot be read: {error}") from error
        return dict(content)

"""A run folder: what a run writes as it goes, and all that claims and report read.

Types are in `lab.results.schema`.

run.json      the run's facts, its plan, and a record of each phase (rewritten whole after every phase)
samples.csv   one row a second, for people and for the timeline
probe.hlog    latency of every probe in short intervals (HdrHistogram log, microseconds, tags
              NAME-intended and NAME-service)
slowlog.csv   entries of the server's slow log as they appeared
loads.jsonl   the lines that the scenario's own loads printed, each with its phase, attempt and name
result.json   the verdict, written last and in one piece: a folder without it is a partial run
report.html   the report
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from lab.errors import StackError, UsageError
from lab.results import stats
from lab.results.histograms import MOST, values_of
from lab.results.jsontext import parse
from lab.results.schema import (
    SAMPLES,
    SLOWLOG,
    Column,
    Mark,
    PhaseRecord,
    RunFacts,
    check_load_line,
    check_table,
    read_facts,
)

__all__ = [
    "Interval",
    "Latencies",
    "Mark",
    "PhaseRecord",
    "Run",
    "RunFacts",
    "RunWriter",
    "make_folder",
    "new_folder",
    "write_json",
]

Latencies = NDArray[np.float64]


class Interval(NamedTuple):
    """A probe's latencies (µs) between two moments (unix seconds)."""

    start: float
    end: float
    values: Latencies


HLOG_HEADER = 3


def interval_of(line: Mapping[str, Any]) -> tuple[float, float]:
    """Start (unix seconds) and length (s) of a probe's interval, rounded to the millisecond as in probe.hlog.

    All code that asks which phase an interval belongs to must use these figures. Otherwise an interval at the edge of a
    phase is counted in one place and not in another.
    """
    return round(line["t"] - line["interval_s"], 3), round(line["interval_s"], 3)


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
            self._slowlog.write(",".join(column.name for column in SLOWLOG) + "\n")
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._columns: list[str] | None = None

    def probe(self, name: str, line: dict[str, Any]) -> None:
        """Append one interval of a probe (its own JSON line) to the histogram log."""
        start, length = interval_of(line)
        for kind in ("intended", "service"):
            top = line["max_us"] or 0
            self._write(self._hlog, f"Tag={name}-{kind},{start:.3f},{length:.3f},{top:.3f},{line[kind]}\n")

    def sample(self, row: dict[str, float | str | None]) -> None:
        """Append one row to samples.csv. A column that earlier rows did not have is added to them, empty."""
        if self._columns is None:
            self._columns = list(row)
            self._write(self._samples, ",".join(self._columns) + "\n")
        elif more := [column for column in row if column not in self._columns]:
            self._widen(more)
            self._columns += more
        values = (row.get(column) for column in self._columns)
        self._write(self._samples, ",".join(_cell(value) for value in values) + "\n")

    def _widen(self, more: list[str]) -> None:
        """Rewrite samples.csv with more columns, in one piece."""
        path, part = self.folder / "samples.csv", self.folder / "samples.part"
        try:
            self._samples.close()
            head, *rows = path.read_text().splitlines()
            part.write_text(
                "".join(
                    f"{line}\n" for line in (",".join([head, *more]), *(r + "," * len(more) for r in rows))
                )
            )
            part.replace(path)
            self._samples = path.open("a", newline="")
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    def slow(self, t: float, command: str, duration_us: int) -> None:
        """Append one entry of the slow log."""
        self._write(self._slowlog, f"{t:.3f},{command},{duration_us}\n")

    def load(self, phase: str, name: str, line: dict[str, Any], attempt: int = 1) -> None:
        """Append one line that a load printed in an attempt of a phase."""
        self._write(
            self._loads, json.dumps({"phase": phase, "attempt": attempt, "load": name, **line}) + "\n"
        )

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
        draft.unlink(missing_ok=True)  # left over only if something went wrong, Ctrl-C included


def check_folder(folder: Path) -> None:
    """Raises `UsageError` when the folder cannot be written or is not empty. Nothing is created."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        if place == folder and any(folder.iterdir()):
            raise UsageError(
                f"--out {folder} is not empty. Choose a new folder: a run never overwrites another."
            )
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UsageError(
            f"--out {folder} cannot be written: {error.strerror}. Choose another folder."
        ) from error


def make_folder(folder: Path) -> Path:
    """Create an empty run folder. Raises `UsageError` when it cannot be written or is not empty."""
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {folder} cannot be made: {error.strerror}. Choose another folder."
        ) from error
    return folder


def new_folder(name: str) -> Path:
    """Create a run folder of that name under runs/; a number is appended to a name that is taken."""
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
    """Reads a run folder. Raises `UsageError` when the folder is not one, or lacks a part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = read_facts(folder / "run.json")

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
    def _intervals(self) -> dict[str, list[Interval]]:
        """Tag → its probe intervals."""
        return self._log[0]

    @property
    def unreadable(self) -> int:
        """Number of unreadable lines in probe.hlog. The last line of an interrupted run may be cut anywhere."""
        return self._log[1]

    @cached_property
    def _log(self) -> tuple[dict[str, list[Interval]], int]:
        found: dict[str, list[Interval]] = {}
        try:
            lines = (self.folder / "probe.hlog").read_text(errors="replace").splitlines()
        except OSError as error:
            raise UsageError(f"{self.folder}/probe.hlog cannot be read: {error.strerror}") from error
        unreadable, room = 0, MOST
        for number, line in enumerate(lines):
            if line.startswith(("#", '"')) and number < HLOG_HEADER:
                continue
            try:
                tag, start, length, _, encoded = line.split(",")
                began, ended = float(start), float(start) + float(length)
                # A probe that ends on the boundary of an interval has one of no length, in whole milliseconds.
                if not (tag.startswith("Tag=") and began <= ended < math.inf):
                    raise ValueError(line[:40])
                values = values_of(encoded)
                room -= len(values)
                if room < 0:  # a run of the lab has fewer: small lines may hold more than the memory
                    raise ValueError(line[:40])
                found.setdefault(tag[4:], []).append(Interval(began, ended, values))
            except Exception:  # a decoder may raise anything for a cut or altered line
                unreadable += 1
        return found, unreadable

    def intervals(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> list[Interval]:
        """The intervals in which a probe recorded something in a phase.

        An interval belongs to the phase that its middle lies in. The probes' intervals begin and end at the same
        moments, so two probes in one phase are compared over the same time.
        """
        return [tile for tile in self.tiles(phase, probe, kind) if len(tile.values)]

    def tiles(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> list[Interval]:
        """The same, but with the intervals in which nothing was recorded, in the order of the file."""
        return [
            interval
            for interval in self.recorded(probe, kind)
            if phase.t0 <= (interval.start + interval.end) / 2 < phase.t1
        ]

    def recorded(self, probe: str = "main", kind: str = "intended") -> list[Interval]:
        """Every interval of a probe in the whole run, in the order of the file."""
        return self._intervals.get(f"{probe}-{kind}", [])

    def latencies(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> list[Latencies]:
        """Latencies in µs that a probe recorded in a phase, one array per interval."""
        return [interval.values for interval in self.intervals(phase, probe, kind)]

    def p99_ms(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> float | None:
        """p99 of a phase in ms, by default from the intended send time (`kind`); None if the probe recorded nothing."""
        parts = self.latencies(phase, probe, kind)
        return stats.p99_ms(parts) if parts else None

    @cached_property
    def samples(self) -> list[dict[str, str]]:
        """Rows of samples.csv."""
        return self._rows("samples.csv", SAMPLES)

    @cached_property
    def slowlog(self) -> list[dict[str, str]]:
        """Rows of slowlog.csv, with their commands in capitals: servers differ in how they write them."""
        rows = self._rows("slowlog.csv", SLOWLOG)
        return [{**row, "command": (row["command"] or "").upper()} for row in rows]

    def slow_commands(self, phases: Iterable[PhaseRecord]) -> Counter[str]:
        """Entries of the slow log in these phases, by command. An entry lies in the middle of its second.

        (The log counts whole seconds, rounded down.)
        """
        spans = [(phase.t0, phase.t1) for phase in phases]
        return Counter(
            row["command"]
            for row in self.slowlog
            if row["command"] and any(t0 <= float(row["t"]) + 0.5 < t1 for t0, t1 in spans)
        )

    @cached_property
    def loads(self) -> list[dict[str, Any]]:
        """Lines of loads.jsonl from the attempts that count; none if the scenario has no loads of its own."""
        path = self.folder / "loads.jsonl"
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text file. Was another file put in its place?") from None
        found, counts = [], {phase.id: phase.attempt for phase in self.phases}
        for number, raw in enumerate(lines, start=1):
            try:
                line = check_load_line(path, number, parse(raw))
            except ValueError:
                if self.facts.interrupted and number == len(lines):
                    continue  # the last line of an interrupted run may be cut
                raise UsageError(f"{path}, line {number} is not JSON, or was cut off.") from None
            if line.get("attempt", 1) == counts.get(line["phase"], 1):
                found.append(dict(line))
        return found

    def _rows(self, name: str, columns: tuple[Column, ...]) -> list[dict[str, str]]:
        path = self.folder / name
        try:
            with path.open(newline="") as file:
                table = csv.DictReader(file)
                head = list(table.fieldnames or ())
                rows = list(table)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, csv.Error):
            raise UsageError(f"{path} is not a CSV file. Was another file put in its place?") from None
        check_table(path, columns, rows, head, whole=not self.facts.interrupted)
        return rows

    def result(self) -> dict[str, Any] | None:
        """The verdict, or None for a partial run."""
        try:
            content = parse((self.folder / "result.json").read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder}/result.json cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"{self.folder}/result.json should be an object, not {content!r:.40}.")
        return content

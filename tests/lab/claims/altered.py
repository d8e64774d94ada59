"""Copies of committed runs (docs/runs), and changes to make to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab.results.folder import Run
from lab.runner.judging import validate

RECORDS = Path(__file__).resolve().parents[3] / "docs" / "runs"
Raw = dict[str, Any]
Change = Callable[[Raw], None]


@dataclass
class Copy:
    """A copy of a committed run, to be altered."""

    folder: Path

    def facts(self, change: Change) -> None:
        """Alter run.json."""
        path = self.folder / "run.json"
        raw = json.loads(path.read_text())
        change(raw)
        path.write_text(json.dumps(raw))

    def lines(self, name: str, change: Callable[[list[str]], list[str]]) -> None:
        """Alter a file line by line."""
        path = self.folder / name
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def phase(raw: Raw, name: str) -> Raw:
    """A phase of run.json."""
    return next(one for one in raw["phases"] if one["id"] == name)


def in_phases(change: Callable[[Raw], object], *names: str) -> Change:
    """Alter the phases with these ids or arms; all where none is named."""

    def alter(raw: Raw) -> None:
        for one in raw["phases"]:
            if not names or {one["id"], one["arm"]} & set(names):
                change(one)

    return alter


def put(path: str, value: object) -> Change:
    """Set a field of run.json; the path is names and numbers joined by dots."""

    def alter(raw: Raw) -> None:
        place: Any = raw
        *way, last = path.split(".")
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[last] = value

    return alter


def drop_phases(*names: str) -> Change:
    """Remove phases, as if they were never measured."""

    def alter(raw: Raw) -> None:
        raw["phases"] = [one for one in raw["phases"] if one["id"] not in names]

    return alter


def unplan(*names: str) -> Change:
    """Remove phases from the plan."""

    def alter(raw: Raw) -> None:
        raw["plan"] = [one for one in raw["plan"] if one["id"] not in names]

    return alter


def in_plan(change: Callable[[Raw], object]) -> Change:
    """Alter each phase of the plan."""

    def alter(raw: Raw) -> None:
        for one in raw["plan"]:
            change(one)

    return alter


def swap(first: str, second: str) -> Change:
    """Swap two phases in the list."""

    def alter(raw: Raw) -> None:
        ids = [one["id"] for one in raw["phases"]]
        a, b = ids.index(first), ids.index(second)
        raw["phases"][a], raw["phases"][b] = raw["phases"][b], raw["phases"][a]

    return alter


def twice(name: str) -> Change:
    """Insert a second copy of a phase."""
    return lambda raw: raw["phases"].insert(2, dict(phase(raw, name)))


def times_of(name: str, other: str) -> Change:
    """Give a phase the times of another one."""
    return lambda raw: phase(raw, name).update({key: phase(raw, other)[key] for key in ("t0", "t1")})


def scaled(field: str, times: float, *names: str) -> Change:
    """Multiply a figure of phases; of all where none is named."""
    return in_phases(lambda one: one.update({field: one[field] * times}), *names)


def event(field: str, value: Callable[[float], float], *names: str) -> Change:
    """Change a figure of the events of phases; of all where none is named."""
    return in_phases(lambda one: one["events"].update({field: value(one["events"].get(field, 0.0))}), *names)


def without(group: str, *names: str) -> Change:
    """Empty a group of figures of phases; of all where none is named."""
    return in_phases(lambda one: one.update({group: {}}), *names)


def no_events(raw: Raw) -> None:
    """Let no events be asked for, and none come."""
    raw["load"]["events_per_second"] = 0.0
    for one in raw["phases"]:
        one["events"] |= {"asked_per_s": 0.0, "offered_per_s": 0.0, "finished_per_s": 0.0}


def commands(name: str, old: str, new: str) -> Change:
    """Rename a command in the server's counters of a phase."""

    def alter(raw: Raw) -> None:
        found = phase(raw, name)["commands"]
        found[new] = found.pop(old)

    return alter


def all_of(*changes: Change) -> Change:
    """Make several changes."""

    def alter(raw: Raw) -> None:
        for change in changes:
            change(raw)

    return alter


@cache
def passing(name: str) -> frozenset[str]:
    """Return the checks that the committed run passes; only these can show the effect of an alteration."""
    return frozenset(check.check for check in validate(Run(RECORDS / name)) if check.ok)


def copy_of(name: str, place: Path) -> Copy:
    """Copy a committed run into a folder below `place`."""
    shutil.copytree(RECORDS / name, place / "run")
    return Copy(place / "run")

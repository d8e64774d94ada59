"""Files of a run folder altered by hand or at random: each is refused or not valid, and none is a fault of the lab.

Every case alters a copy of a committed run and says what the refusal must name.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import scenarios
from lab.claims import judge
from lab.errors import LabError, UsageError
from lab.results.folder import Run
from lab.runner.judging import validate
from tests.lab.claims.altered import (
    Change,
    copy_of,
    passing,
    put,
)
from tests.lab.claims.checknames import (
    LATENCIES,
)

REFUSED: list[tuple[str, str, Change]] = [
    ("keys is 0", "keys", put("keys", 0)),
    ("a phase's keys are endless", "phases.6.keys", put("phases.6.keys", math.inf)),
    ("phases is an object", "phases", put("phases", {})),
    ("utilisation is a text", "phases.0.utilisation", put("phases.0.utilisation", "busy")),
    ("an event rate is below 0", "offered_per_s", put("phases.3.events.offered_per_s", -3.0)),
    ("a command without its time", "usec", put("phases.1.commands.GET", {"calls": 3.0})),
    ("a phase begins in milliseconds", "t0", put("phases.0.t0", 1_795_256_046_850.1)),
    ("a phase has no length", "t1 after t0", lambda raw: raw["phases"][2].update(t1=raw["phases"][2]["t0"])),
    ("a later version", "schema", put("schema", 3)),
    ("a field of a later version in a phase", "colour", put("phases.0.colour", "red")),
    ("the scenario is missing", "scenario", lambda raw: raw.pop("scenario")),
    ("an attempt before the first", "attempt", put("phases.0.attempt", 0)),
]


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Alter a file's bytes."""
    path.write_bytes(change(path.read_bytes()))


FILES: list[tuple[str, str, str, str, Callable[[bytes], bytes]]] = [
    ("run.json cut in half", "key-growth", "run.json", "not JSON", lambda data: data[: len(data) // 2]),
    ("run.json is null", "key-growth", "run.json", "not None", lambda _: b"null"),
    ("run.json is UTF-16", "key-growth", "run.json", "not JSON", lambda data: data.decode().encode("utf-16")),
    (
        "samples go back in time",
        "key-growth",
        "samples.csv",
        "go back",
        lambda data: data + data.splitlines()[1] + b"\n",
    ),
    (
        "samples cut in the middle",
        "key-growth",
        "samples.csv",
        "the line ends before this column",
        lambda data: data[: len(data) - 60],
    ),
    (
        "the slow log has other columns",
        "key-growth",
        "slowlog.csv",
        "column",
        lambda data: data.replace(b"duration_us", b"took", 1),
    ),
    (
        "the loads' lines are lists",
        "eviction-cycle",
        "loads.jsonl",
        "should be an object",
        lambda data: b"[1, 2]\n" + data,
    ),
    (
        "a load's figure is endless",
        "eviction-cycle",
        "loads.jsonl",
        "should be a number",
        lambda data: data + b'{"phase":"cycle","load":"crowd","t":Infinity}\n',
    ),
    (
        "the loads' lines are binary",
        "eviction-cycle",
        "loads.jsonl",
        "not a text file",
        lambda _: bytes(range(256)),
    ),
]

HLOG: list[tuple[str, Callable[[list[str]], list[str]]]] = [
    ("the first half only", lambda lines: lines[: len(lines) // 2]),
    ("empty", lambda _: []),
    (
        "every second line doubled",
        lambda lines: [
            one for n, line in enumerate(lines) for one in ([line] * (1 + n % 2) if n > 3 else [line])
        ],
    ),
    (
        "some lines garbled",
        lambda lines: [line.replace("H", "?", 3) if n % 40 == 39 else line for n, line in enumerate(lines)],
    ),
    (
        "the slow lines gone",
        lambda lines: [
            line
            for line in lines
            if not line.startswith("Tag=main-intended") or float(line.split(",")[3]) < 100_000
        ],
    ),
    ("one line gone", lambda lines: lines[:200] + lines[201:]),
    (
        "times that do not tile",
        lambda lines: [
            re.sub(r",0\.2\d\d,", ",0.100,", line, count=1) if n == 300 else line
            for n, line in enumerate(lines)
        ],
    ),
]


@pytest.mark.parametrize(("what", "change"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED])
def test_altered_facts_are_refused(what: str, change: Change, tmp_path: Path) -> None:
    """An altered run.json is refused in one line that names the file and the field."""
    altered = copy_of("key-growth", tmp_path)
    altered.facts(change)
    with pytest.raises(UsageError) as caught:
        Run(altered.folder)
    said = str(caught.value)
    assert "\n" not in said
    assert "run.json" in said
    assert what in said, said


@pytest.mark.parametrize(
    ("record", "file", "what", "change"), [pytest.param(*case[1:], id=case[0]) for case in FILES]
)
def test_altered_files_are_refused(
    record: str, file: str, what: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Any other altered file is refused in one line that names the file and what is wrong with it."""
    altered = copy_of(record, tmp_path)
    spoil(altered.folder / file, change)
    with pytest.raises(UsageError) as caught:
        run = Run(altered.folder)
        _ = run.samples, run.slowlog, run.loads
    said = str(caught.value)
    assert "\n" not in said
    assert file in said
    assert what in said, said


@pytest.mark.parametrize("change", [pytest.param(case[1], id=case[0]) for case in HLOG])
def test_altered_latencies_are_not_valid(change: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    """Latencies that are incomplete, doubled or garbled make the run not valid."""
    assert LATENCIES in passing("key-growth")
    altered = copy_of("key-growth", tmp_path)
    altered.lines("probe.hlog", change)
    assert LATENCIES in {one.check for one in validate(Run(altered.folder)) if not one.ok}


def mutate(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with one random change somewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        name = chance.choice(list(value))
        deed = chance.random()
        if deed < 0.1:
            return {key: part for key, part in value.items() if key != name}
        if deed < 0.15:
            return value | {f"{name}x": value[name]}
        return value | {name: mutate(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.95:
        place, deed = chance.randrange(len(value)), chance.random()
        if deed < 0.1:
            return value[:place] + value[place + 1 :]
        if deed < 0.2:
            return [*value[:place], value[place], *value[place:]]
        if deed < 0.3:
            return [*value[place:], *value[:place]]
        return [mutate(part, chance) if n == place else part for n, part in enumerate(value)]
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 1.0
    return chance.choice(
        [None, "x", "", [], {}, True, -number, 0, number * 10, number / 10, math.nan, math.inf, 10**30]
    )


SCALED = 60


@pytest.mark.parametrize(
    "record", ["key-growth", "eviction-cycle", "scan-count", "pipelined-delete", "giant-index", "cures"]
)
def test_random_alteration_is_no_fault(record: str, tmp_path: Path) -> None:
    """Whatever is dropped, doubled, retyped, scaled or moved, the lab judges the run or refuses it in one line."""
    altered, chance = copy_of(record, tmp_path), random.Random(record)
    whole = json.loads((altered.folder / "run.json").read_text())
    seen = 0
    for _ in range(SCALED):
        (altered.folder / "run.json").write_text(json.dumps(mutate(whole, chance)))
        try:
            run = Run(altered.folder)
            validate(run)
            judge(
                run, [claim for claim in scenarios.find(run.facts.scenario).claims if "flat" not in claim.id]
            )
            seen += 1
        except LabError as error:
            assert "\n" not in str(error)
    assert 0 < seen < SCALED

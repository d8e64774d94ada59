"""Run folders altered by hand: each is refused, not valid or refuted, by the right check, and none is a lab's fault.

Every case alters a copy of a committed run (docs/runs) and says what is to become of it.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab import scenarios
from lab.claims import judge
from lab.errors import LabError, UsageError
from lab.runfolder import Run
from lab.validity import validate
from lab.verdict import as_result, reach
from tests.lab.checknames import DONE, FAILED, FIGURES, FORCE, KEYS, LATENCIES, LOADS, PLANNED, QUIET

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "runs"
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
    """Alter phases by id or arm; all where none is named."""

    def alter(raw: Raw) -> None:
        for one in raw["phases"]:
            if not names or {one["id"], one["arm"]} & set(names):
                change(one)

    return alter


def put(path: str, value: object) -> Change:
    """Set a field of run.json; the path has names and numbers, apart by dots."""

    def alter(raw: Raw) -> None:
        place: Any = raw
        *way, last = path.split(".")
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[last] = value

    return alter


def drop_phases(*names: str) -> Change:
    """Phases that were never measured."""

    def alter(raw: Raw) -> None:
        raw["phases"] = [one for one in raw["phases"] if one["id"] not in names]

    return alter


def swap(first: str, second: str) -> Change:
    """Two phases change places in the list."""

    def alter(raw: Raw) -> None:
        ids = [one["id"] for one in raw["phases"]]
        a, b = ids.index(first), ids.index(second)
        raw["phases"][a], raw["phases"][b] = raw["phases"][b], raw["phases"][a]

    return alter


def twice(name: str) -> Change:
    """A phase is there twice."""
    return lambda raw: raw["phases"].insert(2, dict(phase(raw, name)))


def times_of(name: str, other: str) -> Change:
    """A phase has another one's times."""
    return lambda raw: phase(raw, name).update({key: phase(raw, other)[key] for key in ("t0", "t1")})


def scaled(field: str, times: float, *names: str) -> Change:
    """A phase's figure, so many times as large."""
    return in_phases(lambda one: one.update({field: one[field] * times}), *names)


def event(field: str, value: Callable[[float], float], *names: str) -> Change:
    """A figure of a phase's events."""
    return in_phases(lambda one: one["events"].update({field: value(one["events"].get(field, 0.0))}), *names)


def without(group: str, *names: str) -> Change:
    """A group of figures is empty."""
    return in_phases(lambda one: one.update({group: {}}), *names)


def no_events(raw: Raw) -> None:
    """None were asked for, and none came."""
    raw["load"]["events_per_second"] = 0.0
    for one in raw["phases"]:
        one["events"] |= {"asked_per_s": 0.0, "offered_per_s": 0.0, "finished_per_s": 0.0}


def commands(name: str, old: str, new: str) -> Change:
    """The server's counters name another command."""

    def alter(raw: Raw) -> None:
        found = phase(raw, name)["commands"]
        found[new] = found.pop(old)

    return alter


def all_of(*changes: Change) -> Change:
    """Several at once."""

    def alter(raw: Raw) -> None:
        for change in changes:
            change(raw)

    return alter


NOT_VALID: list[tuple[str, str, str, Change]] = [
    (
        "half of the events carried out under the index",
        "key-growth",
        DONE,
        event("finished_per_s", lambda v: v / 2, "index"),
    ),
    (
        "no event carried out under the index",
        "key-growth",
        DONE,
        event("finished_per_s", lambda _: 0.0, "index"),
    ),
    (
        "the top plateau under the index carried out nothing",
        "key-growth",
        DONE,
        event("finished_per_s", lambda _: 0.0, "index-4"),
    ),
    ("no events at all, as asked", "key-growth", FAILED, no_events),
    ("thousands of requests failed", "key-growth", FAILED, event("failures", lambda _: 3000.0)),
    ("one request failed", "key-growth", FAILED, event("failures", lambda _: 1.0, "index-2")),
    ("no probe counted anything", "key-growth", FIGURES, without("probes")),
    (
        "a second probe counted nothing",
        "key-growth",
        FIGURES,
        lambda raw: phase(raw, "pool")["probes"].pop("pool"),
    ),
    ("the machine's figures are missing", "key-growth", QUIET, without("machine")),
    ("the machine's figures are missing in one phase", "key-growth", FIGURES, without("machine", "index-3")),
    ("the processes' figures are missing", "key-growth", FIGURES, without("processes")),
    (
        "the invalidator's CPU time is missing",
        "key-growth",
        FIGURES,
        lambda raw: phase(raw, "grow-7")["processes"].pop("invalidator"),
    ),
    (
        "40 % of a core stolen in one plateau",
        "key-growth",
        QUIET,
        lambda raw: phase(raw, "grow-7")["machine"].update(steal=0.4),
    ),
    (
        "another program in one plateau",
        "key-growth",
        QUIET,
        lambda raw: phase(raw, "index-4")["machine"].update(others=0.6),
    ),
    (
        "Locust out of CPU, and called greedy",
        "key-growth",
        FIGURES,
        all_of(put("greedy", ["locust"]), in_phases(lambda one: one["processes"].update(locust=1.0))),
    ),
    ("not emptied at the restart", "key-growth", KEYS, scaled("keys", 38.0, "restart")),
    ("the keys never returned", "key-growth", KEYS, scaled("keys", 0.03, "return")),
    ("ten times fewer keys than asked", "key-growth", KEYS, scaled("keys", 0.1)),
    ("a fifth fewer keys at the top", "key-growth", KEYS, scaled("keys", 0.8, "grow-7")),
    ("a fifth more keys under the index", "key-growth", KEYS, scaled("keys", 1.2, "index-4")),
    ("three plateaus left out", "key-growth", PLANNED, drop_phases("grow-2", "grow-3", "grow-4")),
    ("the top plateau left out", "key-growth", PLANNED, drop_phases("grow-7")),
    ("the fix left out", "key-growth", PLANNED, drop_phases("fix")),
    ("the restart left out", "key-growth", PLANNED, drop_phases("restart")),
    ("a plateau twice", "key-growth", PLANNED, twice("grow-2")),
    ("two plateaus in each other's place", "key-growth", PLANNED, swap("grow-3", "grow-5")),
    ("a phase at another one's time", "key-growth", PLANNED, times_of("index-4", "grow-1")),
    (
        "a phase nobody planned",
        "key-growth",
        PLANNED,
        lambda raw: raw["phases"].insert(3, {**phase(raw, "grow-3"), "id": "grow-3a"}),
    ),
    (
        "a phase of another strategy",
        "key-growth",
        PLANNED,
        lambda raw: phase(raw, "index-2").update(strategy="scan"),
    ),
    (
        "a phase that was cut short",
        "key-growth",
        PLANNED,
        lambda raw: phase(raw, "index-4").update(t1=phase(raw, "index-4")["t0"] + 1.5),
    ),
    ("the index side scanned", "key-growth", FORCE, commands("index-4", "SSCAN", "SCAN")),
    ("nothing scanned under scan", "key-growth", FORCE, commands("grow-3", "SCAN", "SSCAN")),
    (
        "hardly anything scanned under scan",
        "key-growth",
        FORCE,
        lambda raw: phase(raw, "grow-5")["commands"]["SCAN"].update(calls=4.0),
    ),
    (
        "a claim exempted that the server can answer",
        "key-growth",
        FIGURES,
        put("cannot", {"index-cures": "it cannot"}),
    ),
    (
        "a restart exempted in a run of its own server",
        "key-growth",
        FIGURES,
        put("cannot", {"restart-restores": "not ours"}),
    ),
    ("a pace that there is none", "key-growth", PLANNED, put("pace", "lightning")),
    (
        "half of the probe's replies are gone",
        "key-growth",
        LATENCIES,
        lambda raw: phase(raw, "grow-7")["probes"]["main"].update(received=300.0),
    ),
    (
        "the calibrated rate was not the one that was offered",
        "key-growth",
        FAILED,
        put("calibration.events_per_second", 40.0),
    ),
    ("the figures of a phase's loads are gone", "scan-count", LOADS, without("figures", "one-100")),
    (
        "a phase says another COUNT",
        "scan-count",
        LOADS,
        lambda raw: phase(raw, "one-100")["params"].update(count=10.0),
    ),
    ("a phase does not say its COUNT", "scan-count", LOADS, without("params", "one-100")),
    ("a cell of the sweep left out", "scan-count", PLANNED, drop_phases("one-10")),
    ("a phase of the sweep twice", "scan-count", PLANNED, twice("many-100")),
    ("round trips left out", "pipelined-delete", PLANNED, drop_phases("rtt-5")),
    ("a way says another chunk", "pipelined-delete", LOADS, without("params", "rtt-1")),
    ("a giant that does not say its size", "giant-index", LOADS, without("params", "naive-100000")),
    ("the giant's phase left out", "giant-index", PLANNED, drop_phases("chunked-100000")),
    ("the chunks were one call", "giant-index", FORCE, commands("chunked-1000", "SSCAN", "SMEMBERS")),
    ("a cure left out", "cures", PLANNED, drop_phases("hash-load")),
    (
        "a cure that carries out nothing",
        "cures",
        DONE,
        event("finished_per_s", lambda _: 0.0, "generation-load"),
    ),
    ("the cure was a search", "cures", FORCE, commands("index-load", "SSCAN", "KEYS")),
    ("figures of single events are gone", "cures", LOADS, without("figures", "hash-cost")),
    ("a phase of the cycle left out", "eviction-cycle", PLANNED, drop_phases("spare-cpu")),
    (
        "the cure of the storm did nothing",
        "empty-slowlog",
        DONE,
        event("finished_per_s", lambda _: 0.0, "cure"),
    ),
]

REFUSED: list[tuple[str, str, Change]] = [
    ("keys is a text", "keys", put("keys", "many")),
    ("keys is 0", "keys", put("keys", 0)),
    ("a phase's keys are null", "phases.2.keys", put("phases.2.keys", None)),
    ("a phase's keys are endless", "phases.6.keys", put("phases.6.keys", math.inf)),
    ("a phase's keys are no number", "phases.3.keys", put("phases.3.keys", math.nan)),
    ("phases is an object", "phases", put("phases", {})),
    ("load is a list", "load", put("load", [1])),
    ("calibration is a text", "calibration", put("calibration", "yes")),
    ("calibration holds a text", "calibration", put("calibration.base_utilisation", "low")),
    ("COUNT is 0", "scan_count", put("scan_count", 0)),
    ("seed is below 0", "seed", put("seed", -1)),
    ("seed is a text", "seed", put("seed", "one")),
    ("scenario is a number", "scenario", put("scenario", 17)),
    ("host is null", "host", put("host", None)),
    ("utilisation is a text", "phases.0.utilisation", put("phases.0.utilisation", "busy")),
    ("events are empty", "phases.3.events", put("phases.3.events", {})),
    ("an event rate is below 0", "offered_per_s", put("phases.3.events.offered_per_s", -3.0)),
    ("commands are null", "phases.1.commands", put("phases.1.commands", None)),
    ("a command without its time", "usec", put("phases.1.commands.GET", {"calls": 3.0})),
    ("calls below 0", "calls", put("phases.1.commands.GET", {"calls": -3.0, "usec": 4.0})),
    ("a phase begins in milliseconds", "t0", put("phases.0.t0", 1_795_256_046_850.1)),
    ("a phase begins never", "t0", put("phases.0.t0", math.inf)),
    ("a phase has no length", "t1 after t0", lambda raw: raw["phases"][2].update(t1=raw["phases"][2]["t0"])),
    (
        "time runs backwards",
        "t1 after t0",
        lambda raw: raw["phases"][2].update(t1=raw["phases"][2]["t0"] - 2),
    ),
    ("marks are null", "marks", put("marks", None)),
    ("a mark without its time", "marks.0", put("marks", [{"kind": "restart", "text": ""}])),
    ("forecasts are texts", "forecasts", put("phases.4.forecasts", ["high"])),
    ("the threshold is null", "slowlog_threshold_us", put("slowlog_threshold_us", None)),
    ("the machine is null", "machine", put("phases.0.machine", None)),
    ("probes are a list", "probes", put("phases.0.probes", [])),
    (
        "a probe without its lateness",
        "lag_p99_us",
        put("phases.0.probes", {"main": {"sent": 1.0, "received": 1.0, "errors": 0.0, "rate": 1.0}}),
    ),
    ("a later version", "schema", put("schema", 2)),
    ("a version that is none", "schema", put("schema", "x")),
    ("a field of a later version", "colour", put("colour", "red")),
    ("a field of a later version in a phase", "colour", put("phases.0.colour", "red")),
    ("title is null", "title", put("title", None)),
    ("a stack on the moon", "stack", put("stack", "moon")),
    ("interrupted is a text", "interrupted", put("interrupted", "no")),
    ("the scenario is missing", "scenario", lambda raw: raw.pop("scenario")),
    ("an attempt before the first", "attempt", put("phases.0.attempt", 0)),
]


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Alter a file's bytes."""
    path.write_bytes(change(path.read_bytes()))


FILES: list[tuple[str, str, str, str, Callable[[bytes], bytes]]] = [
    ("run.json cut in half", "key-growth", "run.json", "no JSON", lambda data: data[: len(data) // 2]),
    ("run.json is null", "key-growth", "run.json", "not None", lambda _: b"null"),
    ("run.json is UTF-16", "key-growth", "run.json", "no JSON", lambda data: data.decode().encode("utf-16")),
    ("run.json is empty", "key-growth", "run.json", "no JSON", lambda _: b""),
    ("samples are binary", "key-growth", "samples.csv", "samples.csv", lambda _: bytes(range(256)) * 9),
    (
        "a sample's time is a text",
        "key-growth",
        "samples.csv",
        "t should be a number",
        lambda data: data.replace(b"\n179", b"\nyesterday", 1),
    ),
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
        "the line ends before it",
        lambda data: data[: len(data) - 60],
    ),
    (
        "samples are no numbers",
        "key-growth",
        "samples.csv",
        "should be a number",
        lambda data: (
            b"\n".join(
                [data.splitlines()[0], *(line.replace(b",0,", b",nan,") for line in data.splitlines()[1:])]
            )
            + b"\n"
        ),
    ),
    (
        "the slow log's times are texts",
        "key-growth",
        "slowlog.csv",
        "t should be a number",
        lambda data: data.replace(b"\n179", b"\nthen", 1),
    ),
    (
        "the slow log has other columns",
        "key-growth",
        "slowlog.csv",
        "column",
        lambda data: data.replace(b"duration_us", b"took", 1),
    ),
    (
        "the slow log is cut in the middle",
        "key-growth",
        "slowlog.csv",
        "the line ends before it",
        lambda data: data[: data.rindex(b",")],
    ),
    (
        "the loads' lines are lists",
        "eviction-cycle",
        "loads.jsonl",
        "should be an object",
        lambda data: b"[1, 2]\n" + data,
    ),
    (
        "the loads' lines are cut",
        "eviction-cycle",
        "loads.jsonl",
        "no JSON",
        lambda data: data[: len(data) - 40],
    ),
    (
        "a load's line says no phase",
        "eviction-cycle",
        "loads.jsonl",
        "phase should be text",
        lambda data: data.replace(b'"phase":', b'"when":', 1),
    ),
    (
        "a load's figure is endless",
        "eviction-cycle",
        "loads.jsonl",
        "should be a number",
        lambda data: data + b'{"phase":"cycle","load":"crowd","t":Infinity}\n',
    ),
    ("the loads' lines are binary", "eviction-cycle", "loads.jsonl", "no text", lambda _: bytes(range(256))),
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
            line.replace(",0.250,", ",0.100,", 1) if n == 300 else line for n, line in enumerate(lines)
        ],
    ),
]


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Copy]:
    """Copies a committed run."""

    def make(name: str) -> Copy:
        shutil.copytree(RECORDS / name, tmp_path / "run")
        return Copy(tmp_path / "run")

    return make


@cache
def passing(name: str) -> frozenset[str]:
    """Checks that the committed run passes: without that the cases below would say nothing."""
    return frozenset(check.check for check in validate(Run(RECORDS / name)) if check.ok)


@pytest.mark.parametrize(
    ("record", "check", "change"), [pytest.param(*case[1:], id=case[0]) for case in NOT_VALID]
)
def test_altered_run_is_not_valid(
    record: str, check: str, change: Change, copy: Callable[[str], Copy]
) -> None:
    """The check that is meant fails, and passes on the run as it was."""
    assert check in passing(record)
    altered = copy(record)
    altered.facts(change)
    failed = {one.check: one.detail for one in validate(Run(altered.folder)) if not one.ok}
    assert check in failed, failed


@pytest.mark.parametrize(("what", "change"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED])
def test_altered_facts_are_refused(what: str, change: Change, copy: Callable[[str], Copy]) -> None:
    """In one line that names the file and the field."""
    altered = copy("key-growth")
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
    record: str, file: str, what: str, change: Callable[[bytes], bytes], copy: Callable[[str], Copy]
) -> None:
    """In one line that names the file, and the line where there is one."""
    altered = copy(record)
    spoil(altered.folder / file, change)
    with pytest.raises(UsageError) as caught:
        run = Run(altered.folder)
        _ = run.samples, run.slowlog, run.loads
    said = str(caught.value)
    assert "\n" not in said
    assert file in said
    assert what in said, said


@pytest.mark.parametrize("change", [pytest.param(case[1], id=case[0]) for case in HLOG])
def test_altered_latencies_are_not_valid(
    change: Callable[[list[str]], list[str]], copy: Callable[[str], Copy]
) -> None:
    """Neither a part nor a double of them passes for the whole."""
    assert LATENCIES in passing("key-growth")
    altered = copy("key-growth")
    altered.lines("probe.hlog", change)
    assert LATENCIES in {one.check for one in validate(Run(altered.folder)) if not one.ok}


def test_lines_of_a_load_count_once(copy: Callable[[str], Copy]) -> None:
    """The crowd's lines twice are no second cycle."""
    assert LOADS in passing("eviction-cycle")
    altered = copy("eviction-cycle")
    altered.lines("loads.jsonl", lambda lines: lines * 2)
    assert LOADS in {one.check for one in validate(Run(altered.folder)) if not one.ok}


@pytest.mark.parametrize("name", ["grow-7", "index-3"])
def test_plateau_without_a_reply_is_told(name: str, copy: Callable[[str], Copy]) -> None:
    """The incident at its worst: the server answers nothing for a whole plateau. No fault, and no claim holds on it."""
    altered = copy("key-growth")

    def silent(raw: Raw) -> None:
        phase(raw, name)["probes"]["main"]["received"] = 0.0

    altered.facts(silent)
    stretch = phase(json.loads((altered.folder / "run.json").read_text()), name)

    def inside(line: str) -> bool:
        tag, start, length, *_ = [*line.split(","), "", ""]
        return (
            tag.startswith("Tag=main") and stretch["t0"] <= float(start) + float(length) / 2 < stretch["t1"]
        )

    altered.lines("probe.hlog", lambda lines: [line for line in lines if not inside(line)])
    run = Run(altered.folder)
    verdict = reach(run)
    assert verdict.holds is None
    assert {"index-flat"} <= {outcome.claim.id for outcome in verdict.outcomes if outcome.holds is False}


def lower_case(lines: list[str]) -> list[str]:
    """A GET in the slow log, written small, in the middle of a plateau."""
    raw = json.loads((RECORDS / "key-growth" / "run.json").read_text())
    return [*lines, f"{math.ceil(phase(raw, 'grow-7')['t0'])},get,20000\n"]


def test_victim_in_small_letters_is_a_victim(copy: Callable[[str], Copy]) -> None:
    """Servers differ in how they write commands."""
    altered = copy("key-growth")
    altered.lines("slowlog.csv", lower_case)
    run = Run(altered.folder)
    held = {one.claim.id: one.holds for one in judge(run, scenarios.find("key-growth").claims)}
    assert held["victims-not-slow"] is False


def mutate(value: Any, chance: random.Random) -> Any:
    """One random change somewhere in a JSON value."""
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
def test_random_alteration_is_no_fault(record: str, copy: Callable[[str], Copy]) -> None:
    """Whatever is dropped, doubled, retyped, scaled or put elsewhere: a line of the lab's, or a verdict."""
    altered, chance = copy(record), random.Random(record)
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


def test_result_of_an_altered_run_can_be_written(copy: Callable[[str], Copy]) -> None:
    """A figure that a claim divides by is 0: the claim fails, and result.json holds numbers."""
    altered = copy("pipelined-delete")
    altered.facts(in_phases(lambda one: one["figures"].update(dict.fromkeys(one["figures"], 0.0))))
    run = Run(altered.folder)
    verdict = reach(run)
    json.dumps(as_result(run, verdict), allow_nan=False)
    held = {outcome.claim.id: outcome.holds for outcome in verdict.outcomes}
    assert held["pipeline-pays"] is False

"""Runs altered by hand: each is not valid or refuted, by the right check, and none is a fault of the lab.

Every case alters a copy of a committed run and names the check that must fail.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lab import scenarios
from lab.claims import judge
from lab.claims.verdict import as_result
from lab.claims.wording import sentence
from lab.results.folder import Run
from lab.runner.judging import reach, validate
from tests.lab.claims.altered import (
    RECORDS,
    Change,
    Raw,
    all_of,
    commands,
    copy_of,
    drop_phases,
    event,
    in_phases,
    in_plan,
    no_events,
    passing,
    phase,
    put,
    scaled,
    swap,
    times_of,
    twice,
    unplan,
    without,
)
from tests.lab.claims.checknames import (
    ASKED,
    CALIBRATED,
    DONE,
    EXEMPTED,
    FAILED,
    FIGURES,
    FORCE,
    KEYS,
    LATENCIES,
    LOADS,
    PLAN,
    PLANNED,
    QUIET,
)

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
    (
        "no event carried out under the index, by a server that does not tell its CPU time",
        "key-growth",
        DONE,
        all_of(
            event("finished_per_s", lambda _: 0.0, "index"),
            in_phases(lambda one: one.update(utilisation=None), "index"),
        ),
    ),
    ("no events at all, as asked", "key-growth", CALIBRATED, no_events),
    ("no events at all where none are calibrated", "giant-index", CALIBRATED, no_events),
    (
        "a replica exempted in a run that has one",
        "keys-command",
        EXEMPTED,
        put("cannot", {"replica-unharmed": "no replica"}),
    ),
    ("thousands of requests failed", "key-growth", FAILED, event("failures", lambda _: 3000.0)),
    ("one request failed", "key-growth", FAILED, event("failures", lambda _: 1.0, "index-2")),
    ("no probe counted anything", "key-growth", FIGURES, without("probes")),
    (
        "a second probe counted nothing",
        "key-growth",
        FIGURES,
        lambda raw: phase(raw, "turns")["probes"].pop("pool"),
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
        lambda raw: phase(raw, "index-4")["machine"].update(waited_store=0.3),
    ),
    (
        "Locust out of CPU, and called CPU-bound",
        "key-growth",
        EXEMPTED,
        all_of(put("cpu_bound", ["locust"]), in_phases(lambda one: one["processes"].update(locust=1.0))),
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
    (
        "three plateaus left out of the plan too",
        "key-growth",
        PLAN,
        all_of(drop_phases("grow-2", "grow-3", "grow-4"), unplan("grow-2", "grow-3", "grow-4")),
    ),
    (
        "ten times fewer keys, planned too",
        "key-growth",
        PLAN,
        all_of(scaled("keys", 0.1), in_plan(lambda one: one.update(keys=one["keys"] / 10))),
    ),
    ("no plan", "key-growth", PLAN, put("plan", [])),
    ("a shorter plan", "key-growth", PLAN, in_plan(lambda one: one.update(seconds=one["seconds"] / 2))),
    (
        "half of the events asked for, on both sides",
        "key-growth",
        ASKED,
        all_of(
            *(event(name, lambda v: v / 2) for name in ("asked_per_s", "offered_per_s", "finished_per_s"))
        ),
    ),
    (
        "a tenth more asked of the cure than the storm came to",
        "empty-slowlog",
        ASKED,
        all_of(*(event(name, lambda v: v * 1.1, "cure") for name in ("asked_per_s", "offered_per_s"))),
    ),
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
        EXEMPTED,
        put("cannot", {"index-cures": "it cannot"}),
    ),
    (
        "a restart exempted in a run of its own server",
        "key-growth",
        EXEMPTED,
        put("cannot", {"restart-restores": "not ours"}),
    ),
    ("a pace that there is none", "key-growth", PLAN, put("pace", "lightning")),
    (
        "half of the probe's replies are gone",
        "key-growth",
        LATENCIES,
        lambda raw: phase(raw, "grow-7")["probes"]["main"].update(received=300.0),
    ),
    (
        "the calibrated rate was not the one that was offered",
        "key-growth",
        CALIBRATED,
        put("calibration.events_per_second", 40.0),
    ),
    ("the figures of a phase's loads are gone", "scan-count", LOADS, without("figures", "one-100")),
    (
        "a phase says another COUNT",
        "scan-count",
        PLANNED,
        lambda raw: phase(raw, "one-100")["params"].update(count=10.0),
    ),
    ("a phase does not say its COUNT", "scan-count", PLANNED, without("params", "one-100")),
    ("a cell of the sweep left out", "scan-count", PLANNED, drop_phases("one-10")),
    ("a phase of the sweep twice", "scan-count", PLANNED, twice("many-100")),
    ("round trips left out", "pipelined-delete", PLANNED, drop_phases("rtt-5")),
    ("a way says another chunk", "pipelined-delete", PLANNED, without("params", "rtt-1")),
    ("a giant that does not say its size", "giant-index", PLANNED, without("params", "naive-100000")),
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


@pytest.mark.parametrize(
    ("record", "check", "change"), [pytest.param(*case[1:], id=case[0]) for case in NOT_VALID]
)
def test_altered_run_is_not_valid(record: str, check: str, change: Change, tmp_path: Path) -> None:
    """The named check fails on the altered run, and passes on the original."""
    assert check in passing(record)
    altered = copy_of(record, tmp_path)
    altered.facts(change)
    failed = {one.check: one.detail for one in validate(Run(altered.folder)) if not one.ok}
    assert check in failed, failed


def test_lines_of_a_load_count_once(tmp_path: Path) -> None:
    """A load's lines that are there twice make the run not valid: they are no further cycles."""
    assert LOADS in passing("eviction-cycle")
    altered = copy_of("eviction-cycle", tmp_path)
    altered.lines("loads.jsonl", lambda lines: lines * 2)
    assert LOADS in {one.check for one in validate(Run(altered.folder)) if not one.ok}


@pytest.mark.parametrize("name", ["grow-7", "index-3"])
def test_plateau_without_a_reply_is_told(name: str, tmp_path: Path) -> None:
    """A plateau without any reply is no fault of the lab: the run has no verdict, and `index-flat` does not hold."""
    altered = copy_of("key-growth", tmp_path)

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
    assert "Close other programs" not in sentence(as_result(run, verdict)), "the machine is not to blame"
    assert {"index-flat"} <= {outcome.claim.id for outcome in verdict.outcomes if outcome.holds is False}


def lower_case(lines: list[str]) -> list[str]:
    """Add GETs in small letters, from the top plateau, to the slow log."""
    raw = json.loads((RECORDS / "key-growth" / "run.json").read_text())
    return [*lines, *[f"{math.ceil(phase(raw, 'grow-7')['t0'])},get,20000\n"] * len(lines)]


def test_a_machine_that_is_busy_is_to_blame(tmp_path: Path) -> None:
    """Where only the machine was in the way, the verdict says what to do about it."""
    altered = copy_of("key-growth", tmp_path)
    altered.facts(in_phases(lambda one: one["machine"].update(waited_store=0.5), "grow-7"))
    run = Run(altered.folder)
    assert "Close other programs" in sentence(as_result(run, reach(run)))


def test_victim_in_small_letters_is_a_victim(tmp_path: Path) -> None:
    """A GET in small letters counts too, because servers differ in how they write commands."""
    altered = copy_of("key-growth", tmp_path)
    altered.lines("slowlog.csv", lower_case)
    run = Run(altered.folder)
    held = {one.claim.id: one.holds for one in judge(run, scenarios.find("key-growth").claims)}
    assert held["victims-not-slow"] is False


def test_result_of_an_altered_run_can_be_written(tmp_path: Path) -> None:
    """If a figure that a claim divides by is 0, the claim fails, and result.json holds no NaN or infinity."""
    altered = copy_of("pipelined-delete", tmp_path)
    altered.facts(in_phases(lambda one: one["figures"].update(dict.fromkeys(one["figures"], 0.0))))
    run = Run(altered.folder)
    verdict = reach(run)
    json.dumps(as_result(run, verdict), allow_nan=False)
    held = {outcome.claim.id: outcome.holds for outcome in verdict.outcomes}
    assert held["pipeline-pays"] is False

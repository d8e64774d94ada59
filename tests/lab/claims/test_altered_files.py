"""Files of a run folder altered by hand: each is refused in one line that names it, or makes the run not valid."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.claims import judge
from lab.claims.verdict import as_result
from lab.errors import UsageError
from lab.results.folder import Run
from lab.runner.judging import reach, validate
from lab.scenarios.key_growth import CLAIMS
from tests.lab.claims.bending import RECORDS
from tests.lab.claims.checknames import LATENCIES

REFUSED: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("keys", lambda raw: raw.update(keys=0)),
    ("phases.6.keys", lambda raw: raw["phases"][6].update(keys=math.inf)),
    ("phases", lambda raw: raw.update(phases={})),
    ("offered_per_s", lambda raw: raw["phases"][3]["events"].update(offered_per_s=-3.0)),
    ("t0", lambda raw: raw["phases"][0].update(t0=1_795_256_046_850.1)),
    ("t1 after t0", lambda raw: raw["phases"][2].update(t1=raw["phases"][2]["t0"])),
    ("schema", lambda raw: raw.update(schema=3)),
    ("colour", lambda raw: raw["phases"][0].update(colour="red")),
    ("scenario", lambda raw: raw.pop("scenario")),
]
"""The field named in the refusal, and the change of run.json."""
FILES: list[tuple[str, str, str, Callable[[bytes], bytes]]] = [
    ("key-growth", "run.json", "not JSON", lambda data: data[: len(data) // 2]),
    ("key-growth", "run.json", "not None", lambda _: b"null"),
    ("key-growth", "samples.csv", "go back", lambda data: data + data.splitlines()[1] + b"\n"),
    ("key-growth", "samples.csv", "the line ends before this column", lambda data: data[:-60]),
    ("key-growth", "slowlog.csv", "column", lambda data: data.replace(b"duration_us", b"took", 1)),
    ("eviction-cycle", "loads.jsonl", "should be an object", lambda data: b"[1, 2]\n" + data),
    ("eviction-cycle", "loads.jsonl", "not a text file", lambda _: bytes(range(256))),
]
HLOG: list[tuple[str, Callable[[list[str]], list[str]]]] = [
    ("the first half only", lambda lines: lines[: len(lines) // 2]),
    ("one line gone", lambda lines: lines[:200] + lines[201:]),
    ("some lines garbled", lambda lines: [line.replace("H", "?", 3 * (n % 40 == 39)) for n, line in enumerate(lines)]),
    ("times that do not tile", lambda lines: [*lines[:300], re.sub(r",0\.2\d\d,", ",0.1,", lines[300]), *lines[301:]]),
]  # fmt: skip


def altered(record: str, place: Path, file: str, change: Callable[[bytes], bytes]) -> Path:
    """Copy a committed run, alter one of its files, and return its folder."""
    folder = Path(shutil.copytree(RECORDS / record, place / "run"))
    (folder / file).write_bytes(change((folder / file).read_bytes()))
    return folder


def of_lines(change: Callable[[list[str]], list[str]]) -> Callable[[bytes], bytes]:
    """Return a change of a whole file, made from one of its lines."""
    return lambda data: "".join(change(data.decode().splitlines(keepends=True))).encode()


@pytest.mark.parametrize(("what", "change"), REFUSED)
def test_altered_facts_are_refused(
    what: str, change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    """An altered run.json is refused in one line that names the file and the field."""
    raw = json.loads((RECORDS / "key-growth" / "run.json").read_text())
    change(raw)
    folder = altered("key-growth", tmp_path, "run.json", lambda _: json.dumps(raw).encode())
    with pytest.raises(UsageError) as caught:
        Run(folder)
    said = str(caught.value)
    assert "\n" not in said and "run.json" in said and what in said, said


@pytest.mark.parametrize(("record", "file", "what", "change"), FILES)
def test_altered_files_are_refused(
    record: str, file: str, what: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Any other altered file is refused in one line that names the file and what is wrong with it."""
    folder = altered(record, tmp_path, file, change)
    with pytest.raises(UsageError) as caught:
        run = Run(folder)
        _ = run.samples, run.slowlog, run.loads
    said = str(caught.value)
    assert "\n" not in said and file in said and what in said, said


@pytest.mark.parametrize("change", [pytest.param(change, id=what) for what, change in HLOG])
def test_altered_latencies_are_not_valid(change: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    """Latencies that are incomplete or garbled make the run not valid."""
    folder = altered("key-growth", tmp_path, "probe.hlog", of_lines(change))
    assert LATENCIES in {one.check for one in validate(Run(folder)) if not one.ok}


def test_a_probe_that_recorded_nothing_is_no_fault(tmp_path: Path) -> None:
    """Without any latency a run has no verdict, each phase is named, and no claim about p99 holds."""
    folder = altered("key-growth", tmp_path, "probe.hlog", lambda _: b"")
    raw = json.loads((folder / "run.json").read_text())
    for phase in raw["phases"]:
        phase["probes"]["main"]["received"] = 0.0
    (folder / "run.json").write_text(json.dumps(raw))
    run = Run(folder)
    verdict = reach(run)
    assert verdict.holds is None
    json.dumps(as_result(run, verdict), allow_nan=False)
    [check] = [check for check in verdict.checks if check.check == LATENCIES]
    assert check.detail.startswith("grow-1: 2.52 s of probe main are missing")
    by_clock = {"execution-steady", "victims-not-slow", "knee-predicted"}
    assert {one.claim.id for one in verdict.outcomes if one.holds} <= by_clock


def test_a_victim_in_small_letters_is_a_victim(tmp_path: Path) -> None:
    """A GET in small letters counts too, because servers differ in how they write commands."""
    begins = Run(RECORDS / "key-growth").phases[-1].t0
    folder = altered(
        "key-growth", tmp_path, "slowlog.csv", lambda data: data + b"%d,get,20000\n" % (begins + 1) * 40
    )
    held = {one.claim.id: one.holds for one in judge(Run(folder), CLAIMS)}
    assert held["victims-not-slow"] is False

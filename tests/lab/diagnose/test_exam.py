"""The examination: its scenes are drawn alike from a seed, and its verdicts tell a hit from a miss."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from bench.exam import CLIENTS, LENGTHS_MS, RIGHT, SHARES, ExamRow, draw, play, score
from bench.exam_load import SIZED, UNSIZED
from lab.diagnose.findings import CAUSES

SERVERS = ["embedded", "redis"]
ILL = ExamRow("keys", "embedded", 50.0, 0.3, 2, False, 0.4, 60.0, 0.3, "keys-command")


def test_scenes_follow_from_the_seed_and_lie_in_their_range() -> None:
    """The same seed gives the same scenes; every activity is drawn, and no size leaves its range."""
    one, same = random.Random(5), random.Random(5)
    drawn = [draw(one, SERVERS) for _ in range(400)]
    assert drawn == [draw(same, SERVERS) for _ in range(400)]
    assert {each[0] for each in drawn} == {*SIZED, *UNSIZED} == set(RIGHT)
    for _, _, length_ms, share, clients, _ in drawn:
        assert LENGTHS_MS[0] <= length_ms <= LENGTHS_MS[1]
        assert SHARES[0] <= share <= SHARES[1]
        assert CLIENTS[0] <= clients <= CLIENTS[1]
    known = {cause.id for cause in CAUSES}
    assert all(cause in known for causes in RIGHT.values() for cause in causes)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (ILL, "right"),
        (replace(ILL, said="keys-command + noisy-neighbour"), "right"),
        (replace(ILL, said="scan-storm + keys-command"), "other"),
        (replace(ILL, said="unknown"), "silent"),
        (replace(ILL, said="nothing"), "healthy"),
        (replace(ILL, p99_ms=1.0, said="nothing"), "right"),
        (replace(ILL, p99_ms=1.0, said="scan-storm"), "other"),
        (replace(ILL, said="noisy-neighbour"), "other"),
        (replace(ILL, said="noisy-neighbour", beside=True), "right"),
        (replace(ILL, said="saturated", busy=0.95), "right"),
        (replace(ILL, said="saturated"), "other"),
        (replace(ILL, activity="idle", said="unknown"), "silent"),
    ],
)
def test_a_verdict_is_about_the_first_cause(row: ExamRow, verdict: str) -> None:
    """Only the cause that is named first counts, and silence is not the same as a wrong word."""
    assert row.verdict == verdict


def test_the_table_counts_each_scene_once() -> None:
    """A line for each activity, and one for all of them."""
    rows = [ILL, replace(ILL, said="scan-storm"), replace(ILL, p99_ms=1.0, said="nothing")]
    part: Any = {
        "command": "python -m bench.exam",
        "machine": "2 cores",
        "date": "today",
        "rows": [vars(row) for row in rows],
    }
    assert "| keys | 2 | 1 | 1 | 0 | 0 | 1 | 0 | scan-storm |" in score({"exam": part})
    assert "| all | 2 | 1 | 1 | 0 | 0 | 1 | 0 | scan-storm |" in score({"exam": part})


@pytest.mark.whole
@pytest.mark.alone
@pytest.mark.parametrize("activity", ["hgetall", "idle"])
def test_a_slice_of_the_examination(activity: str) -> None:
    """Scenes that are plainly ill are named, and an idle server is accused of nothing."""
    row = play((activity, "embedded", 80.0, 0.4, 2, False))
    assert row.ill is (activity != "idle")
    assert row.verdict == "right", row

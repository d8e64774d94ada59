"""The table of repeated runs says what went wrong, and counts it."""

from dataclasses import asdict
from typing import Any

from bench.repeat import Outcome, every_scenario, outcome, table, wandering


def result(refutes: bool = False, **holds: bool | None) -> dict[str, Any]:
    """Return the result of a judged run with claims of these names."""
    return {
        "refutes": refutes,
        "claims": [
            {"id": name, "holds": value, "measured": f"{name}!", "figures": {}}
            for name, value in holds.items()
        ],
        "validity": [
            {"check": "quiet", "ok": False, "detail": "noise"},
            {"check": "sent", "ok": True, "detail": ""},
        ],
    }


def test_a_row_shows_the_foremost_claim_or_what_failed() -> None:
    """A run that holds shows its headline, a failed one its refuted claims, an invalid one the checks."""
    good = outcome(1, 0, 40.0, result(main=True, other=None, more=True), "main")
    assert (good.claims, good.notes) == ("2 of 2", ("main!",))
    bad = outcome(2, 1, 40.0, result(main=True, more=False), "main")
    assert (bad.claims, bad.notes) == ("1 of 2", ("more: more!",))
    noisy = outcome(3, 4, 40.0, result(main=True), "main")
    assert not noisy.judged and noisy.notes == ("quiet (noise)",)


def test_a_control_is_wrong_where_a_claim_holds() -> None:
    """The row of a control names the claims that hold without the cause."""
    assert outcome(1, 1, 40.0, result(True, main=False, more=True), "main").notes == ("more: more!",)


def test_the_last_line_counts_valid_runs_only() -> None:
    """Runs that are not valid count as started, but not among those that hold or fail."""
    codes = (0, 4, 1)
    rows = [outcome(i, code, 30.0 + i, result(main=code == 0), "main") for i, code in enumerate(codes)]
    last = table("cures", "redis", rows).splitlines()[-1]
    assert last == "1 of 2 valid runs hold, 3 started; 31 s each (median), at most 32 s"


def test_a_ratio_is_compared_from_run_to_run() -> None:
    """A ratio's range, mean and interval are those of valid runs alone; they need at least three runs."""
    runs = [Outcome(seed, 0, 1.0, "", (), {"one": ratio}) for seed, ratio in enumerate((1.0, 1.1, 1.2))]
    runs.append(Outcome(9, 4, 1.0, "", (), {"one": 7.0}))
    assert wandering("one", runs) == "one: 1.00 to 1.20 in 3 runs, mean 1.10 (0.85 to 1.35)"
    assert wandering("one", runs[:2]) == "one: 2 valid runs have a ratio of it; three are needed"


def test_the_figures_of_the_claim_that_was_asked_for_are_kept() -> None:
    """An outcome has the figures of that claim, and none where it was not judged or not asked for."""
    told = result(main=True, other=None)
    for each in told["claims"]:
        each["figures"] = {"knee": 3.0}
    assert outcome(1, 0, 40.0, told, "main", "main").figures == {"knee": 3.0}
    assert outcome(1, 0, 40.0, told, "main", "other").figures == {}
    assert outcome(1, 0, 40.0, told, "main").figures == {}


def test_a_refused_claim_and_a_missing_verdict_stand_in_the_table() -> None:
    """A scenario's row counts verdicts and runs that hold, and says which claim was refuted and why others lack one."""
    runs = (
        Outcome(1, 0, 1.0, "", ()),
        Outcome(2, 1, 1.0, "", ("rises: 1.2 x",)),
        Outcome(3, 4, 1.0, "", ("probe is on time (9 ms)",)),
    )
    records = {"verdicts cures, quick": {"rows": [asdict(one) for one in runs], "date": "2026-11-29"}}
    shown = every_scenario(records)
    assert shown is not None
    row = "| cures, quick | 2 of 3 | 1 | seed 2: rises: 1.2 x | 1 x probe is on time | 2026-11-29 |"
    assert shown.splitlines()[-1] == row

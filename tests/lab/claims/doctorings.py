"""For every claim of key-growth: what refutes it, and how far a run may go and still fulfil it.

A claim with several halves has a doctoring for each, which leaves the other halves as they are; `alone` proves
that from the figures of the outcome.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.results.folder import PhaseRecord, RunFacts
from lab.scenarios.key_growth import PLATEAUS
from tests.lab.doctored import US_PER_KEY, Doctor

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Doctoring:
    """One thing that is wrong with a run: arguments of `build_run`, and a condition for the outcome's figures."""

    what: str
    build: dict[str, Any] = field(default_factory=dict)
    alone: Callable[[Figures], bool] = lambda _figures: True


def each(change: Callable[[PhaseRecord], None], *names: str) -> Doctor:
    """A doctor that changes the phases of these ids or arms (of all, if none is named)."""

    def doctor(facts: RunFacts) -> None:
        for phase in facts.phases:
            if not names or {phase.id, phase.arm} & set(names):
                change(phase)

    return doctor


def p99s(first: float, **others: float) -> dict[str, Any]:
    """Set p99 (ms) of the first plateau and of other phases (underscores stand for hyphens)."""
    return {"p99_ms": {"grow-1": first, **{name.replace("_", "-"): p99 for name, p99 in others.items()}}}


def plateaus(*values: float) -> dict[str, Any]:
    """Set p99 (ms) of the plateaus of the growth, in order."""
    return {"p99_ms": {f"grow-{i}": value for i, value in enumerate(values, start=1)}}


def slower_get(times: float, *plateaus: str) -> dict[str, Any]:
    """Multiply the server's execution time of GET on these plateaus; on the three highest if none is named."""

    def change(phase: PhaseRecord) -> None:
        phase.commands["GET"]["usec"] *= times

    return {"doctor": each(change, *(plateaus or ("grow-5", "grow-6", "grow-7")))}


def fewer_keys(share: float) -> dict[str, Any]:
    """Give the last index plateau only a share of its keys."""

    def change(phase: PhaseRecord) -> None:
        phase.keys *= share

    return {"doctor": each(change, "index-4")}


def prediction(times: float) -> dict[str, Any]:
    """Multiply the predicted knee, by dividing every predicted demand."""

    def change(phase: PhaseRecord) -> None:
        phase.forecasts = [demand / times for demand in phase.forecasts]

    return {"doctor": each(change)}


def hardly_busy(phase: PhaseRecord) -> None:
    """Let the server be hardly busy."""
    phase.utilisation = 0.2


def searches(times: float) -> dict[str, Any]:
    """Set p99 on the plateaus below the knee to a multiple of what the searches of one event take there."""
    event_ms = {
        number: share * 200_000 * 3 * US_PER_KEY / 1000 for number, share in enumerate(PLATEAUS, start=1)
    }
    return {"p99_ms": {f"grow-{number}": times * event_ms[number] for number in range(2, 7)}}


def wrong_turn(name: str) -> list[Doctoring]:
    """Return what refutes 'NAME does not help'. The second probe runs beside the main one, in the same phase."""
    return [
        Doctoring(
            f"{name} that helps",
            {"p99_ms": {"turns": 100.0, f"turns:{name}": 76.0}},
            lambda f: f["trouble"] >= 5 and f["change"] < -0.2,
        ),
        Doctoring(
            f"{name} that does not help because nothing is wrong",
            {"p99_ms": {"grow-1": 2.0, "turns": 9.5, f"turns:{name}": 9.5}},
            lambda f: f["trouble"] < 5 and f["change"] > -0.2,
        ),
    ]


DOCTORINGS: dict[str, list[Doctoring]] = {
    "p99-follows-keys": [
        Doctoring("flat p99", {"p99_ms": {"grow": 1.0}}, lambda f: f["spearman"] < 0.9),
        Doctoring(
            "falling p99",
            plateaus(400, 200, 90, 40, 20, 10, 5),
            lambda f: f["spearman"] < 0 > f["slope_high"],
        ),
        Doctoring(
            "ranks shuffled, the slope up all the same",
            plateaus(20, 10, 60, 40, 140, 100, 180),
            lambda f: 0.88 < f["spearman"] < 0.9 and f["slope_low"] > 0,
        ),
        Doctoring(
            "perfect ranks, but a slope whose interval touches 0",
            plateaus(10.0, 10.3, 10.6, 10.9, 11.2, 11.5, 11.8),
            lambda f: f["spearman"] >= 0.9 and f["slope_low"] <= 0 < f["slope_high"],
        ),
    ],
    "p99-rises": [Doctoring("ratio 4.8", p99s(10.0, grow_7=48.0), lambda f: 4.6 < f["ratio"] < 5)],
    "p99-is-one-search": [
        Doctoring("half of it: something else makes p99", searches(0.5), lambda f: 0.4 < f["ratio"] < 0.7),
        Doctoring("much more: events meet all the time", searches(2.6), lambda f: 2 < f["ratio"] < 3),
    ],
    "index-cures": [
        Doctoring("ratio 12", p99s(1.4, grow_7=120.0, index_4=10.0), lambda f: 11.5 < f["ratio"] < 12.5),
        Doctoring("fewer keys after the fix", fewer_keys(0.94), lambda f: f["ratio"] > 12.5),
    ],
    "index-flat": [
        Doctoring(
            "p99 rises under the index by a seventh of the rise before",
            {"p99_ms": {"index-2": 2.5, "index-3": 5.0, "index-4": 7.5}},
            lambda f: 0.1 < f["index_high_ms"] / f["cause_low_ms"] < 0.2,
        ),
        Doctoring(
            "p99 rises nine times under the index, which is little beside the rise before",
            {
                "p99_ms": {
                    f"grow-{i}": p99 for i, p99 in enumerate((2, 60, 120, 200, 260, 320, 400), start=1)
                }
                | {"index-1": 1.0, "index-2": 3.0, "index-3": 6.0, "index-4": 9.0}
            },
            lambda f: 0 < f["index_high_ms"] < 0.1 * f["cause_low_ms"],
        ),
        Doctoring(
            "p99 rises by less than a tenth, but perhaps by more",
            {"p99_ms": {"index-1": 2.0, "index-2": 3.8, "index-3": 5.6, "index-4": 7.4}},
            lambda f: f["index_high_ms"] > 0.1 * f["cause_low_ms"],
        ),
        Doctoring(
            "only the last plateau stands out",
            {"p99_ms": {**{f"grow-{i}": 0.04 for i in range(1, 7)}, "grow-7": 0.4, "index": 0.04}},
            lambda f: f["cause_low_ms"] == f["index_high_ms"] == 0,
        ),
        Doctoring(
            "the same p99 always and everywhere",
            {"p99_ms": {"grow": 0.04, "index": 0.04}},
            lambda f: f["cause_low_ms"] == f["index_high_ms"] == 0,
        ),
        Doctoring(
            "no rise before the fix to compare with",
            {"p99_ms": {"grow": 1.0, "index": 1.0}},
            lambda f: f["cause_low_ms"] <= 0,
        ),
    ],
    "restart-restores": [
        Doctoring(
            "a restart that restores nothing",
            p99s(10.0, grow_7=400.0, restart=400.0),
            lambda f: f["taken_away"] < 0.1 and f["back_ratio"] >= 5,
        ),
        Doctoring(
            "a restart that restores 88 %",
            p99s(10.0, grow_7=110.0, restart=22.0),
            lambda f: 0.85 < f["taken_away"] < 0.9 and f["back_ratio"] >= 5,
        ),
        Doctoring(
            "the keys return but p99 does not",
            {"p99_ms": {"return": 1.5}},
            lambda f: f["taken_away"] >= 0.9 and f["back_ratio"] < 5,
        ),
        Doctoring(
            "nothing was wrong before",
            {"p99_ms": {"grow-1": 2.0, "grow-7": 9.0, "restart": 2.0, "return": 30.0}},
            lambda f: f["taken_away"] >= 0.9 and f["back_ratio"] >= 5,
        ),
    ],
    "pool": wrong_turn("pool"),
    "fresh-connections": wrong_turn("fresh"),
    "execution-steady": [
        Doctoring(
            "execution time grows 3 ×",
            slower_get(3.0),
            lambda f: f["server_ratio"] >= 2 and f["client_ratio"] >= 5,
        ),
        Doctoring(
            "execution time grows 2.05 ×",
            slower_get(2.05),
            lambda f: f["server_ratio"] >= 2 and f["client_ratio"] >= 5,
        ),
        Doctoring(
            "the client's p99 does not climb",
            p99s(2.0, grow_7=9.5),
            lambda f: f["server_ratio"] < 2 and f["client_ratio"] < 5,
        ),
    ],
    "victims-not-slow": [
        *(
            Doctoring(
                f"one {command} in fifty entries of the slow log",
                {"slowlog": [*["SCAN"] * 400, *[command] * 20]},
                lambda f: f["victims"] == 20 and f["client_ratio"] >= 5,
            )
            for command in ("GET", "SET", "DEL", "UNLINK")
        ),
        Doctoring(
            "the client's p99 does not climb",
            p99s(2.0, grow_7=9.5),
            lambda f: f["victims"] == 0 and f["client_ratio"] < 5,
        ),
    ],
    "knee-predicted": [
        Doctoring("predicted 35 % too high", prediction(1.35), lambda f: 0.25 < f["error"] < 0.45),
        Doctoring("predicted 35 % too low", prediction(0.65), lambda f: -0.45 < f["error"] < -0.25),
        Doctoring("no knee", {"doctor": each(hardly_busy)}, lambda f: "observed" not in f),
    ],
}
"""Claim id → what refutes it. A test goes through the catalogue and demands a row for each claim."""

WITHSTOOD: dict[str, list[Doctoring]] = {
    "p99-follows-keys": [
        Doctoring("two middle plateaus in the wrong order", plateaus(5, 10, 20, 60, 55, 120, 300)),
        Doctoring("two pairs of neighbours in the wrong order", plateaus(5, 10, 20, 60, 55, 300, 290)),
        Doctoring("a gentle rise", plateaus(10, 12, 14, 17, 20, 23, 26)),
    ],
    "p99-rises": [Doctoring("ratio 5.2", p99s(10.0, grow_7=52.0))],
    "p99-is-one-search": [
        Doctoring("a quarter less", searches(0.75)),
        Doctoring("three quarters more", searches(1.75)),
    ],
    "index-cures": [
        Doctoring("ratio 13", p99s(1.4, grow_7=130.0, index_4=10.0)),
        Doctoring("4 % fewer keys after the fix", fewer_keys(0.96)),
    ],
    "index-flat": [Doctoring("a rise of 3 ms against 63", {"p99_ms": {"index-3": 3.0, "index-4": 4.0}})],
    "restart-restores": [
        Doctoring("a restart that restores 92 %", p99s(10.0, grow_7=110.0, restart=18.0)),
        Doctoring("p99 comes back at 5.2 ×", p99s(10.0, restart=10.0, **{"return": 52.0})),
    ],
    "pool": [Doctoring("16 % better", {"p99_ms": {"turns": 100.0, "turns:pool": 84.0}})],
    "fresh-connections": [
        Doctoring("16 % better", {"p99_ms": {"turns": 100.0, "turns:fresh": 84.0}}),
        Doctoring("twice as bad", {"p99_ms": {"turns": 100.0, "turns:fresh": 200.0}}),
    ],
    "execution-steady": [
        Doctoring("execution time grows 1.95 ×", slower_get(1.95)),
        Doctoring("a GET that the machine took off its core", slower_get(9.0, "grow-7")),
    ],
    "victims-not-slow": [
        Doctoring("the scans themselves in the slow log", {"slowlog": ["SCAN", "KEYS"]}),
        Doctoring("a GET that the machine took off its core", {"slowlog": [*["SCAN"] * 400, "GET"]}),
        Doctoring("SETs of the filling before a plateau", {"filling": ["SET"] * 40}),
    ],
    "knee-predicted": [
        Doctoring("predicted 20 % too high", prediction(1.2)),
        Doctoring("predicted 20 % too low", prediction(0.8)),
    ],
}
"""Claim id → after what it still holds. With `DOCTORINGS` this tests every bound from both sides."""

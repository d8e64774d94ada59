"""An invented scenario with every kind of chart, for tests of what reports and summaries do with any scenario.

with_catalogue(monkeypatch, SWEEP)          # the lab knows this scenario and no other
run = sweep(SWEEP).write(tmp_path / "run")  # a synthetic run of it
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab import scenarios
from lab.claims.base import Claim, Result, need_arm
from lab.claims.verdict import write_result
from lab.results.folder import Run
from lab.runner.judging import reach
from lab.scenarios.model import Chart, Pace, Phase, ProbeSpec, Scenario
from tests.lab.plain import Plain

COUNTS, CROWDS = (10, 1000), (1, 8, 64)


def _faster(times: float) -> Claim:
    def check(run: Run) -> Result:
        found = [phase.figures["iteration_s"] for phase in need_arm(run, "sweep", 2)]
        ratio = found[0] / found[-1]
        return Result(ratio >= times, f"{ratio:.1f} × ({found[0]:.1f} → {found[-1]:.1f} s)", {"ratio": ratio})

    return Claim("faster", "an iteration gets faster with COUNT", f"≥ {times:g} ×", check)


def _measured() -> Claim:
    def check(run: Run) -> Result:
        return Result(bool(need_arm(run, "sweep")), f"{len(run.phases)} phases")

    return Claim("measured", "something was measured", "≥ 1 phase", check)


SWEEP = Scenario(
    id="sweep",
    title="What <COUNT> costs",
    story="Whole iterations, few and many at a time.",
    source="an invented study",
    phases=tuple(
        Phase(
            f"c{count}-n{crowd}",
            "sweep",
            f"COUNT {count}, {crowd} at a time",
            "scan",
            1.0,
            probes=(ProbeSpec("second"),),
            params={"COUNT": float(count), "crowd": float(crowd)},
        )
        for count in COUNTS
        for crowd in CROWDS
    ),
    claims=(_faster(5), _measured()),
    paces={"quick": Pace(1, 1, 100_000)},
    knee_at=None,
    scan_count=1000,
    charts=(
        Chart("curves", "Time of an iteration", "lines", "param:COUNT", "figure:iteration_s", "param:crowd"),
        Chart(
            "map",
            "Throughput",
            "heat",
            "param:COUNT",
            "figure:done_per_s",
            "param:crowd",
            note="Darker: more.",
        ),
        Chart("tail", "p99 of a GET", "bars", "title", "p99", arm="sweep"),
        Chart("few", "Errors", "bars", "title", "figure:errors", "param:COUNT"),
        Chart("never", "What no load ever said", "lines", "keys", "figure:nothing"),
    ),
    symptom="iterations crawl",
    cause="a COUNT | of ten",
    headline="faster",
)
CONTROL = replace(SWEEP, id="sweep-control", title="What no COUNT costs", refutes=True)


def sweep(scenario: Scenario = SWEEP) -> Plain:
    """A healthy run of `SWEEP` (or of a scenario with the same phases)."""
    plain = Plain(scenario)
    for phase in plain.facts.phases:
        count, crowd = phase.params["COUNT"], phase.params["crowd"]
        phase.figures = {
            "iteration_s": 40 / count * crowd**0.1,
            "done_per_s": 90_000 / crowd,
            "errors": 0.0 if crowd == 1 else count * crowd,
        }
        plain.p99_ms[phase.id] = 0.5 + count * crowd / 500
        plain.p99_ms[f"{phase.id}:second"] = 0.25
        phase.commands["SCAN"] = {"calls": 900.0, "usec": 90_000.0 * crowd}
    plain.slowlog = [("SCAN", 20_000)] * 3 + [("KEYS", 30_000)]
    return plain


def judged(plain: Plain, folder: Path) -> Run:
    """Write a run and judge it; the lab must know its scenario."""
    run = plain.write(folder)
    write_result(run, reach(run))
    return run


def with_catalogue(monkeypatch: pytest.MonkeyPatch, *known: Scenario) -> None:
    """Until the test's end the lab knows these scenarios and no others."""
    monkeypatch.setattr(scenarios, "catalogue", lambda: {scenario.id: scenario for scenario in known})

"""Recorded runs, told to the judgement again: the incident of each is named, and what cured it is called healthy."""

from __future__ import annotations

import pytest

from lab import ROOT
from lab.diagnose.findings import answer_of, judge
from lab.results.folder import Run
from lab.server.window import InfoSnapshot, Probed, Window

SAID = {
    "key-growth/grow-7": "scan-storm",
    "key-growth/fix": "nothing",
    "key-growth-standard/grow-6": "scan-storm",
    "key-growth-dragonfly/grow-4": "scan-storm",
    "key-growth-dragonfly/grow-7": "scan-storm",
    "key-growth-dragonfly/fix": "nothing",
    "keys-command/grow-4": "keys-command",
    "cures/scan-load": "scan-storm",
    "cures/keys-load": "keys-command",
    "cures/generation-load": "nothing",
    "empty-slowlog/storm": "scan-storm",
    "giant-index/naive-100000": "many-at-once",
    "giant-index/chunked-100000": "nothing",
    "one-slot/late-load": "scan-storm",
    "one-slot/slot-load": "nothing",
    "pipelined-delete/variadic-all": "many-at-once",
    "pipelined-delete/transaction-all": "transaction",
    "scan-count/many-10000": "scan-storm",
    "shards/one-4": "scan-storm",
    # The figures that the cause needs are not recorded: evicted_keys, expired_keys.
    "eviction-cycle/cycle": "unknown",
}


def recorded_window(name: str) -> Window:
    """Return a phase of a recorded run as a window. A record has only these fields of INFO."""
    folder, _, phase_id = name.partition("/")
    run = Run(ROOT / "docs" / "runs" / folder)
    phase = run.phase(phase_id)
    assert phase is not None
    seconds = phase.t1 - phase.t0

    def look(share: float) -> InfoSnapshot:
        at = phase.t0 + share * seconds
        counted = {
            f"cmdstat_{command.lower()}": f"calls={share * each['calls']:.0f},usec={share * each['usec']:.0f}"
            for command, each in phase.commands.items()
        }
        cpu = {"used_cpu_user": f"{share * seconds * (phase.utilisation or 0):.6f}", "used_cpu_sys": "0"}
        return InfoSnapshot(at, {**counted, **cpu, "db0": f"keys={phase.keys:.0f}"}, at, at)

    slow: dict[str, tuple[int, float]] = {}
    for row in run.slowlog:
        if phase.t0 <= float(row["t"]) <= phase.t1:
            count, longest = slow.get(row["command"], (0, 0.0))
            slow[row["command"]] = count + 1, max(longest, float(row["duration_us"]) / 1000)
    waits = [float(wait_us) / 1e6 for each in run.intervals(phase) for wait_us in each.values]
    probed = [Probed(seconds * number / len(waits), wait) for number, wait in enumerate(waits)]
    return Window("", run.facts.server, run.facts.server_version, [look(0), look(1)], probed, slow)


@pytest.mark.parametrize("name", SAID)
def test_a_recorded_incident_is_named(name: str) -> None:
    """The first cause is that of the incident; the phase of the cure has none."""
    assert answer_of(judge(recorded_window(name))).split(" + ")[0] == SAID[name]

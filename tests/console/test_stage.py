"""What people and the bounds do to a server's scene, against stand-ins."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from console import view
from console.metrics import PHASES
from console.observed import EMPTY_S
from console.server_control import SLOWER, Refused, ServerControl
from console.tuning import Tuning
from lab.errors import StackError
from tests.console.standins import StandIns

NewStage = Callable[..., ServerControl]
clock = time.monotonic


def counted(stage: ServerControl, action: str) -> float:
    """How often an action was counted."""
    value = stage.metrics.registry.get_sample_value("lab_actions_total", {"server": "one", "action": action})
    assert value is not None
    return value


def gauge(stage: ServerControl, name: str) -> float | None:
    """A gauge of this server; None while it has no value."""
    return stage.metrics.registry.get_sample_value(name, {"server": "one"})


def test_switch(new_stage: NewStage, standins: StandIns) -> None:
    """A switch reaches the storefront with the lab's COUNT, and is counted under its own name."""
    stage = new_stage(scan_count=77)
    stage.observe()
    stage.switch("index")
    assert standins.invalidation == {"strategy": "index", "scan_count": 77}
    assert (counted(stage, "strategy_index"), counted(stage, "strategy_scan")) == (1, 0)
    assert view.server(stage)["strategy"] == "index"


def test_growth_is_bounded_and_paced(new_stage: NewStage, standins: StandIns) -> None:
    """Growth aims at the configured number of keys, all of them in the configured time."""
    stage = new_stage(keys=1000, grow_seconds=10)
    stage.grow(True)
    assert standins.fills()[-1] == {"target_keys": 1000, "keys_per_second": 100.0, "restart": False}
    assert gauge(stage, "lab_growth") == 1
    assert standins.load["reads_per_second"] == stage.config.reads_per_second


def test_stopped_growth_keeps_what_is_there(new_stage: NewStage, standins: StandIns) -> None:
    """Growth that stops aims at the keys there are."""
    stage = new_stage(keys=1000)
    stage.grow(True)
    standins.warming["keys"] = 420
    stage.keep_within_bounds()
    stage.grow(False)
    assert standins.fills()[-1]["target_keys"] == 420
    assert gauge(stage, "lab_growth") == 0 and counted(stage, "growth_stop") == 1


@pytest.mark.parametrize(
    ("keys", "filling", "topped_up"), [(1000, False, 0), (980, False, 0), (900, False, 1), (900, True, 0)]
)
def test_removed_keys_are_filled_up(
    new_stage: NewStage, standins: StandIns, keys: int, filling: bool, topped_up: int
) -> None:
    """When events have removed more than a few keys the fill goes over all users again, unless it is under way."""
    stage = new_stage(keys=1000)
    stage.grow(True)
    standins.warming |= {"keys": keys, "state": "filling" if filling else "idle"}
    before = len(standins.fills())
    stage.keep_within_bounds()
    assert len(standins.fills()) - before == topped_up
    assert all(fill["restart"] for fill in standins.fills()[before:])


def test_a_new_pace_is_told_though_the_keys_are_the_same(new_stage: NewStage, standins: StandIns) -> None:
    """Near the edge keys grow on towards the same number, slowly; the warmer has to hear of it, once."""
    stage = new_stage(keys=1000)
    stage.grow(True)
    standins.warming |= {"keys": 600, "state": "filling"}
    usual = stage.pace
    stage.pace /= SLOWER
    for _ in range(2):
        stage.keep_within_bounds()
    assert [fill["keys_per_second"] for fill in standins.fills()] == [usual, usual / SLOWER]
    assert standins.fills()[-1]["target_keys"] == 1000 and not standins.fills()[-1]["restart"]


def test_nothing_is_filled_up_while_the_store_is_down(new_stage: NewStage, standins: StandIns) -> None:
    """A store that does not answer is not filled."""
    stage = new_stage(keys=1000)
    stage.grow(True)
    stage.tell_up(False, 1)
    before = len(standins.fills())
    stage.keep_within_bounds()
    assert len(standins.fills()) == before


def test_rate_and_knee(new_stage: NewStage, standins: StandIns) -> None:
    """The rate reaches Locust; the knee moves in inverse proportion to it; null is the calibrated rate."""
    stage = new_stage(keys=200_000)
    with pytest.raises(Refused, match="no calibrated rate"):
        stage.rate(None)
    stage.tuned(Tuning(base_share=0.0, cost_s=1e-6, events_per_second=20 / 9, keys=150_000))
    stage.rate(None)
    assert math.isclose(standins.load["events_per_second"], 2.22)
    knee = gauge(stage, "lab_knee_keys")
    stage.rate(4.44)
    assert knee is not None and gauge(stage, "lab_knee_keys") == pytest.approx(knee / 2)
    assert gauge(stage, "lab_events_per_second") == 4.44 and counted(stage, "rate") == 2
    assert gauge(stage, "lab_events_planned_per_second") == 4.44
    assert standins.load["users_population"] == 10_000


def test_more_is_in_flight_than_meant(new_stage: NewStage, standins: StandIns) -> None:
    """Beyond the aim fewer events are sent than planned, and all of them again when the backlog is gone."""
    stage = new_stage(backlog_pause=1000, backlog_resume=10)
    stage.rate(30)
    standins.in_flight = 60
    stage.keep_within_bounds()
    time.sleep(0.1)  # a rate of finished events needs two looks
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 0 and stage.planned == 30
    assert view.server(stage)["events_planned_per_second"] == 30
    standins.in_flight = 0
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 30


def test_backlog_is_bounded_over_the_edge(new_stage: NewStage, standins: StandIns) -> None:
    """Too many events in flight: none are sent, and it is said, until they are nearly done."""
    stage = new_stage(backlog_pause=100, backlog_resume=10)
    stage.rate(30)
    stage.go_over(True)
    rates = []
    for in_flight in (50, 100, 101, 60, 10, 9):
        standins.in_flight = in_flight
        stage.keep_within_bounds()
        rates.append(standins.load["events_per_second"])
        assert ("held back" in view.status(stage)) == stage.paused == (rates[-1] == 0)
    assert rates == [30, 30, 0, 0, 0, 30]
    assert (counted(stage, "pause"), counted(stage, "resume")) == (1, 1)
    assert gauge(stage, "lab_events_per_second") == 30


def test_backlog_counts_what_waits_in_the_outbox(new_stage: NewStage, standins: StandIns) -> None:
    """Events that wait for an invalidator that does not run are backlog too."""
    stage = new_stage(backlog_pause=100)
    stage.rate(30)
    standins.pending = 101
    stage.keep_within_bounds()
    assert stage.paused


def test_rate_changed_while_held_back_comes_later(new_stage: NewStage, standins: StandIns) -> None:
    """A rate asked for while events are held back takes effect when they go on."""
    stage = new_stage(backlog_pause=100, backlog_resume=10)
    stage.rate(30)
    standins.in_flight = 101
    stage.keep_within_bounds()
    stage.rate(5)
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 0
    standins.in_flight = 0
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 5


def test_over_the_edge_and_back(new_stage: NewStage, standins: StandIns) -> None:
    """Over the edge everything that was planned is sent and all keys come; back, the keys stay as they are."""
    stage = new_stage(keys=1000)
    with pytest.raises(Refused, match="No events"):
        stage.go_over(True)
    stage.rate(30)
    standins.warming["keys"] = 600
    stage.keep_within_bounds()
    said, parts = stage.go_over(True)
    assert "1,000" in said and "600 at the most" in said and all(part.done for part in parts)
    assert stage.shown_phase == "over_the_edge" and standins.fills()[-1]["target_keys"] == 1000
    standins.in_flight = 300
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 30
    stage.go_over(False)
    assert standins.fills()[-1]["target_keys"] == 600 and stage.shown_phase == "held"
    assert (counted(stage, "over_the_edge"), counted(stage, "back_to_the_edge")) == (1, 1)


@pytest.mark.parametrize(
    ("planned", "strategy", "growing", "shown"),
    [
        (0.0, "scan", False, "stopped"),
        (5.0, "scan", True, "growing"),
        (5.0, "scan", False, "held"),
        (5.0, "index", True, "cured"),
    ],
)
def test_phase_on_the_dashboards(
    new_stage: NewStage, planned: float, strategy: str, growing: bool, shown: str
) -> None:
    """The phase follows from what is wanted, and exactly one is told."""
    stage = new_stage()
    stage.planned, stage.growing = planned, growing
    stage.want(strategy)
    sample = stage.metrics.registry.get_sample_value
    told = {name: sample("lab_phase", {"server": "one", "phase": name}) for name in PHASES}
    assert stage.shown_phase == shown and [name for name, value in told.items() if value] == [shown]


def test_a_lever_that_finds_no_answer_is_pulled_again(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is out of order does not make the lever fail; it is told again once it works."""
    stage = new_stage()
    stage.keep_within_bounds()
    standins.broken |= {"web", "locust"}
    said, parts = stage.switch("index")
    assert [part.done for part in parts] == [False] and "asked again" in said
    said, parts = stage.rate(12)
    assert [part.done for part in parts] == [False]
    stage.keep_within_bounds()
    assert stage.trouble
    standins.broken.clear()
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    stage.keep_within_bounds()
    assert standins.invalidation["strategy"] == "index" and standins.load["events_per_second"] == 12


def test_what_hangs_does_not_hold_up_a_lever(new_stage: NewStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart: the warmer is told at once, though the store lets SHUTDOWN wait in line."""
    stage = new_stage(keys=1000)
    monkeypatch.setattr("console.levers.LEVER_S", 0.3)
    monkeypatch.setattr(stage.clients.store, "shutdown", lambda: time.sleep(3))
    began = time.monotonic()
    _, parts = stage.restart()
    assert time.monotonic() - began < 2.5
    assert {part.part: part.done for part in parts} == {"warmer": True, "store": False}


def test_switch_without_a_restart(new_stage: NewStage, standins: StandIns) -> None:
    """The storefront is told to finish what is under way, and the mark on the dashboards is another."""
    stage = new_stage()
    stage.observe()
    stage.switch("index", late=True)
    assert standins.invalidation["under_way"] == "finish"
    assert (counted(stage, "strategy_late_index"), counted(stage, "strategy_index")) == (1, 0)


def test_restarted_locust_is_told_again(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load generator that forgot its rates is told them again."""
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    stage = new_stage()
    stage.rate(30)
    standins.load |= {"reads_per_second": 0.0, "events_per_second": 0.0}
    stage.keep_within_bounds()
    assert standins.load["events_per_second"] == 30


def test_rest(new_stage: NewStage, standins: StandIns) -> None:
    """At rest there are no events, no reads, no growth; keys stay."""
    stage = new_stage(keys=1000, backlog_pause=100)
    stage.grow(True)
    stage.rate(30)
    standins.warming["keys"], standins.in_flight = 700, 101
    stage.keep_within_bounds()
    stage.rest()
    assert (standins.load["reads_per_second"], standins.load["events_per_second"]) == (0, 0)
    assert standins.fills()[-1]["target_keys"] == 700
    assert not stage.paused and not stage.growing and gauge(stage, "lab_events_paused") == 0


@pytest.mark.parametrize(
    "phase", ["absent", "waiting", "queued", "calibrating", "emptying", "retrying", "leased"]
)
def test_actions_are_refused_while_not_free(new_stage: NewStage, standins: StandIns, phase: str) -> None:
    """While the story begins or a run has the scene nothing is changed, and the refusal says why."""
    stage = new_stage()
    stage.phase = phase
    actions: list[Callable[[], Any]] = [
        lambda: stage.switch("index"), lambda: stage.grow(True), lambda: stage.rate(3), stage.restart,
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(Refused, match=r"\w.*[.]$"):
            action()
    assert standins.told == []


def test_restart_is_told_until_the_store_is_back(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the restart on until another life of the store is seen, the status says so; twice is refused."""
    stage = new_stage()
    monkeypatch.setattr(stage.clients.store, "shutdown", lambda: None)
    stage.keep_within_bounds()
    stage.restart()
    assert view.status(stage) == "Restarting the store." and counted(stage, "restart") == 1
    with pytest.raises(Refused):
        stage.restart()
    stage.tell_up(True, 1)  # still the old life: it has not gone yet
    assert stage.restarting
    stage.tell_up(False, 1)
    stage.tell_up(True, 2)
    assert not stage.restarting
    assert standins.fills()[-1]["target_keys"] == 0  # nothing grew, so nothing comes back


def test_restart_while_growing_keeps_growing(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was restarted stays empty for a while, so that its p99 is seen; then the keys grow as before."""
    stage = new_stage(keys=1000)
    monkeypatch.setattr(stage.clients.store, "shutdown", lambda: None)
    stage.grow(True)
    stage.restart()
    assert standins.fills()[-1]["target_keys"] == 0
    stage.tell_up(False, 1)
    stage.tell_up(True, 2)
    stage.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 0
    assert "In a few seconds keys grow again." in view.status(stage)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + EMPTY_S)
    stage.keep_within_bounds()
    assert standins.fills()[-1] == {"target_keys": 1000, "keys_per_second": stage.pace, "restart": False}


def test_growth_by_hand_ends_the_wait_of_a_restarted_store(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who starts the growth does not want to wait for it; who stops it does not want it later."""
    stage = new_stage(keys=1000)
    monkeypatch.setattr(stage.clients.store, "shutdown", lambda: None)
    for lives in (2, 3):
        stage.grow(True)
        stage.restart()
        stage.tell_up(True, lives)
        stage.grow(lives == 2)
        assert standins.fills()[-1]["target_keys"] == (1000 if lives == 2 else 0)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + EMPTY_S)
    stage.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 0


def test_a_store_that_does_not_end_keeps_its_keys(
    new_stage: NewStage, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that it did not end, and the growth goes on."""
    stage = new_stage(keys=1000)
    stage.grow(True)

    def refuses() -> None:
        raise StackError("it may not.")

    monkeypatch.setattr(stage.clients.store, "shutdown", refuses)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    assert "it may not" in stage.restart()[0]
    stage.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 1000
    assert view.status(stage).startswith("it may not.")


def test_store_that_stays_away_is_told(new_stage: NewStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not come back is complained of until the next restart, not only for a moment."""
    stage = new_stage()
    monkeypatch.setattr(stage.clients.store, "shutdown", lambda: None)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    stage.restart()
    stage.tell_up(False, 1)
    for _ in range(2):
        stage.keep_within_bounds()
        assert "has not come back" in view.status(stage)


@pytest.mark.parametrize("role", ["web", "invalidator", "locust", "probe"])
def test_what_does_not_answer_is_named(new_stage: NewStage, standins: StandIns, role: str) -> None:
    """When a process is out of order the error names it."""
    stage = new_stage()
    standins.broken.add(role)
    names = {"web": "storefront", "invalidator": "invalidator", "locust": "Locust", "probe": "probe"}
    with pytest.raises(StackError, match=names[role]):
        stage.clients.ready()


def test_what_others_set_is_left_alone(new_stage: NewStage, standins: StandIns) -> None:
    """While nobody has asked the control page for keys or a strategy it does not change those that are set."""
    stage = new_stage()
    standins.warming["target_keys"], standins.invalidation["strategy"] = 2000, "hash"
    stage.keep_within_bounds()
    assert standins.fills() == [] and standins.invalidation["strategy"] == "hash"
    assert view.server(stage)["target_keys"] == 2000


def test_calm_where_nothing_moves_and_nothing_is_wanted(new_stage: NewStage, standins: StandIns) -> None:
    """Then the scene is looked at less often; events under way, a load or a wish not yet fulfilled end the calm."""
    stage = new_stage()
    assert not stage.calm  # never looked at
    stage.rest()
    stage.keep_within_bounds()
    assert stage.calm
    stage.want("index")
    assert not stage.calm
    stage.keep_within_bounds()
    stage.keep_within_bounds()
    assert stage.calm
    stage.plan(2.0)
    assert not stage.calm


def test_a_server_that_is_not_there_has_no_phase(new_stage: NewStage) -> None:
    """The dashboards show a row for each server with a phase."""
    stage = new_stage()
    stage.metrics.phase.clear()
    stage.phase = "absent"
    assert stage.shown_phase == ""
    assert "lab_phase{" not in generate_latest(stage.metrics.registry).decode()
    stage.phase = "waiting"
    assert 'lab_phase{phase="waiting",server="one"} 1.0' in generate_latest(stage.metrics.registry).decode()

"""A server's control on stand-ins: what people's actions and the bounds do to its scene."""

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

NewControl = Callable[..., ServerControl]
clock = time.monotonic


def counted(control: ServerControl, action: str) -> float:
    """How often an action was counted."""
    value = control.metrics.registry.get_sample_value(
        "lab_actions_total", {"server": "one", "action": action}
    )
    assert value is not None
    return value


def gauge(control: ServerControl, name: str) -> float | None:
    """A gauge of this server; None while it has no value."""
    return control.metrics.registry.get_sample_value(name, {"server": "one"})


def test_switch(new_control: NewControl, standins: StandIns) -> None:
    """A switch reaches the storefront with the lab's COUNT, and is counted under its own name."""
    control = new_control(scan_count=77)
    control.observe()
    control.switch("index")
    assert standins.invalidation == {"strategy": "index", "scan_count": 77}
    assert (counted(control, "strategy_index"), counted(control, "strategy_scan")) == (1, 0)
    assert view.server(control)["strategy"] == "index"


def test_growth_is_bounded_and_paced(new_control: NewControl, standins: StandIns) -> None:
    """Growth aims at the configured number of keys, all of them in the configured time."""
    control = new_control(keys=1000, grow_seconds=10)
    control.grow(True)
    assert standins.fills()[-1] == {"target_keys": 1000, "keys_per_second": 100.0, "restart": False}
    assert gauge(control, "lab_growth") == 1
    assert standins.load["reads_per_second"] == control.config.reads_per_second


def test_stopped_growth_keeps_what_is_there(new_control: NewControl, standins: StandIns) -> None:
    """Growth that is stopped aims at the keys that are there."""
    control = new_control(keys=1000)
    control.grow(True)
    standins.warming["keys"] = 420
    control.keep_within_bounds()
    control.grow(False)
    assert standins.fills()[-1]["target_keys"] == 420
    assert gauge(control, "lab_growth") == 0 and counted(control, "growth_stop") == 1


@pytest.mark.parametrize(
    ("keys", "filling", "topped_up"), [(1000, False, 0), (980, False, 0), (900, False, 1), (900, True, 0)]
)
def test_removed_keys_are_filled_up(
    new_control: NewControl, standins: StandIns, keys: int, filling: bool, topped_up: int
) -> None:
    """When events have removed more than a few keys the fill goes over all users again, unless it is under way."""
    control = new_control(keys=1000)
    control.grow(True)
    standins.warming |= {"keys": keys, "state": "filling" if filling else "idle"}
    before = len(standins.fills())
    control.keep_within_bounds()
    assert len(standins.fills()) - before == topped_up
    assert all(fill["restart"] for fill in standins.fills()[before:])


def test_a_new_pace_is_told_though_the_keys_are_the_same(new_control: NewControl, standins: StandIns) -> None:
    """When keys grow on slowly towards the same number, as near the edge, the warmer is told the new pace, once."""
    control = new_control(keys=1000)
    control.grow(True)
    standins.warming |= {"keys": 600, "state": "filling"}
    usual = control.pace
    control.pace /= SLOWER
    for _ in range(2):
        control.keep_within_bounds()
    assert [fill["keys_per_second"] for fill in standins.fills()] == [usual, usual / SLOWER]
    assert standins.fills()[-1]["target_keys"] == 1000 and not standins.fills()[-1]["restart"]


def test_nothing_is_filled_up_while_the_server_is_down(new_control: NewControl, standins: StandIns) -> None:
    """A server that does not answer is not filled."""
    control = new_control(keys=1000)
    control.grow(True)
    control.record_up(False, 1)
    before = len(standins.fills())
    control.keep_within_bounds()
    assert len(standins.fills()) == before


def test_rate_and_knee(new_control: NewControl, standins: StandIns) -> None:
    """The rate reaches Locust; the knee moves in inverse proportion to it; null is the calibrated rate."""
    control = new_control(keys=200_000)
    with pytest.raises(Refused, match="no calibrated rate"):
        control.rate(None)
    control.tuned(Tuning(base_share=0.0, cost_s=1e-6, events_per_second=20 / 9, keys=150_000))
    control.rate(None)
    assert math.isclose(standins.load["events_per_second"], 2.22)
    knee = gauge(control, "lab_knee_keys")
    control.rate(4.44)
    assert knee is not None and gauge(control, "lab_knee_keys") == pytest.approx(knee / 2)
    assert gauge(control, "lab_events_per_second") == 4.44 and counted(control, "rate") == 2
    assert gauge(control, "lab_events_planned_per_second") == 4.44
    assert standins.load["users_population"] == 10_000


def test_more_is_in_flight_than_meant(new_control: NewControl, standins: StandIns) -> None:
    """Beyond the aim fewer events are sent than planned; when the backlog is gone, all of them are sent again."""
    control = new_control(backlog_pause=1000, backlog_resume=10)
    control.rate(30)
    standins.in_flight = 60
    control.keep_within_bounds()
    time.sleep(0.1)  # a rate of finished events needs two samples
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 0 and control.planned == 30
    assert view.server(control)["events_planned_per_second"] == 30
    standins.in_flight = 0
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 30


def test_backlog_is_bounded_over_the_edge(new_control: NewControl, standins: StandIns) -> None:
    """With too many events in flight no more are sent until they are nearly done, and the status says so."""
    control = new_control(backlog_pause=100, backlog_resume=10)
    control.rate(30)
    control.go_over(True)
    rates = []
    for in_flight in (50, 100, 101, 60, 10, 9):
        standins.in_flight = in_flight
        control.keep_within_bounds()
        rates.append(standins.load["events_per_second"])
        assert ("held back" in view.status(control)) == control.paused == (rates[-1] == 0)
    assert rates == [30, 30, 0, 0, 0, 30]
    assert (counted(control, "pause"), counted(control, "resume")) == (1, 1)
    assert gauge(control, "lab_events_per_second") == 30


def test_backlog_counts_what_waits_in_the_outbox(new_control: NewControl, standins: StandIns) -> None:
    """Events that wait for an invalidator that does not run are backlog too."""
    control = new_control(backlog_pause=100)
    control.rate(30)
    standins.pending = 101
    control.keep_within_bounds()
    assert control.paused


def test_rate_changed_while_held_back_comes_later(new_control: NewControl, standins: StandIns) -> None:
    """A rate asked for while events are held back takes effect when they go on."""
    control = new_control(backlog_pause=100, backlog_resume=10)
    control.rate(30)
    standins.in_flight = 101
    control.keep_within_bounds()
    control.rate(5)
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 0
    standins.in_flight = 0
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 5


def test_over_the_edge_and_back(new_control: NewControl, standins: StandIns) -> None:
    """Over the edge all planned events are sent and all keys are filled in; back from it the keys stay as they are."""
    control = new_control(keys=1000)
    with pytest.raises(Refused, match="No events"):
        control.go_over(True)
    control.rate(30)
    standins.warming["keys"] = 600
    control.keep_within_bounds()
    said, parts = control.go_over(True)
    assert "1,000" in said and "600 at the most" in said and all(part.done for part in parts)
    assert control.shown_phase == "over_the_edge" and standins.fills()[-1]["target_keys"] == 1000
    standins.in_flight = 300
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 30
    assert "pile up" in view.status(control)
    control.switch("index")
    assert "pile up" not in view.status(control), "under the index they are done"
    control.switch("scan")
    control.go_over(False)
    assert standins.fills()[-1]["target_keys"] == 600 and control.shown_phase == "held"
    assert (counted(control, "over_the_edge"), counted(control, "back_to_the_edge")) == (1, 1)


@pytest.mark.parametrize(
    ("planned", "strategy", "growing", "shown"),
    [
        (0.0, "scan", False, "stopped"),
        (5.0, "scan", True, "growing"),
        (5.0, "scan", False, "held"),
        (5.0, "another-search", True, "growing"),
        (5.0, "index", True, "cured"),
    ],
)
def test_phase_on_the_dashboards(
    new_control: NewControl, standins: StandIns, planned: float, strategy: str, growing: bool, shown: str
) -> None:
    """The phase follows from what is wanted, and exactly one phase is exported as in force.

    The storefront says which strategies search, so that a new one is not taken for a cure.
    """
    control = new_control()
    standins.searching.append("another-search")
    control.observe()
    control.planned, control.growing = planned, growing
    control.want(strategy)
    sample = control.metrics.registry.get_sample_value
    told = {name: sample("lab_phase", {"server": "one", "phase": name}) for name in PHASES}
    assert control.shown_phase == shown and [name for name, value in told.items() if value] == [shown]


def test_a_lever_that_finds_no_answer_is_pulled_again(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is out of order does not make the lever fail; it is asked again once it works."""
    control = new_control()
    control.keep_within_bounds()
    standins.broken |= {"web", "locust"}
    said, parts = control.switch("index")
    assert [part.done for part in parts] == [False] and "asks again" in said
    said, parts = control.rate(12)
    assert [part.done for part in parts] == [False]
    control.keep_within_bounds()
    assert control.trouble
    standins.broken.clear()
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    control.keep_within_bounds()
    assert standins.invalidation["strategy"] == "index" and standins.load["events_per_second"] == 12


def test_what_hangs_does_not_hold_up_a_lever(
    new_control: NewControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a restart the warmer is told at once, although SHUTDOWN waits in the server's queue."""
    control = new_control(keys=1000)
    monkeypatch.setattr("console.levers.LEVER_S", 0.3)
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: time.sleep(3))
    began = time.monotonic()
    _, parts = control.restart()
    assert time.monotonic() - began < 2.5
    assert {part.part: part.done for part in parts} == {"warmer": True, "server": False}


def test_switch_without_a_restart(new_control: NewControl, standins: StandIns) -> None:
    """A switch without a restart tells the storefront to finish what is under way, and is counted as its own action."""
    control = new_control()
    control.observe()
    control.switch("index", late=True)
    assert standins.invalidation["under_way"] == "finish"
    assert (counted(control, "strategy_late_index"), counted(control, "strategy_index")) == (1, 0)


def test_restarted_locust_is_told_again(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load generator that forgot its rates is told them again."""
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    control = new_control()
    control.rate(30)
    standins.load |= {"reads_per_second": 0.0, "events_per_second": 0.0}
    control.keep_within_bounds()
    assert standins.load["events_per_second"] == 30


def test_rest(new_control: NewControl, standins: StandIns) -> None:
    """At rest there are no events, no reads, no growth; keys stay."""
    control = new_control(keys=1000, backlog_pause=100)
    control.grow(True)
    control.rate(30)
    standins.warming["keys"], standins.in_flight = 700, 101
    control.keep_within_bounds()
    control.rest()
    assert (standins.load["reads_per_second"], standins.load["events_per_second"]) == (0, 0)
    assert standins.fills()[-1]["target_keys"] == 700
    assert not control.paused and not control.growing and gauge(control, "lab_events_paused") == 0


@pytest.mark.parametrize(
    "phase", ["absent", "waiting", "queued", "calibrating", "emptying", "retrying", "leased"]
)
def test_actions_are_refused_while_not_free(new_control: NewControl, standins: StandIns, phase: str) -> None:
    """While the story begins or a run has the scene nothing is changed, and the refusal says why."""
    control = new_control()
    control.phase = phase
    actions: list[Callable[[], Any]] = [
        lambda: control.switch("index"), lambda: control.grow(True), lambda: control.rate(3), control.restart,
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(Refused, match=r"\w.*[.]$"):
            action()
    assert standins.told == []


def test_restart_is_told_until_the_server_is_back(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a restarted server is seen to have started anew, the status says so, and a second restart is refused."""
    control = new_control()
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: None)
    control.keep_within_bounds()
    control.restart()
    assert view.status(control) == "Restarting the server." and counted(control, "restart") == 1
    with pytest.raises(Refused):
        control.restart()
    control.record_up(True, 1)  # the old process, which has not ended yet
    assert control.restarting
    control.record_up(False, 1)
    control.record_up(True, 2)
    assert not control.restarting
    assert standins.fills()[-1]["target_keys"] == 0  # nothing grew, so nothing comes back


def test_restart_while_growing_keeps_growing(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was restarted stays empty for a while, so that its p99 is seen; then the keys grow as before."""
    control = new_control(keys=1000)
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: None)
    control.grow(True)
    control.restart()
    assert standins.fills()[-1]["target_keys"] == 0
    control.record_up(False, 1)
    control.record_up(True, 2)
    control.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 0
    assert "Some twenty seconds later keys grow again." in view.status(control)
    assert counted(control, "growth_start") == 1, "it does not grow yet"
    monkeypatch.setattr(time, "monotonic", lambda: clock() + EMPTY_S)
    control.keep_within_bounds()
    assert standins.fills()[-1] == {"target_keys": 1000, "keys_per_second": control.pace, "restart": False}
    assert counted(control, "growth_start") == 2


def test_growth_by_hand_ends_the_wait_of_a_restarted_server(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Growth that is started by hand after a restart begins at once; growth that is stopped does not begin later."""
    control = new_control(keys=1000)
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: None)
    for starts in (2, 3):
        control.grow(True)
        control.restart()
        control.record_up(True, starts)
        control.grow(starts == 2)
        assert standins.fills()[-1]["target_keys"] == (1000 if starts == 2 else 0)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + EMPTY_S)
    control.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 0


def test_a_server_that_does_not_end_keeps_its_keys(
    new_control: NewControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not end, the status says so, and the growth goes on."""
    control = new_control(keys=1000)
    control.grow(True)

    def refuses() -> None:
        raise StackError("it may not.")

    monkeypatch.setattr(control.clients.server, "shutdown", refuses)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    assert "it may not" in control.restart()[0]
    control.keep_within_bounds()
    assert standins.fills()[-1]["target_keys"] == 1000
    assert view.status(control).startswith("it may not.")


def test_a_server_that_stays_away_is_told(new_control: NewControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status reports a server that does not come back until the next restart, not only for a moment."""
    control = new_control()
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: None)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    control.restart()
    control.record_up(False, 1)
    for _ in range(2):
        control.keep_within_bounds()
        assert "has not come back" in view.status(control)
    control.record_up(True, 2)
    assert "has not come back" not in view.status(control)


@pytest.mark.parametrize("role", ["web", "invalidator", "locust", "probe"])
def test_what_does_not_answer_is_named(new_control: NewControl, standins: StandIns, role: str) -> None:
    """When a process is out of order the error names it."""
    control = new_control()
    standins.broken.add(role)
    names = {"web": "storefront", "invalidator": "invalidator", "locust": "Locust", "probe": "probe"}
    with pytest.raises(StackError, match=names[role]):
        control.clients.ready()


def test_what_others_set_is_left_alone(new_control: NewControl, standins: StandIns) -> None:
    """While nobody has asked the console for keys or a strategy, it does not change those that are set."""
    control = new_control()
    standins.warming["target_keys"], standins.invalidation["strategy"] = 2000, "hash"
    control.keep_within_bounds()
    assert standins.fills() == [] and standins.invalidation["strategy"] == "hash"
    assert view.server(control)["target_keys"] == 2000


def test_calm_where_nothing_moves_and_nothing_is_wanted(new_control: NewControl, standins: StandIns) -> None:
    """A control is calm, and samples less often, while nothing moves; a new wish or a load ends the calm."""
    control = new_control()
    assert not control.calm  # no sample yet
    control.rest()
    control.keep_within_bounds()
    assert control.calm
    control.want("index")
    assert not control.calm
    control.keep_within_bounds()
    control.keep_within_bounds()
    assert control.calm
    control.plan(2.0)
    assert not control.calm


def test_a_server_that_is_not_there_has_no_phase(new_control: NewControl) -> None:
    """An absent server exports no phase: the dashboards show a row for each server that has one."""
    control = new_control()
    control.metrics.phase.clear()
    control.phase = "absent"
    assert control.shown_phase == ""
    assert "lab_phase{" not in generate_latest(control.metrics.registry).decode()
    control.phase = "waiting"
    assert 'lab_phase{phase="waiting",server="one"} 1.0' in generate_latest(control.metrics.registry).decode()

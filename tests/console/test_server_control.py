"""A server's control on stand-ins: what people's actions do to its scene, and that nothing else changes it."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from console import view
from console.history import WINDOW_S
from console.metrics import PHASES
from console.plan import Plan
from console.server_control import FEW, OVER_S, Refused, ServerControl
from lab.errors import StackError
from lab.server.server_stats import Snapshot
from tests.console.standins import StandIns

NewControl = Callable[..., ServerControl]
clock = time.monotonic
PLAN = Plan(keys=120_000, scan_count=1000, search_s=0.1, threads=1, events_per_second=1.0, utilisation=0.3)


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


def load(standins: StandIns) -> tuple[float, float, int]:
    """Visits and events a second, and customers, that Locust was told."""
    return (
        standins.load["visits_per_second"],
        standins.load["events_per_second"],
        standins.load["users_population"],
    )


@pytest.fixture
def growing(new_control: NewControl, standins: StandIns) -> ServerControl:
    """A control of a scene whose story has been told: 4,200 keys are planned, one event a second."""
    control = new_control(keys=4200, grow_seconds=10)
    control.observe()
    control.adopt(PLAN)
    control.open_shop(PLAN.events_per_second)
    control.open_to_all()
    return control


def test_switch(new_control: NewControl, standins: StandIns) -> None:
    """A switch reaches the storefront with the server's COUNT, and is counted under its own name."""
    control = new_control(scan_counts={"one": 77})
    control.observe()
    control.switch("index")
    assert standins.invalidation == {"strategy": "index", "scan_count": 77}
    assert (counted(control, "strategy_index"), counted(control, "strategy_scan")) == (1, 0)
    assert view.server(control)["strategy"] == "index"
    control.count(1234)
    assert standins.invalidation["scan_count"] == 1234 and standins.invalidation["under_way"] == "finish"
    assert view.server(control)["scan_count"] == 1234 and counted(control, "count") == 1


def test_visits_and_events_stay_as_planned_whatever_is_seen(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody steers: a p99 of seconds, a backlog below the bound and all keys change nothing of the load."""
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    assert load(standins) == (20.0, 1.0, 200)
    told = len(standins.told)
    for keys, in_flight in ((0, 0), (2100, 40), (4200, 600), (4200, 0)):
        standins.warming["keys"], standins.in_flight = keys, in_flight
        for bound in standins.probe:
            standins.probe[bound] += bound == float("inf")
        growing.keep()
        assert view.server(growing)["all_keys"] == (keys == 4200)
    # One event a second, twenty visits: a fortieth of the customers are without pages.
    standins.warming["keys"] = 4000
    growing.keep()
    assert view.server(growing)["all_keys"]
    assert len(standins.told) == told


def test_few_customers_at_first(new_control: NewControl, standins: StandIns) -> None:
    """The healthy p99 is measured with a few customers, who make all the visits; then all customers come."""
    control = new_control(keys=4200, grow_seconds=10)
    control.observe()
    control.open_shop(1.0)
    assert load(standins) == (20.0, 1.0, FEW) and standins.invalidation["strategy"] == "scan"
    assert gauge(control, "lab_growth") == 0
    control.open_to_all()
    assert load(standins) == (20.0, 1.0, 200)
    assert gauge(control, "lab_growth") == 1 and counted(control, "growth_start") == 1


def test_growth_is_stopped_and_started(growing: ServerControl, standins: StandIns) -> None:
    """Growth that is stopped leaves the customers whose pages are there; visits and events go on."""
    standins.warming["keys"] = 2100
    growing.keep()
    growing.grow(False)
    assert load(standins) == (20.0, 1.0, 100)
    assert gauge(growing, "lab_growth") == 0 and counted(growing, "growth_stop") == 1
    assert growing.shown_phase == "level"
    growing.grow(True)
    assert load(standins) == (20.0, 1.0, 200)


def test_rate_and_saturation(growing: ServerControl, standins: StandIns) -> None:
    """The rate reaches Locust; saturation moves in inverse proportion to it; null is the planned rate."""
    growing.observe()
    saturation = gauge(growing, "lab_knee_keys")
    assert saturation is not None and saturation == pytest.approx(400_000)
    growing.rate(2.0)
    growing.observe()
    assert gauge(growing, "lab_knee_keys") == pytest.approx(saturation / 2)
    assert gauge(growing, "lab_events_per_second") == 2.0 == gauge(growing, "lab_events_planned_per_second")
    growing.rate(None)
    assert load(standins)[1] == 1.0 and counted(growing, "rate") == 2


def test_no_saturation_under_a_strategy_that_does_not_search(growing: ServerControl) -> None:
    """Under the index the number of keys that saturates the server is not shown: there is none."""
    assert view.server(growing)["knee_keys"] == 400_000
    growing.switch("index")
    growing.observe()
    assert view.server(growing)["knee_keys"] is None
    knee = gauge(growing, "lab_knee_keys")
    assert knee is not None and knee != knee  # NaN: no line


def test_a_rate_needs_a_plan(new_control: NewControl) -> None:
    """Before the plan there is no rate to go back to."""
    with pytest.raises(Refused, match="no planned rate"):
        new_control().rate(None)


def test_over_the_edge_ends_by_itself(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the edge three times the events are sent, for a minute or until somebody ends it."""
    said, parts = growing.go_over(True)
    assert "3 events a second for 60 seconds" in said and all(part.done for part in parts)
    assert load(standins) == (20.0, 3.0, 200) and growing.shown_phase == "over_the_edge"
    assert gauge(growing, "lab_events_planned_per_second") == 1.0
    growing.keep()
    assert load(standins)[1] == 3.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + OVER_S + 1)
    growing.keep()
    assert load(standins) == (20.0, 1.0, 200)
    growing.go_over(True)
    growing.go_over(False)
    assert load(standins)[1] == 1.0
    assert (counted(growing, "over_the_edge"), counted(growing, "back_to_the_edge")) == (2, 2)


def test_over_the_edge_needs_events(new_control: NewControl) -> None:
    """Without events there is nothing to send three times of."""
    with pytest.raises(Refused, match="No events"):
        new_control().go_over(True)


def test_what_is_in_flight_is_bounded(new_control: NewControl, standins: StandIns) -> None:
    """With too many events in flight no more are sent until they are nearly done, and the status says so."""
    control = new_control(backlog_pause=100, backlog_resume=10)
    control.rate(30)
    rates = []
    for in_flight in (50, 100, 101, 60, 11, 10):
        standins.in_flight = in_flight
        control.keep()
        rates.append(standins.load["events_per_second"])
        assert ("held back" in view.status(control)) == control.paused == (rates[-1] == 0)
    assert rates == [30, 30, 0, 0, 0, 30]
    assert (counted(control, "pause"), counted(control, "resume")) == (1, 1)
    standins.in_flight, standins.pending = 0, 101  # events that wait for an invalidator that does not run
    control.keep()
    assert control.paused
    control.rate(5)
    assert standins.load["events_per_second"] == 0
    standins.pending = 0
    control.keep()
    assert standins.load["events_per_second"] == 5


@pytest.mark.parametrize(
    ("planned", "strategy", "keys", "shown"),
    [
        (0.0, "scan", 0, "stopped"),
        (5.0, "scan", 0, "growing"),
        (5.0, "scan", 4200, "level"),
        (5.0, "another-search", 0, "growing"),
        (5.0, "index", 0, "cured"),
        (5.0, "ttl", 0, "stale"),
    ],
)
def test_phase_on_the_dashboards(
    growing: ServerControl, standins: StandIns, planned: float, strategy: str, keys: int, shown: str
) -> None:
    """The phase follows from what is wanted, and exactly one phase is exported as in force.

    The storefront says which strategies search, so that a new one is not taken for a cure. To delete nothing is none.
    """
    standins.searching.append("another-search")
    standins.warming["keys"] = keys
    growing.rate(planned)
    growing.switch(strategy)
    growing.keep()
    sample = growing.metrics.registry.get_sample_value
    told = {name: sample("lab_phase", {"server": "one", "phase": name}) for name in PHASES}
    assert growing.shown_phase == shown and [name for name, value in told.items() if value] == [shown]


def test_the_plan_is_told(growing: ServerControl) -> None:
    """The plan stands on the page as a sentence, and in a metric whose labels the dashboards' annotation shows."""
    said = view.server(growing)["plan"]
    assert "120,000 keys" in said and "100 ms" in said and "1 events a second" in said and "30%" in said
    assert counted(growing, "plan") == 1
    text = generate_latest(growing.metrics.registry).decode()
    (row,) = [line for line in text.splitlines() if line.startswith("lab_plan_timestamp_seconds{")]
    for label in ('events_per_second="1"', 'keys="120000"', 'search_seconds="0.1"', 'utilisation="0.30"'):
        assert label in row


def test_processor_time_is_a_rate(growing: ServerControl) -> None:
    """The cores that the server uses are the difference of its counters; a restart begins anew."""

    def counters(at: float, used: float) -> Snapshot:
        return Snapshot(
            at=at, keys=9, commands={}, main_thread_s=used, memory_mb=1.0, clients=1, run_id="", threads=2
        )

    for at, used in ((0.0, 1.0), (10.0, 4.0)):
        growing.record_counters(counters(at, used))
    assert gauge(growing, "lab_store_busy_cores") == pytest.approx(0.6)
    assert gauge(growing, "lab_store_threads") == 2
    for at, used in ((12.0, 0.0), (22.0, 1.0)):
        growing.record_counters(counters(at, used))
    assert gauge(growing, "lab_store_busy_cores") == pytest.approx(0.2)


def test_a_lever_that_finds_no_answer_is_pulled_again(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is out of order does not make the lever fail; it is asked again once it works."""
    standins.broken |= {"web", "locust"}
    said, parts = growing.switch("index")
    assert [part.done for part in parts] == [False] and "asked again" in said
    said, parts = growing.rate(12)
    assert [part.done for part in parts] == [False]
    growing.keep()
    assert growing.trouble
    standins.broken.clear()
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    growing.keep()
    assert standins.invalidation["strategy"] == "index" and standins.load["events_per_second"] == 12


def test_what_hangs_does_not_hold_up_a_lever(growing: ServerControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a restart Locust is told at once, although SHUTDOWN waits in the server's queue."""
    monkeypatch.setattr("console.levers.LEVER_S", 0.3)
    monkeypatch.setattr(growing.clients.server, "shutdown", lambda: time.sleep(3))
    began = time.monotonic()
    _, parts = growing.restart()
    assert time.monotonic() - began < 2.5
    assert {part.part: part.done for part in parts} == {"load": True, "server": False}


def test_switch_without_a_restart(new_control: NewControl, standins: StandIns) -> None:
    """A switch without a restart tells the storefront to finish what is under way, and is counted as its own action."""
    control = new_control()
    control.observe()
    control.switch("index", late=True)
    assert standins.invalidation["under_way"] == "finish"
    assert (counted(control, "strategy_late_index"), counted(control, "strategy_index")) == (1, 0)


def test_restarted_locust_is_told_again(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load generator that forgot its rates is told them again."""
    monkeypatch.setattr("console.server_control.REASSERT_S", 0.0)
    standins.load |= {"visits_per_second": 0.0, "events_per_second": 0.0}
    growing.keep()
    assert load(standins) == (20.0, 1.0, 200)


def test_rest(growing: ServerControl, standins: StandIns) -> None:
    """At rest there are no visits and no events."""
    standins.in_flight = growing.config.backlog_pause + 1
    growing.keep()
    growing.rest()
    assert load(standins)[:2] == (0, 0)
    assert not growing.paused and not growing.growing and gauge(growing, "lab_events_paused") == 0
    assert growing.shown_phase == "stopped"


def test_at_rest_a_load_from_elsewhere_may_set_the_strategy(
    growing: ServerControl, standins: StandIns
) -> None:
    """A scenario of Locust knows the storefront only. While the scene has a load, the page's own choice is kept."""
    standins.invalidation["strategy"] = "index"
    growing.keep()
    assert standins.invalidation["strategy"] == "scan"
    growing.rest()
    standins.invalidation["strategy"] = "index"
    growing.keep()
    assert standins.invalidation["strategy"] == "index"


@pytest.mark.parametrize(
    "phase", ["absent", "waiting", "queued", "calibrating", "emptying", "retrying", "leased"]
)
def test_actions_are_refused_while_not_free(new_control: NewControl, standins: StandIns, phase: str) -> None:
    """While the story begins or a run has the scene nothing is changed, and the refusal says why."""
    control = new_control()
    control.phase = phase
    actions: list[Callable[[], Any]] = [
        lambda: control.switch("index"), lambda: control.grow(True), lambda: control.rate(3), control.restart,
        lambda: control.count(5), lambda: control.go_over(True),
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(Refused, match=r"\w.*[.]$"):
            action()
    assert standins.told == []


def test_restart_is_told_until_the_server_is_back(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a restarted server is seen to have started anew, the status says so, and a second restart is refused.

    For twenty seconds more only a few customers come, so that p99 of the empty server is seen; then all come.
    """
    monkeypatch.setattr(growing.clients.server, "shutdown", lambda: None)
    growing.keep()
    growing.restart()
    assert view.status(growing) == "Restarting the server." and counted(growing, "restart") == 1
    with pytest.raises(Refused):
        growing.restart()
    growing.record_up(True, 1)  # the old process, which has not ended yet
    assert growing.restarting
    growing.record_up(False, 1)
    growing.record_up(True, 2)
    growing.keep()
    assert not growing.restarting and load(standins) == (20.0, 1.0, FEW)
    assert "twenty seconds" in view.status(growing)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 2 * WINDOW_S + 1)
    growing.keep()
    assert load(standins) == (20.0, 1.0, 200) and counted(growing, "growth_start") == 2


def test_a_server_that_does_not_end_keeps_its_customers(
    growing: ServerControl, standins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not end, the status says so, and all customers come as before."""

    def refuses() -> None:
        raise StackError("it may not.")

    monkeypatch.setattr(growing.clients.server, "shutdown", refuses)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    assert "it may not" in growing.restart()[0]
    growing.keep()
    assert load(standins) == (20.0, 1.0, 200)
    assert view.status(growing).startswith("it may not.")


def test_a_server_that_stays_away_is_told(new_control: NewControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status reports a server that does not come back until the next restart, not only for a moment."""
    control = new_control()
    monkeypatch.setattr(control.clients.server, "shutdown", lambda: None)
    monkeypatch.setattr("console.server_control.BACK_S", -1.0)
    control.restart()
    control.record_up(False, 1)
    for _ in range(2):
        control.keep()
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
    """While nobody has asked the console for a load or a strategy, it does not change what is set."""
    control = new_control()
    standins.invalidation["strategy"] = "hash"
    control.keep()
    assert standins.told == []


def test_calm_where_nothing_moves_and_nothing_is_wanted(new_control: NewControl, standins: StandIns) -> None:
    """A control is calm, and samples less often, while nothing moves; a new wish or a load ends the calm."""
    control = new_control()
    assert not control.calm  # no sample yet
    control.rest()
    control.keep()
    assert control.calm
    control.switch("index")
    assert not control.calm
    control.keep()
    assert control.calm
    control.rate(2.0)
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

"""The console on a whole scene of real processes: the story, every action, a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.servicekit import eventually, http
from tests.console.scenekit import NAME, ControlledScene

pytestmark = pytest.mark.whole

KEYS = 60_000


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledScene]:
    """One scene for all tests here. Each takes it as the test before left it, because a story has an order."""
    with ControlledScene(
        tmp_path_factory.mktemp("scene"),
        CONTROL_KEYS=str(KEYS),
        CONTROL_GROW_SECONDS="30",
        CONTROL_HEALTHY_SECONDS="5",
        CONTROL_SCAN_COUNTS=f"{NAME}=100000",
        CONTROL_SLOWLOG_THRESHOLD_US="500",
    ) as made:
        yield made


def test_story_is_told(scene: ControlledScene) -> None:
    """The story plays by itself: one search is timed and the load planned, the server is emptied, customers come."""
    scene.until(lambda state: state["phase"] == "calibrating")
    state = scene.until(lambda state: state["phase"] == "running" and state["keys"] < KEYS / 2, seconds=60)
    assert state["strategy"] == "scan" and state["growth"]
    assert state["events_per_second"] == state["calibrated_events_per_second"] > 0
    assert state["knee_keys"] == pytest.approx(KEYS / 0.3, rel=0.02)
    assert state["healthy_p99_ms"] > 0
    assert scene.metric("lab_healthy_p99_seconds") == pytest.approx(state["healthy_p99_ms"] / 1000)
    assert scene.metric("lab_store_up") == 1
    scene.until(lambda later: later["keys"] > state["keys"] + 5000 and later["p99_ms"])
    assert scene.metric("lab_actions_total", action="growth_start") == 1


def test_growth_is_stopped_and_started(scene: ControlledScene) -> None:
    """Growth stops about where it is, while visits and events go on, and goes on from there; both are counted."""
    before = scene.state()
    stopped = scene.act("growth", on=False).json["server"]
    assert not stopped["growth"] and stopped["visits_per_second"] == before["visits_per_second"] > 0
    scene.until(lambda state: state["keys"] < stopped["keys"] + 3000)
    assert scene.act("growth", on=True).json["server"]["growth"]
    scene.until(lambda state: state["keys"] > stopped["keys"] + 5000)
    assert scene.metric("lab_actions_total", action="growth_stop") == 1
    assert scene.metric("lab_actions_total", action="growth_start") == 2


def test_slow_scans_are_counted(scene: ControlledScene) -> None:
    """SCANs above the threshold appear as counters by command, with the time they took."""
    eventually(lambda: (scene.metric("lab_slowlog_entries_total", command="SCAN") or 0) > 3, seconds=30)
    entries = scene.metric("lab_slowlog_entries_total", command="SCAN") or 0
    seconds = scene.metric("lab_slowlog_duration_seconds_total", command="SCAN") or 0
    assert seconds >= 0.0005 * entries > 0


def test_restart_recovers(scene: ControlledScene) -> None:
    """A restart by SHUTDOWN ends the server; once it is back, keys grow again from few without help."""
    scene.until(lambda state: state["keys"] > 20_000, seconds=40)
    before = scene.server.restarts
    assert scene.act("restart").json["said"] == "Restarting the server."
    eventually(lambda: scene.server.restarts == before + 1)
    low = scene.until(lambda state: state["up"] and not state["restarting"] and state["keys"] < 20_000)
    assert low["growth"]
    scene.until(lambda state: state["keys"] > low["keys"] + 2000)
    assert scene.metric("lab_actions_total", action="restart") == 1
    assert scene.metric("lab_store_up") == 1
    # the restarted server has the lab's threshold again, and its entries are counted
    assert scene.server.process.client().config_get("slowlog-log-slower-than") == {
        "slowlog-log-slower-than": "500"
    }
    counted = scene.metric("lab_slowlog_entries_total", command="SCAN") or 0
    eventually(lambda: (scene.metric("lab_slowlog_entries_total", command="SCAN") or 0) > counted, seconds=40)


def test_rate_is_changed(scene: ControlledScene) -> None:
    """A rate reaches Locust; null brings the planned one back."""
    scene.until(lambda state: state["events_finished_per_second"] is not None)
    assert scene.act("rate", events_per_second=3).status == 200
    assert http("GET", f"http://127.0.0.1:{scene.locust_port}/load").json["events_per_second"] == 3
    scene.until(
        lambda state: state["events_per_second"] == 3 and 1.5 < state["events_finished_per_second"] < 4.5
    )
    scene.act("rate", events_per_second=None)
    state = scene.state()
    assert state["events_per_second"] == state["calibrated_events_per_second"]
    assert scene.metric("lab_actions_total", action="rate") == 2


def test_strategy_is_switched(scene: ControlledScene) -> None:
    """Under index the events go on, and the slow log falls silent."""
    assert scene.act("strategy", strategy="index").json["server"]["strategy"] == "index"

    def silent() -> bool:
        before = scene.metric("lab_slowlog_entries_total", command="SCAN")
        eventually(lambda: scene.state(), seconds=5)
        state = scene.state()
        done = state["events_finished_per_second"]
        return scene.metric("lab_slowlog_entries_total", command="SCAN") == before and done > 0.5

    eventually(silent, seconds=30, every=3)
    assert scene.metric("lab_actions_total", action="strategy_index") == 1


def test_everything_stops_and_begins_again(scene: ControlledScene) -> None:
    """A stop ends visits and events; a start gives a fresh scene, with the plan already made."""
    http("POST", f"{scene.base}/api/stop", {})
    scene.until(lambda state: state["events_per_second"] == 0 and not state["growth"])
    load = http("GET", f"http://127.0.0.1:{scene.locust_port}/load").json
    assert (load["visits_per_second"], load["events_per_second"]) == (0, 0)
    assert http("POST", f"{scene.base}/api/start", {}).status == 200
    scene.until(lambda state: state["phase"] == "healthy" and state["keys"] < 2000, 30)
    assert scene.act("strategy", strategy="index").status == 409
    scene.until(
        lambda state: state["phase"] == "running" and state["growth"] and state["strategy"] == "scan", 60
    )
    assert scene.metric("lab_actions_total", action="story") == 2


def test_restarted_processes_are_found_again(scene: ControlledScene) -> None:
    """A load generator that was restarted gets its rate back without help."""
    from tests.app.servicekit import end

    end(scene.processes.pop("locust"))
    scene.until(lambda state: "Locust" in state["status"] or "Trouble" in state["status"])
    scene.launch_locust()
    wanted = scene.state()["events_per_second"]

    def locust_has_the_rate() -> bool:
        try:
            load = http("GET", f"http://127.0.0.1:{scene.locust_port}/load").json
        except OSError:
            return False
        return bool(load["events_per_second"] == wanted > 0)

    eventually(locust_has_the_rate, seconds=40)


def test_ends_at_once(scene: ControlledScene, tmp_path: Path) -> None:
    """SIGTERM ends the console with exit code 0, and its log has no traceback."""
    import signal

    control = scene.processes.pop("control")
    control.send_signal(signal.SIGTERM)
    assert control.wait(10) == 0
    log = (scene.folder / "control.log").read_text()
    assert NAME and "Traceback" not in log, log

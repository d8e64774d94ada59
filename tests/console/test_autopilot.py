"""The autopilot's story, on stand-ins whose events scan a real server."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from console import view
from console.autopilot import AllAutopilots, Autopilot
from console.metrics import ControlMetrics
from tests.app.servicekit import ServerProcess, eventually
from tests.console.standins import StandIns

KEYS = 20_000


class Scanner(threading.Thread):
    """Plays the invalidator: scans the server at the rate that Locust was told, and counts events."""

    def __init__(self, standins: StandIns, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._standins, self._client = standins, server.client()
        self.over = threading.Event()

    def run(self) -> None:
        """Scan until `over` is set."""
        while not self.over.wait(0.02):
            rate = self._standins.load["events_per_second"]
            if rate > 0:
                self._standins.in_flight = 1.0
                for _ in range(3):
                    self._client.execute_command("SCAN", 0, "MATCH", "x:*", "COUNT", 10 * KEYS)
                self._standins.finished += 1
                for bound in self._standins.probe:  # every answer within a millisecond
                    self._standins.probe[bound] += 1
                self._standins.in_flight = 0.0
                self.over.wait(1 / rate)


@pytest.fixture
def filled(own_server: ServerProcess, standins: StandIns) -> Iterator[ServerProcess]:
    """A real server with `KEYS` keys, and a scanner on it."""
    client = own_server.client()
    for start in range(0, KEYS, 1000):
        client.mset({f"shop:1:{number}:page-0": "x" for number in range(start, start + 1000)})
    scanner = Scanner(standins, own_server)
    scanner.start()
    yield own_server
    scanner.over.set()
    scanner.join(5)


@pytest.fixture
def new_autopilot(standins: StandIns) -> Iterator[Callable[..., Autopilot]]:
    """Return a function that makes an autopilot with a short story and starts it."""
    made: list[Autopilot] = []

    def make(url: str, all_autopilots: AllAutopilots | None = None, **settings: Any) -> Autopilot:
        short = {
            "story": "on",
            "keys": 4000,
            "knee_keys": KEYS,
            "calibration_seconds": 1,
            "healthy_seconds": 1,
        }
        config = standins.config(url, **{**short, **settings})
        all_autopilots = all_autopilots or AllAutopilots()
        autopilot = Autopilot(config.servers[0], config, ControlMetrics(["one"]), all_autopilots)
        all_autopilots.add([autopilot])
        made.append(autopilot)
        autopilot.start()
        return autopilot

    yield make
    for autopilot in made:
        autopilot.end()


def test_story(new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns) -> None:
    """The autopilot calibrates by what scans cost on a real server, empties it, and lets keys grow under scan at the
    rate for the wanted knee.
    """
    standins.invalidation["strategy"] = "index"
    control = new_autopilot(filled.url).control
    eventually(lambda: control.phase == "running" and control.growing and control.asked > 0, seconds=40)
    tuning = control.tuning
    assert tuning is not None and 1e-9 < tuning.cost_s < 1e-4 and 0 <= tuning.base_share < 1
    assert control.knee_keys() == pytest.approx(KEYS, rel=0.05)  # the rate is rounded to two digits
    assert filled.client().dbsize() == 0
    assert standins.invalidation == {"strategy": "scan", "scan_count": control.config.scan_count}
    eventually(lambda: standins.fills()[-1]["target_keys"] == 4000)
    sample = control.metrics.registry.get_sample_value
    assert sample("lab_calibrated_cost_seconds", {"server": "one"}) == tuning.cost_s
    for action in ("story", "strategy_scan", "growth_start", "rate"):
        assert sample("lab_actions_total", {"server": "one", "action": action}) == 1


def test_story_waits_for_its_turn(
    new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns
) -> None:
    """While another server calibrates, the autopilot changes nothing; then its story begins."""
    all_autopilots = AllAutopilots()
    all_autopilots.turn.acquire()
    control = new_autopilot(filled.url, all_autopilots=all_autopilots).control
    eventually(lambda: control.phase == "queued")
    time.sleep(0.3)
    assert standins.load["events_per_second"] == 0 and "turn" in view.status(control)
    all_autopilots.turn.release()
    eventually(lambda: control.phase == "calibrating")


def test_story_that_fails_is_tried_again(
    new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns
) -> None:
    """If a process fails during the story, the status names it; once it is back, the story is played."""
    autopilot = new_autopilot(filled.url)
    control = autopilot.control
    eventually(lambda: control.phase == "calibrating")
    standins.broken.add("locust")
    eventually(lambda: control.phase == "retrying" and "Locust" in view.status(control))
    standins.broken.clear()
    eventually(lambda: control.phase == "running" and control.growing, seconds=40)


def test_story_broken_off(
    new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns
) -> None:
    """A story stopped in the middle of calibration leaves everything at rest, until it is begun again."""
    autopilot = new_autopilot(filled.url, calibration_seconds=30)
    control = autopilot.control
    eventually(lambda: standins.load["events_per_second"] > 0, seconds=30)
    autopilot.halt()
    eventually(lambda: control.free and standins.load["events_per_second"] == 0)
    time.sleep(1.5)
    assert control.free and standins.load == {**standins.load, "reads_per_second": 0, "events_per_second": 0}
    autopilot.begin()
    eventually(lambda: control.phase == "calibrating")


def test_lease_interrupts_the_story(
    new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns
) -> None:
    """A run that leases the scene during the story finds it at rest; afterwards the story starts from its beginning."""
    autopilot = new_autopilot(filled.url, calibration_seconds=30)
    control = autopilot.control
    eventually(lambda: standins.load["events_per_second"] > 0, seconds=30)
    autopilot.lease(60)
    autopilot.await_hands_off(10)
    assert standins.load["events_per_second"] == 0 and control.phase == "leased"
    told = len(standins.told)
    time.sleep(1.2)
    assert len(standins.told) == told
    autopilot.resume()
    eventually(lambda: control.phase == "calibrating")


def test_no_story(new_autopilot: Callable[..., Autopilot], filled: ServerProcess, standins: StandIns) -> None:
    """With the story off the autopilot changes nothing in the scene."""
    control = new_autopilot(filled.url, story="off").control
    eventually(lambda: control.free and control.up)
    time.sleep(1.2)
    assert standins.told == [] and filled.client().dbsize() == KEYS

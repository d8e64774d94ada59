"""The story, on stand-ins around a real server."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from console import view
from console.metrics import ControlMetrics
from console.plan import MOST_EVENTS
from console.story import AllStories, Story
from tests.app.servicekit import ServerProcess, eventually
from tests.console.standins import StandIns

pytestmark = pytest.mark.whole

KEYS = 20_000


class Customers(threading.Thread):
    """Plays Locust and the probe: counts answers within a millisecond while visits are asked for."""

    def __init__(self, standins: StandIns) -> None:
        super().__init__(daemon=True)
        self._standins = standins
        self.over = threading.Event()

    def run(self) -> None:
        """Count until `over` is set."""
        while not self.over.wait(0.05):
            if self._standins.load["visits_per_second"] > 0:
                for bound in self._standins.probe:
                    self._standins.probe[bound] += 1


@pytest.fixture
def filled(own_server: ServerProcess, standins: StandIns) -> Iterator[ServerProcess]:
    """A real server with `KEYS` keys, and customers who come when they are asked for."""
    client = own_server.client()
    for start in range(0, KEYS, 1000):
        client.mset({f"shop:1:{number}:page-0": "x" for number in range(start, start + 1000)})
    customers = Customers(standins)
    customers.start()
    yield own_server
    customers.over.set()
    customers.join(5)


@pytest.fixture
def new_story(standins: StandIns) -> Iterator[Callable[..., Story]]:
    """Return a function that makes an story with a short story and starts it."""
    made: list[Story] = []

    def make(url: str, everybody: AllStories | None = None, **settings: Any) -> Story:
        short = {
            "story": "on",
            "keys": KEYS,
            "healthy_seconds": 1,
        }
        config = standins.config(url, **{**short, **settings})
        everybody = everybody or AllStories()
        story = Story(config.servers[0], config, ControlMetrics(["one"]), everybody)
        everybody.add([story])
        made.append(story)
        story.start()
        return story

    yield make
    for story in made:
        story.end()


def test_story(new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns) -> None:
    """The story times a search on a real server, plans the load from it, empties it, and lets customers come."""
    standins.invalidation["strategy"] = "index"
    control = new_story(filled.url).control
    eventually(lambda: control.phase == "running" and control.growing and control.requested > 0, seconds=40)
    plan = control.plan
    assert plan is not None and plan.keys == KEYS and 1e-9 < plan.cost_s < 1e-4
    assert 3 * plan.search_s * plan.events_per_second == pytest.approx(0.3, rel=0.01) or (
        plan.events_per_second == MOST_EVENTS
    )
    assert filled.client().dbsize() == 0
    assert standins.invalidation == {"strategy": "scan", "scan_count": control.scan_count}
    eventually(lambda: standins.load["users_population"] == control.config.customers)
    assert standins.load["events_per_second"] == plan.events_per_second
    sample = control.metrics.registry.get_sample_value
    assert sample("lab_calibrated_cost_seconds", {"server": "one"}) == plan.cost_s
    for action in ("story", "plan", "growth_start"):
        assert sample("lab_actions_total", {"server": "one", "action": action}) == 1


def test_story_waits_for_its_turn(
    new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns
) -> None:
    """While another server calibrates, the story changes nothing; then its story begins."""
    everybody = AllStories()
    everybody.turn.acquire()
    control = new_story(filled.url, everybody=everybody).control
    eventually(lambda: control.phase == "queued")
    time.sleep(0.3)
    assert standins.load["events_per_second"] == 0 and "turn" in view.status(control)
    everybody.turn.release()
    eventually(lambda: control.phase == "calibrating")


@pytest.mark.whole
def test_story_that_fails_is_tried_again(
    new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns
) -> None:
    """If a process fails during the story, the status names it; once it is back, the story is played."""
    story = new_story(filled.url)
    control = story.control
    eventually(lambda: control.phase == "calibrating")
    standins.broken.add("locust")
    eventually(lambda: control.phase == "retrying" and "Locust" in view.status(control))
    standins.broken.clear()
    eventually(lambda: control.phase == "running" and control.growing, seconds=40)


def test_story_broken_off(new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns) -> None:
    """A story stopped in the middle leaves everything at rest, until it is begun again."""
    story = new_story(filled.url, healthy_seconds=30)
    control = story.control
    eventually(lambda: standins.load["events_per_second"] > 0, seconds=30)
    story.halt()
    eventually(lambda: control.free and standins.load["events_per_second"] == 0)
    time.sleep(1.5)
    assert control.free and standins.load == {**standins.load, "visits_per_second": 0, "events_per_second": 0}
    story.begin()
    eventually(lambda: control.phase == "healthy")


def test_lease_interrupts_the_story(
    new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns
) -> None:
    """A run that leases the scene during the story finds it at rest; afterwards the story starts from its beginning."""
    story = new_story(filled.url, healthy_seconds=30)
    control = story.control
    eventually(lambda: standins.load["events_per_second"] > 0, seconds=30)
    story.lease(60)
    story.await_hands_off(10)
    assert standins.load["events_per_second"] == 0 and control.phase == "leased"
    told = len(standins.told)
    time.sleep(1.2)
    assert len(standins.told) == told
    story.resume()
    eventually(lambda: control.phase == "healthy")


def test_a_server_that_a_run_used_is_restarted(
    new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns
) -> None:
    """When the lease of a killed run is over, the server that it used is shut down, and nobody else's is."""
    story = new_story(filled.url, story="off")
    eventually(lambda: story.control.free)
    story.lease(2.0)
    story.await_hands_off(10)
    eventually(lambda: story.control.free)
    assert filled.client().ping()
    story.lease(2.0, lent=True)
    story.await_hands_off(10)

    def gone() -> bool:
        try:
            return not filled.client().ping()
        except redis.RedisError:
            return True

    eventually(gone)


def test_no_story(new_story: Callable[..., Story], filled: ServerProcess, standins: StandIns) -> None:
    """With the story off the story changes nothing in the scene."""
    control = new_story(filled.url, story="off").control
    eventually(lambda: control.free and control.up)
    time.sleep(1.2)
    assert standins.told == [] and filled.client().dbsize() == KEYS

"""A link and a storefront that stall now and then; the longest of many waits shows it."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from lab.blind import diagnostics, faulty_pool, routes
from lab.blind.faulty_pool import Housekeeping
from lab.blind.readings import compute_readings
from lab.blind.routes import WaitSampler
from lab.server.server_stats import ServerObserver
from loadtest.incidents.delay import Delay, relay
from loadtest.resp import Server as Address
from tests.app.servicekit import eventually
from tests.lab.blind.conftest import HEALTHY
from tests.lab.blind.test_checking import sample
from tests.loadtest.conftest import Server


def test_a_link_that_stands_still_keeps_the_order_and_loses_nothing() -> None:
    """Bytes that come during a stall are due at its end; bytes that come at other times are due after the delay."""
    delay = Delay(0.01, stall_s=0.3, every_s=2.0)
    arrivals = [tenth / 10 for tenth in range(100)]
    due = [delay.due(at) for at in arrivals]
    assert due == sorted(due)
    late = [(at, round(then - at, 6)) for at, then in zip(arrivals, due, strict=True) if then - at > 0.011]
    assert {round(at % 2.0, 6) for at, _ in late} == {1.7, 1.8, 1.9}
    assert max(wait for _, wait in late) == pytest.approx(0.3, abs=0.011)
    assert all(Delay(0.01).due(at) == at + 0.01 for at in arrivals)


def test_many_waits_show_a_link_that_stands_still(server: Server) -> None:
    """The longest wait through the link is a stall's; the median is as short as past it, and so is all past it."""
    address = Address.from_url(server.url)
    port = relay(address, Delay(0.0, stall_s=0.3, every_s=1.0))
    waits = WaitSampler(
        {"link": routes.client(f"redis://127.0.0.1:{port}").ping, "server": routes.client(server.url).ping}
    )
    time.sleep(2.5)
    waits.close()
    taken = waits.take()
    assert taken["link"][-1] >= 100 > taken["link"][len(taken["link"]) // 2]
    assert taken["link"][-1] >= 3 * taken["server"][-1]
    assert waits.take() == {"link": [], "server": []}


def test_a_way_on_which_nobody_listens_any_more_ends_no_thread() -> None:
    """Questions without an answer count for nothing, and when somebody listens again the waits go on."""
    answers = [redis.ConnectionError, None, None]

    def ask() -> None:
        if answers and (error := answers.pop(0)):
            raise error

    waits = WaitSampler({"link": ask})
    eventually(lambda: len(waits.take()["link"]) >= 1)
    waits.close()


def test_one_long_wait_in_many_samples_is_the_machines_doing() -> None:
    """The longest wait of a stretch is the median of its samples' longest waits: a stall shows in all of them."""
    calm, once, again = (sample(tick, link_most_ms=most) for tick, most in ((1, 5.0), (2, 300.0), (3, 6.0)))
    of = compute_readings(sample(0), [calm, once, again], HEALTHY, 2)
    assert of.link_most_ms == 6.0
    stalls = [sample(tick, link_most_ms=300.0 + tick) for tick in (1, 2, 3)]
    assert compute_readings(sample(0), stalls, HEALTHY, 2).link_most_ms == 302.0


def test_a_look_tells_the_longest_waits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`look waits` has a row for each way, with the number of questions, the median and the longest wait."""
    monkeypatch.setattr(diagnostics, "WINDOW_S", 1.0)
    web = SimpleNamespace(ready=lambda _: time.sleep(0.2))
    scene: Any = SimpleNamespace(server=ServerObserver(server.url), link_url=lambda: server.url, web=web)
    heading, names, *rows = diagnostics.raw_reading("waits", scene, str).splitlines()
    assert heading.startswith("requests one after the other for 1 s") and names.split()[-2:] == ["most", "ms"]
    assert len(rows) == 3
    assert float(rows[-1].split()[-1]) >= 200 and rows[-1].startswith(
        "a page of the storefront that needs no cache"
    )
    assert float(rows[0].split()[-1]) < 200


def test_nothing_runs_while_the_housekeeping_computes() -> None:
    """While the housekeeping adds up, no other thread of the process runs; without an order it does nothing."""
    moments: list[float] = []
    ended = threading.Event()

    def note() -> None:
        while not ended.wait(0.005):
            moments.append(time.monotonic())

    threading.Thread(target=note, daemon=True).start()
    work = Housekeeping()
    time.sleep(0.3)
    idle = max(after - before for before, after in pairwise(moments))
    began = len(moments)
    work.follow({"size": 0, "hold_s": 0.0, "wait_s": 0.0, "sum_s": 0.4, "every_s": 0.2})
    eventually(lambda: len([gap for gap in gaps(moments[began:]) if gap >= 0.2]) >= 2)
    work.follow({"size": 0, "hold_s": 0.0, "wait_s": 0.0})
    time.sleep(0.6)
    began = len(moments)
    time.sleep(0.8)
    ended.set()
    assert max(gaps(moments[began:])) < 0.2 and idle < 0.2


def gaps(moments: list[float]) -> list[float]:
    """Return the times from each moment to the next."""
    return [after - before for before, after in pairwise(moments)]


def test_the_pool_passes_orders_to_the_housekeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """One order is for the pool and for the housekeeping."""
    monkeypatch.setattr(faulty_pool, "Inbox", lambda on_order: None)
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(faulty_pool, "Housekeeping", lambda: SimpleNamespace(follow=heard.append))
    pool = faulty_pool.FaultyPool(connection_class=object)
    order = {"size": 0, "hold_s": 0.0, "wait_s": 0.0, "sum_s": 0.1, "every_s": 1.0}
    pool._follow(order)
    assert heard == [order]

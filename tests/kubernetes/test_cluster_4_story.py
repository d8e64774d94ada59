"""The story on Kubernetes, from calm to cure, beside another group and a neighbour that takes all it can get."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bench.scene import ILL, cured, times
from tests.compose.stack import until
from tests.compose.stalls import Stalls
from tests.kubernetes.groups import ONE, TWO, VALUES
from tests.kubernetes.kube import Kube
from tests.kubernetes.neighbour import neighbour

INCIDENT_S = 420
CURED_S = 15.0
DROWNED_S = 150
"""Longer than the two minutes after which a liveness probe gives a process up."""
KEPT_SHARE = 0.6
STORY = ("--set", "story.enabled=true", "--set", "resources.server.cpu=900")


@pytest.fixture(scope="module")
def story(releases: Kube) -> Kube:
    """The first group's release with its story on, and a whole core less a tenth for its server."""
    releases.helm("upgrade", ONE, *VALUES[ONE], *STORY)
    releases.wait_ready(ONE)
    return releases


def row(story: Kube) -> dict[str, Any]:
    """The console's figures of the server."""
    found: dict[str, Any] = story.json(ONE, "control", 8080, "/api/state")["servers"][0]
    return found


def act(story: Kube, action: str, body: dict[str, Any]) -> None:
    """Pull a lever; every part must do it."""
    told = story.json(ONE, "control", 8080, f"/api/servers/redis/{action}", body)
    assert all(part["done"] for part in told["parts"]), told


def restarts(story: Kube) -> dict[str, int]:
    """How often each container of the group's server and storefront was started again."""
    pods = [story.pod(ONE, name) for name in ("redis", "storefront-redis")]
    return {
        f"{each['name']} of {pod['metadata']['uid']}": each["restartCount"]
        for pod in pods
        for each in pod["status"]["containerStatuses"]
    }


@pytest.fixture(scope="module")
def edge(story: Kube) -> dict[str, int]:
    """The incident has come by itself, and is held; yields the restarts until then."""
    before = restarts(story)
    until(
        lambda: row(story)["shown_phase"] == "held" and (times(row(story)) or 0) >= ILL,
        "held at the edge, p99 ten times the healthy one",
        INCIDENT_S,
        every=2,
    )
    return before


def test_the_incident_comes_by_itself(story: Kube, edge: dict[str, int]) -> None:
    """Keys grow, p99 climbs to ten times the healthy one, and the kubelet starts nothing anew on the way."""
    print(f"{times(row(story)):.0f} times the healthy p99 at {row(story)['keys']:,} keys")
    assert restarts(story) == edge


def cure(story: Kube) -> float:
    """Switch to the index; return the seconds until the incident is gone, less those that stalls spoiled."""
    before = times(row(story)) or ILL
    with Stalls() as stalls:
        began = time.monotonic()
        act(story, "strategy", {"strategy": "index"})
        until(lambda: cured(row(story), before), "cured", 60)
        took = time.monotonic() - began
    undisturbed = stalls.undisturbed(began, took)
    print(
        f"cured after {took:.1f} s, {undisturbed:.1f} s of them undisturbed by {len(stalls.at)} stalls of the machine"
    )
    return undisturbed


def test_the_fix_cures_in_time(story: Kube, edge: dict[str, int]) -> None:
    """The switch to the index ends the incident within 15 s."""
    assert cure(story) <= CURED_S


def test_a_drowned_server_is_not_cured_by_the_kubelet(story: Kube, edge: dict[str, int]) -> None:
    """Over the edge for longer than any liveness probe waits, nothing is started anew; then the fix works."""
    act(story, "strategy", {"strategy": "scan"})
    act(story, "rate", {"events_per_second": 10 * row(story)["calibrated_events_per_second"]})
    act(story, "over", {"on": True})
    until(lambda: (row(story)["events_in_flight"] or 0) > 200, "hundreds of events in flight", 150)
    end = time.monotonic() + DROWNED_S
    seen = []
    while time.monotonic() < end:
        seen.append(times(row(story)) or 0.0)
        time.sleep(2)
    ill = sum(one >= ILL for one in seen) / len(seen)
    print(f"ill in {ill:.0%} of the samples")
    assert restarts(story) == edge
    act(story, "rate", {"events_per_second": None})
    assert cure(story) <= CURED_S


def pings_per_second(kube: Kube) -> float:
    """What the second group's server gets done with its share of the processor."""
    words = ["redis-benchmark", "-q", "-n", "20000", "-c", "1", "-t", "ping_mbulk", "--csv"]
    said = kube.inside(TWO, "statefulset/valkey", "valkey", *words, seconds=180)
    line = next(line for line in said.splitlines() if line.startswith('"PING'))
    return float(line.split(",")[1].strip('"'))


def test_a_neighbour_takes_only_what_is_left(story: Kube) -> None:
    """Beside a pod that would take both cores, a Guaranteed server keeps the share that it was promised."""
    alone = pings_per_second(story)
    with neighbour(story):
        beside = pings_per_second(story)
    print(f"{alone:,.0f} pings a second alone, {beside:,.0f} beside the neighbour")
    assert beside >= KEPT_SHARE * alone

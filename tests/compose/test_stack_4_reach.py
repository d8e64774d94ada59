"""An engine whose containers' addresses cannot be reached from the host, as with Docker Desktop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lab import ROOT
from tests.compose.stack import Stack

PROGRAM = """
import json, time, urllib.request
from lab.stacks.containers import find_containers
from lab.stacks.server_stats import ServerObserver

scene = find_containers("redis")
server = scene.of("server")
web, invalidator, elsewhere = scene.address("web"), scene.address("invalidator"), scene.address("web", "dragonfly")
places = [scene.server_url(server), web, invalidator, elsewhere]
observer = ServerObserver(places[0])
observer.wait(30, lambda: None)
statuses = [urllib.request.urlopen(place + "/metrics").status for place in places[1:]]
observer.close()
scene.docker.ask("restart", "-t", "5", server.id)
[again] = scene.docker.inspect(server.id)
end = time.monotonic() + 30
while not again.reachable(6379) and time.monotonic() < end:  # it has started, and may not listen yet
    time.sleep(0.1)
observer = ServerObserver(scene.server_url(again))
observer.wait(30, lambda: None)
print(json.dumps({"places": places, "again": observer.url, "statuses": statuses, "own": server.addresses}))
"""


def ask(stack: Stack, **environ: str) -> dict[str, Any]:
    """Run PROGRAM in a process of its own and return the addresses that the lab found."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**stack.environ, **environ},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_lab_finds_a_way_by_itself(stack: Stack) -> None:
    """The lab uses the containers' addresses if they answer, else ports on 127.0.0.1 only, also after a restart."""
    direct = ask(stack)
    [address] = direct["own"]
    assert all(address.rpartition(".")[0] in place for place in [*direct["places"], direct["again"]])
    started = stack.inspect("redis")["Id"]

    elsewhere = os.pathsep.join([str(ROOT / "tests" / "elsewhere"), str(ROOT)])
    found = ask(stack, PYTHONPATH=elsewhere, ELSEWHERE_UNREACHABLE=address.partition(".")[0] + ".")

    assert all("//127.0.0.1:" in place for place in [*found["places"], found["again"]]), found
    assert found["statuses"] == [200, 200, 200]
    assert stack.inspect("redis")["Id"] != started
    for service in ("redis", "web-redis", "invalidator-redis", "web-dragonfly"):
        ways = [
            way for ways in stack.inspect(service)["NetworkSettings"]["Ports"].values() for way in ways or ()
        ]
        assert {way["HostIp"] for way in ways} == {"127.0.0.1"}

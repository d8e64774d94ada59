"""Load from several machines: a Locust master, its workers and a probe, with 10 ms between any two of them.

Each machine is a network namespace; pairs of virtual Ethernet devices join it to this one, which stands for the
network. What passes from one machine to another goes through a relay here (`loadtest.incidents.delay`), which adds the
round-trip time: netem, which could do it, is not in every kernel. Needs Linux, root and `ip` (iproute2).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.app.servicekit import eventually
from tests.loadtest.conftest import PATIENCE, ROOT, locust
from tests.loadtest.respkit import RespStandIn, ahead

RTT_MS = 10
EVENTS, READS = 30.0, 60.0
WITHIN = 0.02
"""What may be missing or too much of the schedule, while a worker is lost and another one joins."""
MASTER_PORT, WEB_PORT = 5557, 8089

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"),
    reason="network namespaces need Linux, root, and the command ip (Debian: iproute2)",
)


def ip(*words: str) -> None:
    """Give `ip` a command. Raises `subprocess.CalledProcessError` with its complaint."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Machine:
    """A network namespace. `address` is its own, `gateway` the other end of its wire, which is in this namespace."""

    name: str
    address: str
    gateway: str

    @property
    def within(self) -> list[str]:
        """Words before a command that is to run on this machine."""
        return ["ip", "netns", "exec", self.name]


class Network:
    """Machines, and relays between them. Its addresses are from the range for tests of networks (RFC 2544)."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self._processes: list[subprocess.Popen[str]] = []

    def machine(self) -> Machine:
        """Make a machine, and lay a wire to it."""
        number, own = len(self.machines), os.getpid() % 500
        name, wire = f"lab-{os.getpid()}-{number}", f"lab{os.getpid() % 100_000}-{number}"
        gateway, address = (f"198.{18 + own // 250}.{own % 250}.{4 * number + host}" for host in (1, 2))
        ip("netns", "add", name)
        self.machines.append(Machine(name, address, gateway))
        ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{gateway}/30", "dev", wire)
        ip("link", "set", wire, "up")
        ip("-n", name, "address", "add", f"{address}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")
        ip("-n", name, "route", "add", "default", "via", gateway)
        return self.machines[-1]

    def way(self, machine: Machine, host: str, port: int) -> int:
        """A way from a machine to that address: a port of the machine's gateway, `RTT_MS` away."""
        words = ["--url", f"redis://{host}:{port}", "--rtt-ms", str(RTT_MS), "--listen", machine.gateway]
        relay = self.add(
            subprocess.Popen(
                [sys.executable, "-m", "loadtest.incidents.delay", *words],
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
            )
        )
        assert relay.stdout
        found: int = json.loads(relay.stdout.readline())["port"]
        return found

    def add(self, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        """End this process with the network."""
        self._processes.append(process)
        return process

    def close(self) -> list[str]:
        """End all processes, the last one first, and remove the machines. Returns what the processes printed."""
        said = []
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                said.append(process.communicate(timeout=PATIENCE)[0] or "")
            finally:
                process.kill()
        for machine in self.machines:
            ip("netns", "delete", machine.name)  # its end of the wire goes with it, and so the whole wire
        return said


@pytest.fixture
def network() -> Iterator[Network]:
    """A network with one machine; no process on it may print a traceback. Skips where none can be made."""
    network = Network()
    try:
        network.machine()
    except subprocess.CalledProcessError as error:
        for left in network.machines:
            ip("netns", "delete", left.name)
        pytest.skip(f"no network namespace with a wire can be made here: {error.stderr.strip()}")
    yield network
    said = network.close()
    assert not [text for text in said if "Traceback" in text], said


def inside(moments: list[tuple[float, str]], begun: float, ended: float) -> int:
    """How many requests came in that time."""
    return sum(begun <= at < ended for at, _ in moments)


@pytest.mark.whole
def test_the_schedule_is_kept_while_a_worker_is_lost_and_another_joins(
    storefront: Any, network: Network
) -> None:
    """Over 18 s in which one of two workers is killed and another joins, events and reads keep to 2 % of the schedule.

    Then the last of the first two is killed: the one that joined carries the whole load.

    It fails if the master notices a lost worker only by Locust's heartbeats (a tenth is missing), if the turns that the
    lost worker did not give are not made good (3 %), or if the worker that joins gives the turns of others, or none.
    """
    hub, *others = network.machines[0], *(network.machine() for _ in range(3))
    shop = network.way(hub, "127.0.0.1", storefront.port)
    master = network.way(hub, hub.address, MASTER_PORT)
    network.add(
        locust(
            "--master", "--master-bind-host", hub.address, "--expect-workers", "2", "--autostart",
            "--web-host", hub.address, "--web-port", str(WEB_PORT), "--host", f"http://{hub.gateway}:{shop}",
            within=hub.within,
            LOADTEST_EVENTS_PER_SECOND=str(EVENTS), LOADTEST_READS_PER_SECOND=str(READS),
        )
    )  # fmt: skip

    def worker(machine: Machine) -> subprocess.Popen[str]:
        return network.add(
            locust(
                "--worker", "--master-host", hub.gateway, "--master-port", str(master), within=machine.within
            )
        )

    def running() -> list[dict[str, Any]]:
        with urllib.request.urlopen(
            f"http://{hub.address}:{WEB_PORT}/stats/requests", timeout=PATIENCE
        ) as answer:
            found = json.loads(answer.read())["workers"]
        return [each for each in found if each["state"] == "running" and each["user_count"]]

    first, second = worker(others[0]), worker(others[1])
    eventually(lambda: len(storefront.events) > 2 and len(running()) == 2, 2 * PATIENCE)
    time.sleep(4.0)  # Locust starts 50 users a second, all 150 in three seconds

    begun = time.monotonic()
    time.sleep(3.0)
    first.kill()
    time.sleep(6.0)
    worker(others[2])
    time.sleep(9.0)
    ended = time.monotonic()
    assert len(running()) == 2
    whole = ended - begun
    for moments, rate in ((storefront.events, EVENTS), (storefront.reads, READS)):
        assert inside(list(moments), begun, ended) == pytest.approx(rate * whole, rel=WITHIN), rate

    second.kill()

    def carried() -> bool:
        begun = time.monotonic()
        time.sleep(2.0)
        return all(
            inside(list(moments), begun, begun + 2.0) == pytest.approx(2 * rate, rel=0.2)
            for moments, rate in ((storefront.events, EVENTS), (storefront.reads, READS))
        )

    eventually(carried, PATIENCE)


@pytest.mark.parametrize("seconds", [2.5, -40.0])
def test_a_probe_on_another_machine_is_told_of_the_servers_clock(network: Network, seconds: float) -> None:
    """A probe 10 ms away from a server whose clock is wrong says by how much, and is no surer than half the way.

    It fails if the way is taken for a difference of the clocks, or if the probe says that it is surer than it can be.
    """
    (machine,) = network.machines
    with RespStandIn(ahead(seconds)) as server:
        port = network.way(machine, "127.0.0.1", server.port)
        words = ["probe", f"redis://{machine.gateway}:{port}", "--seconds", "1"]
        shown, told = (
            subprocess.run(
                [*machine.within, sys.executable, "-m", "lab", *words, *more],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            for more in ([], ["--json"])
        )
    assert (shown.returncode, told.returncode) == (0, 0), shown.stderr + told.stderr
    side = "ahead of" if seconds > 0 else "behind"
    assert f" {side} this machine's, ± " in shown.stdout.splitlines()[1]
    clock = json.loads(told.stdout)["clock"]
    assert RTT_MS / 2 <= clock["within_ms"] < 10 * RTT_MS
    assert abs(clock["ahead_ms"] - seconds * 1000) <= clock["within_ms"]
    assert json.loads(told.stdout)["total"]["p50"] >= RTT_MS


def test_machines_reach_each_other_by_the_relays_only(network: Network, storefront: Any) -> None:
    """A request from one machine through its relay takes the round-trip time; the storefront itself is out of reach.

    It fails if the machines are not apart, or if the relays add no time: then the tests above would show little.
    """
    (machine,) = network.machines
    port = network.way(machine, "127.0.0.1", storefront.port)
    program = (
        "import sys, time, urllib.request as u\n"
        "for url in sys.argv[1:]:\n"
        "    began = time.monotonic()\n"
        "    try: u.urlopen(url, timeout=5).read(); print(time.monotonic() - began)\n"
        "    except OSError: print('none')\n"
    )
    said = subprocess.run(
        [*machine.within, sys.executable, "-c", program, f"http://{machine.gateway}:{port}/", storefront.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout.split()
    assert float(said[0]) >= RTT_MS / 1000
    assert said[1] == "none"

"""A probe on another machine, with 10 ms between the two.

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.loadtest.conftest import PATIENCE, ROOT
from tests.loadtest.respkit import RespStandIn, ahead

RTT_MS = 10

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

"""A probe on another machine, with 10 ms between the two.

The machine is a network namespace; a pair of virtual Ethernet devices joins it to this one, which stands for the
network. What passes goes through a relay here (`loadtest.incidents.delay`), which adds the round-trip time: netem,
which could do it, is not in every kernel. Needs Linux, root and `ip` (iproute2).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.loadtest.conftest import PATIENCE, ROOT
from tests.loadtest.respkit import RespStandIn, ahead

RTT_MS = 10
OWN = os.getpid() % 500
NAME, WIRE = f"lab-{os.getpid()}", f"lab{os.getpid() % 100_000}"
HERE, THERE = (f"198.{18 + OWN // 250}.{OWN % 250}.{host}" for host in (1, 2))
"""Both ends of the wire: addresses from the range for tests of networks (RFC 2544)."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"),
    reason="network namespaces need Linux, root, and the command ip (Debian: iproute2)",
)


def ip(words: str) -> None:
    """Give `ip` a command. Raises `subprocess.CalledProcessError` with its complaint."""
    subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)


@pytest.fixture
def machine() -> Iterator[list[str]]:
    """The words before a command that is to run on the other machine. Skips where none can be made."""
    try:
        ip(f"netns add {NAME}")
        try:
            ip(f"link add {WIRE} type veth peer name eth0 netns {NAME}")
            ip(f"address add {HERE}/30 dev {WIRE}")
            ip(f"link set {WIRE} up")
            ip(f"-n {NAME} address add {THERE}/30 dev eth0")
            ip(f"-n {NAME} link set eth0 up")
            yield ["ip", "netns", "exec", NAME]
        finally:
            ip(f"netns delete {NAME}")  # its end of the wire goes with it, and so the whole wire
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace with a wire can be made here: {error.stderr.strip()}")


def test_a_probe_on_another_machine_is_told_of_the_servers_clock(
    machine: list[str], load: Callable[..., subprocess.Popen[str]]
) -> None:
    """A probe 10 ms away from a server whose clock is wrong says by how much, and is no surer than half the way.

    It fails if the way is taken for a difference of the clocks, or if the probe says that it is surer than it can be.
    """
    with RespStandIn(ahead(-40.0)) as server:
        relay = load("delay", "--url", server.url, "--rtt-ms", str(RTT_MS), "--listen", HERE)
        assert relay.stdout
        port = json.loads(relay.stdout.readline())["port"]
        words = ["-m", "lab", "probe", f"redis://{HERE}:{port}", "--seconds", "1", "--json"]
        done = subprocess.run(
            [*machine, sys.executable, *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert RTT_MS / 2 <= found["clock"]["within_ms"] < 10 * RTT_MS
    assert abs(found["clock"]["ahead_ms"] + 40_000) <= found["clock"]["within_ms"]
    assert found["total"]["p50"] >= RTT_MS

"""The protocols that the rest of the lab expects of a stack, native or in containers.

Conductor, recorder and calibration use only these. A stack is a server, a storefront on it, a load generator, and
probes that can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from lab.scenarios.model import LoadSpec, ProbeSpec
from lab.server.http import Locust, Metrics, Storefront
from lab.server.server_stats import ServerObserver

Say = Callable[[str], None]
"""Shows a progress line to a person."""

PROBE_INTERVAL_S = 0.25
"""Length of the probes' intervals in a run, seconds. A plateau of three seconds still has twelve to resample."""

BYSTANDER_PREFIX = "latency-lab-bystander"
LOAD_PREFIX = "latency-lab-load"


def probe_arguments(spec: ProbeSpec, rate: float, seed: int, tag: str = "") -> list[str]:
    """Return the arguments of `python -m loadtest.probe`, the same on every stack. Each stack adds the URL itself.

    `tag`: the hash tag of the probe's keys, so that one node of a cluster has all of them.
    """
    keys = ("main" if spec.replica else spec.name) + (f"-{{{tag}}}" if tag else "")
    words = [
        "--rate", str(rate), "--name", spec.name, "--connections", str(spec.connections),
        "--key-prefix", f"{BYSTANDER_PREFIX}-{keys}", "--interval-seconds", str(PROBE_INTERVAL_S),
        "--arrivals", "jittered", "--seed", str(seed), "--by-due-time",
    ]  # fmt: skip
    words += ["--read-only"] if spec.replica else []  # it reads the main probe's keys
    return words + (["--reconnect-seconds", str(spec.reconnect_seconds)] if spec.reconnect_seconds else [])


class Probe(Protocol):
    """A running open-loop probe."""

    def lines(self) -> Iterator[bytes]:
        """Yield its JSON lines as they come, until it ends."""
        ...


class LoadProcess(Protocol):
    """A load that a scenario adds, as a process."""

    def lines(self) -> Iterator[bytes]:
        """Yield its JSON lines as they come, until it ends."""
        ...

    def exit_code(self) -> int:
        """Wait for its end. Returns the exit code."""
        ...

    def last_words(self) -> str:
        """Return the last line of its log, for an error message."""
        ...


class Meter(Protocol):
    """Measures CPU time by part of the scene. A sample counts from the one before, so each user needs its own meter."""

    def sample(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return shares of one core since the last sample: by part (`store`, `web`, `lab`, …), and of the machine.

        The machine's are `busy`, `steal` and `others` (busy with none of the parts); a stack may add more. In
        the first sample every part is 0.
        """
        ...


class Stack(Protocol):
    """The parts that a run uses: server, storefront, load, probes. Methods raise `StackError` when a part fails."""

    @property
    def name(self) -> str:
        """The stack's name on the command line."""
        ...

    @property
    def web(self) -> Storefront:
        """The storefront: the service under observation."""
        ...

    @property
    def locust(self) -> Locust:
        """The load generator."""
        ...

    @property
    def server(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def key_prefix(self) -> str:
        """The prefix of the storefront's keys."""
        ...

    @property
    def web_url(self) -> str:
        """The storefront's URL for the loads that a scenario adds."""
        ...

    @property
    def owns_server(self) -> bool:
        """True if the lab may restart the server."""
        ...

    @property
    def has_replica(self) -> bool:
        """True if there is a replica. Without one, the probes of a replica are left out."""
        ...

    @property
    def cannot(self) -> dict[str, str]:
        """Claim → why this stack cannot answer it. Complete after `up`."""
        ...

    def up(self, say: Say) -> None:
        """Return once everything runs and answers. The server is then empty, and there is no load."""
        ...

    def observe(self) -> Metrics:
        """Scrape the metrics of the storefront and the invalidator."""
        ...

    def start_probe(self, spec: ProbeSpec, rate: float) -> Probe:
        """Start one more probe as a process of its own."""
        ...

    def forget(self, probe: Probe) -> None:
        """End a probe that is no longer needed."""
        ...

    def start_load(self, spec: LoadSpec, arguments: list[str]) -> LoadProcess:
        """Start a load as a process of its own."""
        ...

    def end_load(self, load: LoadProcess) -> None:
        """End a load, and wait for it; the figures it prints can still be read.

        Ending a load that has already ended is not an error.
        """
        ...

    def empty(self, shards: int = 1) -> None:
        """Empty the server by restarting it. If the lab may not restart it, remove the storefront's keys instead.

        `shards`: the number of nodes afterwards, in a scenario of a cluster.
        """
        ...

    def check(self) -> None:
        """Raise `StackError` if any part has ended. Cheap: called several times a second."""
        ...

    def meter(self) -> Meter:
        """Return a new meter of the parts."""
        ...

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory by part in MB; the lab's own is `lab`."""
        ...

    def down(self) -> None:
        """End all started processes, and restore all changed settings. Safe after an `up` that failed half-way."""
        ...

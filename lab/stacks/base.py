"""What the rest of the lab expects of a stack, native or in containers.

Conductor, recorder and calibration know these protocols only. A stack is a scene that runs: a server, a storefront
on it, a load generator, and probes that can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from lab.scenarios.model import LoadSpec, ProbeSpec
from lab.stacks.http import Locust, Metrics, Storefront
from lab.stacks.server_stats import ServerObserver

Say = Callable[[str], None]
"""Tells a person what goes on."""

PROBE_INTERVAL_S = 0.25
"""Length of the probes' intervals in a run: a plateau of three seconds still has a dozen to resample."""

BYSTANDER_PREFIX = "latency-lab-bystander"
LOAD_PREFIX = "latency-lab-load"


def probe_arguments(spec: ProbeSpec, rate: float, seed: int) -> list[str]:
    """What `python -m loadtest.probe` is told, the same on every stack; how it learns the URL is the stack's affair."""
    keys = "main" if spec.replica else spec.name
    words = [
        "--rate", str(rate), "--name", spec.name, "--connections", str(spec.connections),
        "--key-prefix", f"{BYSTANDER_PREFIX}-{keys}", "--interval-seconds", str(PROBE_INTERVAL_S),
        "--arrivals", "jittered", "--seed", str(seed),
    ]  # fmt: skip
    words += ["--read-only"] if spec.replica else []  # it has the main probe's keys
    return words + (["--reconnect-seconds", str(spec.reconnect_seconds)] if spec.reconnect_seconds else [])


class Probe(Protocol):
    """A running open-loop probe."""

    def lines(self) -> Iterator[bytes]:
        """Its JSON lines as they come, until it ends."""
        ...


class LoadProcess(Protocol):
    """A load of a scenario's own, as a process."""

    def lines(self) -> Iterator[bytes]:
        """Its JSON lines as they come, until it ends."""
        ...

    def exit_code(self) -> int:
        """What it ended with; waits for its end."""
        ...

    def last_words(self) -> str:
        """The last line of its log, for an error message."""
        ...


class Meter(Protocol):
    """Measures CPU time, each part of the scene for itself. Every user has a meter of its own."""

    def look(self) -> tuple[dict[str, float], dict[str, float]]:
        """Shares of one core since the last look: by part (``store``, ``web``, ``lab``, …), and of the machine.

        The machine's are ``busy``, ``steal`` and ``others``: busy, but none of the parts. The first look says 0.
        """
        ...


class Stack(Protocol):
    """One scene. Methods raise `StackError` when a part of it does not do what it should."""

    @property
    def name(self) -> str:
        """As the command line calls it."""
        ...

    @property
    def web(self) -> Storefront:
        """The service under observation."""
        ...

    @property
    def locust(self) -> Locust:
        """The load generator."""
        ...

    @property
    def store(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def key_prefix(self) -> str:
        """What the service's keys begin with."""
        ...

    @property
    def web_url(self) -> str:
        """The service's address as a load of the scenario's own reaches it."""
        ...

    @property
    def owns_store(self) -> bool:
        """Whether the lab may restart the server."""
        ...

    @property
    def has_replica(self) -> bool:
        """Whether there is a replica for the probes that ask one; without it they are left out."""
        ...

    @property
    def cannot(self) -> dict[str, str]:
        """Claims that this scene cannot answer, and why. Complete after `up`."""
        ...

    def up(self, say: Say) -> None:
        """Have everything run and answer, with an empty server and no load."""
        ...

    def observe(self) -> Metrics:
        """What the storefront and the invalidator say of themselves."""
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
        """Tell a load to end, and wait until it has said its figures. Ending one that has already ended is no error."""
        ...

    def empty(self) -> None:
        """Restart the server, which loses its keys; where it must not be restarted, remove the lab's own keys."""
        ...

    def check(self) -> None:
        """Raise `StackError` if any part has ended. Cheap: called several times a second."""
        ...

    def meter(self) -> Meter:
        """A new meter of this scene's parts."""
        ...

    def memory_mb(self) -> dict[str, float]:
        """Resident memory by part, and the lab's own."""
        ...

    def down(self) -> None:
        """End what was started, and put back what was changed. Safe after an `up` that failed half-way."""
        ...

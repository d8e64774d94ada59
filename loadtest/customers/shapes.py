"""Shapes of the load over a test: in the web UI with `--class-picker`, or by LOADTEST_SHAPE=growth|hold.

A shape moves the share of the set rates (`Load.share`), not Locust's number of users: the rates define the load;
users only carry it.
"""

from __future__ import annotations

from locust import LoadTestShape

from loadtest.customers.load import Load

USERS = 416  # enough for 25 visits or 50 reads a second, and for 10 events, through stalls of two seconds and more
SPAWN_RATE = 100


class _Shape(LoadTestShape):
    abstract = True
    use_common_options = True  # --users, --spawn-rate and --run-time keep their meaning

    def __init__(self, load: Load) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Locust has no types here
        self.load = load

    def share(self, seconds: float) -> float:
        """Return the share of the load `seconds` after the start."""
        raise NotImplementedError

    def tick(self) -> tuple[int, float] | None:
        """Called once a second by Locust; returns the number of users and the spawn rate, or None to end the test."""
        options = self.runner.environment.parsed_options if self.runner else None
        seconds: float = self.get_run_time()  # type: ignore[no-untyped-call] # the same
        run_time = options and options.run_time
        if run_time and seconds >= run_time:
            return None
        self.load.share = self.share(seconds)
        return (options and options.num_users) or USERS, (options and options.spawn_rate) or SPAWN_RATE


class Hold(_Shape):
    """The whole load from the first second to the last."""

    def share(self, seconds: float) -> float:
        return 1.0


class Growth(_Shape):
    """The business grows in equal steps, then holds: more customers, and with them more reads and events.

    The first of `steps` steps has 1/steps of the population and of both rates; each lasts `step_seconds`.
    """

    def __init__(self, load: Load, steps: int = 5, step_seconds: float = 30) -> None:
        super().__init__(load)
        self.steps = steps
        self.step_seconds = step_seconds

    def share(self, seconds: float) -> float:
        return min(1 + int(seconds / self.step_seconds), self.steps) / self.steps

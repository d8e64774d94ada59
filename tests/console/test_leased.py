"""What a server's control makes of the time in which a run of the lab has the scene."""

from __future__ import annotations

import math
from collections.abc import Callable

from console.server_control import ServerControl
from console.tuning import Tuning
from lab.stacks.server_stats import Snapshot


def test_a_run_that_has_the_scene_is_no_part_of_the_estimate(
    new_control: Callable[..., ServerControl],
) -> None:
    """While a run leases the scene the share of the processor is unknown: the load and the keys are the run's."""
    control = new_control()
    control.tuned(Tuning(base_share=0.0, cost_s=1e-6, events_per_second=2.0))
    control.metrics.busy.labels("one").set(0.5)
    control.phase = "leased"
    control.record_counters(
        Snapshot(at=1.0, keys=9, commands={}, main_thread_s=3.0, memory_mb=1.0, clients=1, run_id="")
    )
    control.observe()
    busy = control.metrics.registry.get_sample_value("lab_store_busy_cores", {"server": "one"})
    assert busy is not None and math.isnan(busy)

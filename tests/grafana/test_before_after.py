"""The first row of *Before and after*, computed by Prometheus itself from the series of a story."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from grafana.dashboards_src import before_after
from tests.grafana.test_dashboards import filled

SERVER = 'server="dragonfly"'
STEP_S = 5
# Calibration fills the server to the knee at once. Then keys grow, and p99 with them, until somebody stops them at half
# the knee; some time later the index takes over.
KEYS = [150_000] * 6 + list(range(5_000, 75_000, 5_000)) + [75_000] * 40
P99 = [0.02] * 6 + [0.001] * 14 + [0.2] * 20 + [0.002] * 20
INDEX = [0] * 40 + [1] * 20
EVALUATED_AT_S = STEP_S * len(KEYS) + 400
"""The panels are read some minutes after the last sample, as in a replay. They still compare with its end."""


def run_promtool(tmp_path: Path, strategy: str, p99: float) -> subprocess.CompletedProcess[str]:
    """Let Prometheus compute the typical p99 under a strategy at the end of the story; exit code 0 if it is `p99`."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    in_force = f'cache_invalidation_strategy{{job="invalidator", {SERVER}, strategy='
    series: dict[str, Sequence[float]] = {
        f"server:store_keys:sum{{{SERVER}}}": KEYS,
        f"server:probe_latency:p99_10s{{{SERVER}}}": P99,
        f'{in_force}"index"}}': INDEX,
        f'{in_force}"scan"}}': [1 - on for on in INDEX],
    }
    case = {
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": name, "values": " ".join(map(str, values))} for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": filled(before_after.typical(strategy)),
                "eval_time": f"{EVALUATED_AT_S}s",
                "exp_samples": [{"labels": f"{{{SERVER}}}", "value": p99}],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(yaml.safe_dump({"tests": [case]}))
    return subprocess.run([program, "test", "rules", path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("strategy", "p99"), [("scan", 0.2), ("index", 0.002)])
def test_only_moments_with_as_many_keys_as_now_are_compared(
    strategy: str, p99: float, tmp_path: Path
) -> None:
    """Moments with the calibration's keys or with few keys do not count, so the difference is that of the switch."""
    done = run_promtool(tmp_path, strategy, p99)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_result_would_be_noticed(tmp_path: Path) -> None:
    """Expecting another figure fails: the calibration's p99 is not the typical one under scan."""
    assert run_promtool(tmp_path, "scan", 0.02).returncode != 0

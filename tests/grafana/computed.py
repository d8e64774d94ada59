"""Evaluates a dashboard's expression by Prometheus itself, on series given as numbers (`_` is a gap)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

STEP_S = 2


def faults(
    folder: Path,
    series: Mapping[str, Sequence[float | str]],
    expr: str,
    wanted: Mapping[str, float],
    at: int,
) -> str:
    """promtool's output if ``expr`` does not give ``wanted`` (by labels) at sample number ``at``; else nothing."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    case = {
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": name, "values": " ".join(map(str, values))} for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{STEP_S * at}s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in wanted.items()],
            }
        ],
    }
    path = folder / "case.yml"
    # promtool loads samples only up to its last evaluation, and by default evaluates once a minute.
    path.write_text(yaml.safe_dump({"evaluation_interval": f"{STEP_S}s", "tests": [case]}))
    done = subprocess.run([program, "test", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr

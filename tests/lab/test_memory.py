"""What does not fit into this machine's memory is refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab import experiment, scenarios
from lab.errors import UsageError
from lab.experiment import Request, conduct


@pytest.mark.parametrize("scenario", ["key-growth", "cures"])
def test_full_pace_is_refused_where_memory_is_short(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed's own scale on a machine with half a gigabyte left: one sentence with both figures, no folder."""
    left = SimpleNamespace(available=0.5e9, total=1e9)
    monkeypatch.setattr(experiment.psutil, "virtual_memory", lambda: left)
    found = scenarios.find(scenario)
    assert found.paces["full"].keys == 2_000_000
    request = Request(found, None, "full", None, 1, tmp_path / "run")
    silent = cast(Any, SimpleNamespace(say=lambda text: None))
    with pytest.raises(UsageError) as refused:
        conduct(request, silent)
    assert str(refused.value).startswith("2,000,000 keys need about 1.")
    assert "and 0.5 GB are free" in str(refused.value)
    assert not (tmp_path / "run").exists()

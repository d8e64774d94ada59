"""What a run says of the memory it needs, before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import experiment, scenarios
from lab.errors import UsageError
from lab.experiment import Request, memory_bytes
from lab.servers import SERVERS

MAIN = scenarios.find("key-growth")


def test_what_is_needed_grows_with_keys_servers_and_loads() -> None:
    """Each key costs what it costs on that server; a replica holds all of them too; loads bring theirs."""
    pace, embedded, redis = MAIN.paces["full"], SERVERS["embedded"], SERVERS["redis"]
    none = memory_bytes(MAIN, pace, embedded, 0)
    assert memory_bytes(MAIN, pace, embedded, 1_000) - none == 1_000 * embedded.key_bytes
    assert memory_bytes(MAIN, pace, redis, 1_000) - none == 1_000 * redis.key_bytes
    with_replica = memory_bytes(replace(MAIN, replica=True), pace, embedded, 1_000)
    assert with_replica - none == 2_000 * embedded.key_bytes
    assert memory_bytes(MAIN, replace(pace, loads_mb=250), embedded, 0) - none == 250e6


@pytest.mark.parametrize("enough", [True, False])
def test_it_is_announced_or_refused_before_anything_is_created(
    enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both figures are told; where it does not fit no folder is made."""
    request = Request(MAIN, None, "full", 2_000_000, 1, tmp_path / "run")
    needed = memory_bytes(MAIN, MAIN.paces["full"], SERVERS["embedded"], 2_000_000)
    free = SimpleNamespace(available=needed * (1.01 if enough else 0.99), total=needed)
    monkeypatch.setattr(experiment.psutil, "virtual_memory", lambda: free)
    said: list[str] = []
    if enough:
        assert f"{needed / 1e9:.1f} GB" in experiment._memory(request, 2_000_000)
    else:
        with pytest.raises(UsageError, match="Choose fewer with --keys"):
            experiment.conduct(request, SimpleNamespace(say=said.append))  # type: ignore[arg-type]
        assert not said
    assert not (tmp_path / "run").exists()


def test_nothing_is_said_of_somebody_elses_server() -> None:
    """How much memory it has is not known here."""
    request = Request(MAIN, None, "full", 2_000_000, 1, None, url="redis://example.org:6379")
    assert experiment._memory(request, 2_000_000) == ""

"""In a real browser no page of another site reads Locust or resets its counts; neither does a re-pointed name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browserkit import CHROMIUM, Aim, attempts

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
]


@pytest.mark.parametrize("rebinds", [False, True], ids=["another site", "a re-pointed name"])
def test_nothing_is_read_and_nothing_reset(rebinds: bool, quiet_locust: Any, tmp_path: Path) -> None:
    """The page sees no load, and the counts go on; the same request from here resets them."""
    before = quiet_locust.ask("GET", "/load")[1]["seconds"]
    aim = Aim(f"http://127.0.0.1:{quiet_locust.port}", "/load", "/load/reset", {"more": 1})
    found = attempts(aim, rebinds, tmp_path)
    assert found["form"]["sent"], found
    assert not [name for name, seen in found.items() if "population" in seen.get("text", "")], found
    assert quiet_locust.ask("GET", "/load")[1]["seconds"] > before, found
    if rebinds:
        assert {found[name].get("status") for name in ("read", "act")} == {421}, found
    else:
        assert "error" in found["read"] and "error" in found["act"], found
    assert quiet_locust.ask("POST", "/load/reset", {})[1]["seconds"] < before

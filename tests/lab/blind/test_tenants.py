"""Programs of other teams on a real server: their connections say who they are, whatever the order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.blind.causes import CAUSES
from lab.blind.scene import tell
from lab.blind.sizing import CHANGER, SECOND, WELL, Measured
from lab.stacks.processes import Child
from tests.app.servicekit import eventually
from tests.loadtest.conftest import Server

MEASURED = Measured(ping_us=50.0, key_us=0.3, keys=200_000, core=None, cores=2)
ORDERS = {
    "changes": (CHANGER, WELL[CHANGER]),
    "unpipelined-deletes": (CHANGER, CAUSES["unpipelined-deletes"].all_orders(MEASURED)[CHANGER]),
    "keys-command": (SECOND, CAUSES["keys-command"].all_orders(MEASURED)[SECOND]),
    **{
        cause: (SECOND, CAUSES[cause].all_orders(MEASURED)[SECOND])
        for cause in ("scan-storm", "lua-script", "expiry-wave", "hot-big-key")
    },
}
"""Order → the program that gets it, and its words."""


@pytest.mark.parametrize("kind", ORDERS)
def test_a_programs_connections_bear_its_name(kind: str, server: Server, tmp_path: Path) -> None:
    """Every connection of a program bears the program's name and no other, whatever the order."""
    name, order = ORDERS[kind]
    command = [sys.executable, "-m", "lab.blind.tenants", name]
    program = Child(name, command, tmp_path / "log", {"PROBE_URL": server.url}, cwd=ROOT, stdin_open=True)
    client: Any = server.client()
    before = {row["id"] for row in client.client_list()}

    def names() -> list[str]:
        return [row["name"] for row in client.client_list() if row["id"] not in before]

    try:
        tell(program, order)
        eventually(lambda: set(names()) == {name})  # a connection is without a name until it has sent it
    finally:
        program.stop()
        client.close()

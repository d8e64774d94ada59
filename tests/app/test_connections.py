"""Socket options of each connection to the server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from app import cache, cache_async
from app.cache import UNACKNOWLEDGED_MS, Cache
from app.settings import Settings

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this kernel has no such setting"
)


def given_up_after(line: Any) -> int:
    """After how many milliseconds without an acknowledgement the kernel gives a connection up; 0: as TCP has it."""
    found: int = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    return found


def test_a_network_that_went_away_is_noticed_long_before_the_timeout(settings: Settings) -> None:
    """Both sides of the application give a connection up that nobody acknowledges, whatever the timeout for answers."""
    patient = settings.model_copy(update={"store_timeout_seconds": 30.0})
    line = cache.connect(patient)
    one = line.get_connection()  # type: ignore[union-attr]
    assert given_up_after(one._sock) == UNACKNOWLEDGED_MS
    one.disconnect()

    async def of_the_other_side() -> int:
        raw = cache_async.connect(patient)
        two = await raw.connection_pool.get_connection()
        found = given_up_after(two._writer.get_extra_info("socket"))
        await two.disconnect()
        await cache_async.disconnect(raw)
        return found

    assert asyncio.run(of_the_other_side()) == UNACKNOWLEDGED_MS


def test_a_unix_socket_has_no_network(tmp_path: Path) -> None:
    """A server behind a Unix socket is still reached: TCP's settings are not for it."""
    assert "socket_keepalive_options" not in cache.connection_options(5, "unix:///run/server.sock")
    away = Settings(store_url=f"unix://{tmp_path / 'nobody.sock'}", state_dir=tmp_path / "state")
    with pytest.raises(cache.CacheUnavailable):
        Cache(away).ping()

"""The load that invalidates one user with very many entries, against the real storefront on a real server."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.app.servicekit import Service, eventually
from tests.loadtest.conftest import calls, ended, figures, refused

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(load: Callable[..., subprocess.Popen[str]]) -> Run:
    """Start `python -m loadtest.incidents.giant`."""
    return partial(load, "giant")


def test_each_round_caches_and_invalidates_all(server: Any, shop: Service, run: Run) -> None:
    """Rounds are at least --every seconds apart; each caches and invalidates all entries, and nothing is left."""
    client = server.client()
    shop.put("/settings/invalidation", {"strategy": "index-naive"})
    began = time.monotonic()
    process = run("--storefront", shop.base, "--entries", "1234", "--rounds", "3", "--every", "0.3")
    *rounds, last = ended(process)
    assert time.monotonic() - began >= 3 * 0.3
    assert [(line["round"], line["entries"]) for line in rounds] == [(1, 1234), (2, 1234), (3, 1234)]
    found = last["figures"]
    assert (found["rounds"], found["entries"]) == (3, 1234)
    assert found["fill_s"] == sorted(line["fill_s"] for line in rounds)[1]
    assert found["invalidation_s"] == sorted(line["invalidation_s"] for line in rounds)[1]
    assert calls(server, "set") == 3 * 1234
    assert calls(server, "del") == 3  # one a round, of all entries at once
    assert client.dbsize() == 0


def test_told_to_end_it_finishes_its_round(server: Any, shop: Service, run: Run) -> None:
    """Told to end, the load finishes its round and leaves nothing."""
    shop.put("/settings/invalidation", {"strategy": "index-naive"})
    process = run("--storefront", shop.base, "--entries", "2000", "--rounds", "9999")
    eventually(lambda: calls(server, "set") > 0)
    process.send_signal(signal.SIGTERM)
    assert figures(process)["rounds"] >= 1
    assert server.client().dbsize() == 0


def test_a_refusal_is_one_line(server: Any, shop: Service, run: Run, unused_port: int) -> None:
    """Out of memory, a server that is gone, no storefront: each is one line and exit code 3."""
    server.client().config_set("maxmemory", "1")
    assert "OOM" in refused(run("--storefront", shop.base, "--entries", "10"))
    server.kill()
    assert "did not take the fragments" in refused(run("--storefront", shop.base, "--entries", "10"))
    assert refused(run("--storefront", f"http://127.0.0.1:{unused_port}"))

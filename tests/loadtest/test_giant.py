"""The load that invalidates one user with very many entries, against the real storefront on a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.app.servicekit import eventually

PATIENCE = 60.0
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(load: Callable[..., subprocess.Popen[str]]) -> Run:
    """Start `python -m loadtest.incidents.giant`."""
    return partial(load, "giant")


@pytest.fixture
def invalidator(repository: Path, real_storefront: Any, server: Any, tmp_path: Path) -> Iterator[Any]:
    """The storefront's invalidator under `index-naive`, which deletes all at once."""
    mode = Request(
        f"{real_storefront.url}/settings/invalidation",
        json.dumps({"strategy": "index-naive"}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    urlopen(mode, timeout=PATIENCE).close()
    process = subprocess.Popen(
        [sys.executable, "-m", "app.invalidator"],
        cwd=repository,
        env={
            **os.environ,
            "APP_STORE_URL": server.url,
            "APP_STATE_DIR": str(tmp_path),
            "APP_METRICS_PORT": "0",
            "OTEL_TRACES_EXPORTER": "none",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.terminate()
    process.wait(timeout=PATIENCE)


def calls(server: Any, name: str) -> int:
    """How often the server executed a command."""
    return int(server.client().info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0))


def test_each_round_caches_and_invalidates_all(
    server: Any, real_storefront: Any, invalidator: Any, run: Run
) -> None:
    """Rounds are at least --every seconds apart; each caches and invalidates all entries, and nothing is left."""
    client = server.client()
    began = time.monotonic()
    process = run("--storefront", real_storefront.url, "--entries", "1234", "--rounds", "3", "--every", "0.3")
    output, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    assert time.monotonic() - began >= 3 * 0.3
    *rounds, last = [json.loads(line) for line in output.splitlines()]
    assert [(line["round"], line["entries"]) for line in rounds] == [(1, 1234), (2, 1234), (3, 1234)]
    figures = last["figures"]
    assert (figures["rounds"], figures["entries"]) == (3, 1234)
    assert figures["fill_s"] == sorted(line["fill_s"] for line in rounds)[1]
    assert figures["invalidation_s"] == sorted(line["invalidation_s"] for line in rounds)[1]
    assert calls(server, "set") == 3 * 1234
    assert calls(server, "del") == 3  # one a round, of all entries at once
    assert client.dbsize() == 0


@pytest.mark.parametrize("how", ["SIGTERM", "end of stdin"])
def test_told_to_end_it_finishes_its_round(
    server: Any, real_storefront: Any, invalidator: Any, run: Run, how: str
) -> None:
    """Told to end, the load finishes its round and leaves nothing."""
    process = run(
        "--storefront", real_storefront.url, "--entries", "2000", "--rounds", "9999", "--until-stdin-ends"
    )
    eventually(lambda: calls(server, "set") > 0)
    if how == "SIGTERM":
        process.send_signal(signal.SIGTERM)
        output, complaints = process.communicate(timeout=PATIENCE)
    else:
        output, complaints = process.communicate("", timeout=PATIENCE)
    assert process.returncode == 0, complaints
    assert json.loads(output.splitlines()[-1])["figures"]["rounds"] >= 1
    assert server.client().dbsize() == 0


def refused(process: subprocess.Popen[str]) -> str:
    """Wait until the load fails with exit code 3 and one line; return the line."""
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, complaints
    assert len(complaints.splitlines()) == 1, complaints
    return complaints


def test_a_refusal_is_one_line(server: Any, real_storefront: Any, run: Run, unused_port: int) -> None:
    """Out of memory, a server that is gone, no storefront: each is one line and exit code 3."""
    server.client().config_set("maxmemory", "1")
    assert "OOM" in refused(run("--storefront", real_storefront.url, "--entries", "10"))
    server.kill()
    assert "did not take the fragments" in refused(
        run("--storefront", real_storefront.url, "--entries", "10")
    )
    assert refused(run("--storefront", f"http://127.0.0.1:{unused_port}"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--storefront"),
        (["--storefront", "127.0.0.1:8000"], "not an http://"),
        (["--storefront", "http://127.0.0.1:x"], "not an http://"),
        (["--storefront", "http://127.0.0.1:1", "--entries", "0"], "--entries"),
        (["--storefront", "http://127.0.0.1:1", "--user", "0"], "--user"),
        (["--storefront", "http://127.0.0.1:1", "--every", "-1"], "--every"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(run: Run, arguments: list[str], named: str) -> None:
    """Bad arguments are one line that names what is wrong, and exit code 2."""
    process = run(*arguments)
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert len(complaints.splitlines()) == 1
    assert named in complaints

"""The load of single events: on a real storefront and server, and on a storefront that serves old values."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.scenarios.cures import COMMANDS
from tests.app.servicekit import ROOT, ServerProcess, Service, eventually
from tests.httpkit import Answer, HttpStandIn, Request

WEB = ["--storefront", "http://127.0.0.1:1"]


def start(web: str, url: str, *more: str) -> subprocess.Popen[str]:
    """Start the load as a process."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "loadtest.incidents.freshness",
            "--storefront",
            web,
            "--first-user",
            "1001",
            *more,
        ],
        cwd=ROOT,
        env={**os.environ, "PROBE_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(load: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    """Wait until the load ends; return its exit code, its lines, and its stderr."""
    out, err = load.communicate(timeout=60)
    return load.returncode, [json.loads(line) for line in out.splitlines()], err


def is_one_line(err: str) -> bool:
    """True if stderr is one line of the load, without a traceback."""
    return err.startswith("freshness: ") and len(err.splitlines()) == 1 and "Traceback" not in err


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server of the test's own."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the service."""
    (tmp_path / "service").mkdir()
    return tmp_path / "service"


@pytest.mark.parametrize(
    ("strategy", "commands", "left"),
    [
        ("index", 7.0, 0.0),
        pytest.param("scan", 6.0, 0.0, marks=pytest.mark.whole),
        pytest.param("hash", 1.0, 0.0, marks=pytest.mark.whole),
        ("generation", 4.0, 20.0),
    ],
)
def test_figures_are_the_strategys(
    strategy: str, commands: float, left: float, server: ServerProcess, folder: Path
) -> None:
    """Per strategy: an event's commands and the keys it leaves, by the server's counters; no old value is served.

    A value computed before an event and put after it is served, except under generation.
    """
    service = Service(folder, server.url, APP_STRATEGY=strategy, APP_SCAN_COUNT="1000000")
    try:
        service.start("web", "invalidator")
        what = (service.base, server.url, "--users", "2", "--rounds", "1", "--commands", COMMANDS[strategy])
        code, lines, err = finish(start(*what))
        again = finish(start(*what))
    finally:
        service.stop()
    assert (code, err) == (0, "")
    figures = lines[-1]["figures"]
    assert again[0] == 0 and again[1][-1]["figures"]["left_per_event"] == left, (
        "the first left something behind"
    )
    assert figures["commands_per_event"] == commands
    assert figures["left_per_event"] == left
    assert figures["events"] == 4
    assert figures["stale_entries"] == 0
    assert figures["execution_per_event_us"] > 0
    assert 0 < figures["race_tries"] <= 6
    assert figures["raced_values"] == (0 if strategy == "generation" else figures["race_tries"])
    assert 0 <= figures["stale_for_ms"] <= figures["stale_for_worst_ms"]
    assert [line["user"] for line in lines[:-1]] == [1001, 1002]


def test_memory_of_an_entry_is_what_was_added(server: ServerProcess) -> None:
    """Memory per entry is the used memory above --base-mb, divided by the entries, before the load adds anything."""
    client = server.client()
    code, [before], _ = finish(start(*WEB[1:], server.url, "--users", "0"))
    assert code == 0
    client.mset({f"key-{i:06}": "v" * 500 for i in range(20_000)})
    base = str(before["figures"]["memory_mb"])
    code, [after], _ = finish(
        start(*WEB[1:], server.url, "--users", "0", "--entries", "20000", "--base-mb", base)
    )
    assert code == 0
    assert 500 < after["figures"]["memory_per_entry_bytes"] < 700


class Stale(HttpStandIn):
    """A storefront whose events delete one fragment of each area and leave the others."""

    def __init__(self) -> None:
        self.cached: set[str] = set()
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Everything is cached by its first read. An event deletes the fragments numbered 0."""
        if request.method == "POST":
            self.cached.difference_update([path for path in self.cached if path.endswith("-0")])
            return Answer({"event": 1})
        if "/events/" in request.path:
            return Answer({"state": "done"})
        hit = request.target in self.cached
        self.cached.add(request.target)
        return Answer({}, headers={"Cache-Status": "shop; hit" if hit else "shop; fwd=miss"})


@pytest.fixture
def stale_front() -> Iterator[str]:
    """The address of a `Stale` storefront."""
    with Stale() as storefront:
        yield storefront.url


def test_what_the_moments_do_not_prove_is_no_try(stale_front: str, server: ServerProcess) -> None:
    """A storefront that does not compute for as long as it was asked to: no figure, rather than one of nothing."""
    code, lines, err = finish(start(stale_front, server.url, "--users", "1", "--rounds", "1"))
    assert (code, err) == (0, "")
    assert not {"race_tries", "raced_values"} & set(lines[-1]["figures"])


def test_old_values_are_counted(stale_front: str, server: ServerProcess) -> None:
    """A fragment that is still served after its area was seen to be gone is an old value: 17 of 20 here."""
    code, lines, err = finish(start(stale_front, server.url, "--users", "1", "--rounds", "1"))
    assert (code, err) == (0, "")
    assert lines[-1]["figures"]["stale_entries"] == 17


def test_sigterm_ends_it_with_its_figures(stale_front: str, server: ServerProcess) -> None:
    """On SIGTERM the load ends with the figures it has."""
    load = start(stale_front, server.url, "--users", "1", "--rounds", "9999")
    assert load.stdout is not None
    first = load.stdout.readline()
    assert "stale_for_ms" in first
    load.send_signal(signal.SIGTERM)
    code, lines, err = finish(load)
    assert (code, err) == (0, "")
    assert lines[-1]["figures"]["events"] >= 2


def test_it_goes_on_for_as_long_as_asked(server: ServerProcess) -> None:
    """With --seconds the load goes on that long, even if it has nothing to do."""
    load = start(*WEB[1:], server.url, "--users", "0", "--seconds", "60")
    with pytest.raises(subprocess.TimeoutExpired):
        load.wait(1.5)
    load.send_signal(signal.SIGTERM)
    code, lines, _ = finish(load)
    assert code == 0
    assert lines[-1]["figures"]["memory_mb"] > 0


def test_a_server_that_refuses_writes_is_one_line_and_exit_3(server: ServerProcess, folder: Path) -> None:
    """If nothing can be cached there are no figures, because they would be wrong."""
    service = Service(folder, server.url)
    client = server.client()
    try:
        service.start("web", "invalidator")
        eventually(lambda: service.get("/readyz").status == 200)
        client.config_set("maxmemory", 1)
        code, lines, err = finish(start(service.base, server.url))
    finally:
        service.stop()
    assert code == 3
    assert is_one_line(err)
    assert "does not keep entries" in err
    assert lines == []


def test_a_server_or_a_storefront_that_is_gone_is_one_line_and_exit_3(server: ServerProcess) -> None:
    """If the server or the storefront is not there, the load is one line and exit code 3."""
    code, _, err = finish(start(*WEB[1:], server.url))
    assert code == 3
    assert is_one_line(err)
    assert "storefront" in err
    code, _, err = finish(start(*WEB[1:], "redis://127.0.0.1:1"))
    assert code == 3
    assert is_one_line(err)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--first-user", "1"],
        [*WEB],
        ["--storefront", "127.0.0.1:8000", "--first-user", "1"],
        ["--storefront", "http://127.0.0.1:8000/shop", "--first-user", "1"],
        [*WEB, "--first-user", "0"],
        [*WEB, "--first-user", "1", "--users", "-1"],
        [*WEB, "--first-user", "1", "--each", "2"],
        [*WEB, "--first-user", "1", "--entries", "many"],
        [*WEB, "--first-user", "1", "--url", "http://x"],
    ],
    ids=" ".join,
)
def test_bad_arguments_are_one_line_and_exit_2(words: list[str]) -> None:
    """Bad arguments are refused before any request is sent."""
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.incidents.freshness", *words],
        cwd=ROOT,
        env={**os.environ, "PROBE_URL": "redis://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert done.stdout == ""

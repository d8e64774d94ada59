"""Somebody else's server after a power cut: what `bin/lab clean --url` shows, does, and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import redis

from lab import ROOT
from lab.errors import StackError, UsageError
from lab.server import redis_cli
from lab.server.address import Route
from lab.server.server_stats import ServerObserver
from lab.stacks import foreign
from tests.app.servicekit import ServerProcess, eventually
from tests.lab.labkit import Answer, typed

THEIRS = {"session:1": "a", "latency-labels": "not the lab's, though it begins alike"}
SETTINGS = {"slowlog-log-slower-than": "12345", "slowlog-max-len": "77"}


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Somebody else's server, with keys and settings of theirs."""
    theirs = ServerProcess(ServerProcess.valkey()).start()
    theirs.client().mset(THEIRS)
    for name, value in SETTINGS.items():
        theirs.client().config_set(name, value)
    yield theirs
    theirs.stop()


def route(server: ServerProcess) -> Route:
    """Return the way to this server."""
    return Route(server.url, server.url, ("--url", server.url))


@pytest.fixture
def left(server: ServerProcess) -> ServerProcess:
    """That server after a run that could not clean up: lock, note, keys of all kinds, changed settings."""
    observer = ServerObserver(server.url)
    assert foreign.take_over(observer, route(server)).settings == SETTINGS
    observer.configure_slowlog(5000)
    observer.close()
    client = server.client()
    client.mset({f"latency-lab:u{user}:page-0": "x" for user in range(3000)})
    client.sadd("latency-lab-index:7", "r0:page-0")
    client.set("latency-lab-bystander-main:1", "x", px=3_600_000)
    return server


def keys(server: ServerProcess) -> set[str]:
    """Return all keys of the server."""
    return set(server.client().keys("*"))


def settings(server: ServerProcess) -> dict[str, str]:
    """Return the settings that a run changes."""
    return dict(server.client().config_get("slowlog-*-than", "slowlog-max-len"))


def clean(server: ServerProcess, folder: Path, *more: str) -> Answer:
    """Run `lab clean` on this server, without a terminal."""
    return typed("clean", "--url", server.url, *more, cwd=folder)


def test_nothing_is_there_where_no_run_was(server: ServerProcess, tmp_path: Path) -> None:
    """On a server where no run was, `lab clean` says so and changes nothing."""
    answer = clean(server, tmp_path, "--yes")
    assert (answer.code, answer.err) == (0, "") and foreign.NOTHING in answer.out
    assert keys(server) == set(THEIRS) and settings(server) == SETTINGS


def test_it_shows_what_it_would_do_and_asks(left: ServerProcess, tmp_path: Path) -> None:
    """Without --yes or a terminal, `lab clean` shows what it would do and ends with one line and exit code 2."""
    before = keys(left)
    answer = clean(left, tmp_path)
    assert answer.is_one_line(2), answer
    assert (
        "--yes" in answer.err
        and "3,006 keys are to be visited" in answer.out
        and "is to be 12345 again (it is 5000)" in answer.out
    )
    assert keys(left) == before and settings(left) != SETTINGS


def test_what_is_the_labs_goes_and_what_is_theirs_stays(left: ServerProcess, tmp_path: Path) -> None:
    """`lab clean` removes the lab's keys, lock and note and restores the settings; the owner's keys stay."""
    answer = clean(left, tmp_path, "--yes")
    assert (answer.code, answer.err) == (0, "") and "removed 3,004 keys" in answer.out, answer
    assert keys(left) == set(THEIRS) and settings(left) == SETTINGS
    assert foreign.NOTHING in clean(left, tmp_path, "--yes").out


def test_cleaning_visits_each_key_once_and_pauses(left: ServerProcess) -> None:
    """Cleaning is one pass over the keys, whatever the number of prefixes, and at most half of its time is SCAN's."""
    left.client().config_resetstat()
    observer = ServerObserver(left.url)
    began = time.monotonic()
    assert observer.remove_own((*foreign.OWN_PREFIXES, "latency-lab_"), foreign.KEPT) == 3002
    took = time.monotonic() - began
    observer.close()
    scan = left.client().info("commandstats")["cmdstat_scan"]
    assert scan["calls"] <= 3
    assert scan["usec"] / 1e6 < took / 2


def test_the_lock_of_a_long_run_does_not_expire(left: ServerProcess) -> None:
    """The restorer renews its own lock while the run lasts, and no other one's."""
    client = left.client()
    for token, lives_on in ((str(client.get(redis_cli.LOCK)), True), ("another", False)):
        client.expire(redis_cli.LOCK, 60)
        code = "from lab.stacks import foreign; foreign.RENEWED_S = 0.05; foreign.main()"
        words = [sys.executable, "-c", code, json.dumps(asdict(foreign.Taken(token, {})))]
        environ = {**os.environ, foreign.ADDRESS: left.url, foreign.SHOWN: left.url}
        restorer = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd=ROOT
        )
        assert restorer.stdout and restorer.stdout.readline()
        if lives_on:
            eventually(lambda: client.ttl(redis_cli.LOCK) > 7000)
        else:
            time.sleep(0.5)
            assert client.ttl(redis_cli.LOCK) <= 60
        restorer.kill()
        restorer.communicate()


def test_beside_a_run_nothing_is_cleaned(left: ServerProcess, tmp_path: Path) -> None:
    """`lab clean` is refused while a run's probe is connected: one line, exit code 2."""
    before, probe = keys(left), redis.Redis(port=left.port, client_name="probe:main")
    probe.ping()
    answer = clean(left, tmp_path, "--yes")
    probe.close()
    assert answer.is_one_line(2) and "at work" in answer.err
    assert keys(left) == before


def test_the_next_run_takes_over_what_a_killed_one_noted(left: ServerProcess) -> None:
    """The next run restores the settings noted by the killed run, not those that the killed run had set."""
    observer = ServerObserver(left.url)
    with pytest.raises(UsageError, match="bin/lab clean --url"):
        foreign.take_over(observer, route(left))
    left.client().delete(redis_cli.LOCK)  # the lock expires after two hours
    assert foreign.take_over(observer, route(left)).settings == SETTINGS
    observer.close()


def test_the_lock_is_given_up_last_and_by_its_owner_only(left: ServerProcess) -> None:
    """While a killed run's restorer is at work no other run begins; it touches nothing of a run that has the lock."""
    client, theirs = left.client(), keys(left)
    token = client.get(redis_cli.LOCK)

    def restore(taken: foreign.Taken) -> subprocess.Popen[bytes]:
        environ = {**os.environ, foreign.ADDRESS: left.url, foreign.SHOWN: left.url}
        words = [sys.executable, "-m", "lab.stacks.foreign", json.dumps(asdict(taken))]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environ, cwd=ROOT)

    another = restore(foreign.Taken("another", SETTINGS))
    assert another.wait(30) == 0 and keys(left) == theirs and settings(left) != SETTINGS
    own = restore(foreign.Taken(str(token), SETTINGS))
    while own.poll() is None:
        assert client.get(redis_cli.LOCK) == token or (
            keys(left) == set(THEIRS) and settings(left) == SETTINGS
        )
    assert own.wait(30) == 0 and keys(left) == set(THEIRS) and settings(left) == SETTINGS


def test_keys_go_even_where_settings_may_not_be_changed(left: ServerProcess) -> None:
    """A user without the right to CONFIG SET: the keys go, and the note stays for somebody who may."""
    left.client().execute_command("ACL", "SETUSER", "lab", "on", ">secret", "~*", "+@all", "-config|set")
    observer = ServerObserver(left.url.replace("://", "://lab:secret@"))
    with pytest.raises(StackError, match="CONFIG SET"):
        foreign.put_back(observer, SETTINGS)
    assert keys(left) == {*THEIRS, foreign.BEFORE_KEY, redis_cli.LOCK}
    left.client().config_set("slowlog-log-slower-than", SETTINGS["slowlog-log-slower-than"])
    left.client().config_set("slowlog-max-len", SETTINGS["slowlog-max-len"])
    assert foreign.put_back(observer, SETTINGS) == 2 and keys(left) == set(THEIRS)
    observer.close()


@pytest.mark.parametrize("written", ["", "[1]", "not JSON", json.dumps({"maxmemory": "1"})])
def test_a_note_that_is_not_the_labs_changes_no_setting(
    server: ServerProcess, tmp_path: Path, written: str
) -> None:
    """Whatever a note says, only the two settings that a run changes are ever restored from it."""
    server.client().set(foreign.BEFORE_KEY, written)
    before = server.client().config_get("maxmemory")
    assert clean(server, tmp_path, "--yes").code == 0
    assert server.client().config_get("maxmemory") == before and settings(server) == SETTINGS


@pytest.mark.parametrize(
    ("url", "said"), [("http://127.0.0.1", "redis://"), ("redis://127.0.0.1:1", "127.0.0.1:1")]
)
def test_bad_addresses_are_one_line(url: str, said: str, tmp_path: Path) -> None:
    """An invalid address is one line and exit code 2, a server that does not answer one line and exit code 3."""
    answer = typed("clean", "--url", url, cwd=tmp_path)
    assert answer.is_one_line(3 if url.endswith(":1") else 2) and said in answer.err, answer

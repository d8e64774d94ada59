"""The health check of the Python containers passes only if it sees what it was asked to see. Needs no Docker."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from lab import ROOT
from tests.httpkit import Answer, HttpStandIn, Request

Serve = Callable[[int, str], str]


class Fixed(HttpStandIn):
    """Gives every request the same answer."""

    def __init__(self, reply: Answer) -> None:
        self.reply = reply
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """The one answer."""
        return self.reply


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with one fixed answer and returns its URL."""
    with ExitStack() as servers:
        yield lambda status, body: f"{servers.enter_context(Fixed(Answer(body, status))).url}/metrics"


def check(*arguments: str) -> tuple[int, str]:
    """Run the health check as a container does; return its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-SI", str(ROOT / "app" / "health.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1, "Docker keeps the output: it must be one line"
    return done.returncode, done.stdout


def test_answer_200_is_healthy(serve: Serve) -> None:
    """Status 200 is healthy if nothing else is asked for."""
    assert check(serve(200, "")) == (0, "ok\n")


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
def test_any_other_answer_is_not(status: int, serve: Serve) -> None:
    """Any other status than 200 is unhealthy, and the output names it."""
    code, said = check(serve(status, ""))
    assert code == 1
    assert str(status) in said


def test_a_port_without_a_listener_is_unhealthy() -> None:
    """A port that nothing listens on is unhealthy."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    assert check(f"http://127.0.0.1:{port}/")[0] == 1


def test_silence_is_unhealthy_before_docker_gives_up() -> None:
    """A process that accepts and never answers, as a stopped one does, is unhealthy within Docker's five seconds."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        began = time.monotonic()
        code, said = check(f"http://127.0.0.1:{held.getsockname()[1]}/")
        assert (code, time.monotonic() - began < 5) == (1, True), said


@pytest.mark.parametrize("noise", ["hello\r\n", "HTTP/1.1\r\n\r\n", ""])
def test_what_is_not_http_is_unhealthy(noise: str) -> None:
    """An answer that is not HTTP is unhealthy and reported in one line."""
    with socket.create_server(("127.0.0.1", 0)) as held:

        def answer() -> None:
            connection, _ = held.accept()
            connection.recv(1000)
            connection.sendall(noise.encode())
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert check(f"http://127.0.0.1:{held.getsockname()[1]}/")[0] == 1


def test_contains_looks_into_the_answer(serve: Serve) -> None:
    """With `--contains` the answer must contain the text; spaces do not count."""
    url = serve(200, '{"state": "running"}')
    assert check(url, "--contains", '"state":"running"')[0] == 0
    assert check(url, "--contains", '"state":"stopped"')[0] == 1


@pytest.mark.parametrize(("seconds", "code"), [(0, 0), (5, 0), (60, 1), (3600, 1)])
def test_fresh_tells_a_loop_that_runs_from_one_that_hangs(seconds: int, code: int, serve: Serve) -> None:
    """A recent heartbeat is healthy; one that stands still is not, however promptly it is served."""
    url = serve(
        200, f"# TYPE beat_seconds gauge\nbeat_seconds_total 1\nbeat_seconds {time.time() - seconds}\n"
    )
    assert check(url, "--fresh", "beat_seconds")[0] == code


def test_fresh_without_the_metric_is_unhealthy(serve: Serve) -> None:
    """A missing heartbeat is unhealthy."""
    assert check(serve(200, "other 1\n"), "--fresh", "beat_seconds")[0] == 1

"""What `make up` prints, a load from several processes, and that `down` leaves nothing."""

from __future__ import annotations

import re
import sys

from lab.server.servers import IN_COMPOSE, PROFILES
from tests.compose.stack import EVERYTHING, Stack

PAGES = 4
"""Addresses besides those of Locust: control page, Grafana, Prometheus, Tempo."""


def test_both_doors_say_where_to_look(stack: Stack) -> None:
    """`make up` prints each page's address; `docker compose up` does it, too, in the log of `welcome`."""
    done = stack.run([sys.executable, "-m", "lab.scene.up"], 300, COMPOSE_PROFILES=",".join(PROFILES))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "MISS" not in done.stdout
    addresses = re.findall(r"http://127\.0\.0\.1:(\d+)", done.stdout)
    asked = {value for name, value in stack.environ.items() if name.endswith("_PORT")}
    assert set(addresses) <= asked
    assert len(addresses) == PAGES + len(IN_COMPOSE)
    assert stack.compose("logs", "--no-log-prefix", "welcome").strip() in done.stdout


def test_make_up_names_what_is_not_healthy(stack: Stack) -> None:
    """If a service does not become healthy, `make up` names it and exits with 3."""
    done = stack.run([sys.executable, "-m", "lab.scene.up"], 300, CONTROL_STORY="perhaps")
    assert done.returncode == 3, done.stdout[-3000:]
    assert "control: " in done.stderr
    stack.compose("up", "--detach", "--wait")


def test_down_leaves_nothing(stack: Stack) -> None:
    """After `down` no container, volume or network of the project is left."""
    stack.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans")
    assert stack.left() == ""

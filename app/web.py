"""The web process: ``gunicorn -c app/gunicorn_conf.py app.web:application``; ``python -m app.web`` does that.

One worker with threads: exemplars and a consistent /metrics need a single process.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.acceptance import Acceptance
from app.cache import Cache
from app.metrics import EVENTS_LOST, EVENTS_PENDING
from app.process import live_gauge, serve_operations
from app.settings import load_settings
from app.state import State, StateError
from app.storefront import create_app, create_operations
from app.telemetry import Telemetry

telemetry: Telemetry | None = None


def build() -> Any:
    """The WSGI application as the environment describes it."""
    global telemetry
    settings = load_settings()
    # gunicorn_conf has made the database. A worker that takes another's place must not end where it cannot be written:
    # gunicorn would start one after the other. It serves without it, and is not ready, until it can.
    state = State(settings.state_dir, make=False)
    acceptance = Acceptance(state)
    with suppress(StateError):
        acceptance.check()
    live_gauge(EVENTS_PENDING, acceptance.pending)
    live_gauge(EVENTS_LOST, acceptance.at_most_lost)
    cache = Cache(settings)
    flask = create_app(settings, state, cache, acceptance)
    if settings.operations_port is not None:
        operations = create_operations(state, cache, acceptance)
        serve_operations(operations, settings.metrics_host, settings.operations_port)
    telemetry = Telemetry("shop-web", settings.server_name, flask)
    return flask


def stop() -> None:
    """Export the last spans."""
    if telemetry is not None:
        telemetry.stop()


if __name__ == "__main__":
    conf = str(Path(__file__).with_name("gunicorn_conf.py"))
    os.execv(
        sys.executable, [sys.executable, "-m", "gunicorn", "-c", conf, "app.web:application", *sys.argv[1:]]
    )
else:
    application = build()

"""gunicorn's configuration: one worker (for a single /metrics with exemplars), many threads, a quick shutdown."""

import os
from pathlib import Path
from typing import Any

from app.process import fail, listen
from app.settings import load_settings
from app.state import State, StateError

bind = f"{os.environ.get('HOST', '127.0.0.1')}:{os.environ.get('PORT', '8000')}"
workers = 1
worker_class = "gthread"
# Enough for all reads that wait on a stalled cache server, so that events are accepted meanwhile.
threads = 128
keepalive = 75
graceful_timeout = 1
timeout = 60
# No proxy stands in front: a client must not say under which path the application lies (gunicorn answers 500 then).
forwarded_allow_ips = ""
accesslog = None
loglevel = "warning"
control_socket_disable = True
# The worker touches a heartbeat file every second; on a busy disk that would stall it.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None

# Checked here, before a worker exists: otherwise the master would report at length that a worker failed to boot.
_settings = load_settings()
try:
    _state = State(_settings.state_dir)
    _state.init_invalidation(_settings.strategy, _settings.scan_count)  # writes: the folder may be read-only
    _state.close()
    if _settings.operations_port:
        listen(_settings.metrics_host, _settings.operations_port).close()
except StateError as error:
    raise fail(str(error)) from None


def worker_exit(_server: Any, _worker: Any) -> None:
    """Called in the worker before it ends."""
    from app import web

    web.stop()

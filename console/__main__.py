"""`python -m console`: serve the control page and direct every server, until SIGTERM or Ctrl-C.

One process: the stories are threads, and the page has a handful of readers on the loopback, for whom Werkzeug's
threaded server is enough. Settings: see `console.config`. Exit codes: 0 stopped, 2 bad settings or a taken port.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading

from werkzeug.serving import make_server

from console.config import load_config
from console.metrics import ControlMetrics
from console.story import AllStories, Story
from console.web import create_app
from lab.errors import UsageError


def main() -> int:
    """Run until a signal comes; returns the exit code."""
    try:
        config = load_config()
    except UsageError as error:
        print(f"control: {error}", file=sys.stderr)
        return error.exit_code
    metrics = ControlMetrics(server.name for server in config.servers)
    everybody = AllStories()
    stories = {server.name: Story(server, config, metrics, everybody) for server in config.servers}
    everybody.add(stories.values())
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each poll
    app = create_app(stories, config, metrics)
    try:
        listener = socket.create_server((config.host, config.port))
    except OSError as error:
        print(f"control: cannot listen on {config.host}:{config.port}: {error.strerror}", file=sys.stderr)
        return 2
    server = make_server(config.host, config.port, app, threaded=True, fd=listener.fileno())

    def stop(*_: object) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()  # waits for the loop, which runs this

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for story in stories.values():
        story.start()
    print(f"control: listens at {config.host}, port {listener.getsockname()[1]}", flush=True)
    server.serve_forever()
    for story in stories.values():
        story.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())

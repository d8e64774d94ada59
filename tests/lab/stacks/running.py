"""A scene of real processes that docker seems to run, for the tests of the compose stack."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lab.scenarios import catalogue
from lab.stacks.native import NativeStack

SCENARIO = catalogue()["key-growth"]
GUNICORN = ["gunicorn", "-c", "app/gunicorn_conf.py", "app.web:application"]


class Neighbour:
    """Another server's storefront and load generator, as far as the lab speaks to them. It records every PUT."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Any]] = {
            "/settings/warming": {
                "target_keys": 200_000,
                "keys_per_second": 800,
                "users": 1500,
                "keys": 30_000,
            },
            "/load": {"reads_per_second": 5.0, "events_per_second": 12.5, "users_population": 10_000},
        }
        self.puts: list[tuple[str, dict[str, Any]]] = []
        neighbour = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(neighbour.state[self.path])

            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                neighbour.puts.append((self.path, body))
                neighbour.state[self.path].update(body)
                self._answer(neighbour.state[self.path])

            def _answer(self, content: object) -> None:
                text = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


@dataclass
class Running:
    """A scene of real processes that docker seems to run."""

    docker: Any
    control: Any
    neighbour: Neighbour
    native: NativeStack

    @property
    def store_pid(self) -> int:
        """The id of the server's current process, which a restart by the stand-in changes."""
        found = json.loads((self.docker.folder / "containers.json").read_text())
        return int(next(c["pid"] for c in found if c["service"] == "valkey"))

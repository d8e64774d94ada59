"""A scene of real processes that docker seems to run, for the tests of the compose stack."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from lab.scenarios import catalogue
from lab.stacks.native import NativeStack
from tests.httpkit import Answer, HttpStandIn, Request

SCENARIO = replace(catalogue()["key-growth"], scan_count=100_000)  # as a run fills in what its server gets
GUNICORN = ["gunicorn", "-c", "app/gunicorn_conf.py", "app.web:application"]


class Neighbour(HttpStandIn):
    """Another server's storefront and load generator, as far as the lab speaks to them. It records every PUT."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Any]] = {
            "/settings/warming": {
                "target_keys": 200_000,
                "keys_per_second": 800,
                "users": 1500,
                "keys": 30_000,
            },
            "/load": {
                "reads_per_second": 5.0,
                "events_per_second": 12.5,
                "visits_per_second": 25.0,
                "users_population": 10_000,
            },
        }
        self.puts: list[tuple[str, dict[str, Any]]] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """The state of that path, after a PUT the new one."""
        if request.method == "PUT":
            self.puts.append((request.path, request.body))
            self.state[request.path].update(request.body)
        return Answer(self.state[request.path])


@dataclass
class Running:
    """A scene of real processes that docker seems to run."""

    docker: Any
    control: Any
    neighbour: Neighbour
    native: NativeStack

    @property
    def server_pid(self) -> int:
        """The id of the server's current process, which a restart by the stand-in changes."""
        found = json.loads((self.docker.folder / "containers.json").read_text())
        return int(next(c["pid"] for c in found if c["service"] == "valkey"))

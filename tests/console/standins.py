"""Stand-ins for the processes around a cache server: one HTTP server that plays web, invalidator, Locust and probe."""

from typing import Any

from console.config import Config, ServerAddresses
from tests.httpkit import Answer, HttpStandIn, Request


class StandIns(HttpStandIn):
    """The four processes' answers are plain attributes; what they are told is recorded in `told`."""

    def __init__(self) -> None:
        self.invalidation: dict[str, Any] = {"strategy": "scan", "scan_count": 1000}
        self.strategies = {"scan": "walk over every key", "index": "look it up"}
        self.searching = ["scan"]
        self.warming: dict[str, Any] = {
            "target_keys": 0, "keys_per_second": None, "keys": 0, "users": 0, "state": "idle", "error": None,
        }  # fmt: skip
        self.load: dict[str, Any] = {
            "visits_per_second": 0.0,
            "events_per_second": 0.0,
            "users_population": 1,
        }
        self.finished = 0.0
        self.in_flight = 0.0
        self.pending = 0.0
        self.probe = {0.001: 0.0, 0.01: 0.0, 1.0: 0.0, float("inf"): 0.0}
        self.broken: set[str] = set()
        self.told: list[tuple[str, dict[str, Any]]] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """What the process that the path begins with answers."""
        if request.path.split("/")[1] in self.broken:
            return Answer({"detail": "out of order"}, 503)
        return self.put(request.path, request.body) if request.method == "PUT" else self.get(request.path)

    def config(self, server_url: str, **settings: Any) -> Config:
        """Settings of a console whose only server, ``one``, has these stand-ins around it."""
        roles = (f"{self.url}/{role}" for role in ("web", "invalidator", "locust", "probe"))
        values: dict[str, Any] = {"servers": (ServerAddresses("one", server_url, *roles),), "story": "off"}
        return Config(**{**values, **settings})

    def get(self, path: str) -> Answer:
        """The answer to a GET."""
        if path.endswith("/metrics"):
            return Answer(self._invalidator() if path.startswith("/invalidator/") else self._probe())
        answers = {
            "/web/readyz": {},
            "/web/settings/invalidation": {
                **self.invalidation,
                "strategies": self.strategies,
                "searching": self.searching,
            },
            "/web/settings/warming": self.warming,
            "/locust/load": self.load,
        }
        return Answer(answers[path]) if path in answers else Answer({}, 404)

    def put(self, path: str, body: dict[str, Any]) -> Answer:
        """The answer to a PUT; a fill is done at once."""
        self.told.append((path, body))
        if path == "/web/settings/invalidation":
            self.invalidation.update(body)
        elif path == "/web/settings/warming":
            self.warming.update({key: body[key] for key in ("target_keys", "keys_per_second") if key in body})
        else:
            self.load.update(body)
        return Answer({})

    def fills(self) -> list[dict[str, Any]]:
        """The requests to the warmer, in order."""
        return [body for path, body in self.told if path == "/web/settings/warming"]

    def _invalidator(self) -> str:
        return (
            "# TYPE cache_invalidation_events counter\n"
            f'cache_invalidation_events_total{{strategy="scan",outcome="done"}} {self.finished}\n'
            'cache_invalidation_events_total{strategy="scan",outcome="retried"} 7.0\n'
            'cache_invalidation_events_created{strategy="scan",outcome="done"} 1.7e+09\n'
            f"cache_invalidation_events_in_flight {self.in_flight}\n"
            f"cache_invalidation_events_pending {self.pending}\n"
        )

    def _probe(self) -> str:
        rows = []
        for bound, count in self.probe.items():
            le = "+Inf" if bound == float("inf") else str(bound)
            rows += [
                f'probe_latency_seconds_bucket{{probe="main",from="intended",le="{le}"}} {count}',
                f'probe_latency_seconds_bucket{{probe="main",from="send",le="{le}"}} 0.0',
            ]
        return "\n".join(rows) + "\n"

"""The releases under test: two groups, and the room that one of them uses."""

from __future__ import annotations

ROOM, ONE, TWO = "latency-lab-room", "team-1", "team-2"
SERVER = {ONE: "redis", TWO: "valkey"}
"""The server of each group. The first has its own Prometheus, Tempo and Grafana, the second uses the room's."""
VALUES = {
    ROOM: ("--set-json", "servers=[]", "--set", f"observability.releases.{TWO}={{valkey}}"),
    ONE: ("--set", "servers={redis}"),
    TWO: ("--set", "servers={valkey}", "--set", "observability.shared=true"),
}
"""Options of Helm, besides the values in values.yaml."""

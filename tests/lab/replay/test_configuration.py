"""compose.replay.yaml and its two configurations are the scene's, without what a cold case does not need."""

from __future__ import annotations

from typing import Any

import yaml

from lab import ROOT
from tests.compose import promises

SERVICES = ("prometheus", "tempo", "grafana")


class Loader(yaml.SafeLoader):
    """Reads Compose's `!reset` as None: the extended service's setting is taken away."""


Loader.add_constructor("!reset", lambda *_: None)


def parsed(name: str) -> dict[str, Any]:
    """A YAML file of the project."""
    found: dict[str, Any] = yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader=Loader)
    return found


def test_a_replay_starts_only_prometheus_tempo_and_grafana() -> None:
    """The replay has three of compose.yaml's services, its own project name, and ports on 127.0.0.1 only."""
    replay, scene = parsed("compose.replay.yaml"), parsed("compose.yaml")
    assert tuple(replay["services"]) == SERVICES
    assert replay["name"] != scene["name"]
    assert replay["networks"] == scene["networks"]
    for name, service in replay["services"].items():
        assert service["extends"] == {"file": "compose.yaml", "service": name}
        assert not {"image", "user", "read_only", "cap_drop", "mem_limit"} & set(service)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert service["depends_on"] is None, "the lab's image is not there"
        assert [mount for mount in service.get("volumes", ()) if not promises.is_of_the_clone(mount)] == []
        volumes = scene["services"][name]["volumes"]
        kept = {mount.partition(":")[0] for mount in volumes if isinstance(mount, str)}
        assert kept <= set(replay["volumes"])


def test_mounts_replace_those_of_the_scene() -> None:
    """Each configuration is mounted where the scene's is: elsewhere both would be there."""
    replay, scene = parsed("compose.replay.yaml"), parsed("compose.yaml")
    for name, service in replay["services"].items():
        places = {promises.place(mount) for mount in scene["services"][name]["volumes"]}
        for mount in service.get("volumes", ()):
            assert mount["target"] in places, mount
            assert (ROOT / mount["source"]).is_file()


def test_prometheus_scrapes_nothing() -> None:
    """Prometheus has no targets and no rules, so nothing is computed twice; it has the scene's room for exemplars."""
    replay, scene = parsed("prometheus/prometheus.replay.yml"), parsed("prometheus/prometheus.yml")
    assert not {"scrape_configs", "rule_files"} & set(replay)
    assert replay["storage"] == scene["storage"]


def test_tempo_is_that_of_the_scene_but_counts_nothing() -> None:
    """Tempo has no metrics generator, and finds spans that arrive late at their own time; all else is the scene's."""
    replay, scene = parsed("tempo/tempo.replay.yaml"), parsed("tempo/tempo.yaml")
    del scene["metrics_generator"], scene["overrides"]["defaults"]["metrics_generator"]
    del scene["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]
    longest_h = 2
    live, search = replay["live_store"], replay["query_frontend"].pop("search")
    assert hours(live.pop("wal").pop("ingestion_time_range_slack")) > longest_h
    assert hours(search.pop("query_backend_after")) == hours(live.pop("complete_block_timeout")) > longest_h
    assert not search
    assert replay == scene


def hours(duration: str) -> int:
    """Return the hours of a duration as Tempo writes it."""
    return int(duration.removesuffix("h"))

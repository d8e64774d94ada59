"""Releases that each break one promise of the chart: name -> the rule that must notice it, and what is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.deploy.helmkit import Object, containers, find, pod

Change = Callable[[list[Object]], object]


def _container(name: str, *path: str, value: Any) -> Change:
    """Set a value in a container; None removes it."""

    def change(objects: list[Object]) -> None:
        place = containers(objects)[name]
        for step in path[:-1]:
            place = place.setdefault(step, {})
        place.pop(path[-1], None)
        if value is not None:
            place[path[-1]] = value

    return change


def _pod(kind: str, name: str, key: str, value: Any) -> Change:
    return lambda objects: pod(find(objects, kind, name)).__setitem__(key, value)


def _spec(kind: str, name: str, key: str, value: Any) -> Change:
    return lambda objects: find(objects, kind, name)["spec"].__setitem__(key, value)


def _variable(container: str, name: str, value: str) -> Change:
    def change(objects: list[Object]) -> None:
        rows = containers(objects)[container].setdefault("env", [])
        rows[:] = [row for row in rows if row["name"] != name] + [{"name": name, "value": value}]

    return change


def _replaced(config: str, file: str, old: str, new: str) -> Change:
    def change(objects: list[Object]) -> None:
        data = find(objects, "ConfigMap", config)["data"]
        assert old in data[file]
        data[file] = data[file].replace(old, new)

    return change


ROLE = {"kind": "Role", "metadata": {"name": "reader"}}
EVERYWHERE = [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]


def _outside(host: str, service: str, port: int, selector: dict[str, Any]) -> Change:
    """Give a Service a name outside, and let the ingress controller in to the pods of a selector."""
    backend = {"service": {"name": service, "port": {"number": port}}}
    controller = {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}

    def change(objects: list[Object]) -> None:
        objects.append(
            {
                "kind": "Ingress",
                "metadata": {"name": "page"},
                "spec": {"rules": [{"host": host, "http": {"paths": [{"path": "/", "backend": backend}]}}]},
            }
        )
        objects.append(
            {
                "kind": "NetworkPolicy",
                "metadata": {"name": "from-the-ingress-controller"},
                "spec": {
                    "podSelector": selector,
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": [{"namespaceSelector": controller}], "ports": [{"port": port}]}],
                },
            }
        )

    return change


def _page(name: str) -> dict[str, Any]:
    return {"matchLabels": {"app.kubernetes.io/component": name}}


DOCTORED: dict[str, tuple[str, Change]] = {
    "a right in the cluster": ("known_kinds_only", lambda objects: objects.append(ROLE)),
    "root": ("pods_are_restricted", _pod("StatefulSet", "redis", "securityContext", {"runAsUser": 0})),
    "a server from whom is taken": (
        "what_measures_is_guaranteed",
        _container("redis", "resources", "requests", "cpu", value="100m"),
    ),
    "a cure by the kubelet": (
        "a_drowned_server_is_left_alone",
        _container("redis", "livenessProbe", value={"exec": {"command": ["redis-cli", "ping"]}}),
    ),
    "an outbox in the pod": (
        "accepted_events_survive",
        lambda objects: pod(find(objects, "StatefulSet", "storefront-redis"))["volumes"].__setitem__(
            0, {"name": "state", "emptyDir": {}}
        ),
    ),
    "a way out": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "egress", EVERYWHERE),
    ),
    "a server with a name outside": (
        "one_page_has_a_name_outside",
        _outside("localhost", "redis", 6379, _page("redis")),
    ),
    "a release that outgrows its quota": (
        "the_quota_fits",
        _container("redis", "resources", "limits", "cpu", value="9000m"),
    ),
    "an address of nobody": (
        "addresses_exist",
        _variable("web-redis", "APP_STORE_URL", "redis://cache:6379/0"),
    ),
    "a container that Compose does not know": (
        "every_container_is_a_service",
        _container("control", "name", value="console"),
    ),
    "another version": (
        "images_are_those_of_the_env_file",
        _container("redis", "image", value="docker.io/library/redis:8.10.1-alpine"),
    ),
    "another command": ("commands_are_the_same", _container("redis", "args", value=["redis-server"])),
    "another time-out": (
        "environments_are_the_same",
        _variable("web-redis", "APP_STORE_TIMEOUT_SECONDS", "5"),
    ),
    "more memory": (
        "limits_are_the_same",
        _container("redis", "resources", "limits", "memory", value="2048Mi"),
    ),
    "another user": (
        "users_are_the_same",
        lambda objects: pod(find(objects, "StatefulSet", "redis"))["securityContext"].update(runAsUser=1000),
    ),
    "another check": (
        "ready_is_healthy",
        _container("redis", "readinessProbe", "exec", "command", value=["redis-cli", "ping"]),
    ),
    "another folder": ("folders_are_the_same", _container("tempo", "volumeMounts", value=[])),
    "a sudden end": ("they_end_as_gently", _pod("StatefulSet", "redis", "terminationGracePeriodSeconds", 0)),
    "a slower scrape": (
        "prometheus_asks_the_same",
        _replaced("prometheus", "prometheus.yml", "scrape_interval: 2s", "scrape_interval: 60s"),
    ),
    "another dashboard": (
        "files_are_the_trees",
        _replaced("dashboard-incident", "incident.json", "p99", "p90"),
    ),
}

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


def _without(kind: str, name: str) -> Change:
    return lambda objects: objects.remove(find(objects, kind, name))


ROLE = {"kind": "Role", "metadata": {"name": "reader"}}
A_ROOM = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "latency-lab-room"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/component": "prometheus"}},
}
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
    "an object elsewhere": (
        "known_kinds_only",
        lambda objects: find(objects, "Service", "redis")["metadata"].update(namespace="other"),
    ),
    "root": ("pods_are_restricted", _pod("StatefulSet", "redis", "securityContext", {"runAsUser": 0})),
    "a token": ("pods_are_restricted", _pod("Deployment", "control", "automountServiceAccountToken", True)),
    "the host's network": ("pods_are_restricted", _pod("StatefulSet", "redis", "hostNetwork", True)),
    "a folder of the host": (
        "pods_are_restricted",
        _pod("StatefulSet", "redis", "volumes", [{"name": "x", "hostPath": {"path": "/"}}]),
    ),
    "a root that can be written": (
        "pods_are_restricted",
        _container("web-redis", "securityContext", "readOnlyRootFilesystem", value=False),
    ),
    "a capability": (
        "pods_are_restricted",
        _container(
            "dragonfly", "securityContext", "capabilities", value={"add": ["SYS_NICE"], "drop": ["ALL"]}
        ),
    ),
    "a port that is no number": (
        "no_variables_of_services",
        _pod("Deployment", "control", "enableServiceLinks", True),
    ),
    "no limit": ("all_is_limited", _container("tempo", "resources", "limits", value=None)),
    "memory promised twice": (
        "all_is_limited",
        _container("tempo", "resources", "requests", value={"cpu": "1m", "memory": "1Mi"}),
    ),
    "a server from whom is taken": (
        "what_measures_is_guaranteed",
        _container("redis", "resources", "requests", "cpu", value="100m"),
    ),
    "a server on any node": (
        "what_measures_is_guaranteed",
        _pod("StatefulSet", "redis", "nodeSelector", {"pool": "other"}),
    ),
    "a Grafana on a measured node": (
        "what_measures_is_guaranteed",
        _pod("Deployment", "grafana", "nodeSelector", {"pool": "measured"}),
    ),
    "a probe that waits for its turn": (
        "probes_come_first",
        lambda objects: pod(find(objects, "Deployment", "probe-redis")).pop("priorityClassName"),
    ),
    "a server that goes first": (
        "probes_come_first",
        _pod("StatefulSet", "redis", "priorityClassName", "first"),
    ),
    "a probe that pushes others out": (
        "probes_come_first",
        lambda objects: find(objects, "PriorityClass", "team-7-probe").pop("preemptionPolicy"),
    ),
    "nobody knows whether it is ready": (
        "readiness_is_shown",
        _container("tempo", "readinessProbe", value=None),
    ),
    "always ready": (
        "readiness_is_shown",
        _container("tempo", "readinessProbe", "exec", "command", value=["true"]),
    ),
    "a cure by the kubelet": (
        "a_drowned_server_is_left_alone",
        _container("redis", "livenessProbe", value={"exec": {"command": ["redis-cli", "ping"]}}),
    ),
    "a server that may not start slowly": (
        "a_drowned_server_is_left_alone",
        _container("dragonfly", "startupProbe", value={"exec": {"command": ["redis-cli", "ping"]}}),
    ),
    "a storefront that dies with its server": (
        "a_drowned_server_is_left_alone",
        _container("web-redis", "livenessProbe", "httpGet", "path", value="/readyz"),
    ),
    "a late loop that is given up": (
        "a_drowned_server_is_left_alone",
        _container("invalidator-redis", "livenessProbe", "failureThreshold", value=1),
    ),
    "a slow start that is given up": (
        "a_drowned_server_is_left_alone",
        _container("control", "startupProbe", value=None),
    ),
    "a slow server that gets no requests": (
        "requests_reach_who_is_not_ready",
        _spec("Service", "redis", "publishNotReadyAddresses", False),
    ),
    "a page on every node": (
        "requests_reach_who_is_not_ready",
        _spec("Service", "control", "type", "NodePort"),
    ),
    "a Service without pods": ("services_find_their_pods", _without("Deployment", "control")),
    "a Service at another port": (
        "services_find_their_pods",
        _spec("Service", "control", "ports", [{"name": "http", "port": 80}]),
    ),
    "a workload that takes all pods": (
        "selectors_are_their_own",
        _spec("Deployment", "control", "selector", {"matchLabels": {"app.kubernetes.io/instance": "lab"}}),
    ),
    "an outbox in the pod": (
        "accepted_events_survive",
        lambda objects: pod(find(objects, "StatefulSet", "storefront-redis"))["volumes"].__setitem__(
            0, {"name": "state", "emptyDir": {}}
        ),
    ),
    "an outbox that nobody makes": (
        "accepted_events_survive",
        _without("PersistentVolumeClaim", "state-redis"),
    ),
    "a volume that is left behind": (
        "accepted_events_survive",
        _spec("StatefulSet", "storefront-redis", "volumeClaimTemplates", [{}]),
    ),
    "a second invalidator": (
        "accepted_events_survive",
        _spec("StatefulSet", "storefront-redis", "replicas", 2),
    ),
    "an invalidator elsewhere": (
        "accepted_events_survive",
        lambda objects: pod(find(objects, "StatefulSet", "storefront-redis"))["containers"].pop(1),
    ),
    "an answer that is cut off": (
        "accepted_events_survive",
        _container("web-redis", "lifecycle", value=None),
    ),
    "no time to answer": (
        "accepted_events_survive",
        _pod("StatefulSet", "storefront-redis", "terminationGracePeriodSeconds", 2),
    ),
    "two consoles for a while": ("nothing_is_there_twice", _spec("Deployment", "control", "strategy", {})),
    "two probes": ("nothing_is_there_twice", _spec("Deployment", "probe-redis", "replicas", 2)),
    "a way out": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "egress", EVERYWHERE),
    ),
    "a way out to anything": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "egress", [{}]),
    ),
    "a way in": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "ingress", [{"from": [{"namespaceSelector": {}}]}]),
    ),
    "a neighbour who may use any port": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "ingress", [{"from": [A_ROOM]}]),
    ),
    "no policy": ("nothing_leaves_the_namespace", _without("NetworkPolicy", "within-the-namespace")),
    "a policy for one pod": (
        "nothing_leaves_the_namespace",
        _spec("NetworkPolicy", "within-the-namespace", "podSelector", {"matchLabels": {"a": "b"}}),
    ),
    "a server with a name outside": (
        "one_page_has_a_name_outside",
        _outside("localhost", "redis", 6379, _page("redis")),
    ),
    "a page that refuses its own name": (
        "one_page_has_a_name_outside",
        _outside("team-7.lab.example", "control", 8080, _page("control")),
    ),
    "a controller that goes anywhere": (
        "one_page_has_a_name_outside",
        _outside("localhost", "control", 8080, {}),
    ),
    "a door without a page": (
        "one_page_has_a_name_outside",
        lambda objects: objects.append(
            {
                "kind": "NetworkPolicy",
                "metadata": {"name": "from-the-ingress-controller"},
                "spec": {
                    "podSelector": _page("control"),
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": [{}], "ports": [{"port": 8080}]}],
                },
            }
        ),
    ),
    "a release that outgrows its quota": (
        "the_quota_fits",
        _container("redis", "resources", "limits", "cpu", value="9000m"),
    ),
    "more pods than the quota has": ("the_quota_fits", _spec("Deployment", "control", "replicas", 9)),
    "a load balancer": (
        "the_quota_fits",
        lambda objects: find(objects, "ResourceQuota", "redis-latency-lab")["spec"]["hard"].pop(
            "services.loadbalancers"
        ),
    ),
    "more Services than the quota has": (
        "the_quota_fits",
        lambda objects: find(objects, "ResourceQuota", "redis-latency-lab")["spec"]["hard"].update(
            services="9"
        ),
    ),
    "a history without an end": (
        "the_history_has_room",
        lambda objects: containers(objects)["prometheus"]["args"].pop(3),
    ),
    "an address of nobody": (
        "addresses_exist",
        _variable("web-redis", "APP_STORE_URL", "redis://cache:6379/0"),
    ),
    "a scrape of nobody": (
        "addresses_exist",
        _replaced("prometheus", "prometheus.yml", "probe-redis:", "probe-keydb:"),
    ),
    "a namespace that is not let in": (
        "addresses_exist",
        _variable("web-redis", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://tempo.other.svc:4318"),
    ),
    "a ConfigMap that is too long": (
        "configurations_can_be_applied",
        lambda objects: find(objects, "ConfigMap", "tempo")["data"].update(more="x" * 300_000),
    ),
    "a container that Compose does not know": (
        "every_container_is_a_service",
        _container("control", "name", value="console"),
    ),
    "half a storefront": ("every_container_is_a_service", _without("Deployment", "probe-redis")),
    "another version": (
        "images_are_those_of_the_env_file",
        _container("redis", "image", value="docker.io/library/redis:8.10.1-alpine"),
    ),
    "another command": ("commands_are_the_same", _container("redis", "args", value=["redis-server"])),
    "another entry point": ("commands_are_the_same", _container("redis", "command", value=["redis-server"])),
    "another time-out": (
        "environments_are_the_same",
        _variable("web-redis", "APP_STORE_TIMEOUT_SECONDS", "5"),
    ),
    "a variable more": ("environments_are_the_same", _variable("probe-redis", "RATE", "5")),
    "a page that refuses its own release": (
        "environments_are_the_same",
        _variable("locust-redis", "ALLOWED_HOSTS", "localhost"),
    ),
    "a server that the console does not know": (
        "environments_are_the_same",
        _variable("control", "CONTROL_SERVERS", "redis=redis://redis:6379"),
    ),
    "more memory": (
        "limits_are_the_same",
        _container("redis", "resources", "limits", "memory", value="2048Mi"),
    ),
    "an exception that is none any more": (
        "limits_are_the_same",
        _container("probe-redis", "resources", "limits", "cpu", value="1000m"),
    ),
    "another user": (
        "users_are_the_same",
        lambda objects: pod(find(objects, "StatefulSet", "redis"))["securityContext"].update(runAsUser=1000),
    ),
    "another check": (
        "ready_is_healthy",
        _container("redis", "readinessProbe", "exec", "command", value=["redis-cli", "ping"]),
    ),
    "a check that gives up sooner": (
        "ready_is_healthy",
        _container("redis", "readinessProbe", "failureThreshold", value=1),
    ),
    "another folder": ("folders_are_the_same", _container("tempo", "volumeMounts", value=[])),
    "a sudden end": ("they_end_as_gently", _pod("StatefulSet", "redis", "terminationGracePeriodSeconds", 0)),
    "a slower scrape": (
        "prometheus_asks_the_same",
        _replaced("prometheus", "prometheus.yml", "scrape_interval: 2s", "scrape_interval: 60s"),
    ),
    "a server that is not asked": (
        "prometheus_asks_the_same",
        _replaced("prometheus", "prometheus.yml", "- web-redis:9101", "- web-dragonfly:9101"),
    ),
    "a server under another's name": (
        "prometheus_asks_the_same",
        _replaced("prometheus", "prometheus.yml", "server: redis", "server: valkey"),
    ),
    "a rule that is missing": (
        "prometheus_asks_the_same",
        lambda objects: find(objects, "ConfigMap", "prometheus-rules")["data"].pop("alerts.yml"),
    ),
    "another dashboard": (
        "files_are_the_trees",
        _replaced("dashboard-incident", "incident.json", "p99", "p90"),
    ),
}

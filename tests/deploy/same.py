"""One source of truth: what the chart and compose.yaml both say, held against each other, container by container.

Each rule takes the objects of a release and returns where it differs from compose.yaml. A difference that is meant is
in one of the tables, with its reason.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml

from lab import ROOT
from tests.compose.promises import AT_HAND, NO_PROXY, Model, load, place
from tests.deploy.helmkit import (
    CHART,
    LOADER,
    Object,
    containers,
    environment,
    find,
    mebibytes,
    millicores,
    pod,
    workloads,
)
from tests.deploy.promises import SERVERS, Rule

IMAGES = {
    "lab": "LAB_IMAGE",
    "tools": "TOOLS_IMAGE",
    "dragonfly": "DRAGONFLY_IMAGE",
    "redis": "REDIS_IMAGE",
    "valkey": "VALKEY_IMAGE",
    "redisExporter": "REDIS_EXPORTER_IMAGE",
    "prometheus": "PROMETHEUS_IMAGE",
    "tempo": "TEMPO_IMAGE",
    "grafana": "GRAFANA_IMAGE",
}
"""Key of .Values.images -> variable of .env."""
NO_LIMIT_OF_COMPOSE = {"probe-": "cpu"}
"""Beginning of a name -> what is not Compose's limit. Its CPU is also kept free for it, so it is half a core."""
LONGER_GRACE_S = {"storefront-": 2}
"""Beginning of a workload's name -> seconds that its preStop takes."""
DOCKER_GRACE_S = 10
"""What Docker gives a container that says nothing."""


@cache
def compose() -> Model:
    """compose.yaml with the values of .env."""
    return load()


def _services(objects: list[Object]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its service in compose.yaml."""
    return [
        (each, compose()["services"].get(name, {}))
        for name, each in containers(objects).items()
        if name != AT_HAND
    ]


def every_container_is_a_service(objects: list[Object]) -> list[str]:
    """Each container has the name of a service, and a release has a server with all its parts, or none of them."""
    names = set(containers(objects))
    wrong = sorted(name for name in names if name not in compose()["services"] and "worker" not in name)
    for server in SERVERS:
        parts = {
            server,
            *(f"{part}-{server}" for part in ("web", "invalidator", "warmer", "locust", "probe")),
        }
        wrong += sorted(parts - names) if parts & names else []
    return wrong


def images_are_those_of_the_env_file(objects: list[Object]) -> list[str]:
    """values.yaml has the images of .env. (When a digest is new, copy it.)"""
    values = yaml.load((CHART / "values.yaml").read_text(encoding="utf-8"), Loader=LOADER)
    wrong = [
        f"{key}: {values['images'].get(key)}"
        for key, variable in IMAGES.items()
        if values["images"].get(key) != compose()["env"][variable]
    ]
    return wrong + [
        f"{each['name']}: {each['image']}"
        for each, service in _services(objects)
        if service and each["image"] != service["image"]
    ]


def commands_are_the_same(objects: list[Object]) -> list[str]:
    """What Compose calls the command is a container's args: the image's own entry point stays."""
    return [
        each["name"]
        for each, service in _services(objects)
        if service and (each.get("args") != service.get("command") or "command" in each)
    ]


def environments_are_the_same(objects: list[Object]) -> list[str]:
    """Each variable is Compose's, less the proxies, which nobody gives to a pod. Lists name the release's servers."""
    wrong = []
    here = set(containers(objects))
    for each, service in _services(objects):
        theirs = {
            name: _of_the_release(name, _text(name, value), here)
            for name, value in service.get("environment", {}).items()
            if name not in NO_PROXY
        }
        ours = {name: _of_the_release(name, value, here) for name, value in environment(each).items()}
        if service and theirs != ours:
            differ = {name for name, _ in theirs.items() ^ ours.items()}
            wrong.append(f"{each['name']}: {', '.join(sorted(differ))}")
    return wrong


def _text(name: str, value: Any) -> str:
    """A variable's text. YAML takes `on`, which .env has, for the same as `true`."""
    if isinstance(value, bool):
        return str(compose()["env"].get(name, str(value).lower()))
    return " ".join(str(value).split())


def _of_the_release(name: str, value: str, here: set[str]) -> str:
    """A variable without the servers that the release does not have, in an order of its own."""
    if name == "ALLOWED_HOSTS":
        hosts = [host for host in value.split() if host in here or not re.match(r"(web|locust)-", host)]
        return " ".join(sorted(hosts))
    if name in ("CONTROL_SERVERS", "CONTROL_LOCUST_URLS", "CONTROL_SCAN_COUNTS"):
        rows = [row.strip() for row in value.split(",")]
        return ",".join(row for row in rows if row.partition("=")[0] in here)
    return value


def limits_are_the_same(objects: list[Object]) -> list[str]:
    """Limits of CPU and memory are Compose's, but for those in `NO_LIMIT_OF_COMPOSE`."""
    wrong = []
    for each, service in _services(objects):
        if not service:
            continue
        limits = each["resources"]["limits"]
        found = {"cpu": millicores(limits["cpu"]), "memory": mebibytes(limits["memory"])}
        theirs = {"cpu": round(1000 * service["cpus"]), "memory": int(service["mem_limit"].removesuffix("m"))}
        but = {what for name, what in NO_LIMIT_OF_COMPOSE.items() if each["name"].startswith(name)}
        wrong += [
            f"{each['name']}: {what}" for what in found if (found[what] != theirs[what]) != (what in but)
        ]
    return wrong


def users_are_the_same(objects: list[Object]) -> list[str]:
    """Containers run as Compose's users."""
    wrong = []
    for made in workloads(objects):
        context = pod(made)["securityContext"]
        user = f"{context['runAsUser']}:{context['runAsGroup']}"
        for each in pod(made)["containers"]:
            service = compose()["services"].get(each["name"])
            wrong += [each["name"]] if service and each["name"] != AT_HAND and service["user"] != user else []
    return wrong


def ready_is_healthy(objects: list[Object]) -> list[str]:
    """A readiness probe runs Compose's health check, as often and as patiently."""
    wrong = []
    for each, service in _services(objects):
        if not service:
            continue
        check, probe = service["healthcheck"], each["readinessProbe"]
        how, *words = check["test"]
        command = ["/bin/sh", "-c", *words] if how == "CMD-SHELL" else words
        seconds = [int(check[key].removesuffix("s")) for key in ("interval", "timeout")]
        if probe["exec"]["command"] != command or [*seconds, check["retries"]] != [
            probe["periodSeconds"],
            probe["timeoutSeconds"],
            probe["failureThreshold"],
        ]:
            wrong.append(each["name"])
    return wrong


def folders_are_the_same(objects: list[Object]) -> list[str]:
    """The same folders are mounted: what can be written, and where configuration lies."""
    wrong = []
    for each, service in _services(objects):
        mounts = {mount["mountPath"] for mount in each["volumeMounts"]}
        theirs = {place(mount) for mount in service.get("volumes", ())} | set(service.get("tmpfs", ()))
        wrong += [f"{each['name']}: {sorted(mounts ^ theirs)}"] if service and mounts != theirs else []
    return wrong


def they_end_as_gently(objects: list[Object]) -> list[str]:
    """A pod has as long to end as Compose gives its containers, and what its preStop takes."""
    wrong = []
    for made in workloads(objects):
        name = made["metadata"]["name"]
        graces = {
            int(service.get("stop_grace_period", f"{DOCKER_GRACE_S}s").removesuffix("s"))
            for each in pod(made)["containers"]
            if each["name"] != AT_HAND and (service := compose()["services"].get(each["name"]))
        }
        more = sum(seconds for start, seconds in LONGER_GRACE_S.items() if name.startswith(start))
        if graces and pod(made).get("terminationGracePeriodSeconds") != max(graces) + more:
            wrong.append(name)
    return wrong


def prometheus_asks_the_same(objects: list[Object]) -> list[str]:
    """Jobs, intervals and rules are those of prometheus/; a job asks the release's servers where Compose's asks all."""
    file = yaml.load((ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"), Loader=LOADER)
    made = yaml.load(find(objects, "ConfigMap", "prometheus")["data"]["prometheus.yml"], Loader=LOADER)
    wrong = [
        key for key in file.keys() | made.keys() if key != "scrape_configs" and file.get(key) != made.get(key)
    ]
    here = set(containers(objects))
    jobs = {job["job_name"]: job for job in made["scrape_configs"]}
    for job in file["scrape_configs"]:
        wanted = {target for group in job.get("static_configs", ()) for target in group["targets"]}
        for group in job.get("dns_sd_configs", ()):
            wanted |= {f"{name}:{group['port']}" for name in group["names"]}
        wanted = {target for target in wanted if target.partition(":")[0] in {*here, "127.0.0.1"}}
        found = jobs.pop(job["job_name"], {"static_configs": []})
        asked = {
            target: group.get("labels") for group in found["static_configs"] for target in group["targets"]
        }
        wrong += (
            [] if set(asked) == wanted else [f"{job['job_name']} asks {sorted(asked)}, not {sorted(wanted)}"]
        )
        own = {"static_configs", "dns_sd_configs"}
        wrong += [
            f"{job['job_name']}: {key}"
            for key in (job.keys() | found.keys()) - own
            if job.get(key) != found.get(key)
        ]
        if "dns_sd_configs" in job:
            place = 0 if job["job_name"] in ("redis", "dragonfly") else 1
            wrong += [
                f"{target}: {labels}"
                for target, labels in asked.items()
                if labels != {"server": re.split(r"[:-]", target)[place]}
            ]
    rules = find(objects, "ConfigMap", "prometheus-rules")["data"]
    files = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "prometheus" / "rules").glob("*.yml")
    }
    return wrong + sorted(jobs) + ([] if rules == files else ["rules"])


def files_are_the_trees(objects: list[Object]) -> list[str]:
    """Tempo's configuration, data sources and dashboards are the tree's, byte for byte."""
    data = {name: text for o in objects if o["kind"] == "ConfigMap" for name, text in o["data"].items()}
    files = [ROOT / "tempo" / "tempo.yaml", *(ROOT / "grafana" / "provisioning").rglob("*.yaml")]
    files += (ROOT / "grafana" / "dashboards").glob("*.json")
    return [path.name for path in files if data.get(path.name) != path.read_text(encoding="utf-8")]


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        every_container_is_a_service,
        images_are_those_of_the_env_file,
        commands_are_the_same,
        environments_are_the_same,
        limits_are_the_same,
        users_are_the_same,
        ready_is_healthy,
        folders_are_the_same,
        they_end_as_gently,
        prometheus_asks_the_same,
        files_are_the_trees,
    )
}

"""The promises of the chart, each a rule: it takes the objects of a release and returns what breaks the promise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from tests.deploy.helmkit import (
    LOADER,
    Object,
    containers,
    environment,
    mebibytes,
    millicores,
    pod,
    workloads,
)

Rule = Callable[[list[Object]], list[str]]

SERVERS = ("dragonfly", "redis", "valkey")
KINDS = {
    "ConfigMap", "Deployment", "Ingress", "LimitRange", "NetworkPolicy", "PersistentVolumeClaim", "PriorityClass",
    "ResourceQuota", "Service", "StatefulSet",
}  # fmt: skip
"""No role, service account or secret: a release has no right in the cluster."""
PAGES = {"control": 8080, "grafana": 3000}
"""What may have a name outside the cluster."""
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected"}
DNS_PORTS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
NAMED = "kubernetes.io/metadata.name"
PATIENCE_S = 120
STOPS_S = 3
"""What a web process may take to end after its preStop: gunicorn's second, and the last spans' two."""


def is_measured(workload: Object) -> bool:
    """True for a server and for a probe."""
    name = str(workload["metadata"]["name"])
    return name in SERVERS or name.startswith("probe-")


def known_kinds_only(objects: list[Object]) -> list[str]:
    """Objects are of the kinds in `KINDS`, and none names a namespace of its own."""
    return [
        f"{o['kind']} {o['metadata']['name']}"
        for o in objects
        if o["kind"] not in KINDS or "namespace" in o["metadata"]
    ]


def pods_are_restricted(objects: list[Object]) -> list[str]:
    """Every pod keeps to Pod Security's level `restricted`, has a read-only root and no token."""
    wrong = []
    for made in workloads(objects):
        name, spec = made["metadata"]["name"], pod(made)
        context = spec["securityContext"]
        ok = {
            "token": spec.get("automountServiceAccountToken") is False,
            "user": context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0,
            "seccomp": context.get("seccompProfile") == {"type": "RuntimeDefault"},
            "host": not {"hostNetwork", "hostPID", "hostIPC"} & set(spec),
            "volumes": all(set(volume) - {"name"} <= VOLUMES for volume in spec.get("volumes", ())),
            "containers": all(each.get("securityContext") == CONFINED for each in spec["containers"]),
        }
        wrong += [f"{name}: {what}" for what, kept in ok.items() if not kept]
    return wrong


def what_measures_is_guaranteed(objects: list[Object]) -> list[str]:
    """Servers and probes have pods of their own, whose requests are limits; they alone follow the node selector."""
    wrong = []
    selectors = [pod(made).get("nodeSelector") for made in workloads(objects) if is_measured(made)]
    for made in workloads(objects):
        name, spec = made["metadata"]["name"], pod(made)
        if is_measured(made):
            resources = [each["resources"] for each in spec["containers"]]
            if len(resources) != 1 or resources[0].get("requests") != resources[0].get("limits"):
                wrong.append(f"{name} is not Guaranteed")
            if spec.get("nodeSelector") != selectors[0]:
                wrong.append(f"{name}: {spec.get('nodeSelector')}")
        elif "nodeSelector" in spec:
            wrong.append(f"{name} takes a measured node")
    return wrong


def a_drowned_server_is_left_alone(objects: list[Object]) -> list[str]:
    """The kubelet starts no server anew, and nothing because of its server: a restart would be the incident's cure.

    Liveness probes ask what needs no server, and are patient; a startup probe comes before each of them.
    """
    wrong = []
    for name, container in containers(objects).items():
        alive, starting = container.get("livenessProbe"), container.get("startupProbe")
        if name in SERVERS:
            wrong += [f"{name} is started anew"] if alive or starting else []
            continue
        wrong += [f"{name}: one without the other"] if bool(alive) != bool(starting) else []
        for probe in (alive, starting):
            if probe is None:
                continue
            if not _asks_the_process(probe, container):
                wrong.append(f"{name}: {probe}")
            if probe["periodSeconds"] * probe["failureThreshold"] < PATIENCE_S:
                wrong.append(f"{name} is given up too soon")
    return wrong


def _asks_the_process(probe: dict[str, Any], container: dict[str, Any]) -> bool:
    """True for a page that a process answers without its server, and for the age of its heartbeat."""
    ports = {port["containerPort"] for port in container.get("ports", ())}
    if "httpGet" in probe:
        return probe["httpGet"]["path"] in ("/healthz", "/metrics") and probe["httpGet"]["port"] in ports
    command = " ".join(probe.get("exec", {}).get("command", ()))
    found = re.fullmatch(r"python -SI app/health\.py http://127\.0\.0\.1:(\d+)/metrics --fresh \w+", command)
    return found is not None and int(found[1]) in ports


def accepted_events_survive(objects: list[Object]) -> list[str]:
    """A storefront's three processes share a folder on a volume that outlives their pod, and are never there twice.

    The volume belongs to the release, so that `helm uninstall` removes it. The web process answers before it ends.
    """
    wrong = []
    for made in workloads(objects):
        name = made["metadata"]["name"]
        if not name.startswith("storefront-"):
            continue
        server, spec = name.removeprefix("storefront-"), pod(made)
        if (
            made["kind"] != "StatefulSet"
            or made["spec"].get("replicas", 1) != 1
            or "volumeClaimTemplates" in made["spec"]
        ):
            wrong.append(f"{name} may be there twice, or leave its volume behind")
        names = [f"{part}-{server}" for part in ("web", "invalidator", "warmer")]
        wrong += (
            [] if [each["name"] for each in spec["containers"]] == names else [f"{name} has other processes"]
        )
        claims = {
            v["name"]: v["persistentVolumeClaim"]["claimName"]
            for v in spec["volumes"]
            if "persistentVolumeClaim" in v
        }
        for each in spec["containers"]:
            folder = environment(each).get("APP_STATE_DIR")
            mounted = [claims.get(m["name"]) for m in each["volumeMounts"] if m["mountPath"] == folder]
            if mounted != [f"state-{server}"]:
                wrong.append(f"{each['name']}: its state is not on the volume")
        if not any(
            o["kind"] == "PersistentVolumeClaim" and o["metadata"]["name"] == f"state-{server}"
            for o in objects
        ):
            wrong.append(f"there is no volume state-{server}")
        pause = (
            spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        )
        if not pause or spec.get("terminationGracePeriodSeconds", 30) < pause + STOPS_S:
            wrong.append(f"{name} ends before it has answered")
    return wrong


def nothing_leaves_the_namespace(objects: list[Object]) -> list[str]:
    """Traffic is refused but within the namespace, to the cluster's DNS, between a group and its room, and from
    the namespace of an ingress controller (see `one_page_has_a_name_outside`).
    """
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    everyone = [o for o in policies if o["spec"]["podSelector"] == {} and len(o["spec"]["policyTypes"]) == 2]
    wrong = [] if everyone else ["no policy holds for every pod"]
    for policy in policies:
        name = policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", ()):
            wrong += [f"{name}: from {peer}" for peer in rule.get("from", [{}]) if not _is_known(peer, rule)]
        for rule in policy["spec"].get("egress", ()):
            wrong += [f"{name}: to {peer}" for peer in rule.get("to", [{}]) if not _is_known(peer, rule)]
    return wrong


def _is_known(peer: dict[str, Any], rule: dict[str, Any]) -> bool:
    """True for a pod of the namespace, the cluster's DNS at its port, and named ports of namespaces that are named."""
    if peer == {"podSelector": {}}:
        return True
    selector = peer.get("namespaceSelector", {})
    if rule.get("ports") == DNS_PORTS:
        return set(selector.get("matchLabels", {})) == {NAMED}
    names = [row["values"] for row in selector.get("matchExpressions", ()) if row["key"] == NAMED]
    in_room = set(selector.get("matchLabels", {})) == {NAMED} and bool(peer.get("podSelector"))
    return bool(rule.get("ports")) and (in_room or (len(names) == 1 and bool(names[0])))


def one_page_has_a_name_outside(objects: list[Object]) -> list[str]:
    """An ingress leads to the control page, or to Grafana where there is none; the control page answers to it.

    A policy lets the controller in to this page's port, and there is one only beside an ingress.
    """
    ingresses = [o for o in objects if o["kind"] == "Ingress"]
    doors = [o for o in objects if o["metadata"]["name"] == "from-the-ingress-controller"]
    wrong = (
        [] if len(ingresses) == len(doors) <= 1 else [f"{len(ingresses)} ingresses, {len(doors)} policies"]
    )
    here = containers(objects)
    page = "control" if "control" in here else "grafana"
    for made in ingresses:
        rules = made["spec"]["rules"]
        backends = [path["backend"]["service"] for rule in rules for path in rule["http"]["paths"]]
        if backends != [{"name": page, "port": {"number": PAGES[page]}}] or not rules[0].get("host"):
            wrong.append(f"the ingress leads to {backends}")
        elif page == "control" and rules[0]["host"] not in environment(here[page])["ALLOWED_HOSTS"].split():
            wrong.append(f"the page does not answer to {rules[0]['host']}")
    for door in doors:
        [rule] = door["spec"]["ingress"]
        one_page = {"matchLabels": {"app.kubernetes.io/component": page}}
        if door["spec"]["podSelector"] != one_page or rule.get("ports") != [{"port": PAGES[page]}]:
            wrong.append(f"the policy lets the controller go to {door['spec']['podSelector']}")
    return wrong


def the_quota_fits(objects: list[Object]) -> list[str]:
    """The namespace's quota has room for every pod of the release at once."""
    need = {"requests.cpu": 0, "limits.cpu": 0, "requests.memory": 0, "limits.memory": 0, "pods": 0}
    for made in workloads(objects):
        count = made["spec"].get("replicas", 1)
        need["pods"] += count
        for container in pod(made)["containers"]:
            for kind, given in container["resources"].items():
                need[f"{kind}.cpu"] += count * millicores(given["cpu"])
                need[f"{kind}.memory"] += count * mebibytes(given["memory"])
    quotas = [o for o in objects if o["kind"] == "ResourceQuota"]
    if not quotas:
        return []  # values say quota=false
    hard = quotas[0]["spec"]["hard"]
    have = {key: millicores(hard[key]) if "cpu" in key else mebibytes(hard[key]) for key in need}
    claims = [o for o in objects if o["kind"] == "PersistentVolumeClaim"]
    need["services"], have["services"] = sum(o["kind"] == "Service" for o in objects), int(hard["services"])
    wrong = [f"{key}: {need[key]} is more than {have[key]}" for key in need if need[key] > have[key]]
    wrong += [] if int(hard["persistentvolumeclaims"]) >= len(claims) else ["volumes"]
    return wrong + [key for key in ("services.loadbalancers", "services.nodeports") if hard.get(key) != "0"]


def addresses_exist(objects: list[Object]) -> list[str]:
    """Each address in an environment, a command or Prometheus's targets is a Service here, or in a named namespace."""
    words = [str(each.get("env")) + str(each.get("args")) for each in containers(objects).values()]
    hosts = set(re.findall(r"(?:redis|http)://([a-z][a-z0-9.-]*):\d+", " ".join(words)))
    for made in objects:
        if made["kind"] == "ConfigMap" and "prometheus.yml" in made["data"]:
            for job in yaml.load(made["data"]["prometheus.yml"], Loader=LOADER)["scrape_configs"]:
                hosts |= {t.rpartition(":")[0] for group in job["static_configs"] for t in group["targets"]}
    named = {str(o["spec"]) for o in objects if o["kind"] == "NetworkPolicy"}
    here = {o["metadata"]["name"] for o in objects if o["kind"] == "Service"} | {"127.0.0.1"}
    return sorted(
        host
        for host in hosts - here
        if not (host.endswith(".svc") and any(f"'{host.split('.')[1]}'" in text for text in named))
    )


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        known_kinds_only,
        pods_are_restricted,
        what_measures_is_guaranteed,
        a_drowned_server_is_left_alone,
        accepted_events_survive,
        nothing_leaves_the_namespace,
        one_page_has_a_name_outside,
        the_quota_fits,
        addresses_exist,
    )
}

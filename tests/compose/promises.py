"""The promises of compose.yaml, each a rule: it takes the parsed file and returns a list of what breaks the promise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT
from lab.scene.preflight import read_env_file
from lab.server import servers
from lab.server.servers import IN_COMPOSE

Model = dict[str, Any]
Rule = Callable[[Model], list[str]]

OWN_IMAGES = ("LAB_IMAGE", "TOOLS_IMAGE")
AT_THE_DOOR = {"check", "welcome"}
"""Services that look or speak once, and serve nothing: `check` before all others, `welcome` after them."""
AT_HAND = "lab"
"""The service that runs one command of a person's and ends."""
WRITTEN = {"lab": "./runs:/lab/runs"}
"""Exceptions from named volumes: service -> the folder of the clone into which it writes."""
WATCHERS = {"prometheus", "tempo", "grafana", "redis-exporter"}
PARTS = ("", *(f"{part}-" for part in servers.PARTS))
NAMES = [server.name for server in IN_COMPOSE]
ALWAYS = [server.name for server in IN_COMPOSE if not server.profile]
SPEAK_PROMETHEUS = ["dragonfly", "dragonfly-current"]
"""The servers of the job `dragonfly`: Prometheus asks them itself. redis_exporter asks the others for it."""

NOT_CONFINED: dict[str, set[str]] = {"lab": {"cap_drop", "user"}}
"""Exceptions from confinement: service -> what it lacks. Each needs a comment at the service that says why."""

UNLIMITED = ("ghcr.io", "quay.io")
"""Registries that do not count what a network address pulls."""
FROM_DOCKER_HUB = {
    "REDIS_IMAGE": "one of Docker's official images, whose home is Docker Hub",
    "KEYDB_IMAGE": "its maker publishes on Docker Hub only",
    "TEMPO_IMAGE": "its maker publishes on Docker Hub only",
    "GRAFANA_IMAGE": "its maker publishes on Docker Hub only",
    "PYTHON_IMAGE": "one of Docker's official images, whose home is Docker Hub",
}
"""Exceptions: variable of .env -> why its image comes from Docker Hub, which counts pulls by network address. A
room has one address."""

SILENCED = {
    "dragonfly": ["--version_check=false"],
    "dragonfly-current": ["--version_check=false"],
    "grafana": [
        "GF_ANALYTICS_REPORTING_ENABLED=false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES=false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES=false",
        "GF_ANALYTICS_FEEDBACK_LINKS_ENABLED=false",
        "GF_NEWS_NEWS_FEED_ENABLED=false",
        "GF_SNAPSHOTS_EXTERNAL_ENABLED=false",
        "GF_SECURITY_DISABLE_GRAVATAR=true",
        "GF_PLUGINS_PREINSTALL_DISABLED=true",
        "GF_PLUGINS_PREINSTALL_AUTO_UPDATE=false",
        "GF_PLUGINS_PLUGIN_ADMIN_ENABLED=false",
    ],
}
"""Options and variables that keep a program from calling its maker."""


def load(root: Path = ROOT) -> Model:
    """compose.yaml with .env's values in place, as Compose would see it with every profile on."""
    text = (root / "compose.yaml").read_text(encoding="utf-8")
    values = read_env_file(root / ".env") or {}
    model: Model = yaml.safe_load(
        re.sub(r"\$\{(\w+):?\?\}", lambda found: values.get(found[1], found[0]), text)
    )
    model["env"] = values
    model["text"] = text
    return model


def _services(model: Model) -> list[tuple[str, dict[str, Any]]]:
    return list(model["services"].items())


def place(mount: str | dict[str, Any]) -> str:
    """Where a container finds a mount."""
    return str(mount["target"] if isinstance(mount, dict) else mount.split(":")[1])


CLONES = {"type": "bind", "read_only": True, "bind": {"selinux": "z", "create_host_path": False}}


def is_of_the_clone(mount: object) -> bool:
    """True for a read-only mount of a part of the clone, with SELinux's label, and an error where it is not there."""
    if not isinstance(mount, dict) or not CLONES.items() <= mount.items():
        return False
    return str(mount["source"]).startswith("./") and ".." not in mount["source"]


def ports_on_loopback(model: Model) -> list[str]:
    """Every published port is bound to 127.0.0.1, and .env says which."""
    return [
        f"{name}: {port}"
        for name, service in _services(model)
        for port in service.get("ports", ())
        if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", str(port))
    ] + re.findall(r'"127\.0\.0\.1:\d+:\d+"', model["text"])


def ports_differ(model: Model) -> list[str]:
    """No two services publish the same port, even with every profile on."""
    seen: dict[str, str] = {}
    clashes = []
    for name, service in _services(model):
        for port in service.get("ports", ()):
            published = str(port).split(":")[-2]
            if published in seen:
                clashes.append(f"{name} and {seen[published]}: {published}")
            seen[published] = name
    return clashes


def servers_are_not_published(model: Model) -> list[str]:
    """No server publishes a port."""
    return [name for name in NAMES if model["services"][name].get("ports")]


def images_are_pinned(model: Model) -> list[str]:
    """Every image has an exact version, written down in .env only."""
    wrong = [
        f"compose.yaml: {line}" for line in re.findall(r"image: (?!\$\{\w+_IMAGE:\?\})\S+", model["text"])
    ]
    for name, image in model["env"].items():
        if name.endswith("_IMAGE") and name not in OWN_IMAGES and not _exact(image):
            wrong.append(f".env: {name}={image}")
    known = {image for name, image in model["env"].items() if name.endswith("_IMAGE")}
    return wrong + [
        f"{name}: {s.get('image')}" for name, s in _services(model) if s.get("image") not in known
    ]


def _exact(image: str) -> bool:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "latest" not in tag and re.search(r"\d+\.\d+\.\d+", tag) is not None


def the_labs_image_is_never_pulled(model: Model) -> list[str]:
    """No service asks a registry for the lab's image, which would answer with an error for each of them."""
    own = {model["env"][name] for name in OWN_IMAGES}
    return [n for n, s in _services(model) if (s["image"] in own) is not (s.get("pull_policy") == "never")]


def names_of_nobody_have_no_address(model: Model) -> list[str]:
    """A name without a container is answered at once and by nobody else, so Prometheus logs no error for it."""
    return [
        name
        for name, service in _services(model)
        if "ndots:1" not in service["dns_opt"] or service["dns_search"] != ["."]
    ]


def few_images_come_from_docker_hub(model: Model) -> list[str]:
    """Images come from registries without a limit of pulls, with the exceptions in `FROM_DOCKER_HUB`."""
    wrong = []
    for name, image in model["env"].items():
        if name.endswith("_IMAGE") and name not in OWN_IMAGES:
            host = image.partition("/")[0]
            if host not in (("docker.io",) if name in FROM_DOCKER_HUB else UNLIMITED):
                wrong.append(f"{name}={image}")
    return wrong


def everything_is_limited(model: Model) -> list[str]:
    """Every service has limits of memory and CPU, and no more than the two CPUs of the smallest machine."""
    return [
        name
        for name, service in _services(model)
        if not re.fullmatch(r"\d+m", str(service.get("mem_limit"))) or not 0 < service.get("cpus", 0) <= 2
    ]


def everything_has_a_healthcheck(model: Model) -> list[str]:
    """Every service has a health check that runs a program at least every 10 s, or every 5 s if others wait for it."""
    waited_for = {
        other
        for name, service in _services(model)
        if name not in AT_THE_DOOR
        for other in service.get("depends_on", {})
    }
    wrong = []
    for name, service in _services(model):
        if name in {*AT_THE_DOOR, AT_HAND}:
            continue
        check = service.get("healthcheck", {})
        test = check.get("test", ["NONE"])
        runs = test[0] in ("CMD", "CMD-SHELL") and test[1] != "true" and not check.get("disable")
        often = ("5s",) if name in waited_for else ("5s", "10s")
        # start_interval needs Engine 25, and older ones refuse to start at all.
        if not runs or check.get("interval") not in often or "start_interval" in check:
            wrong.append(name)
    return wrong


def no_container_names(model: Model) -> list[str]:
    """No fixed container names: two copies of the lab may run under two project names, and --scale works."""
    return [name for name, service in _services(model) if "container_name" in service]


def only_named_volumes(model: Model) -> list[str]:
    """Data is written to named volumes only, each declared and used; folders of the tree are mounted read-only."""
    wrong, used = [], set()
    for name, service in _services(model):
        for mount in service.get("volumes", ()):
            source = str(mount).partition(":")[0]
            if source in model["volumes"]:
                used.add(source)
            elif not is_of_the_clone(mount) and mount != WRITTEN.get(name):
                wrong.append(f"{name}: {mount}")
    return wrong + [f"not used: {volume}" for volume in set(model["volumes"]) - used]


def everything_is_confined(model: Model) -> list[str]:
    """Not root, read-only, no capabilities, no new privileges, no access to the host; exceptions: NOT_CONFINED."""
    wrong = []
    for name, service in _services(model):
        lacks = {
            what
            for what, ok in {
                "cap_drop": service.get("cap_drop") == ["ALL"] and "cap_add" not in service,
                "no-new-privileges": "no-new-privileges:true" in service.get("security_opt", ()),
                "read_only": service.get("read_only") is True,
                "user": re.fullmatch(r"[1-9]\d*:\d+", str(service.get("user"))) is not None,
                "host": not {"privileged", "network_mode", "pid", "ipc", "devices"} & set(service)
                and "docker.sock" not in str(service.get("volumes")),
            }.items()
            if not ok
        }
        if lacks != NOT_CONFINED.get(name, set()):
            wrong.append(
                f"{name}: {', '.join(sorted(lacks)) or 'confined although the table says otherwise'}"
            )
    return wrong


def nothing_phones_home(model: Model) -> list[str]:
    """Programs that would call their maker are told not to, nothing is fetched at start, the network has no way out."""
    wrong = []
    for name, needed in SILENCED.items():
        service = model["services"][name]
        said = [str(word) for word in service.get("command", ())]
        said += [f"{key}={value}" for key, value in service.get("environment", {}).items()]
        wrong += [f"{name}: {option}" for option in needed if option not in said]
    for name, service in _services(model):
        fetching = re.search(r"GF_INSTALL_PLUGINS|PREINSTALL_SYNC|pip install|curl|git clone", str(service))
        wrong += [f"{name}: {fetching[0]}"] if fetching else []
    options = model["networks"]["default"]["driver_opts"]
    if options.get("com.docker.network.bridge.enable_ip_masquerade") != "false":
        wrong.append("the network reaches the outside")
    return wrong


NO_PROXY = {f"{way}_PROXY": "" for way in ("HTTP", "HTTPS", "ALL")} | {"NO_PROXY": "*"}
NO_PROXY |= {name.lower(): value for name, value in NO_PROXY.items()}


def no_service_uses_a_proxy(model: Model) -> list[str]:
    """No service uses the proxies of a person's Docker configuration: all it talks to is in the stack."""
    return [
        f"{name}: {variable}"
        for name, service in _services(model)
        for variable, value in NO_PROXY.items()
        if service.get("environment", {}).get(variable) != value
    ]


def waiting_is_for_health(model: Model) -> list[str]:
    """Services wait for health, and never for a watcher; a storefront's processes wait for its server, Locust for its
    web process.
    """
    wrong = []
    for name, service in _services(model):
        if name in AT_THE_DOOR:
            continue
        waits = dict(service.get("depends_on", {}))
        if waits.pop("check", None) not in (None, {"condition": "service_completed_successfully"}):
            wrong.append(f"{name}: check")
        wrong += [f"{name}: {on}" for on, how in waits.items() if how.get("condition") != "service_healthy"]
        wrong += [f"{name} waits for {on}" for on in set(waits) & WATCHERS]
        part, _, server = name.partition("-")
        if part in ("web", "invalidator", "warmer", "probe") and set(waits) != {server}:
            wrong.append(f"{name} does not wait for {server}")
        if part == "locust" and server in NAMES and set(waits) != {f"web-{server}"}:
            wrong.append(f"{name} does not wait for its storefront")
    return wrong


def all_is_between_check_and_welcome(model: Model) -> list[str]:
    """All of the scene wait for `check`; `welcome` waits for all that always start, and for loads of profiles."""
    on = {name for name, service in _services(model) if not service.get("profiles")}
    told = model["services"]["welcome"]["depends_on"]
    wrong = [
        f"{name} does not wait"
        for name in model["services"]
        if name != "lab" and "check" not in _with_theirs(model, {name})
    ]
    wrong += [f"welcome does not wait for {name}" for name in on - _with_theirs(model, {"welcome"})]
    wrong += [
        f"welcome: {name}" for name, how in told.items() if how.get("required", True) is not (name in on)
    ]
    return wrong + [f"welcome does not wait for {name}" for name in NAMES if f"locust-{name}" not in told]


def _with_theirs(model: Model, names: set[str]) -> set[str]:
    """Services, and all that they wait for."""
    found: set[str] = set()
    while more := names - found:
        found |= more
        names = {other for name in more for other in model["services"].get(name, {}).get("depends_on", {})}
    return found


def profiles_are_whole(model: Model) -> list[str]:
    """A server's profile holds the server and its whole storefront; all other services start by default."""
    wanted = {part + s.name: [s.profile] for s in IN_COMPOSE if s.profile for part in PARTS} | {
        AT_HAND: ["tools"]
    }
    return [
        f"{name}: {service.get('profiles', [])}"
        for name, service in _services(model)
        if service.get("profiles", []) != wanted.get(name, [])
    ] + [f"{name} is missing" for name in wanted if name not in model["services"]]


def addresses_exist(model: Model) -> list[str]:
    """Every address in an environment, a command or the scrape configuration is a service of this file."""
    words = [str(service.get("environment")) + str(service.get("command")) for _, service in _services(model)]
    hosts = set(re.findall(r"(?:redis|http)://([a-z][a-z-]*):\d+", " ".join(words)))
    for job in model["scrape"]["scrape_configs"]:
        for group in job.get("static_configs", ()):
            hosts |= {target.partition(":")[0] for target in group["targets"]} - {"127.0.0.1"}
        for group in job.get("dns_sd_configs", ()):
            hosts |= set(group["names"])
    return sorted(hosts - set(model["services"]))


def storefronts_know_their_server(model: Model) -> list[str]:
    """Each process of a storefront has its server's name and address, and a state folder on a volume."""
    wrong = []
    for part in ("web-", "invalidator-", "warmer-"):
        for server in NAMES:
            told = model["services"][part + server].get("environment", {})
            mounts = [
                str(mount).partition(":")[2] for mount in model["services"][part + server].get("volumes", ())
            ]
            wanted = {"APP_SERVER_NAME": server, "APP_STORE_URL": f"redis://{server}:6379/0"}
            if not wanted.items() <= told.items() or told.get("APP_STATE_DIR") not in mounts:
                wrong.append(part + server)
    return wrong


BOUND = ("APP_SEARCHES_AT_ONCE", "12")


HOSTS = "ALLOWED_HOSTS"
GUARDED = re.compile(r"control|(?:web|locust)-[a-z-]+")
"""Services whose pages answer only to the names in ALLOWED_HOSTS and to names of this machine."""


def pages_answer_to_their_names(model: Model) -> list[str]:
    """Each page allows the name by which the stack asks for it, and the names that .env adds."""
    wrong = []
    for name, service in _services(model):
        if GUARDED.fullmatch(name):
            known = str(service.get("environment", {}).get(HOSTS, "")).split()
            wrong += [f"{name}: {missing}" for missing in (name, model["env"][HOSTS]) if missing not in known]
    return wrong


def servers_are_alike(model: Model) -> list[str]:
    """The storefronts differ in their server and nothing else, or a comparison of servers means nothing.

    Two settings are excepted. The bound on searches: only servers with one thread need it, and it has no effect below
    the knee. SCAN's COUNT: it means something else on Dragonfly.
    """
    wrong = []
    for part in PARTS[1:]:
        forms = {}
        for server in NAMES:
            said = {
                k: v for k, v in model["services"][part + server].items() if k not in ("profiles", "image")
            }
            said["environment"] = [
                one
                for one in sorted(set(said.get("environment", {}).items()) - {BOUND})
                if one[0] not in (HOSTS, "APP_SCAN_COUNT")  # HOSTS is the same list for all
            ]
            text = str(said).replace("redis://", "resp://").replace(server, "SERVER")
            forms[server] = re.sub(r"127\.0\.0\.1:\d+", "PORT", text)
        wrong += [part + server for server, form in forms.items() if form != forms["valkey"]]
    limits = {str({k: model["services"][s].get(k) for k in ("mem_limit", "cpus")}) for s in NAMES}
    return wrong + (["the servers' limits differ"] if len(limits) > 1 else [])


def the_control_page_knows_each_server(model: Model) -> list[str]:
    """The control page has each server with its own addresses, its storefront's COUNT, and the link to its Locust with
    the port of .env.
    """
    told = model["services"]["control"]["environment"]
    rows = [row.strip().partition("=")[::2] for row in told["CONTROL_SERVERS"].split(",")]
    names = [name for name, _ in rows]
    wrong = [] if sorted(names) == sorted(NAMES) else [f"CONTROL_SERVERS: {names} is not {NAMES}"]
    for name, addresses in rows:
        hosts = re.findall(r"//([\w-]+):\d+", addresses)
        wanted = [part + name for part in ("", "web-", "invalidator-", "locust-", "probe-")]
        wrong += [] if hosts == wanted else [f"CONTROL_SERVERS: {name}={addresses}"]
    links = [f"{s.name}=http://127.0.0.1:{model['env'].get(s.locust_port)}" for s in IN_COMPOSE]
    found = [link.strip() for link in told["CONTROL_LOCUST_URLS"].split(",")]
    wrong += [f"CONTROL_LOCUST_URLS: {link}" for link in sorted(set(links) ^ set(found))]
    counts = {f"{name}={model['services'][f'web-{name}']['environment']['APP_SCAN_COUNT']}" for name in NAMES}
    asked = {row.strip() for row in told["CONTROL_SCAN_COUNTS"].split(",")}
    return wrong + [f"CONTROL_SCAN_COUNTS: {row}" for row in sorted(counts ^ asked)]


def each_server_is_scraped(model: Model) -> list[str]:
    """Prometheus asks each server itself, or redis_exporter for it, under the server's name."""
    jobs = {job["job_name"]: job for job in model["scrape"]["scrape_configs"]}
    wrong = []
    for job in ("dragonfly", "redis"):
        if job not in jobs:
            wrong.append(f"no job {job}")
            continue
        names = [name for name in NAMES if (name in SPEAK_PROMETHEUS) == (job == "dragonfly")]
        (by_name,) = jobs[job]["dns_sd_configs"]
        static = {config["labels"]["server"]: config["targets"] for config in jobs[job]["static_configs"]}
        wanted = {name: [f"{name}:{by_name['port']}"] for name in names if name in ALWAYS}
        optional = {name for name in names if name not in ALWAYS}
        wrong += [] if static == wanted else [f"{static} is not {wanted}"]
        wrong += [] if set(by_name["names"]) == optional else [f"{by_name['names']} is not {optional}"]
    return wrong


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        ports_on_loopback,
        ports_differ,
        servers_are_not_published,
        images_are_pinned,
        the_labs_image_is_never_pulled,
        names_of_nobody_have_no_address,
        few_images_come_from_docker_hub,
        everything_is_limited,
        everything_has_a_healthcheck,
        no_container_names,
        only_named_volumes,
        everything_is_confined,
        nothing_phones_home,
        no_service_uses_a_proxy,
        waiting_is_for_health,
        all_is_between_check_and_welcome,
        profiles_are_whole,
        addresses_exist,
        storefronts_know_their_server,
        pages_answer_to_their_names,
        servers_are_alike,
        the_control_page_knows_each_server,
        each_server_is_scraped,
    )
}

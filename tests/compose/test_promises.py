"""compose.yaml keeps its promises, and each promise's check fails on a file that breaks it. Needs no Docker."""

from __future__ import annotations

import ast
import copy
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml

from lab import ROOT
from lab.server.servers import DRAGONFLY
from tests.compose.promises import RULES, Model, load


@pytest.fixture(scope="module")
def promised() -> Model:
    """compose.yaml and the scrape configuration, parsed."""
    model = load()
    model["scrape"] = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    return model


@pytest.mark.parametrize("rule", RULES)
def test_promise_is_kept(rule: str, promised: Model) -> None:
    """compose.yaml breaks none of its promises."""
    assert RULES[rule](promised) == []


def _set(service: str, key: str, value: object) -> Callable[[Model], None]:
    return lambda model: model["services"][service].__setitem__(key, value)


def _drop(service: str, key: str) -> Callable[[Model], None]:
    return lambda model: model["services"][service].pop(key)


def _environment(service: str, name: str, value: str | None) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        environment = model["services"][service]["environment"]
        environment.pop(name, None)
        if value is not None:
            environment[name] = value

    return change


def _env(name: str, value: str) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        for service in model["services"].values():
            if service.get("image") == model["env"][name]:
                service["image"] = value
        model["env"][name] = value

    return change


def _edit(variable: str, old: str, new: str) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        environment = model["services"]["control"]["environment"]
        assert old in environment[variable], variable
        environment[variable] = environment[variable].replace(old, new)

    return change


def _job(model: Model, name: str) -> Model:
    jobs: list[Model] = model["scrape"]["scrape_configs"]
    return next(job for job in jobs if job["job_name"] == name)


DOCTORED: dict[str, tuple[str, Callable[[Model], None]]] = {
    "a port on every interface": ("ports_on_loopback", _set("grafana", "ports", ["3000:3000"])),
    "the same port twice": ("ports_differ", _set("locust-keydb", "ports", ["127.0.0.1:3000:8089"])),
    "a published server": ("servers_are_not_published", _set("redis", "ports", ["127.0.0.1:6379:6379"])),
    "latest": ("images_are_pinned", _env("REDIS_IMAGE", "docker.io/library/redis:latest")),
    "an image that is looked for and built": (
        "the_labs_image_is_never_pulled",
        _set("warmer-redis", "pull_policy", "missing"),
    ),
    "a name that is passed on": (
        "names_of_nobody_have_no_address",
        _set("prometheus", "dns_opt", ["timeout:1"]),
    ),
    "an image of Docker Hub that is elsewhere, too": (
        "few_images_come_from_docker_hub",
        _env("VALKEY_IMAGE", "docker.io/valkey/valkey:9.1.3-alpine"),
    ),
    "no memory limit": ("everything_is_limited", _drop("tempo", "mem_limit")),
    "no health check": ("everything_has_a_healthcheck", _drop("redis-exporter", "healthcheck")),
    "a container name": ("no_container_names", _set("redis", "container_name", "redis")),
    "a folder of the host": ("only_named_volumes", _set("tempo", "volumes", ["/var/tempo:/var/tempo"])),
    "a capability": ("everything_is_confined", _set("dragonfly", "cap_add", ["SYS_ADMIN"])),
    "a plugin fetched at start": ("nothing_phones_home", _environment("grafana", "GF_INSTALL_PLUGINS", "x")),
    "a proxy": ("no_service_uses_a_proxy", _environment("grafana", "HTTP_PROXY", None)),
    "waiting for a start only": (
        "waiting_is_for_health",
        _set("web-redis", "depends_on", {"redis": {"condition": "service_started"}}),
    ),
    "a service that starts whatever check says": (
        "all_is_between_check_and_welcome",
        _drop("grafana", "depends_on"),
    ),
    "half a profile": ("profiles_are_whole", _drop("probe-keydb", "profiles")),
    "a scrape of nobody": (
        "addresses_exist",
        lambda model: model["scrape"]["scrape_configs"][0]["static_configs"][0]["targets"].append("shop:80"),
    ),
    "a storefront on another's server": (
        "storefronts_know_their_server",
        _environment("web-redis", "APP_STORE_URL", "redis://valkey:6379/0"),
    ),
    "a page that refuses its own stack": (
        "pages_answer_to_their_names",
        _environment("locust-redis", "ALLOWED_HOSTS", "web-redis localhost"),
    ),
    "an advantage for one server": ("servers_are_alike", _set("web-redis", "cpus", 2.0)),
    "a server that the control page does not know": (
        "the_control_page_knows_each_server",
        _edit("CONTROL_SERVERS", ", keydb=", ", keydb2="),
    ),
    "an optional Dragonfly that nobody asks": (
        "each_server_is_scraped",
        lambda model: _job(model, "dragonfly")["dns_sd_configs"][0]["names"].clear(),
    ),
}


@pytest.mark.parametrize("case", DOCTORED)
def test_broken_promise_is_noticed(case: str, promised: Model) -> None:
    """A file doctored to break one promise is caught by that promise's rule."""
    rule, change = DOCTORED[case]
    doctored = copy.deepcopy(promised)
    change(doctored)
    assert RULES[rule](doctored), f"{rule} does not see: {case}"


def test_every_promise_can_be_broken() -> None:
    """Each rule has a doctored file that it must catch."""
    assert {rule for rule, _ in DOCTORED.values()} == set(RULES)


def test_image_is_built_from_the_lock_as_nobody() -> None:
    """The Dockerfile installs by hash, ends with a numeric user other than root, and fetches no frontend."""
    text = (ROOT / "app" / "Dockerfile").read_text(encoding="utf-8")
    assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE)
    assert "--require-hashes" in text
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]
    instructions = [line.split()[0] for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert instructions.index("USER") > max(
        i for i, word in enumerate(instructions) if word in ("RUN", "COPY")
    )
    assert "--mount" not in text, "older builders do not know it"
    assert "chmod -R go+rX ." in text.rpartition("COPY")[2], (
        "a strict umask at the clone closes the files to nobody"
    )


def test_a_company_can_build_the_image() -> None:
    """compose.yaml passes on what the Dockerfile asks for; the step that runs pip has the mirror and the certificate.

    A build argument is a variable of the steps that follow it in its stage, and pip reads PIP_INDEX_URL and
    PIP_TRUSTED_HOST.
    """
    company = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "CA_BUNDLE")
    passed = load()["services"]["lab"]["build"]["args"]
    dockerfile = (ROOT / "app" / "Dockerfile").read_text(encoding="utf-8")
    assert (
        set(passed)
        == set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))
        == {
            "BASE_IMAGE",
            "REQUIREMENTS",
            *company,
        }
    )
    assert {name: passed[name] for name in company} == {name: f"${{{name}:-}}" for name in company}
    stage = next(
        part for part in re.split(r"^FROM ", dockerfile, flags=re.MULTILINE) if "pip install" in part
    )
    before, step = re.split(r"^(?=RUN .*(?:\\\n.*)*pip install)", stage, flags=re.MULTILINE)
    assert [name for name in company if f'ARG {name}=""' in before] == list(company)
    written, exported = re.findall(r'"\$CA_BUNDLE" >(\S+) && export PIP_CERT=([^\s;]+)', step)[0]
    assert written == exported
    assert step.index("export PIP_CERT") < step.index("pip install")


def test_build_context_holds_what_is_copied_and_no_more() -> None:
    """.dockerignore lets through exactly what the Dockerfile copies: no .git, no .venv, no runs."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    dockerfile = (ROOT / "app" / "Dockerfile").read_text(encoding="utf-8")
    copied = set(re.findall(r"^COPY (?!--from)(\S+)", dockerfile, re.MULTILINE)) - {"${REQUIREMENTS}"}
    copied |= {"requirements/stack.lock", "requirements/lab.lock"}  # what REQUIREMENTS may be
    assert "*" in ignored
    assert let_through == copied
    compiled = re.search(r"compileall -q ([\w ]+)", dockerfile)
    assert compiled and set(compiled[1].split()) == {name for name in copied if (ROOT / name).is_dir()}


def test_all_that_the_containers_import_is_in_their_lock() -> None:
    """The lock has each package that app, loadtest and console import, also through lab."""
    folders = [path for name in ("app", "loadtest", "console") for path in (ROOT / name).rglob("*.py")]
    wanted = packages_of(folders)
    lock = (ROOT / "requirements" / "stack.lock").read_text()
    locked = {name.replace("_", "-").lower() for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    owners = importlib.metadata.packages_distributions()
    assert {"redis", "locust", "flask", "hiredis", "httpx"} <= wanted
    assert {
        name for name in wanted if not {o.replace("_", "-").lower() for o in owners[name]} & locked
    } == set()
    assert not {"numpy", "altair", "vl-convert-python", "mypy"} & locked


def test_the_tools_for_checks_are_not_in_the_labs_lock() -> None:
    """Who runs the lab does not fetch what only tests and checks need; these are in a lock of their own."""
    tools = {"scipy", "hdrhistogram", "mypy", "ruff", "selenium"}
    locked = {
        lock: set(
            re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / f"{lock}.lock").read_text(), re.MULTILINE)
        )
        & tools
        for lock in ("lab", "checks")
    }
    assert locked == {"lab": set(), "checks": tools}


def packages_of(files: list[Path]) -> set[str]:
    """The third-party packages that these files import, directly or through other files of the tree."""
    found, seen = set(), set()
    while files:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                top, *_ = words = name.split(".")
                if (ROOT / top).is_dir():
                    heads = [ROOT.joinpath(*words[:n]) for n in range(1, len(words) + 1)]
                    files += [
                        path
                        for head in heads
                        for path in (head.with_suffix(".py"), head / "__init__.py")
                        if path.is_file()
                    ]
                elif top not in sys.stdlib_module_names | {"_typeshed"}:
                    found.add(top)
    return found


def test_base_image_has_one_default() -> None:
    """The Dockerfile's default base image is the one that .env names."""
    text = (ROOT / "app" / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE)
    assert found
    assert load()["env"]["PYTHON_IMAGE"].partition("@")[0].endswith("/" + found[1])


def test_tempo_does_not_report_usage() -> None:
    """Tempo's configuration switches its usage report off."""
    config = yaml.safe_load((ROOT / "tempo" / "tempo.yaml").read_text(encoding="utf-8"))
    assert config["usage_report"] == {"reporting_enabled": False}


def test_dragonfly_is_the_same_with_and_without_docker() -> None:
    """Options that both Dragonflys have are equal, except threads and memory, which follow the machine."""

    def options(words: Iterable[str]) -> dict[str, str]:
        pairs = [word.partition("=") for word in words if word.startswith("--")]
        return {name: value for name, _, value in pairs}

    composed, native = options(load()["services"]["dragonfly"]["command"]), options(DRAGONFLY)
    shared = (composed.keys() & native.keys()) - {"--proactor_threads", "--maxmemory"}
    assert {"--dbfilename", "--version_check", "--slowlog_max_len", "--max_multi_bulk_len"} <= shared
    assert {name: composed[name] for name in shared} == {name: native[name] for name in shared}


def test_dragonfly_takes_more_options_from_the_env_file() -> None:
    """DRAGONFLY_OPTIONS comes behind the options of compose.yaml, as words of its own; .env has none."""
    model = load()
    script = model["services"]["dragonfly"]["entrypoint"][2].replace("$$", "$")
    assert model["env"]["DRAGONFLY_OPTIONS"] == ""
    more = model["text"].count("${DRAGONFLY_OPTIONS?}")
    said = subprocess.run(
        ["/bin/sh", "-c", f"{script}--force_epoll --port=1", "echo", "--logtostderr"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (more, said.stdout) == (1, "--logtostderr --force_epoll --port=1\n")


def test_standins_change_images_only() -> None:
    """The stand-ins' file only changes where images come from, so that compose.yaml is tested, with one exception.

    The stand-in for Dragonfly is a server with one thread, so its invalidator has the bound of such servers.
    """
    override = yaml.safe_load(
        (ROOT / "tests" / "compose" / "compose.standins.yaml").read_text(encoding="utf-8")
    )
    assert set(override) <= {"services", "x-build"}
    for name in ("invalidator-dragonfly", "invalidator-dragonfly-current"):
        assert override["services"].pop(name) == {"environment": load()["x-one-thread"]}
    for service in override["services"].values():
        assert set(service) <= {"image", "build"}

"""The stack is up: confined as promised, on loopback only, and every service gives the signal it is there for."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from lab.server.servers import IN_COMPOSE, PROFILES
from tests.compose.promises import AT_THE_DOOR, SPEAK_PROMETHEUS, load
from tests.compose.stack import EVERYTHING, PROFILE_OPTIONS, Stack, until

MODEL = load()
SERVICES = sorted(name for name in MODEL["services"] if name not in AT_THE_DOOR)
SERVERS = [server.name for server in IN_COMPOSE]

BEAT = "process_loop_heartbeat_timestamp_seconds"

SIGNALS: dict[str, str] = {
    # Service -> a query whose value is above zero only if the service does its job.
    "prometheus": "sum(prometheus_tsdb_head_samples_appended_total)",
    "tempo": 'tempo_build_info{job="tempo"}',
    "grafana": 'grafana_build_info{job="grafana"}',
    "control": 'sum(lab_store_up{job="control"})',
    **{server: f'dragonfly_uptime_in_seconds{{server="{server}"}}' for server in SPEAK_PROMETHEUS},
    **{
        f"redis-exporter for {server}": f'redis_up{{job="redis",server="{server}"}}'
        for server in SERVERS
        if server not in SPEAK_PROMETHEUS
    },
    **{
        f"web-{server}": f'sum(http_server_request_duration_seconds_count{{job="web",server="{server}"}})'
        for server in SERVERS
    },
    **{
        f"{part}-{server}": f'{BEAT}{{job="{part}",server="{server}"}} > bool (time() - 10)'
        for part in ("invalidator", "warmer")
        for server in SERVERS
    },
    **{f"locust-{server}": f'sum(locust_users{{job="locust",server="{server}"}})' for server in SERVERS},
    **{
        f"probe-{server}": f'rate(probe_latency_seconds_count{{job="probe",server="{server}",from="intended"}}[10s])'
        for server in SERVERS
    },
}


@pytest.mark.parametrize("signal", SIGNALS)
def test_service_gives_its_signal(signal: str, stack: Stack) -> None:
    """Prometheus has each service's series, and its value shows that the service does its job."""
    if signal.startswith("web-"):
        assert stack.http(signal.removeprefix("web-"), "GET", "/users/1/fragments/page-1")[0] == 200
    assert until(lambda: stack.value(SIGNALS[signal]) > 0, signal, 60)


def test_every_target_is_up(stack: Stack) -> None:
    """No scrape target is down, and every server that runs is among them."""
    down = until(lambda: not stack.query("up == 0"), "no target down", 60)
    assert down
    found = {dict(labels).get("server") for labels in stack.query("up")}
    assert set(SERVERS) <= found


@pytest.fixture(scope="module")
def processes(stack: Stack) -> dict[str, str]:
    """/proc/PID/status of every process of the engine's machine, seen from a container that shares its PIDs."""
    code = (
        "import glob,json\nfound={}\n"
        "for path in glob.glob('/proc/[0-9]*/status'):\n"
        "  try: found[path.split('/')[2]]=open(path).read()\n"
        "  except OSError: pass\n"
        "print(json.dumps(found))"
    )
    image = stack.inspect("control")["Config"]["Image"]
    said = stack.docker("run", "--rm", "--pid", "host", "--user", "0:0", image, "python", "-c", code)
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_container_is_as_promised(service: str, stack: Stack, processes: dict[str, str]) -> None:
    """Each container is healthy, limited and confined as compose.yaml promises, and its process is not root's."""
    facts = stack.inspect(service)
    host, state = facts["HostConfig"], facts["State"]
    assert state["Health"]["Status"] == "healthy"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] > 0
    assert host["NanoCpus"] > 0
    assert re.match(r"[1-9]", facts["Config"]["User"])
    lines = dict(line.split(":\t", 1) for line in processes[str(state["Pid"])].splitlines() if ":\t" in line)
    assert "0" not in lines["Uid"].split()
    assert int(lines["CapEff"], 16) == 0
    assert int(lines["NoNewPrivs"]) == 1


def test_ports_are_on_loopback_only(stack: Stack) -> None:
    """Every binding of every container is on 127.0.0.1, at the number asked for."""
    asked = {value for name, value in stack.environ.items() if name.endswith("_PORT") and value.isdigit()}
    seen = set()
    for service in SERVICES:
        for bindings in (stack.inspect(service)["NetworkSettings"]["Ports"] or {}).values():
            for binding in bindings or ():
                assert binding["HostIp"] == "127.0.0.1", service
                seen.add(binding["HostPort"])
    assert seen
    assert seen <= asked


def test_nothing_is_mounted_but_what_is_declared(stack: Stack) -> None:
    """Only the project's volumes are mounted, and folders read-only. No anonymous volumes: images declare them, and
    `down` without -v leaves them.
    """
    for service in SERVICES:
        for mount in stack.inspect(service)["Mounts"]:
            if mount["Type"] == "volume":
                assert mount["Name"].startswith(stack.environ["COMPOSE_PROJECT_NAME"]), (service, mount)
            elif mount["Type"] == "bind":
                assert mount["RW"] is False, (service, mount)


def test_there_is_no_way_out(stack: Stack) -> None:
    """A container reaches its neighbours and nothing beyond."""
    code = (
        "import socket\n"
        "socket.create_connection(('redis', 6379), 3).close()\n"
        "try: socket.create_connection(('192.0.2.1', 80), 3); print('out')\n"
        "except OSError: pass\n"
        "try: socket.create_connection(('1.1.1.1', 443), 3); print('out')\n"
        "except OSError: print('kept in')\n"
    )
    assert stack.inside("probe-redis", code) == "kept in"


def test_configuration_is_clean(stack: Stack) -> None:
    """`docker compose config -q` says nothing, with and without profiles; so nothing is obsolete or unset."""
    for options in ([], PROFILE_OPTIONS, EVERYTHING):
        done = subprocess.run(
            ["docker", "compose", *options, "config", "--quiet"],
            env=stack.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_compose_sees_what_the_promises_see(stack: Stack) -> None:
    """The promises are checked on the same model that Compose makes of the file."""
    seen = json.loads(stack.compose(*PROFILE_OPTIONS, "config", "--format", "json"))["services"]
    assert set(seen) == {*SERVICES, *AT_THE_DOOR}
    for name in SERVICES:
        service = MODEL["services"][name]
        command = service.get("command")
        assert seen[name]["command"] == (command and [str(word) for word in command]), name
        assert seen[name]["healthcheck"]["test"] == service["healthcheck"]["test"], name
        assert float(seen[name]["cpus"]) == service["cpus"], name
        assert set(seen[name].get("depends_on", {})) == set(service.get("depends_on", {})), name


def test_grafana_has_what_is_provisioned(stack: Stack) -> None:
    """The dashboards and the two data sources are there, under the uids everything links to."""
    uids = {row["uid"] for row in stack.get("GRAFANA_PORT", "/api/search?type=dash-db")}
    assert {"incident", "where-time-goes", "before-after", "redis", "dragonfly", "the-lab"} <= uids


def test_memory_of_the_idle_stack(stack: Stack) -> None:
    """Two servers and all that watches them stay below 2 GB while idle."""
    names = {stack.inspect(s)["Name"].lstrip("/"): s for s in SERVICES if not s.endswith(tuple(PROFILES))}
    said = stack.docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}", *names)
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    used = {
        names[name]: float(number) * units[unit]
        for name, number, unit in re.findall(r"(\S+) ([\d.]+)(\w+) /", said)
    }
    assert set(used) == set(names.values())
    print({name: f"{size / 1e6:.0f} MB" for name, size in sorted(used.items(), key=lambda item: -item[1])})
    assert sum(used.values()) < 2e9

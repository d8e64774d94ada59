"""The console's settings."""

import os
import subprocess
import sys
from typing import Any

import pytest

from console import view
from console.config import load_config
from lab.errors import UsageError
from tests.app.servicekit import ROOT

ONE = "redis=redis://redis:6379|http://web:8000|http://inv:9102|http://locust:8089|http://probe:9104"


def set_environment(patch: pytest.MonkeyPatch, **values: str) -> None:
    """Set these CONTROL_ variables and remove all others."""
    for name in [name for name in os.environ if name.startswith("CONTROL_")]:
        patch.delenv(name)
    for name, value in values.items():
        patch.setenv(name, value)


@pytest.mark.parametrize("separator", [",", ",\n  ", "\n"])
def test_servers_are_read(monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    """Servers may be separated by commas, line breaks or both; a trailing slash is ignored."""
    second = ONE.replace("redis=", "dragonfly=").replace(":8000", ":8000/")
    set_environment(monkeypatch, CONTROL_SERVERS=f"{ONE}{separator}{second}{separator}")
    servers = load_config().servers
    assert [server.name for server in servers] == ["redis", "dragonfly"]
    assert servers[1].web == "http://web:8000" and servers[0].probe == "http://probe:9104"


def test_empty_variables_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as Compose passes one on, counts as not set."""
    set_environment(
        monkeypatch, CONTROL_SERVERS=ONE, CONTROL_KEYS="", CONTROL_GRAFANA_URL="", CONTROL_LOCUST_URLS=""
    )
    config = load_config()
    assert config.keys == 120_000 and config.grafana_url == "" and config.locust_urls == {}
    assert config.visits_per_second == pytest.approx(120_000 / 21 / 240, rel=1e-3)
    assert config.scan_count("redis") == 1000
    set_environment(monkeypatch, CONTROL_SERVERS=ONE, CONTROL_SCAN_COUNTS="redis=100000, dragonfly=1000")
    assert load_config().scan_count("redis") == 100_000


@pytest.mark.parametrize(
    "values",
    [
        {"CONTROL_SERVERS": ""},
        {"CONTROL_SERVERS": "redis"},
        {"CONTROL_SERVERS": ONE + "," + ONE},
        {"CONTROL_SERVERS": ONE.replace("redis=", "Re dis=")},
        {"CONTROL_SERVERS": ONE.replace("redis://", "http://")},
        {"CONTROL_SERVERS": ONE.replace("http://probe", "probe")},
        {"CONTROL_SERVERS": ONE, "CONTROL_STORY": "perhaps"},
        {"CONTROL_SERVERS": ONE, "CONTROL_PORT": "99999"},
        {"CONTROL_SERVERS": ONE, "CONTROL_KEYS": "many"},
        {"CONTROL_SERVERS": ONE, "CONTROL_GRAFANA_URL": "javascript:alert(1)"},
        {"CONTROL_SERVERS": ONE, "CONTROL_LOCUST_URLS": "redis"},
        {"CONTROL_SERVERS": ONE, "CONTROL_SCAN_COUNTS": "redis"},
        {"CONTROL_SERVERS": ONE, "CONTROL_SCAN_COUNTS": "redis=0"},
        {"CONTROL_SERVERS": ONE, "CONTROL_UTILISATION": "0"},
        {"CONTROL_SERVERS": ONE, "CONTROL_BACKLOG_PAUSE": "10", "CONTROL_BACKLOG_RESUME": "10"},
    ],
)
def test_bad_settings_name_the_variable(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """An invalid setting is refused in one line that names the variable."""
    set_environment(monkeypatch, **values)
    with pytest.raises(UsageError, match=r"^CONTROL_[A-Z_*]+: .+") as caught:
        load_config()
    assert "\n" not in str(caught.value)


def start(**values: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m console` to its end."""
    environment: dict[str, Any] = {k: v for k, v in os.environ.items() if not k.startswith("CONTROL_")}
    return subprocess.run(
        [sys.executable, "-m", "console"],
        cwd=ROOT, env=environment | values, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def test_bad_settings_end_the_process() -> None:
    """Without servers the process ends with one line on stderr and exit code 2."""
    done = start()
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("control: CONTROL_SERVERS: ") and done.stderr.count("\n") == 1


def test_taken_port_ends_the_process() -> None:
    """A taken port is reported in one line with exit code 2."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = start(CONTROL_SERVERS=ONE, CONTROL_PORT=str(taken.getsockname()[1]))
    assert done.returncode == 2 and "cannot listen" in done.stderr and done.stderr.count("\n") == 1


def test_in_a_room_dashboards_open_on_an_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where groups share one Grafana, links choose a server of the page, of the dashboard's kind if it has one."""
    both = f"{ONE.replace('redis=', 'dragonfly=')},{ONE}"
    known = {"CONTROL_GRAFANA_URL": "http://127.0.0.1:3000"}

    def addresses(**more: str) -> dict[str, str]:
        set_environment(monkeypatch, **known, **more)
        rows = view.links(load_config(), [])["Dashboards"]
        return {
            address.rpartition("/")[2].partition("?")[0]: address.partition("?")[2] for _, address in rows
        }

    assert set(addresses(CONTROL_SERVERS=both).values()) == {""}
    found = addresses(CONTROL_SERVERS=both, CONTROL_SERIES_PREFIX="team-1.")
    assert found["incident"] == found["dragonfly"] == "var-server=team-1.dragonfly"
    assert found["redis"] == "var-server=team-1.redis"
    assert addresses(CONTROL_SERVERS=ONE, CONTROL_SERIES_PREFIX="team-1.")["dragonfly"] == ""

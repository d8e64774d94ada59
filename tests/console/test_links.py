"""Where the links of the page lead, by the name under which a browser has it. Needs a browser, but no driver for it."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from console.metrics import ControlMetrics
from console.web import create_app
from tests.console.standins import StandIns

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"
)
NAMES = ("lab-8080.forwarded.example", "8080-lab.forwarded.example", "lab-01.forwarded.example")


@pytest.fixture
def port(standins: StandIns, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a page without servers, with links."""
    monkeypatch.setenv("ALLOWED_HOSTS", " ".join(NAMES))
    config = standins.config(
        "redis://127.0.0.1:1",
        grafana_url="http://127.0.0.1:3000",
        prometheus_url="https://prometheus.example",
        tempo_url="http://127.0.0.1:3200",
    )
    server = make_server("127.0.0.1", 0, create_app({}, config, ControlMetrics([])), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "lab-8080.forwarded.example",
            ("http://lab-3000.forwarded.example", "http://lab-3200.forwarded.example"),
        ),
        (
            "8080-lab.forwarded.example",
            ("http://3000-lab.forwarded.example", "http://3200-lab.forwarded.example"),
        ),
        ("lab-01.forwarded.example", ("http://127.0.0.1:3000", "http://127.0.0.1:3200")),
    ],
)
def test_links_follow_a_forwarded_name(
    port: int, tmp_path: Path, name: str, expected: tuple[str, str]
) -> None:
    """In a name with the page's port the links have theirs; other names, and links to other machines, stay."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-dev-shm-usage", "--no-proxy-server", f"--user-data-dir={tmp_path}",
            f"--host-resolver-rules=MAP *:80 127.0.0.1:{port}", "--virtual-time-budget=500", "--dump-dom",
            f"http://{name}/",
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = re.findall(r'<a href="(\w+://[^"]*)"', done.stdout)
    grafana, tempo = expected
    assert found[0] == f"{grafana}/d/incident"
    assert found[-2:] == ["https://prometheus.example", f"{tempo}/status"]

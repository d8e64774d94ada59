"""The whole scene of one server natively: the server, storefront, load, probe and the console, all real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.app.servicekit import ROOT, Reply, ServerProcess, Service, end, eventually, free_port, http

NAME = "valkey"


class SupervisedServer:
    """A server under a supervisor that starts it again when it ends, as Docker does with `restart`."""

    def __init__(self) -> None:
        self.process = ServerProcess(ServerProcess.valkey()).start()
        self.restarts = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            child = self.process._process
            if child is not None and child.poll() is not None and not self._over.wait(0.5):
                self.process.start()
                self.restarts += 1

    def stop(self) -> None:
        """End the supervisor and the server."""
        self._over.set()
        self._thread.join(5)
        self.process.stop()


class ControlledScene:
    """All processes of one server's scene, and `python -m console` on it. Use as a context manager."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = settings
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.locust_port, self.probe_port, self.port = free_port(), free_port(), free_port()
        self.base = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "ControlledScene":
        self.server = SupervisedServer()
        self.service = Service(
            self.folder, self.server.process.url,
            APP_SERVER_NAME=NAME, APP_STORE_TIMEOUT_SECONDS="30", APP_METRICS_HOST="127.0.0.1", OMP_NUM_THREADS="1",
        )  # fmt: skip
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.service.start("web", "invalidator", "warmer")
        self.launch_locust()
        self.launch(
            "probe",
            ["loadtest.probe", "--url", self.server.process.url, "--metrics-port", str(self.probe_port)],
        )
        addresses = (
            self.server.process.url,
            self.service.base,
            f"http://127.0.0.1:{self.service.invalidator_port}",
            f"http://127.0.0.1:{self.locust_port}",
            f"http://127.0.0.1:{self.probe_port}",
        )
        self.launch(
            "control",
            ["console"],
            **{
                "CONTROL_SERVERS": f"{NAME}={'|'.join(addresses)}",
                "CONTROL_PORT": str(self.port),
                "CONTROL_GRAFANA_URL": "http://127.0.0.1:3000",
                "CONTROL_LOCUST_URLS": f"{NAME}=http://127.0.0.1:{self.locust_port}",
                **self.settings,
            },
        )
        eventually(self.answers, seconds=30)

    def answers(self) -> bool:
        """True if the console answers."""
        try:
            return http("GET", f"{self.base}/healthz").status == 200
        except OSError:
            return False

    def launch(self, name: str, module: list[str], **environment: str) -> None:
        """Start `python -m …` with its output in a log."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CONTROL_")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                cwd=ROOT, env={**clean, "OMP_NUM_THREADS": "1", **environment}, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def launch_locust(self) -> None:
        """Start the load, which waits for the console to set its rates."""
        self.launch(
            "locust",
            ["locust", "-f", "loadtest/key_growth.py", "--host", self.service.base, "--autostart", "--web-host",
             "127.0.0.1", "--web-port", str(self.locust_port), "--loglevel", "WARNING"],
            LOADTEST_KEYS="0", LOADTEST_EVENTS_PER_SECOND="0",
        )  # fmt: skip

    def __exit__(self, *_error: object) -> None:
        for name in reversed(list(self.processes)):
            end(self.processes.pop(name), signal.SIGTERM)
        self.service.stop()
        self.server.stop()

    def state(self) -> dict[str, Any]:
        """The state of the server; empty while it is not shown."""
        servers = http("GET", f"{self.base}/api/state").json["servers"]
        return dict(servers[0]) if servers else {}

    def until(self, check: Callable[[dict[str, Any]], Any], seconds: float = 30) -> dict[str, Any]:
        """Wait until `check` is true of the server's state, and return that state."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            if state and check(state):
                return state
            assert time.monotonic() < deadline, f"still {state}"
            time.sleep(0.1)

    def act(self, action: str, **body: Any) -> Reply:
        """POST an action."""
        return http("POST", f"{self.base}/api/servers/{NAME}/{action}", body)

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample of the console's metrics; None while it is not there."""
        text = http("GET", f"{self.base}/metrics").body.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == {"server": NAME, **labels}:
                    return float(sample.value)
        return None

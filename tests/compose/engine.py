"""A Docker Engine, Compose v2 and images for the tests, wherever they run.

    python -m tests.compose.engine COMMAND ...     run COMMAND with all of that, then stop what was started

What the machine has is used. What is missing is made, once, and kept in the folder LAB_ENGINE_CACHE (or
~/.cache/redis-latency-lab):

- no engine running: Debian's docker.io is installed (root and apt are needed) and a dockerd of our own started,
  with its own data folder and socket, and stopped at the end;
- no Compose v2: it is built from its Go module;
- no image registry within reach, or LAB_IMAGES=standins: mmdebstrap makes a Debian base, and the lab's image and
  small stand-ins for the others (standins/) are built on it. LAB_IMAGES=real insists on the real ones.

COMMAND runs with DOCKER_HOST, DOCKER_CONFIG, COMPOSE_FILE, PYTHON_IMAGE set as needed, and LAB_IMAGES=real|standins.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from lab import ROOT
from lab.scene.preflight import OLDEST_COMPOSE, read_env_file
from lab.server.checks import ask

COMPOSE_MODULE = "github.com/docker/compose/v2"
COMPOSE_VERSION = "v2.40.3"
STANDINS = "tests/compose/compose.standins.yaml"
BASE_IMAGE = "redis-latency-lab-base:1"
BASE_PACKAGES = (
    "python3",
    "python3-venv",
    "python3-yaml",
    "ca-certificates",
    "redis-server",
    "redis-tools",
    "prometheus",
    "prometheus-redis-exporter",
    "busybox",
)
PID_FILE = "dockerd.pid"
WITHOUT_NETWORKS = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
OTHERS_END_S = 60.0
"""Seconds for which the end of another engine is waited for: a daemon takes some to stop."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class NotPossible(Exception):
    """The message says what this machine lacks."""


def say(text: str) -> None:
    """Print a line about the progress to stderr."""
    print(f"engine: {text}", file=sys.stderr, flush=True)


def run(*command: str, seconds: float = 900, **more: str) -> None:
    """Run a command. Raises `NotPossible` with the end of its output if it fails."""
    done = subprocess.run(
        command,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise NotPossible(f"{' '.join(command)[:200]} failed:\n{tail}")


class Engine:
    """Everything COMMAND needs; `stop` ends what `start` began.

    With `builds_only` a daemon of our own makes neither a bridge nor firewall rules, which a daemon leaves behind when
    it ends. It runs no containers then, and builds images on the machine's own network.
    """

    def __init__(self, builds_only: bool = False) -> None:
        self.builds_only = builds_only
        default = Path.home() / ".cache" / "redis-latency-lab"
        self.cache = Path(os.environ.get("LAB_ENGINE_CACHE") or default)
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Find, start or make what COMMAND needs. Raises `NotPossible` if something is missing that cannot be made."""
        self.cache.mkdir(parents=True, exist_ok=True)
        self._want_engine()
        self._want_compose()
        self._want_images()

    def stop(self) -> None:
        """End the daemon that `start` began and wait for it; an engine that ran before is left alone."""
        if self.daemon is None:
            return
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()

    # -- engine --------------------------------------------------------------------------------------------

    def _want_engine(self) -> None:
        if shutil.which("docker") and ask("docker", "version", "--format", "{{.Server.Version}}")[0] == 0:
            say("using the engine that runs")
            return
        if not shutil.which("dockerd") or not shutil.which("iptables") or not shutil.which("docker"):
            install("docker.io", "iptables")
        if os.geteuid() != 0:
            raise NotPossible("no engine runs, and only root may start one")
        socket = self.cache / "docker.sock"
        os.environ["DOCKER_HOST"] = f"unix://{socket}"
        self._await_the_other()
        # The state of containers that a killed engine left does not hold for this engine.
        shutil.rmtree(self.cache / "exec", ignore_errors=True)
        with (self.cache / "dockerd.log").open("wb") as log:
            self.daemon = subprocess.Popen(
                [
                    "dockerd",
                    f"--host=unix://{socket}",
                    f"--data-root={self.cache / 'data'}",
                    f"--exec-root={self.cache / 'exec'}",
                    f"--pidfile={self.cache / PID_FILE}",
                    *(WITHOUT_NETWORKS if self.builds_only else ()),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(120):
            if ask("docker", "version", "--format", "{{.Server.Version}}")[0] == 0:
                say(f"started an engine of our own, log in {self.cache / 'dockerd.log'}")
                return
            if self.daemon.poll() is not None:
                break
            time.sleep(0.5)
        lines = (self.cache / "dockerd.log").read_text(errors="replace").splitlines()
        raise NotPossible("dockerd does not start:\n" + "\n".join(lines[-10:]))

    def _await_the_other(self) -> None:
        """Wait for the end of an engine that another run of the tests started in the same folder."""
        end = time.monotonic() + OTHERS_END_S
        while (pid := engine_in(self.cache)) is not None:
            if time.monotonic() > end:
                raise NotPossible(
                    f"another run of the tests uses its engine in {self.cache} (pid {pid}): wait for its end, "
                    "or set LAB_ENGINE_CACHE to another folder"
                )
            time.sleep(0.5)

    # -- compose -------------------------------------------------------------------------------------------

    def _want_compose(self) -> None:
        if compose_is_new_enough():
            return
        config = self.cache / "docker-config"
        plugin = config / "cli-plugins" / "docker-compose"
        os.environ["DOCKER_CONFIG"] = str(config)
        if not compose_is_new_enough():
            self._build_compose(plugin)
        if not compose_is_new_enough():
            raise NotPossible("the Compose plugin that was built does not work")

    def _build_compose(self, plugin: Path) -> None:
        if not shutil.which("go"):
            raise NotPossible("no Compose v2, and no Go to build it with: install Docker's Compose plugin")
        say("building Compose from its Go module (about two minutes, once)")
        module = self.cache / "compose-module"
        module.mkdir(exist_ok=True)
        plugin.parent.mkdir(parents=True, exist_ok=True)
        # A module of its own: `go install ...@version` refuses because of Compose's exclude directives.
        (module / "go.mod").write_text("module build\n\ngo 1.24\n")
        version = f"-X {COMPOSE_MODULE}/internal.Version={COMPOSE_VERSION}"
        for arguments in (
            ("get", f"{COMPOSE_MODULE}/cmd@{COMPOSE_VERSION}"),
            (
                "build",
                "-trimpath",
                "-ldflags",
                f"-s -w {version}",
                "-o",
                str(plugin),
                f"{COMPOSE_MODULE}/cmd",
            ),
        ):
            run("go", "-C", str(module), *arguments, CGO_ENABLED="0", GOFLAGS="-mod=mod")

    # -- images --------------------------------------------------------------------------------------------

    def _want_images(self) -> None:
        wanted = os.environ.get("LAB_IMAGES", "")
        if wanted != "standins" and self._real_images():
            os.environ["LAB_IMAGES"] = "real"
            say("using the real images, and building the lab's")
            self._build()
            return
        if wanted == "real":
            raise NotPossible("LAB_IMAGES=real, but the registry does not answer")
        os.environ["LAB_IMAGES"] = "standins"
        os.environ["COMPOSE_FILE"] = f"compose.yaml{os.pathsep}{STANDINS}"
        os.environ["PYTHON_IMAGE"] = BASE_IMAGE
        self._want_base()
        say("building the stand-ins and the lab's image")
        self._build()

    def _build(self) -> None:
        """Build here, with the person's own proxies: the tests' Docker configuration has a dead one."""
        run("docker", "compose", "--project-directory", str(ROOT), "--profile", "*", "build", PWD=str(ROOT))

    def _real_images(self) -> bool:
        images = [
            value for name, value in (read_env_file(ROOT / ".env") or {}).items() if name.endswith("_IMAGE")
        ]
        probe = next(image for image in images if "redis:" in image)
        if ask("docker", "image", "inspect", probe)[0] == 0:
            return True
        say("looking for an image registry")
        return ask("docker", "pull", "--quiet", probe, seconds=60)[0] == 0

    def _want_base(self) -> None:
        if ask("docker", "image", "inspect", BASE_IMAGE)[0] == 0:
            return
        tarball = self.cache / "base.tar"
        if not tarball.exists():
            if not shutil.which("mmdebstrap"):
                install("mmdebstrap")
            say("making a Debian base image (about 70 s, once)")
            half = tarball.with_suffix(".half.tar")
            run(
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(BASE_PACKAGES)}",
                "--aptopt=APT::Install-Recommends false",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                # The machine's own bundle: behind a proxy that signs with its own authority, pip needs it.
                f"--customize-hook=copy-in {CERTIFICATES} /etc/ssl/certs",
                debian_release(),
                str(half),
            )
            half.rename(tarball)
        environment = [f"--change=ENV {name}={CERTIFICATES}" for name in ("PIP_CERT", "SSL_CERT_FILE")]
        run("docker", "import", *environment, str(tarball), BASE_IMAGE)


def engine_in(cache: Path) -> int | None:
    """The pid of the dockerd that runs with its files in this folder; None if none does."""
    try:
        pid = int((cache / PID_FILE).read_text())
        return pid if psutil.Process(pid).name() == "dockerd" else None
    except (OSError, ValueError, psutil.Error):
        return None


def compose_is_new_enough() -> bool:
    """True if `docker compose` is there and new enough."""
    code, said = ask("docker", "compose", "version", "--short")
    version = re.match(r"v?(\d+)\.(\d+)", said) if code == 0 else None
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST_COMPOSE


def install(*packages: str) -> None:
    """Install Debian packages."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotPossible(f"missing, and only root can install them, with apt: {', '.join(packages)}")
    say(f"installing {', '.join(packages)}")
    # Installing a server on Debian starts it if there is an init; RUNLEVEL=1 prevents it.
    quiet: dict[str, Any] = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with suppress(NotPossible):
        run("apt-get", "update", "-qq", **quiet)
    wait = "DPkg::Lock::Timeout=300"
    run("apt-get", "install", "-y", "-qq", "-o", wait, "--no-install-recommends", *packages, **quiet)


def debian_release() -> str:
    """The machine's own release if it is a Debian, else bookworm."""
    text = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    found = re.search(r"^VERSION_CODENAME=(\w+)", text, re.MULTILINE)
    return found[1] if found and re.search(r"^ID=debian$", text, re.MULTILINE) else "bookworm"


def main(command: list[str]) -> int:
    """Run `command` with an engine and return its exit code, or 3 if no engine can be had."""
    engine = Engine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        engine.start()
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, "LAB_ENGINE": "1"}, check=False
        ).returncode
    except NotPossible as error:
        say(str(error))
        return 3
    finally:
        engine.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

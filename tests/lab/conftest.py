"""Fixtures: healthy synthetic runs, shared by all tests that only read them; a server that speaks TLS."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import redis

from lab.results import folder as run_folder
from lab.results.folder import Run
from lab.results.histograms import values_of
from tests.app.servicekit import free_port
from tests.lab.doctored import build_run


@pytest.fixture(scope="session", autouse=True)
def decoded_once() -> Iterator[None]:
    """The text of a histogram is decoded once: the runs that tests build have most of their texts in common."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "values_of", lru_cache(maxsize=20_000)(values_of))
        yield


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of `key-growth` in which everything is as it should be."""
    return build_run(tmp_path_factory.mktemp("healthy") / "run")


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of `control`: the same load and phases without the cause."""
    return build_run(tmp_path_factory.mktemp("control") / "run", cause="index")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The path for a run folder; it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A server that speaks TLS: its port, and the folder with ca.pem and a client's cert.pem and key.pem."""
    if not shutil.which("redis-server") or not shutil.which("openssl"):
        pytest.skip("needs redis-server with TLS, and openssl")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=nobody", "-days", "2")
    openssl("req", *new, "-keyout", "key.pem", "-out", "r.csr", "-subj", "/CN=localhost")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl("x509", "-req", "-in", "r.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem",
            "-days", "2", "-extfile", "names")  # fmt: skip
    port = free_port()
    files = ("--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file", "ca.pem")
    command = ["redis-server", "--port", "0", "--tls-port", str(port), *files, "--save", ""]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False,
                         ssl_certfile=str(tmp_path / "cert.pem"), ssl_keyfile=str(tmp_path / "key.pem"))  # fmt: skip
    end = time.monotonic() + 20
    while True:
        try:
            client.ping()
            break
        except redis.RedisError:
            if process.poll() is not None:
                pytest.skip("this redis-server has no TLS")
            assert time.monotonic() < end
            time.sleep(0.05)
    yield port, tmp_path
    process.kill()
    process.wait()

"""Digests are written beside image tags; a registry on this machine gives them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.stacks import pins
from tests.app.servicekit import free_port


class Registry:
    """Speaks the part of the distribution API that resolves a tag, with anonymous tokens."""

    def __init__(self) -> None:
        self.manifests = {"lab/redis:8.10.2": b"{}"}
        self.asked: list[tuple[str, str]] = []
        self.tells = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                name, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
                outer.asked.append((self.path, self.headers["Accept"]))
                if self.headers["Authorization"] != "Bearer for a stranger":
                    self.send_response(401)
                    realm = f'Bearer realm="{outer.url}/token",service="here",scope="repository:{name}:pull"'
                    self.send_header("WWW-Authenticate", realm)
                elif (manifest := outer.manifests.get(f"{name}:{tag}")) is None:
                    self.send_response(404)
                else:
                    self.send_response(200)
                    if outer.tells:
                        self.send_header(
                            "Docker-Content-Digest", f"sha256:{hashlib.sha256(manifest).hexdigest()}"
                        )
                self.end_headers()

            def do_GET(self) -> None:
                assert self.path == "/token?service=here&scope=repository%3Alab%2Fredis%3Apull"
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"token": "for a stranger"}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry on this machine."""
    found = Registry()
    yield found
    found.server.shutdown()
    found.server.server_close()


def digest_of(manifest: bytes) -> str:
    """Return a manifest's digest as registries write it."""
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def test_digests_are_written_beside_the_tags_and_renewed(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Comments, other settings and the lab's own image stay; a tag that was pushed again gets its new digest."""
    file = tmp_path / ".env"
    around = "# A comment.\nPORT=1\n{}LAB_IMAGE=redis-latency-lab:1\n"
    file.write_text(around.format(f"REDIS_IMAGE={registry.host}/lab/redis:8.10.2\n"))
    for manifest in (b"{}", b"pushed again"):
        registry.manifests["lab/redis:8.10.2"] = manifest
        assert pins.main(file) == 0
        line = f"REDIS_IMAGE={registry.host}/lab/redis:8.10.2@{digest_of(manifest)}\n"
        assert file.read_text() == around.format(line)
        assert capsys.readouterr().out == line
    assert pins.main(file) == 0
    assert capsys.readouterr().out == "nothing is new\n"
    assert "image.index" in registry.asked[0][1], "the list of all architectures is asked for"


@pytest.mark.parametrize("fault", ["no such tag", "no digest", "nobody", "no image"])
def test_an_image_that_cannot_be_resolved_keeps_its_line(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """An image that cannot be resolved keeps its line in .env; one line says why, exit code 3."""
    image = {
        "no such tag": f"{registry.host}/lab/redis:9",
        "nobody": f"127.0.0.1:{free_port()}/lab/redis:8.10.2",
        "no image": "redis",
    }.get(fault, f"{registry.host}/lab/redis:8.10.2")
    registry.tells = fault != "no digest"
    file = tmp_path / ".env"
    file.write_text(f"REDIS_IMAGE={image}\n")
    assert pins.main(file) == 3
    assert file.read_text() == f"REDIS_IMAGE={image}\n"
    said = capsys.readouterr().out
    assert said.startswith(f"REDIS_IMAGE stays as it is: {image}: ")
    assert said.count("\n") == 1

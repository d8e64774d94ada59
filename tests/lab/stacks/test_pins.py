"""Digests are written beside image tags; a registry on this machine gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.stacks import pins
from tests.app.servicekit import free_port
from tests.httpkit import Answer, HttpStandIn, Request


class Registry(HttpStandIn):
    """Speaks the part of the distribution API that resolves a tag, with anonymous tokens."""

    def __init__(self) -> None:
        self.manifests = {"lab/redis:8.10.2": b"{}"}
        self.asked: list[tuple[str, str]] = []
        self.tells = True
        super().__init__()
        self.host = f"127.0.0.1:{self.port}"

    def answer(self, request: Request) -> Answer:
        """A token to a GET, and a manifest's digest to a HEAD with that token."""
        if request.method == "GET":
            known = request.target == "/token?service=here&scope=repository%3Alab%2Fredis%3Apull"
            return Answer({"token": "for a stranger"} if known else {}, 200 if known else 400)
        name, _, tag = request.path.removeprefix("/v2/").partition("/manifests/")
        self.asked.append((request.path, request.headers["accept"]))
        if request.headers.get("authorization") != "Bearer for a stranger":
            realm = f'Bearer realm="{self.url}/token",service="here",scope="repository:{name}:pull"'
            return Answer(status=401, headers={"WWW-Authenticate": realm})
        manifest = self.manifests.get(f"{name}:{tag}")
        if manifest is None:
            return Answer(status=404)
        digest = hashlib.sha256(manifest).hexdigest()
        return Answer(headers={"Docker-Content-Digest": f"sha256:{digest}"} if self.tells else {})


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry on this machine."""
    with Registry() as found:
        yield found


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

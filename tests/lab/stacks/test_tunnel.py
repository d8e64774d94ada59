"""The tunnel to a server on TLS or a Unix socket: what passes through it, what a failure says, and when it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from lab.errors import StackError, UsageError
from lab.stacks import tunnel
from lab.stacks.address import Tls, read_address
from lab.stacks.tunnel import Way, way_to
from tests.app.servicekit import ServerProcess, eventually, free_port
from tests.lab.labkit import typed

BIG = b"\0\r\n" * 2_000_000
MANY = 20_000


@pytest.fixture
def on_socket(tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server that listens on a Unix socket too."""
    place = tmp_path / "server.sock"
    server = ServerProcess(ServerProcess.valkey(), "--unixsocket", str(place)).start()
    yield server, place
    server.stop()


def client(way: Way) -> Any:
    """Return a client that knows only the URL of the way."""
    return redis.Redis.from_url(way.url, protocol=2, driver_info=None)


def passes_everything(way: Way) -> None:
    """Assert that a large value, a long pipeline, two connections and the server's errors pass through."""
    one, other = client(way), client(way)
    one.set("latency-lab:big", BIG)
    assert other.get("latency-lab:big") == BIG
    pipe = one.pipeline(transaction=False)
    for number in range(MANY):
        pipe.echo(str(number))
    assert pipe.execute() == [str(number).encode() for number in range(MANY)]
    with pytest.raises(redis.ResponseError, match="wrong number"):
        other.execute_command("GET")


def ours(server: tuple[int, Path], **more: Any) -> Tls:
    """Return the client certificate for the fixture's server."""
    _, folder = server
    return Tls(certificate=folder / "cert.pem", key=folder / "key.pem", **more)


def test_what_goes_through_a_socket_comes_back(on_socket: tuple[ServerProcess, Path]) -> None:
    """Everything passes through a Unix socket, and writes go to the database of the address."""
    server, place = on_socket
    with way_to(read_address(f"unix://{place}?db=3")) as way:
        assert (way.shown, way.is_here) == (f"unix://{place}", True)
        assert way.words == ("--url", f"unix://{place}?db=3")
        passes_everything(way)
    assert server.client().info("keyspace")["db3"]["keys"] == 1


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_what_goes_through_tls_comes_back(name: str, encrypted: tuple[int, Path]) -> None:
    """Everything passes through TLS with the certificate's authority, by name and by number; --insecure needs none."""
    port, folder = encrypted
    tls = ours(encrypted, ca=folder / "ca.pem")
    with way_to(read_address(f"rediss://{name}:{port}/0", tls)) as way:
        assert way.words[:4] == ("--url", f"rediss://{name}:{port}/0", "--ca", str(folder / "ca.pem"))
        passes_everything(way)
    with way_to(read_address(f"rediss://{name}:{port}/0", ours(encrypted, insecure=True))) as way:
        assert client(way).ping()


def test_a_password_is_on_no_command_line(on_socket: tuple[ServerProcess, Path]) -> None:
    """A password is in the way's URL only: on no command line, and not in the environment of the tunnel's process."""
    server, place = on_socket
    server.client().execute_command("ACL", "SETUSER", "te@st", "on", ">p@s/s:w", "+@all", "~*")
    with way_to(read_address(f"unix://te%40st:p%40s%2Fs%3Aw@{place}")) as way:
        assert client(way).acl_whoami() in ("te@st", b"te@st")
        assert way.tunnel
        process = psutil.Process(way.tunnel.pid)
        told = " ".join(process.cmdline()) + json.dumps(process.environ())
        assert "p@s" not in told and "p%40s" not in told
        assert "p%40s" not in " ".join(way.words) + way.shown


def test_each_wrong_way_is_a_line(
    encrypted: tuple[int, Path], on_socket: tuple[ServerProcess, Path], tmp_path: Path
) -> None:
    """No server, a plain port, an unknown authority and a file that is no PEM give one line each, with the reason."""
    port, _ = encrypted
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    ways = {
        "no server answers at": read_address(f"unix://{tmp_path}/nothing.sock"),
        "refused": read_address(f"rediss://127.0.0.1:{free_port()}"),
        "Is it a TLS port": read_address(f"rediss://127.0.0.1:{on_socket[0].port}", Tls(insecure=True)),
        "Name who signed it: --ca FILE": read_address(f"rediss://127.0.0.1:{port}", ours(encrypted)),
        "no usable PEM": read_address(f"rediss://127.0.0.1:{port}", Tls(ca=wrong)),
    }
    for said, address in ways.items():
        with pytest.raises((StackError, UsageError), match=said) as caught, way_to(address):
            pass
        assert "\n" not in str(caught.value)


def test_it_serves_the_restorer_after_a_kill_and_then_ends(
    on_socket: tuple[ServerProcess, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After stdin ends without a word, the tunnel serves clients that come within `GRACE_S`; it ends with the last."""
    _, place = on_socket
    monkeypatch.setattr(tunnel, "GRACE_S", 1.0)
    with way_to(read_address(f"unix://{place}")) as way:
        assert way.tunnel and way.tunnel.process.stdin
        restorer = client(way)
        restorer.ping()
        way.tunnel.process.stdin.close()
        for _ in range(3):
            time.sleep(0.2)
            assert restorer.ping()
        late = client(way)
        assert late.ping()
        restorer.close()
        late.close()
        process = way.tunnel.process
        eventually(lambda: process.poll() == 0, seconds=30)


def test_clean_goes_the_same_way(on_socket: tuple[ServerProcess, Path], tmp_path: Path) -> None:
    """`lab clean` finds and removes what a killed run left on a server behind a socket."""
    server, place = on_socket
    server.client().set("latency-lab:u1:page-1", "x")
    answer = typed("clean", "--url", f"unix://{place}", "--yes", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, ""), answer
    assert "removed 1 keys" in answer.out
    assert server.client().dbsize() == 0


def test_tls_options_are_for_a_url_with_tls(tmp_path: Path) -> None:
    """TLS options are refused without a TLS URL: they would have no effect."""
    for words in (["--insecure"], ["--insecure", "--url", "redis://127.0.0.1:1"]):
        answer = typed("run", "key-growth", *words, cwd=tmp_path)
        assert answer.is_one_line(2), answer
        assert "rediss://" in answer.err

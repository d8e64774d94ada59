"""Addresses of other people's servers: every valid form is read, every invalid one is refused in one line."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.server.address import Tls, read_address, route_to


@pytest.mark.parametrize(
    ("url", "shown", "options"),
    [
        ("redis://cache", "redis://cache:6379", {"host": "cache", "port": 6379, "db": 0, "password": None}),
        ("redis://cache:7000/3", "redis://cache:7000", {"port": 7000, "db": 3}),
        ("redis://u%40x:p%3Aw@cache/", "redis://cache:6379", {"username": "u@x", "password": "p:w"}),
        (
            "redis://:secret@[fe80::1]:7000",
            "redis://[fe80::1]:7000",
            {"host": "fe80::1", "password": "secret"},
        ),
        ("unix:///run/r.sock?db=2", "unix:///run/r.sock", {"path": "/run/r.sock", "db": 2}),
        ("valkey://cache", "valkey://cache:6379", {"host": "cache"}),
        (
            "rediss://cache",
            "rediss://cache:6379",
            {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True},
        ),
    ],
)
def test_an_address_is_read(url: str, shown: str, options: dict[str, object]) -> None:
    """An address becomes redis-py's options; its form for people has neither user nor password."""
    found = read_address(url, environ={})
    assert found.shown == shown
    assert options.items() <= found.options().items()
    assert "secret" not in repr(found)
    assert ("ssl_cert_reqs" in found.options()) == url.startswith("rediss")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("cache:6379", "must begin with redis://"),
        ("http://cache", "must begin with redis://"),
        ("redis://", "names no host"),
        ("redis://cache:x", "must have a port"),
        ("redis://[::1/0", "broken IPv6"),
        ("redis://cache:70000", "must have a port"),
        ("redis://cache:0", "must have a port"),
        ("redis://cache..example.com:6379", "names a host that cannot be one"),
        (f"redis://{64 * 'a'}", "names a host that cannot be one"),
        ("redis://cache/none", "must name its database by a number"),
        ("unix://run/r.sock", "three slashes"),
        ("unix:///run/r.sock?db=x", "must name its database by a number"),
        ("redis://:pa#ss@cache:6379", "write %23"),
        ("redis://cache?db=2", "a database as /2"),
    ],
)
def test_what_is_no_address_is_one_line(url: str, said: str) -> None:
    """An invalid address is refused in one line, which does not repeat the address: it may hold a password."""
    with pytest.raises(UsageError, match=said) as caught:
        read_address(url, environ={})
    assert url == "redis://" or url not in str(caught.value)


def test_where_the_password_comes_from() -> None:
    """The password is the address's, else REDISCLI_AUTH's, else asked for if a user is named; no terminal: refused."""
    auth = {"REDISCLI_AUTH": "of the shell"}
    assert read_address("redis://:mine@cache", environ=auth).password == "mine"
    assert read_address("redis://cache", environ=auth).password == "of the shell"
    assert read_address("redis://reader@cache", environ={}, ask=lambda _: "typed").password == "typed"
    assert read_address("redis://cache", environ={}, ask=lambda _: "typed").password is None
    with pytest.raises(UsageError, match="names a user and no password: set REDISCLI_AUTH"):
        read_address("redis://reader@cache", environ={})


def test_certificates_are_for_tls(tmp_path: Path) -> None:
    """A missing certificate file, a key without its certificate and TLS options on a plain address are refused."""
    file = tmp_path / "ca.pem"
    with pytest.raises(UsageError, match=r"there is no file .*ca\.pem"):
        Tls(ca=file)
    file.write_text("")
    with pytest.raises(UsageError, match="--key needs the certificate"):
        Tls(key=file)
    with pytest.raises(UsageError, match="are for TLS"):
        read_address("redis://cache", Tls(ca=file), environ={})
    options = read_address("rediss://cache", Tls(ca=file, insecure=True), environ={}).options()
    assert (options["ssl_ca_certs"], options["ssl_cert_reqs"]) == (str(file), ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("unix:///run/s.sock?db=3", "UNIX-CONNECT:/run/s.sock"),
        ("rediss://cache:6380/3", "OPENSSL:cache:6380"),
    ],
)
def test_a_run_needs_plain_tcp(url: str, there: str) -> None:
    """A run refuses TLS and a socket in one line, which has a command that passes plain TCP on."""
    with pytest.raises(UsageError) as refused:
        route_to(read_address(url, environ={}))
    said = str(refused.value)
    assert f"fork,reuseaddr {there}`" in said and "redis://127.0.0.1:16379/3" in said and "\n" not in said

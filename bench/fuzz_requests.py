"""Requests as bytes, for `bench.fuzz`: odd paths, methods, headers and bodies, wrong lengths, broken chunks, and
pipelined ones.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from app.settings import STRATEGY_NAMES

METHODS = (
    "GET",
    "POST",
    "PUT",
    "HEAD",
    "OPTIONS",
    "DELETE",
    "PATCH",
    "TRACE",
    "CONNECT",
    "BREW",
    "get",
    "\x00",
    "",
)
PATHS = (
    "//", "*", "/%00", "/..%2f..%2fetc/passwd", "/static/../web.py", "/%D9%A1?curves=%ff", "http://a/", "/" + "a" * 9000
)  # fmt: skip
VERSIONS = ("HTTP/1.1",) * 8 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9", "")
HEADERS = (
    "Host: localhost", "Host: evil.example", "Host:", "Host: [::1", "X-Forwarded-For: \xff", "SCRIPT_NAME: /x",
    "Accept: application/openmetrics-text; version=9", "Accept: application/openmetrics-text; version=x",
    "Accept: text/plain; version=1..0; escaping=x", "Accept: ;;q=x", "Accept-Encoding: gzip;q=no",
    "Content-Type: text/plain", "Content-Type: application/json; charset=x", "Content-Encoding: gzip",
    "Expect: 100-continue", "Expect: tea", "Range: bytes=9-1", "If-None-Match: *", "If-Modified-Since: yesterday",
    "Upgrade: h2c", "Connection: x", "Cookie: a=\x01", "baggage: =", "traceparent: 00-0-0-0",
    f"traceparent: 00-{'f' * 32}-{'f' * 16}-ff", "Long: " + "a" * 9000, "no colon", " folded: x", "Content-Length: 3",
    "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked",
)  # fmt: skip
LENGTHS = ("-1", "1e3", "0x10", "", "+2", "9" * 30, "2, 2", "\xb2")
BODIES = (
    b"", b"{", b"null", b"[" * 4000, b'{"a":NaN}', b'"\\ud800"', b"9" * 4050, b"{}" + b" " * 5000,
    b"\xef\xbb\xbf{}" + b" " * 5000, b"\xef\xbb\xbf{}",
)  # fmt: skip
RIGHT = "{size:x}\r\n{body}\r\n0\r\n\r\n"
CHUNKS = (
    RIGHT, RIGHT, "{size:x}\r\n{body}", "{size:x}\r\n{body}xx0\r\n\r\n", "{size:x}\n{body}\n0\n\n", "\r\n\r\n",
    "zz\r\n{body}\r\n0\r\n\r\n", "-2\r\n{body}\r\n0\r\n\r\n", "ffffffffffffffffff\r\n{body}",
    "{size:x};a=b\r\n{body}\r\n0\r\nTrailer: x\r\n\r\n",
)  # fmt: skip
NUMBERS = st.integers(-3, 10) | st.sampled_from(
    [2**63, -(2**70), 10**400, 0.5, 1e308, float("inf"), float("nan")]
)


def raw_requests(description: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """One request or two pipelined ones, as bytes, for the paths, fields and examples of a description."""
    asked, examples, fields = [], [], {"", "x"}
    for path, item in description["paths"].items():
        for one in item.get("parameters", ()):
            path = path.replace(f"{{{one['name']}}}", str(one["example"]))
        for method, operation in item.items():
            if method == "parameters":
                continue
            asked.append((method.upper(), path))
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                examples.append(json.dumps(body["example"]).encode())
                fields |= set(body["schema"]["properties"])
    values = st.recursive(
        st.none() | st.booleans() | NUMBERS | st.text(max_size=20) | st.sampled_from(STRATEGY_NAMES),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    objects = st.dictionaries(st.sampled_from(sorted(fields)), values, max_size=3)
    bodies = st.one_of(
        st.sampled_from(examples),
        objects.map(lambda body: json.dumps(body).encode()),
        st.sampled_from(BODIES),
        st.binary(max_size=100),
    )
    odd_path = st.sampled_from(PATHS) | st.binary(max_size=40).map(lambda data: "/" + data.decode("latin-1"))

    @st.composite
    def request(draw: st.DrawFn) -> bytes:
        method, path = draw(st.sampled_from(asked))
        odd = draw(st.sampled_from(["", "", "", "method", "path"]))
        method = draw(st.sampled_from(METHODS)) if odd == "method" else method
        path = draw(odd_path) if odd == "path" else path
        version = draw(st.sampled_from(VERSIONS))
        body = draw(bodies)
        lines = ["Host: 127.0.0.1", "Content-Type: application/json"]
        lines = (
            draw(st.lists(st.sampled_from(HEADERS), max_size=2)) + lines[draw(st.sampled_from([0, 0, 1])) :]
        )
        framing = draw(st.sampled_from(["right", "right", "wrong", "odd", "chunks", "both", "none"]))
        if framing in ("chunks", "both"):
            lines.append("Transfer-Encoding: chunked")
            shape = draw(st.sampled_from(CHUNKS))
            body = shape.format(size=len(body), body=body.decode("latin-1")).encode("latin-1")
        if framing in ("right", "both"):
            lines.append(f"Content-Length: {len(body)}")
        elif framing == "wrong":
            lines.append(f"Content-Length: {max(0, len(body) + draw(st.integers(-20, 20)))}")
        elif framing == "odd":
            lines.append(f"Content-Length: {draw(st.sampled_from(LENGTHS))}")
        head = "\r\n".join([f"{method} {path} {version}", *lines, "", ""])
        return head.encode("latin-1") + body

    return st.lists(request(), min_size=1, max_size=2).map(b"".join)

"""Prometheus remote write 1.0, as small as it can be: a WriteRequest in protobuf, snappy without compression."""

import struct
import urllib.request
from collections.abc import Iterable


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def series(
    name: str,
    labels: dict[str, str],
    value: float,
    milliseconds: int,
    exemplar: tuple[str, float] | None = None,
) -> bytes:
    """One TimeSeries with one sample; `exemplar` is (trace id, value)."""
    pairs = sorted({**labels, "__name__": name}.items())
    out = b"".join(block(1, block(1, k.encode()) + block(2, v.encode())) for k, v in pairs)
    out += block(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(milliseconds))
    if exemplar:
        label = block(1, block(1, b"traceID") + block(2, exemplar[0].encode()))
        out += block(3, label + b"\x11" + struct.pack("<d", exemplar[1]) + b"\x18" + varint(milliseconds))
    return block(1, out)


def snappy(data: bytes) -> bytes:
    """Snappy's block format with literals only."""
    out = varint(len(data))
    for at in range(0, len(data), 65536):
        piece = data[at : at + 65536]
        out += bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece
    return out


def send(url: str, timeseries: Iterable[bytes]) -> None:
    request = urllib.request.Request(
        url,
        snappy(b"".join(timeseries)),
        {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        },
    )
    urllib.request.urlopen(request, timeout=5).close()

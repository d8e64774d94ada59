"""Reads an OTLP ExportTraceServiceRequest (protobuf) into plain dictionaries; field numbers from
opentelemetry-proto, trace/v1/trace.proto and common/v1/common.proto.
"""

import struct
from collections.abc import Iterator
from typing import Any

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of every field of a message: int, or bytes."""
    at = 0
    value: int | bytes
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, value


def any_value(data: bytes) -> Any:
    for number, value in fields(data):
        if number == 1:
            return value.decode()
        if number == 2:
            return bool(value)
        if number == 3:
            return value - (1 << 64) if value >> 63 else value
        if number == 4:
            return struct.unpack("<d", value)[0]
        if number == 5:
            return [any_value(item) for _, item in fields(value)]
    return None


def attribute(data: bytes) -> tuple[str, Any]:
    found = dict(fields(data))
    return found[1].decode(), any_value(found.get(2, b""))


def span(data: bytes, resource: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resource": resource,
        "attributes": {},
        "parent": "",
        "kind": "UNSPECIFIED",
        "error": False,
    }
    for number, value in fields(data):
        if number == 1:
            found["trace"] = value.hex()
        elif number == 2:
            found["id"] = value.hex()
        elif number == 4:
            found["parent"] = value.hex()
        elif number == 5:
            found["name"] = value.decode()
        elif number == 6:
            found["kind"] = KINDS[value]
        elif number in (7, 8):
            found["start" if number == 7 else "end"] = int.from_bytes(value, "little")
        elif number == 9:
            name, content = attribute(value)
            found["attributes"][name] = content
        elif number == 15:
            found["error"] = dict(fields(value)).get(3) == 2
    return found


def spans(body: bytes) -> Iterator[dict[str, Any]]:
    """Every span of a request, with its resource's attributes."""
    for number, resource_spans in fields(body):
        if number != 1:
            continue
        parts = list(fields(resource_spans))
        resource: dict[str, Any] = {}
        for part, value in parts:
            if part == 1:
                resource = dict(attribute(item) for n, item in fields(value) if n == 1)
        for part, value in parts:
            if part == 2:
                yield from (span(item, resource) for n, item in fields(value) if n == 2)

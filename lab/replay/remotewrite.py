"""Prometheus' remote write, version 1: the protocol by which samples of any time enter a Prometheus.

The message is built from the few fields of the specification
(https://prometheus.io/docs/specs/prw/remote_write_spec/), so no generated code is needed. A body must be in Snappy's
block format, which may consist of literals only (https://github.com/google/snappy/blob/main/format_description.txt):
this one goes over the loopback, where nothing is gained by compressing it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped] # no types

from lab.replay.recording import Exemplar

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The NaN by which Prometheus marks the end of a series."""
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
LITERAL = 65_536
"""Bytes in one literal of the Snappy format: the most that a length of two bytes can express."""

_Field = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, list[tuple[str, int, int, str]]] = {
    "Label": [("name", 1, _Field.TYPE_STRING, ""), ("value", 2, _Field.TYPE_STRING, "")],
    "Sample": [("value", 1, _Field.TYPE_DOUBLE, ""), ("timestamp", 2, _Field.TYPE_INT64, "")],
    "Exemplar": [
        ("labels", 1, _Field.TYPE_MESSAGE, "Label"),
        ("value", 2, _Field.TYPE_DOUBLE, ""),
        ("timestamp", 3, _Field.TYPE_INT64, ""),
    ],
    "TimeSeries": [
        ("labels", 1, _Field.TYPE_MESSAGE, "Label"),
        ("samples", 2, _Field.TYPE_MESSAGE, "Sample"),
        ("exemplars", 3, _Field.TYPE_MESSAGE, "Exemplar"),
    ],
    "WriteRequest": [("timeseries", 1, _Field.TYPE_MESSAGE, "TimeSeries")],
}
"""Message → fields (name, number, type, message type of the field). A field with a message type is repeated."""


def _write_request() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="prometheus", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, message_type in fields:
            label = _Field.LABEL_REPEATED if message_type else _Field.LABEL_OPTIONAL
            message.field.add(
                name=field,
                number=number,
                type=kind,
                label=label,
                type_name=f".prometheus.{message_type}" if message_type else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))


WriteRequest = _write_request()

Batch = tuple[dict[str, str], list[tuple[int, float]], list[Exemplar]]
"""Labels, samples (ms, value) and exemplars of one series, each in the order of time."""


def body(batches: Iterable[Batch]) -> bytes:
    """Return the body of a request. Labels are sorted by name, as Prometheus requires."""
    request = WriteRequest()
    for labels, samples, exemplars in batches:
        series = request.timeseries.add()
        _label(series.labels, labels)
        for t_ms, value in samples:
            series.samples.add(value=value, timestamp=t_ms)
        for exemplar in exemplars:
            added = series.exemplars.add(value=exemplar.value, timestamp=exemplar.t_ms)
            _label(added.labels, exemplar.labels)
    return snappy(request.SerializeToString())


def _label(into: Any, labels: dict[str, str]) -> None:
    for name in sorted(labels):
        into.add(name=name, value=labels[name])


def snappy(content: bytes) -> bytes:
    """Return content in Snappy's block format without compression: the length as a varint, then literals."""
    parts, length = [], len(content)
    head = bytearray()
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    for at in range(0, len(content), LITERAL):
        part = content[at : at + LITERAL]
        parts += [b"\xf4", struct.pack("<H", len(part) - 1), part]  # 61 << 2: a length of two bytes follows
    return bytes(head) + b"".join(parts)

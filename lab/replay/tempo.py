"""Reads traces from a Tempo, and writes them into another one by OTLP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx
from google.protobuf import json_format  # type: ignore[import-untyped] # the package has no type information
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from lab.errors import StackError
from lab.replay.client import Client, refusal

PROTOBUF = "application/protobuf"
"""The media type. Tempo's own message of a trace has the same format as OTLP's `TracesData`."""
AT_ONCE = 2_000_000
"""Bytes of traces in one request."""


class Tempo(Client):
    """A Tempo's query interface. Methods raise `StackError`, with one line, when it does not answer."""

    name = "Tempo"

    def version(self) -> str:
        """Return its version; empty if it reports none. Raises `StackError` if it does not answer."""
        answer = self._ask("/api/status/buildinfo")
        try:
            return str(answer.json()["version"]) if answer.is_success else ""
        except (ValueError, KeyError, TypeError):
            return ""

    def slowest(self, start: float, end: float, number: int) -> list[str]:
        """Return the ids of the slowest traces that a search between two times finds, the slowest first."""
        found: dict[str, float] = {}
        for least in ("1s", "100ms", "1us"):
            answer = self._ask(
                "/api/search",
                parameters={
                    "start": int(start),
                    "end": int(end) + 1,
                    "limit": 10 * number,
                    "minDuration": least,
                },
            )
            try:
                rows = answer.json().get("traces", []) if answer.is_success else []
                found |= {padded(row["traceID"]): float(row.get("durationMs", 0)) for row in rows}
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if len(found) >= number:
                break
        return sorted(found, key=lambda trace: -found[trace])[:number]

    def listed(self, start: float, end: float, number: int) -> set[str]:
        """Return the ids of traces that one search between two times finds, at most `number`; empty after a refusal."""
        parameters = {"start": int(start), "end": int(end) + 1, "limit": number, "spss": 1}
        answer = self._ask("/api/search", parameters=parameters)
        try:
            return {padded(row["traceID"]) for row in answer.json().get("traces") or []}
        except (ValueError, KeyError, TypeError, AttributeError):
            return set()

    def has(self, trace_id: str) -> bool:
        """Return True if Tempo finds this trace by its id, as the link of an exemplar does."""
        return self._ask(f"/api/traces/{trace_id}", PROTOBUF).is_success

    def trace(self, trace_id: str) -> bytes | None:
        """Return a trace as an OTLP message; None if Tempo does not have it."""
        answer = self._ask(f"/api/traces/{trace_id}", f"{PROTOBUF}, application/json;q=0.5")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        try:
            if PROTOBUF in answer.headers.get("Content-Type", ""):
                return shifted(answer.content, 0).SerializeToString() or None
            found: dict[str, Any] = answer.json()
            batches = found.get("batches") or found.get("resourceSpans") or []
            message = json_format.ParseDict(
                {"resourceSpans": batches}, TracesData(), ignore_unknown_fields=True
            )
        except (ValueError, AttributeError, json_format.ParseError):
            raise StackError(
                f"the answer of Tempo at {self.url} about trace {trace_id} cannot be read."
            ) from None
        return bytes(message.SerializeToString()) if message.resource_spans else None

    def _ask(
        self, path: str, accept: str = "application/json", parameters: Mapping[str, str | int] | None = None
    ) -> httpx.Response:
        return self.send("GET", path, params=parameters, headers={"Accept": accept})


class Receiver(Client):
    """The endpoint at which a Tempo receives traces: OTLP over HTTP."""

    name = "Tempo"

    def push(self, traces: Iterable[TracesData]) -> None:
        """Send traces in requests of about `AT_ONCE` bytes. Raises `StackError` when Tempo refuses them."""
        pending = TracesData()
        for trace in traces:
            pending.MergeFrom(trace)
            if pending.ByteSize() >= AT_ONCE:
                self._send(pending)
                pending = TracesData()
        if pending.resource_spans:
            self._send(pending)

    def _send(self, message: TracesData) -> None:
        """Send one export request, which has the same format as `TracesData`."""
        answer = self.send(
            "POST",
            "/v1/traces",
            content=message.SerializeToString(),
            headers={"Content-Type": "application/x-protobuf"},
        )
        if not answer.is_success:
            raise StackError(f"Tempo at {self.url} does not take the traces: {refusal(answer)}.")


def padded(trace_id: str) -> str:
    """Return a trace's id with all 32 digits: Tempo leaves out zeros in front."""
    return trace_id.zfill(32)


def shifted(trace: bytes, by_ms: int) -> TracesData:
    """Return a trace moved in time. Raises `ValueError` when the bytes are no trace."""
    try:
        message: TracesData = TracesData.FromString(trace)
    except Exception as error:  # protobuf's DecodeError, which has no common base with anything
        raise ValueError("not a trace") from error
    by_ns = by_ms * 1_000_000
    for span in spans(message):
        span.start_time_unix_nano += by_ns
        span.end_time_unix_nano += by_ns
        for event in span.events:
            event.time_unix_nano += by_ns
    return message


def spans(trace: TracesData) -> Iterator[Span]:
    """Yield every span of a trace."""
    return (
        span for resource in trace.resource_spans for scope in resource.scope_spans for span in scope.spans
    )

"""Reading traces out of Tempo, and writing them into another one by OTLP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import httpx
from google.protobuf import json_format  # type: ignore[import-untyped] # the package has no type information
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lab.cold import NoAnswer
from lab.errors import StackError

ANSWER_S = 60.0
PROTOBUF = "application/protobuf"
"""Tempo's own message of a trace has the very form of OTLP's `TracesData`."""
AT_ONCE = 2_000_000
"""Bytes of traces in one request."""


class Tempo:
    """A Tempo's query interface. Whatever it does not answer is a `StackError` of one line."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def version(self) -> str:
        """Its version; empty where it does not tell. Raises `StackError` when nobody answers."""
        answer = self._ask("/api/status/buildinfo")
        try:
            return str(answer.json()["version"]) if answer.is_success else ""
        except (ValueError, KeyError, TypeError):
            return ""

    def slowest(self, start: float, end: float, number: int) -> list[str]:
        """Ids of the slowest traces that a search between two times finds, the slowest first."""
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

    def trace(self, trace_id: str) -> bytes | None:
        """A trace as an OTLP message; None where Tempo does not have it."""
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
            raise StackError(f"what Tempo at {self.url} says of trace {trace_id} cannot be read.") from None
        return bytes(message.SerializeToString()) if message.resource_spans else None

    def _ask(
        self, path: str, accept: str = "application/json", parameters: dict[str, str | int] | None = None
    ) -> httpx.Response:
        try:
            return self._http.get(path, params=parameters, headers={"Accept": accept})
        except httpx.HTTPError as error:
            raise _silent(self.url, error) from error


def padded(trace_id: str) -> str:
    """A trace's id with the zeros that Tempo leaves out in front."""
    return trace_id.zfill(32)


def shifted(trace: bytes, by_ms: int) -> TracesData:
    """A trace moved in time. Raises `ValueError` when the bytes are no trace."""
    try:
        message: TracesData = TracesData.FromString(trace)
    except Exception as error:  # protobuf's DecodeError, which has no common base with anything
        raise ValueError("not a trace") from error
    by_ns = by_ms * 1_000_000
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.start_time_unix_nano += by_ns
                span.end_time_unix_nano += by_ns
                for event in span.events:
                    event.time_unix_nano += by_ns
    return message


def push(traces: Iterable[TracesData], url: str, progress: Callable[[int], None]) -> int:
    """Send traces by OTLP over HTTP; how many spans. `progress` hears how many traces are done."""
    spans = done = 0
    with httpx.Client(base_url=url, timeout=ANSWER_S, trust_env=False) as http:
        pending = TracesData()
        for trace in traces:
            spans += sum(len(scope.spans) for r in trace.resource_spans for scope in r.scope_spans)
            pending.MergeFrom(trace)
            done += 1
            if pending.ByteSize() >= AT_ONCE:
                _send(http, pending, url)
                pending = TracesData()
                progress(done)
        if pending.resource_spans:
            _send(http, pending, url)
            progress(done)
    return spans


def _send(http: httpx.Client, message: TracesData, url: str) -> None:
    """An export request has the very form of `TracesData`."""
    try:
        answer = http.post(
            "/v1/traces",
            content=message.SerializeToString(),
            headers={"Content-Type": "application/x-protobuf"},
        )
    except httpx.HTTPError as error:
        raise _silent(url, error) from error
    if not answer.is_success:
        said = " ".join(answer.text.split())[:200]
        raise StackError(f"Tempo at {url} does not take the traces: {said or answer.status_code}.")


def _silent(url: str, error: httpx.HTTPError) -> NoAnswer:
    return NoAnswer(
        f"Tempo does not answer at {url} ({' '.join(str(error).split()) or type(error).__name__})."
    )

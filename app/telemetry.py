"""Traces: OpenTelemetry for Flask and redis-py, exported over OTLP/HTTP without ever slowing the service.

Configured by the standard ``OTEL_*`` variables; ``OTEL_TRACES_EXPORTER=none`` switches tracing off. Defaults
set here: one trace in ten (the parent decides), a queue of 32768 spans (one event can make hundreds of SCAN
spans), stable semantic conventions, and database attributes under their old names too, because Tempo 3.0 reads
only those.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from flask import Flask, g
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from app.metrics import SPANS_DROPPED, SPANS_ENDED, SPANS_EXPORTED

SCAN_PAGE: ContextVar[int] = ContextVar("scan_page", default=0)
"""Number of the page the current SCAN call fetches (1 is the first); `AsyncClient.scan` sets it, the span shows it.
"""

_DEFAULTS = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "http,database/dup",
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0.1",
    "OTEL_BSP_MAX_QUEUE_SIZE": "32768",
    "OTEL_BSP_SCHEDULE_DELAY": "2000",
}
_PAUSE_SECONDS = 15.0
_LOG_EVERY_SECONDS = 60.0


def tracing_enabled() -> bool:
    """True unless the environment switches tracing off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() != "none"


class PausingExporter(SpanExporter):
    """Passes spans on; after a failure drops all spans for 15 s instead of encoding them in vain.

    Encoding a batch holds the interpreter lock for tens of milliseconds, which a service under observation
    must not pay while no backend listens.
    """

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._resume_at = 0.0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export, or drop and count, ``spans``; never raises."""
        if time.monotonic() < self._resume_at:
            SPANS_DROPPED.inc(len(spans))
            return SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        except Exception:
            logging.getLogger("opentelemetry.app").warning("span export failed", exc_info=True)
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            SPANS_EXPORTED.inc(len(spans))
        else:
            SPANS_DROPPED.inc(len(spans))
            self._resume_at = time.monotonic() + _PAUSE_SECONDS
        return result

    def shutdown(self) -> None:
        """End a running export, so that a process can stop while no backend listens."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered here."""
        return True


class _CountEnded(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            SPANS_ENDED.inc()


class _OncePerMinute(logging.Filter):
    """Lets one record a minute through."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOG_EVERY_SECONDS
        # Stack traces of a refused connection are forty lines each; the message says enough.
        record.exc_info = None
        record.exc_text = None
        return True


def _quiet_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message).300s"))
    handler.addFilter(_OncePerMinute())
    for name in ("opentelemetry", "urllib3"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)


def _skip_unsampled(app: Flask) -> None:
    """Have redis-py's instrumentation do nothing in requests whose trace is not sampled.

    It would prepare a span for each command, only to throw it away: a quarter of what a page of 40 commands costs.
    Flask runs these after the hooks of its own instrumentation at the beginning, and before them at the end.
    """
    from opentelemetry.instrumentation.utils import suppress_instrumentation

    @app.before_request
    def _begin() -> None:
        if not trace.get_current_span().is_recording():
            g.silence = suppress_instrumentation()
            g.silence.__enter__()

    @app.teardown_request
    def _end(_error: BaseException | None) -> None:
        if silence := g.pop("silence", None):
            silence.__exit__(None, None, None)


class Telemetry:
    """The process's tracing: installed on construction, stopped by `stop`."""

    def __init__(self, service: str, server_name: str, app: Flask | None = None) -> None:
        self._exporter: PausingExporter | None = None
        self._provider: Any = None
        self._server_name = server_name
        if tracing_enabled():
            for key, value in _DEFAULTS.items():
                os.environ.setdefault(key, value)
            os.environ.setdefault("OTEL_SERVICE_NAME", service)
            _quiet_logging()
            self._install(app)

    def _install(self, app: Flask | None) -> None:
        # Imported here: they read the environment, and cost start-up time and memory, which are wasted when
        # tracing is off.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.flask import FlaskInstrumentor
        from opentelemetry.instrumentation.redis import RedisInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._exporter = PausingExporter(OTLPSpanExporter())
        self._provider = TracerProvider(
            resource=Resource.create({"app.store.server": self._server_name}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(_CountEnded())
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        trace.set_tracer_provider(self._provider)
        RedisInstrumentor().instrument(request_hook=self._on_command, response_hook=self._on_response)
        if app is not None:
            flask: Any = FlaskInstrumentor()
            flask.instrument_app(app, excluded_urls="/metrics,/healthz,/readyz")
            _skip_unsampled(app)

    def _on_command(self, span: trace.Span, _client: Any, args: Sequence[Any], _kwargs: Any) -> None:
        """Show what auto-instrumentation masks: the pattern, COUNT, cursor and page of SCAN, the pattern of
        KEYS.
        """
        if not span.is_recording():
            return
        span.set_attribute("peer.service", self._server_name)
        span.set_attribute("db.operation.name", str(args[0]))
        if args[0] in ("SCAN", "SSCAN"):
            skip = 1 if args[0] == "SCAN" else 2
            span.set_attribute("db.query.parameter.cursor", str(args[skip]))
            options = dict(zip(args[skip + 1 :: 2], args[skip + 2 :: 2], strict=False))
            for option in ("MATCH", "COUNT"):
                if option in options:
                    span.set_attribute(f"db.query.parameter.{option.lower()}", options[option])
            if args[0] == "SCAN":
                span.set_attribute("cache.scan.page", SCAN_PAGE.get())
        elif args[0] == "KEYS":
            span.set_attribute("db.query.parameter.match", str(args[1]))

    def _on_response(self, span: trace.Span, _client: Any, _response: Any) -> None:
        # Pipelines have no request hook.
        if span.is_recording():
            span.set_attribute("peer.service", self._server_name)

    def stop(self, seconds: float = 2.0) -> None:
        """Export what is queued, for at most ``seconds``; a missing backend must not keep a process from
        ending.
        """
        if self._provider is None or self._exporter is None:
            return
        worker = threading.Thread(target=self._provider.shutdown, daemon=True)
        worker.start()
        worker.join(seconds)
        if worker.is_alive():
            self._exporter.shutdown()

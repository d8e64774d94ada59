"""The invalidator: carries out accepted events. Each starts when it arrives, however many are running.

Run as ``python -m app.invalidator``. Events come from the outbox; a row is deleted when its event is done, so
an event survives a restart of this process or of the server and is carried out at least once (twice does no
harm). Several invalidators may run side by side under different names. An invalidator takes the unfinished events of
its name back when it starts, and restarts them when the strategy changes, as a new release of the service would.
(A late change, `Invalidation.late`, applies to later events only.)

Failed events are retried a few at a time. Otherwise a server that comes back would meet the whole backlog at once: so
many concurrent searches that none would finish before the next came.
"""

import asyncio
import logging
import random
import resource
import signal
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.instrumentation.utils import suppress_instrumentation

from app.cache_async import AsyncClient, ServerError, connect, disconnect
from app.fragments import AREAS
from app.metrics import (
    EVENT_DURATION,
    EVENTS,
    EVENTS_IN_FLIGHT,
    EVENTS_PENDING,
    HEARTBEAT,
    show_strategy,
)
from app.process import RareLog, fail, live_gauge, serve_metrics, setup_logging
from app.settings import Settings, load_settings
from app.state import Event, Invalidation, State, StateError
from app.strategies import STRATEGIES
from app.telemetry import Telemetry

POLL_SECONDS, CALM_POLL_SECONDS = 0.01, 0.1
CALM_AFTER_SECONDS = 2.0
"""After this time without an event the outbox is polled less often: at full pace, polling takes 1 % of a core."""
CANCEL_AGAIN_SECONDS = 0.1
RETRY_FIRST_SECONDS = 0.1
RETRY_CAP_SECONDS = 5.0
MOST_DOUBLINGS = 16
"""The delay is at its cap long before; without a bound its power of two is no float any more after 1,024 attempts."""
RETRIES_AT_ONCE = 20


def retry_delay(attempt: int) -> float:
    """Return the longest delay in seconds before the next attempt: doubled after each attempt, up to the cap."""
    return min(RETRY_CAP_SECONDS, RETRY_FIRST_SECONDS * 2.0 ** min(attempt, MOST_DOUBLINGS))


class Invalidator:
    """Claims events and runs each in a task of its own."""

    def __init__(self, settings: Settings, state: State, raw: Any, log: logging.Logger) -> None:
        self._name = settings.invalidator_name
        self._state = state
        self._raw, self._settings = raw, settings
        self._clients: dict[tuple[str, int], AsyncClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries = asyncio.Semaphore(RETRIES_AT_ONCE)
        self._mode: Invalidation = state.invalidation()
        self._rare = RareLog(log)
        self._tracer = trace.get_tracer("app.invalidator")

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; unfinished events stay in the outbox under this invalidator's name."""
        # Of every name: an invalidator that was renamed never comes back for its events. If another one runs, an event
        # may be carried out twice, which does no harm.
        self._state.release()
        show_strategy(self._mode.strategy)
        fresh, last = True, time.monotonic()
        while not stop.is_set():
            try:
                if self._state.changed() or fresh:
                    fresh = True
                    self._refresh()
                    for event in self._state.claim(self._name):
                        self._start(event)
                        last = time.monotonic()
                    fresh = False
            except StateError as error:
                self._rare.warning(str(error))
                await asyncio.sleep(0.2)
            HEARTBEAT.set_to_current_time()
            calm = not self._tasks and time.monotonic() - last > CALM_AFTER_SECONDS
            await asyncio.sleep(CALM_POLL_SECONDS if calm else POLL_SECONDS)
        # Again and again: before Python 3.12 a cancellation may be lost, see `AsyncClient._timed`.
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN_SECONDS)

    def _refresh(self) -> None:
        mode = self._state.invalidation()
        if mode == self._mode:
            return
        if not mode.late:
            self._give_up()
        self._mode = mode
        show_strategy(mode.strategy)

    def _give_up(self) -> None:
        """Cancel all work under way, as a new release of the service would; its events are claimed again.

        Cancelling a call closes its connection (redis-py cannot reuse a connection with an outstanding reply). What the
        server then does with the call depends on the product. Dragonfly ends a SCAN 100 ms after it began (50 ms
        today), with or without a client, so no call goes on for longer. Redis and Valkey carry out every call that has
        reached their socket, because they notice that a connection was closed only after they have read what came
        before: at most `APP_SEARCHES_AT_ONCE` calls.
        """
        self._state.release(self._name)
        for task in self._tasks:
            task.cancel()

    def _client(self, mode: Invalidation) -> AsyncClient:
        key = mode.strategy, mode.epoch
        if key not in self._clients:
            self._clients[key] = AsyncClient(self._raw, self._settings, mode.strategy, epoch=mode.epoch)
        return self._clients[key]

    def _start(self, event: Event) -> None:
        task = asyncio.create_task(self._carry_out(event))
        self._tasks.add(task)
        EVENTS_IN_FLIGHT.set(len(self._tasks))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        EVENTS_IN_FLIGHT.set(len(self._tasks))
        if not task.cancelled() and task.exception() is not None:
            self._rare.warning(
                f"an event failed; it is tried again only after a restart: {task.exception()!r}"
            )

    async def _carry_out(self, event: Event) -> None:
        started = time.perf_counter()
        attempt = 0
        mode = self._mode
        while True:
            try:
                async with self._retries if attempt else nullcontext():
                    # Read after the event was accepted: entries of a later epoch are computed after the event.
                    mode = self._state.invalidation()
                    await self._attempt(event, mode, attempt)
                break
            except (ServerError, StateError, OSError) as error:
                EVENTS.labels(mode.strategy, "retried").inc()
                self._rare.warning(f"event {event.id} will be tried again: {error}")
            await asyncio.sleep(retry_delay(attempt) * random.uniform(0.5, 1.0))
            attempt += 1
        EVENTS.labels(mode.strategy, "done").inc()
        EVENT_DURATION.labels(mode.strategy).observe(time.perf_counter() - started)
        await self._remove(event)

    async def _remove(self, event: Event) -> None:
        while True:
            try:
                return self._state.done(event.id)
            except StateError as error:
                self._rare.warning(str(error))
                await asyncio.sleep(1)

    async def _attempt(self, event: Event, mode: Invalidation, attempt: int) -> None:
        carrier = {"traceparent": event.traceparent} if event.traceparent else {}
        with self._tracer.start_as_current_span(
            "invalidate user", context=propagate.extract(carrier), kind=trace.SpanKind.CONSUMER
        ) as span:
            recording = span.is_recording()
            # Spans of an unsampled trace cost as much to make as sampled ones and go nowhere.
            quiet: AbstractContextManager[Any] = nullcontext() if recording else suppress_instrumentation()
            with quiet:
                deleted = await STRATEGIES[mode.strategy](
                    self._client(mode), event.user, AREAS, mode.scan_count
                )
            if recording:
                span.set_attribute("cache.invalidation.strategy", mode.strategy)
                span.set_attribute("cache.invalidation.deleted", deleted)
                span.set_attribute("cache.invalidation.attempt", attempt + 1)
                span.set_attribute("app.event.type", event.type)
                span.set_attribute("app.event.id", event.id)
                span.set_attribute("app.user.id", event.user)


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the system's: each running command has its own connection."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(settings: Settings, state: State, log: logging.Logger) -> None:
    """Run an invalidator until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    raw = connect(settings)
    try:
        await Invalidator(settings, state, raw, log).run(stop)
    finally:
        await disconnect(raw)


def main() -> None:
    """Entry point."""
    settings = load_settings()
    log = setup_logging(settings.invalidator_name)
    raise_file_limit()
    try:
        state = State(settings.state_dir)
        state.init_invalidation(settings.strategy, settings.scan_count)
    except StateError as error:
        raise fail(str(error)) from None
    live_gauge(EVENTS_PENDING, state.pending)
    port = 9102 if settings.metrics_port is None else settings.metrics_port
    serve_metrics(settings.metrics_host, port, settings.invalidator_name)
    telemetry = Telemetry("shop-invalidator", settings.server_name)
    try:
        asyncio.run(serve(settings, state, log))
    finally:
        telemetry.stop()
        state.close()


if __name__ == "__main__":
    main()

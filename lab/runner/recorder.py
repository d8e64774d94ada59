"""The recorder: samples the stack once a second into the run folder, and reads the probes' lines as they come."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from lab.claims.fairness import STALL_S
from lab.errors import LabError, StackError
from lab.results.folder import CannotWrite, RunWriter, interval_of
from lab.results.histograms import values_of
from lab.results.probe_line import read_probe_line
from lab.results.schema import COMMANDS, OBSERVERS, SAMPLES, command_columns
from lab.server.http import Metrics, bucket_quantile
from lab.server.server_stats import Snapshot
from lab.stacks.base import Probe, Stack

SampleRow = dict[str, float | str | None]
LINES_KEPT = 4000


class _Refused(StackError):
    """The server answers, but refuses writes."""


class Recorder:
    """The threads that record a run; `raise_if_broken` raises their errors in the conductor.

    A second without an answer of the server (it is being restarted) becomes a row with gaps. A server that refuses
    writes breaks the run: else its reads would be measured as if nothing were wrong.
    """

    def __init__(self, stack: Stack, writer: RunWriter, on_row: Callable[[SampleRow], None]) -> None:
        self._stack = stack
        self._writer = writer
        self._on_row = on_row
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._error: LabError | None = None
        self._lines: dict[str, deque[dict[str, Any]]] = {}  # by arrival: what there is to see now
        self._due: dict[str, deque[dict[str, Any]]] = {}  # by due time: what is recorded
        self._slow: list[tuple[float, str, int]] = []
        self._seen: set[str] = set()
        self._sampled = dict.fromkeys(COMMANDS)
        self._cpu = stack.meter()
        self.phase, self.attempt = "start", 1
        self.strategy = ""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        with contextlib.suppress(StackError):  # earlier entries are not of this run
            self._read_slowlog(self._stack.server.snapshot().run_id, keep=False)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling after the sample under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def raise_if_broken(self) -> None:
        """Raise the error of a thread, if there is one (a full disk, for instance)."""
        if self._error:
            raise self._error

    def follow(self, name: str, probe: Probe) -> None:
        """Read a probe's lines in a thread until it ends."""
        threading.Thread(target=self._follow, args=(name, probe), name=f"probe-{name}", daemon=True).start()

    def keep(self, name: str, line: dict[str, Any]) -> None:
        """Write a load's line under the current phase and attempt."""
        with self._lock:
            self._writer.load(self.phase, name, line, self.attempt)

    def without_errors(self, name: str) -> bool:
        """Return True if a probe's latest interval has no errors. After a restart it must first reconnect."""
        with self._lock:
            return name in self._lines and not self._lines[name][-1]["errors"]

    def first_error(self, name: str, since: float) -> str | None:
        """Return the first error of a probe since a moment (a lost connection, or an error reply), or None."""
        lines = self._between(self._lines, name, since, float("inf"))
        return next((str(line["last_error"]) for line in lines if line["last_error"]), None)

    def answered_until(self, name: str, t: float) -> bool:
        """Return True once all requests of a probe that were due before a moment are answered or lost."""
        with self._lock:
            return name in self._due and self._due[name][-1]["t"] >= t

    def probed(self, name: str, t0: float, t1: float) -> dict[str, float]:
        """Return a probe's counts of the requests due between two moments: sent, received, errors, rate, p99 of its
        lateness (µs).

        `stalled_s` is the length of its stalls in seconds: the sum of each line's longest delay, if that is a stall.
        """
        lines = self._between(self._due, name, t0, t1)
        found = {key: float(sum(line[key] for line in lines)) for key in ("sent", "received", "errors")}
        seconds = sum(line["interval_s"] for line in lines)
        late = [values_of(line["lag"]) for line in lines]
        lags = [value for values in late for value in values]
        longest = [max(values, default=0.0) / 1e6 for values in late]
        return {
            **found,
            "rate": found["sent"] / seconds if seconds else 0.0,
            "lag_p99_us": float(np.percentile(lags, 99)) if lags else 0.0,
            "stalled_s": sum(each for each in longest if each >= STALL_S),
        }

    def p99_ms(self, name: str, t0: float, t1: float) -> float | None:
        """Return a probe's p99 between two moments in ms, to show progress."""
        values = [
            value for line in self._between(self._due, name, t0, t1) for value in values_of(line["intended"])
        ]
        return float(np.percentile(values, 99)) / 1000 if values else None

    def _between(
        self, lines: dict[str, deque[dict[str, Any]]], name: str, t0: float, t1: float
    ) -> list[dict[str, Any]]:
        """Return a probe's lines whose midpoint lies in [t0, t1)."""

        def middle(line: dict[str, Any]) -> float:
            start, length = interval_of(line)
            return (start + (start + length)) / 2  # computed as in `Run.tiles`

        with self._lock:
            found = list(lines.get(name, ()))
        return [line for line in found if t0 <= middle(line) < t1]

    def slow_since(self, t: float) -> dict[str, dict[str, float]]:
        """Return the slow log's entries since a moment: command → count and longest duration (µs)."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            entries = [entry for entry in self._slow if entry[0] + 0.5 >= t]  # as in `Run.slow_commands`
        for _, command, duration in entries:
            seen = found.setdefault(command, {"count": 0.0, "max_us": 0.0})
            seen["count"] += 1
            seen["max_us"] = max(seen["max_us"], duration)
        return found

    def _follow(self, name: str, probe: Probe) -> None:
        try:
            for raw in probe.lines():
                if (line := read_probe_line(raw)) is None:
                    continue
                with self._lock:
                    lines = self._due if line["by"] == "due" else self._lines
                    lines.setdefault(name, deque(maxlen=LINES_KEPT)).append(line)
                    if lines is self._due:
                        self._writer.probe(name, line)
        except LabError as error:
            self._error = error
        except ValueError:  # the pipe was closed while we read: the probe is no longer needed
            return

    def _run(self) -> None:
        before: tuple[Snapshot, Metrics] | None = None
        due = time.monotonic()
        while not self._stop.is_set():
            due += 1.0
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            due = max(due, time.monotonic() - 1.0)  # no burst follows a slow second
            try:
                before = self._sample(before)
            except (CannotWrite, _Refused) as error:
                self._error = error
                return
            except StackError:
                before = None
                self._write_gap()
            except Exception as error:  # else the thread would end unnoticed
                self._error = StackError(f"sampling failed: {error!r}.")
                return

    def _write_gap(self) -> None:
        try:
            self._write({**self._blank(), "t": time.time(), **self._label()})
        except CannotWrite as error:
            self._error = error

    def _sample(self, before: tuple[Snapshot, Metrics] | None) -> tuple[Snapshot, Metrics]:
        now = self._stack.server.snapshot()
        if reason := self._stack.server.refusal():
            raise _Refused(f"the server at {self._stack.server.shown} refuses writes: {reason}")
        self._read_slowlog(now.run_id, keep=True)
        metrics = self._stack.observe()
        shares, machine = self._cpu.sample()
        with self._lock:
            probe = self._lines["main"][-1] if "main" in self._lines else {}
        row: SampleRow = {**self._blank(), "t": now.at, **self._label()}
        row |= {
            "keys": float(now.keys),
            "probe_p50_ms": _ms(probe.get("p50_us")),
            "probe_p99_ms": _ms(probe.get("p99_us")),
            "memory_mb": now.memory_mb,
            "clients": float(now.clients),
            "events_in_flight": metrics.in_flight,
            "events_pending": metrics.pending,
            "machine_busy": machine["busy"],
            "machine_steal": machine["steal"],
            "machine_others": machine["others"],
        }
        row |= {
            f"cpu_{name}": shares.get(name, 0.0) for name in ("store", "web", "invalidator", "locust", "lab")
        }
        row["cpu_probe"] = sum(share for name, share in shares.items() if name.startswith("probe-"))
        if before and before[0].run_id == now.run_id and now.at > before[0].at:
            row |= self._rates(before, (now, metrics))
        self._write(row)
        return now, metrics

    def _read_slowlog(self, run_id: str, keep: bool) -> None:
        for number, at, command, duration in self._stack.server.slowlog():
            identity = f"{run_id}/{number}"
            if identity in self._seen:
                continue
            self._seen.add(identity)
            if keep:
                with self._lock:
                    self._slow.append((at, command, duration))
                    self._writer.slow(at, command, duration)

    def _rates(self, before: tuple[Snapshot, Metrics], after: tuple[Snapshot, Metrics]) -> SampleRow:
        (old, old_metrics), (new, new_metrics) = before, after
        span = new.at - old.at
        row: SampleRow = {}
        if old.main_thread_s is not None and new.main_thread_s is not None:
            row["utilisation"] = (new.main_thread_s - old.main_thread_s) / span
        for command, (called, _) in new.commands.items():
            if (
                called > old.commands.get(command, (0.0, 0.0))[0]
                and command.partition("|")[0] not in OBSERVERS
            ):
                self._sampled.setdefault(command)
        for command in self._sampled:
            calls, usec = (
                new.commands.get(command, (0.0, 0.0))[i] - old.commands.get(command, (0.0, 0.0))[i]
                for i in (0, 1)
            )
            rate, time_of_call = command_columns(command)
            row[rate.name] = calls / span
            row[time_of_call.name] = usec / calls if calls else None
        row["events_finished_per_s"] = max(0.0, new_metrics.finished - old_metrics.finished) / span
        p99 = bucket_quantile(old_metrics.get_buckets, new_metrics.get_buckets, 0.99)
        row["app_p99_ms"] = p99 * 1000 if p99 is not None else None
        return row

    def _label(self) -> SampleRow:
        return {"phase": self.phase, "attempt": float(self.attempt), "strategy": self.strategy}

    def _blank(self) -> SampleRow:
        return dict.fromkeys(column.name for column in SAMPLES)

    def _write(self, row: SampleRow) -> None:
        with self._lock:
            self._writer.sample(row)
        self._on_row(row)


def _ms(us: float | None) -> float | None:
    return us / 1000 if us is not None else None

"""Watches a server for some seconds, read-only: INFO every second while the probe runs, the logs before and after.

The watch ends early when the server's figures show that one of our own commands held it for longer than a second, and
when no reply to INFO comes in time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from lab.diagnose import local, replies
from lab.diagnose.prober import COMMANDS, LAST_REPLY_S, Prober
from lab.diagnose.questions import PROBES_PER_S, SETTINGS, Gone, Late, Questions, Refused
from lab.errors import StackError, UsageError
from lab.server.address import Address
from lab.server.figures import OWN
from lab.server.window import ClientCounts, InfoSnapshot, Window, at_least
from loadtest import info

EVERY_S = 1.0
STALL_S = 1.0
"""Execution time of one of our own commands that ends the watch."""
LOOKS_S, BEFORE_S, AFTER_S = 5.0, 2.0, 1.0
"""The most by which a diagnosis is longer than its `seconds`, and the parts of it for the commands before the watch and
after it. On a healthy server these take 0.9 s and 0.4 s, because of the bound on the commands a second."""
BEFORE_SHARE = 0.5
"""On a slow server the commands before the watch may take this share of `seconds`: the watch is shorter then."""
NEWEST = 128
MOST_CLIENTS = 1000
"""With more connections CLIENT LIST is left out: the server writes a line for each of them, in one piece."""
COMMANDLOGS = ("slow", "large-request", "large-reply")
Value = TypeVar("Value")


def server_time(fields: dict[str, str]) -> float:
    """Return the server's time in unix seconds; this machine's time if the server reports none, or no valid one."""
    with suppress(ValueError, OverflowError, OSError):
        at = float(fields.get("server_time_usec", "")) / 1e6
        datetime.fromtimestamp(at, UTC)
        return at
    return time.time()


class Progress:
    """Receives the progress of a watch; this class ignores it."""

    def begins(self, what: str) -> None:
        """Called before the probe starts; `what` describes the server."""

    def goes_on(self, seconds: float, total: float) -> None:
        """Called about once a second: `seconds` of `total` have passed."""


def watch(
    address: Address,
    seconds: float,
    per_second: float = PROBES_PER_S,
    progress: Progress | None = None,
    show_arguments: bool = False,
) -> tuple[Window, Counter[str]]:
    """Watch a server for `seconds`; return the window, and the number of times that each command was sent.

    From the moment at which the server accepts the connection, this takes at most `seconds`, `LOOKS_S` and the first
    two slots of the probe, however slow the replies are.

    Raises `StackError` with one line when the server cannot be reached or stops answering, and `UsageError` when it is
    a Sentinel, which has no data.
    """
    progress, questions = progress or Progress(), Questions(address)
    try:
        questions.connect()
        began, slots = time.monotonic(), len(COMMANDS) / per_second
        ends = began + seconds + slots + LOOKS_S
        questions.until = began + max(BEFORE_S, BEFORE_SHARE * seconds)
        builder = _WindowBuilder(questions, address, show_arguments)
        progress.begins(builder.description)
        prober = _prober(address, per_second, questions.until + slots)
        prober.start()
        try:
            questions.until = ends - LAST_REPLY_S - AFTER_S / 2
            builder.watch(min(seconds, ends - LAST_REPLY_S - AFTER_S - time.monotonic()), prober, progress)
        finally:
            prober.stop()
        if prober.lost:
            raise prober.lost
        if not prober.probed:
            raise StackError("no request of the probe came due: take more --seconds, or a higher --rate.")
        questions.until = ends
        window = builder.finish(prober)
        return window, questions.sent + Counter(prober.sent)
    finally:
        questions.close()


def _prober(address: Address, per_second: float, until: float) -> Prober:
    try:
        return Prober(address, per_second, until)
    except Refused as error:
        raise StackError(f"the server at {address.shown} cannot be probed: {error}.") from None


class _WindowBuilder:
    """Builds a window from a server's replies."""

    def __init__(self, questions: Questions, address: Address, show_arguments: bool) -> None:
        self._questions, self._address, self._show_arguments = questions, address, show_arguments
        self.unseen: list[str] = []
        self.snapshots: list[InfoSnapshot] = []
        self._incomplete = False
        try:
            self.snapshot()
        except Late:
            raise self._no_reply_error() from None
        fields = self.snapshots[0].fields
        _require_data_server(fields, address)
        self.product, self.version = info.product(fields) or ("a server", "")
        self._settings = self._read_settings()
        self._entries_before = self._complete(self._slow_entries)
        self._histograms_before = self._complete(self._histograms)
        self._local_before = local.find(fields) if address.is_here else None

    @property
    def description(self) -> str:
        """The server in a few words."""
        fields = self.snapshots[0].fields
        role = "a replica" if fields.get("role") == "slave" else "a primary"
        cluster = (
            ", one node of a cluster (only this node is looked at)"
            if fields.get("cluster_enabled") == "1"
            else ""
        )
        return f"{self.product} {self.version} at {self._address.shown}, {role}{cluster}, {info.keys(fields):,} keys"

    def _no_reply_error(self) -> Gone:
        return Gone(
            f"the server at {self._address.shown} accepts the connection, but does not answer INFO: it stands still, "
            "or its replies take longer than --seconds allows."
        )

    def snapshot(self) -> None:
        """Read INFO once more. Raises `StackError` if the server refuses it, `Late` if no reply comes in time."""
        sent_at = time.monotonic()
        try:
            fields, unreadable = replies.read_info(self._questions.ask("INFO", "ALL"))
        except Refused as error:
            raise StackError(
                f"the server at {self._address.shown} refuses INFO ({error}), and a diagnosis needs it."
            ) from None
        for name in unreadable:
            self._add_unseen(f"INFO: {name[:40]} cannot be read")
        read_at = time.monotonic()
        self.snapshots.append(InfoSnapshot(server_time(fields), fields, read_at, sent_at))

    def watch(self, seconds: float, prober: Prober, progress: Progress) -> None:
        """Read INFO every second for `seconds`. Ends early when our commands hold the server, or no reply comes."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(min(EVERY_S, seconds - passed))
            if prober.lost:
                return
            asked_at = time.monotonic()
            try:
                self.snapshot()
            except Late:
                waited = time.monotonic() - asked_at
                self._add_unseen(f"the diagnosis ended early: no reply to INFO within {waited:.1f} s")
                return
            progress.goes_on(min(time.monotonic() - began, seconds), seconds)
            if stall := self._own_stall():
                self._add_unseen(stall)
                return

    def _own_stall(self) -> str | None:
        """Return a sentence if one of our commands held the server between the last two snapshots, else None."""
        before, after = (info.counters(snapshot.fields) for snapshot in self.snapshots[-2:])
        for name in OWN - {"PING"}:
            calls, usec = (
                now - then
                for now, then in zip(after.get(name, (0.0, 0.0)), before.get(name, (0.0, 0.0)), strict=True)
            )
            if calls > 0 and usec / calls / 1e6 > STALL_S:
                command, seconds = name.replace("|", " "), usec / calls / 1e6
                if info.interleaves(self.snapshots[-1].fields):
                    return f"the diagnosis ended early: {command} took {seconds:.1f} s, waits included"
                return f"the diagnosis ended early: {command} held the server for {seconds:.1f} s"
        return None

    def _read(self, subject: str, read: Callable[[Any], Value], *words: str | int) -> Value | None:
        """Send a command and parse its reply. None, with a note of the reason, if it is refused, late or unreadable."""
        try:
            return read(self._questions.ask(*words))
        except Refused as error:
            self._add_unseen(f"{subject}: {error}")
            return None
        except Late:
            self._add_unseen(f"{subject}: no reply in time")
        except replies.UNREADABLE:
            self._add_unseen(f"{subject}: the reply cannot be read")
        self._incomplete = True
        return None

    def _complete(self, read: Callable[[], Value]) -> Value | None:
        """Return the value of `read` for a comparison at the end; None if a part of it could not be read."""
        self._incomplete = False
        value = read()
        return None if self._incomplete else value

    def _add_unseen(self, text: str) -> None:
        if text not in self.unseen:
            self.unseen.append(text)

    def _read_settings(self) -> dict[str, str]:
        settings: dict[str, str] = {}
        for name in SETTINGS:
            reply = self._read("CONFIG GET", list, "CONFIG", "GET", name)
            if reply is None:
                break  # managed servers refuse all of it
            if len(reply) >= 2:
                settings[str(reply[0]).replace("_", "-")] = str(reply[1])
        return settings

    def _slow_entries(self) -> replies.Entries:
        entries: replies.Entries = {}
        if self.product == "valkey" and at_least(self.version, (8, 1)):
            for log in COMMANDLOGS:
                entries |= (
                    self._read(
                        "COMMANDLOG GET", partial(replies.entries, log), "COMMANDLOG", "GET", NEWEST, log
                    )
                    or {}
                )
        if not any(name.startswith("slow ") for name in entries):
            entries |= (
                self._read("SLOWLOG GET", partial(replies.entries, "slow"), "SLOWLOG", "GET", NEWEST) or {}
            )
        return entries

    def _histograms(self) -> dict[str, dict[int, int]]:
        return self._read("LATENCY HISTOGRAM", replies.histograms, "LATENCY", "HISTOGRAM") or {}

    def _clients(self) -> ClientCounts | None:
        total = int(self.snapshots[-1].number("connected_clients"))
        if total > MOST_CLIENTS:
            self._add_unseen(
                f"CLIENT LIST: left out, because with {total:,} connections it would hold the server too long"
            )
            return None
        return self._read("CLIENT LIST", replies.clients, "CLIENT", "LIST")

    def _events(self) -> dict[str, float]:
        """Return the events of the latency monitor within this window."""
        since = partial(replies.events, since=int(self.snapshots[0].at))
        return self._read("LATENCY LATEST", since, "LATENCY", "LATEST") or {}

    def finish(self, prober: Prober) -> Window:
        """Read INFO and the logs once more; return the window."""
        try:
            self.snapshot()
        except Late:
            if len(self.snapshots) < 2:
                raise self._no_reply_error() from None
        for refused in prober.refused:
            self._add_unseen(f"{refused}, so the probe leaves it out")
        slow: dict[str, tuple[int, float]] = {}
        arguments = []
        entries = self._slow_entries() if self._entries_before is not None else {}
        for identity, (name, took_ms, words) in entries.items():
            if identity not in (self._entries_before or {}) and name.partition("|")[0] not in (
                "INFO",
                "CLIENT",
                "SLOWLOG",
            ):
                count, longest = slow.get(name, (0, 0.0))
                in_slow_log = identity.startswith("slow ")  # the others are of large requests and replies
                slow[name] = count + in_slow_log, max(longest, took_ms)
                arguments.append(words)
        executions = {}
        histograms = self._histograms() if self._histograms_before is not None else {}
        for name, now in histograms.items():
            counts = _by_bin(now)
            for bound, calls_before in _by_bin((self._histograms_before or {}).get(name, {})).items():
                counts[bound] = max(0, counts.get(bound, 0) - calls_before)
            if any(counts.values()):
                executions[name] = counts
        window = Window(
            shown=self._address.shown,
            product=self.product,
            version=self.version,
            snapshots=self.snapshots,
            probed=list(prober.probed),
            slow=slow,
            lengths=executions,
            events=self._events(),
            settings=self._settings,
            clients=self._clients(),
            unseen=tuple(self.unseen),
            arguments=tuple(arguments) if self._show_arguments else (),
            probe_began=prober.began,
        )
        if window.set_back:
            note = "counters: they were reset during the diagnosis, so calls just before the reset are not counted"
            window = replace(window, unseen=(*window.unseen, note))
        if stepped := window.stepped_s:
            note = f"the server's clock stepped by {stepped:+,.0f} s: times are by this machine's clock"
            window = replace(window, unseen=(*window.unseen, note))
        return local.add(window, self._local_before)


def _by_bin(cumulative: dict[int, int]) -> dict[int, int]:
    """Return the calls of each bin, from the cumulative counts by their bound."""
    counts, before = {}, 0
    for bound, calls in sorted(cumulative.items()):
        counts[bound], before = calls - before, calls
    return counts


def _require_data_server(fields: info.Fields, address: Address) -> None:
    if fields.get("redis_mode") == "sentinel":
        raise UsageError(
            f"{address.shown} is a Sentinel, which holds no data: name the server that it watches."
        )
    if fields.get("loading") == "1":
        raise StackError(f"the server at {address.shown} is loading its data: try again when it is done.")
    if not any(name.endswith("_version") for name in fields):
        raise StackError(f"what answers at {address.shown} is no known server: its INFO names no version.")

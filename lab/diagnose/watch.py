"""Watches a server for some seconds, read-only: INFO every second beside the probe, the logs before and after.

The watch ends early when the server's figures say that one of our own commands held it for longer than a second, and
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
from lab.server.window import Clients, Snapshot, Window, at_least
from loadtest import info

EVERY_S = 1.0
STALL_S = 1.0
"""Execution time of one of our own commands that ends the watch."""
LOOKS_S, BEFORE_S, AFTER_S = 5.0, 2.0, 1.0
"""The most by which a diagnosis is longer than its `seconds`; what of it the looks before the watch and those after it
may take. On a healthy server they take 0.9 s and 0.4 s, because of the bound on the commands a second."""
BEFORE_SHARE = 0.5
"""On a server that keeps us waiting the looks before may take this share of `seconds`: the watch is shorter then."""
NEWEST = 128
MOST_CLIENTS = 1000
"""With more connections CLIENT LIST is left out: the server writes a line for each of them, in one piece."""
COMMANDLOGS = ("slow", "large-request", "large-reply")
Told = TypeVar("Told")


def server_time(found: dict[str, str]) -> float:
    """The server's time in unix seconds; this machine's where the server tells none, or none that a calendar has."""
    with suppress(ValueError, OverflowError, OSError):
        at = float(found.get("server_time_usec", "")) / 1e6
        datetime.fromtimestamp(at, UTC)
        return at
    return time.time()


class Progress:
    """Receives the progress of a watch; this class ignores it."""

    def begins(self, what: str) -> None:
        """The probe is about to start; `what` describes the server."""

    def goes_on(self, seconds: float, of: float) -> None:
        """About a second has passed since the last call: `seconds` of `of` are over."""


def watch(
    address: Address,
    seconds: float,
    per_second: float = PROBES_PER_S,
    progress: Progress | None = None,
    show_arguments: bool = False,
) -> tuple[Window, Counter[str]]:
    """Watch a server for `seconds`; return what was seen, and how often each command was sent.

    It is over `LOOKS_S`, and the first two slots of the probe, after `seconds` at the latest, counted from the moment
    at which the server let us in: however slow the replies are, none is waited for longer than that.

    Raises `StackError` with one line when the server cannot be reached or goes away meanwhile, and `UsageError` when it
    is a Sentinel, which has no data.
    """
    progress, questions = progress or Progress(), Questions(address)
    try:
        questions.connect()
        began, slots = time.monotonic(), len(COMMANDS) / per_second
        ends = began + seconds + slots + LOOKS_S
        questions.until = began + max(BEFORE_S, BEFORE_SHARE * seconds)
        gathering = _Gathering(questions, address, show_arguments)
        progress.begins(gathering.who)
        prober = _prober(address, per_second, questions.until + slots)
        prober.start()
        try:
            questions.until = ends - LAST_REPLY_S - AFTER_S / 2
            gathering.watch(min(seconds, ends - LAST_REPLY_S - AFTER_S - time.monotonic()), prober, progress)
        finally:
            prober.stop()
        if prober.lost:
            raise prober.lost
        if not prober.probed:
            raise StackError("no request of the probe came due: take more --seconds, or a higher --rate.")
        questions.until = ends
        window = gathering.finish(prober)
        return window, questions.sent + Counter(prober.sent)
    finally:
        questions.close()


def _prober(address: Address, per_second: float, until: float) -> Prober:
    try:
        return Prober(address, per_second, until)
    except Refused as error:
        raise StackError(f"the server at {address.shown} cannot be probed: {error}.") from None


class _Gathering:
    """Gathers the contents of a window."""

    def __init__(self, questions: Questions, address: Address, show_arguments: bool) -> None:
        self._questions, self._address, self._show_arguments = questions, address, show_arguments
        self.unseen: list[str] = []
        self.snapshots: list[Snapshot] = []
        self._missed = False
        try:
            self.snapshot()
        except Late:
            raise self._silent() from None
        told = self.snapshots[0].fields
        _refuse(told, address)
        self.product, self.version = info.product(told) or ("a server", "")
        self._settings = self._read_settings()
        self._logged = self._before(self._slow_entries)
        self._lengths = self._before(self._histograms)
        self._local = local.find(told) if address.is_here else None

    @property
    def who(self) -> str:
        """The server, in a few words."""
        told = self.snapshots[0].fields
        role = "a replica" if told.get("role") == "slave" else "a primary"
        cluster = (
            ", one node of a cluster (only this node is looked at)"
            if told.get("cluster_enabled") == "1"
            else ""
        )
        return f"{self.product} {self.version} at {self._address.shown}, {role}{cluster}, {info.keys(told):,} keys"

    def _silent(self) -> Gone:
        return Gone(
            f"the server at {self._address.shown} let us in, but does not answer INFO: it stands still, or its replies "
            "take longer than --seconds allows."
        )

    def snapshot(self) -> None:
        """Read INFO once more. Raises `StackError` if the server refuses it, `Late` if no reply comes in time."""
        asked_at = time.monotonic()
        try:
            found, unreadable = replies.read_info(self._questions.ask("INFO", "ALL"))
        except Refused as error:
            raise StackError(
                f"the server at {self._address.shown} refuses INFO ({error}), and a diagnosis needs it."
            ) from None
        for name in unreadable:
            self._note(f"INFO: {name[:40]} cannot be read")
        read_at = time.monotonic()
        self.snapshots.append(Snapshot(server_time(found), found, read_at, asked_at))

    def watch(self, seconds: float, prober: Prober, progress: Progress) -> None:
        """Read INFO every second for `seconds`. Ends early when the server stands still because of us, or for us."""
        began = time.monotonic()
        while (gone := time.monotonic() - began) < seconds:
            time.sleep(min(EVERY_S, seconds - gone))
            if prober.lost:
                return
            asked = time.monotonic()
            try:
                self.snapshot()
            except Late:
                waited = time.monotonic() - asked
                self._note(f"the diagnosis ended early: no reply to INFO within {waited:.1f} s")
                return
            progress.goes_on(min(time.monotonic() - began, seconds), seconds)
            if stall := self._own_stall():
                self._note(stall)
                return

    def _own_stall(self) -> str | None:
        """Return a sentence if one of our own commands held the server since the snapshot before, else None."""
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

    def _read(self, what: str, read: Callable[[Any], Told], *words: str | int) -> Told | None:
        """Ask, and read the reply. None, with one note of why, if it is refused, late or of another form."""
        try:
            return read(self._questions.ask(*words))
        except Refused as error:
            self._note(f"{what}: {error}")
            return None
        except Late:
            self._note(f"{what}: no reply in time")
        except replies.UNREADABLE:
            self._note(f"{what}: the reply cannot be read")
        self._missed = True
        return None

    def _before(self, read: Callable[[], Told]) -> Told | None:
        """What is to be compared with the same at the end; None if a part of it was missed."""
        self._missed = False
        found = read()
        return None if self._missed else found

    def _note(self, text: str) -> None:
        if text not in self.unseen:
            self.unseen.append(text)

    def _read_settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in SETTINGS:
            reply = self._read("CONFIG GET", list, "CONFIG", "GET", name)
            if reply is None:
                break  # managed servers refuse all of it
            if len(reply) >= 2:
                found[str(reply[0]).replace("_", "-")] = str(reply[1])
        return found

    def _slow_entries(self) -> replies.Entries:
        found: replies.Entries = {}
        if self.product == "valkey" and at_least(self.version, (8, 1)):
            for log in COMMANDLOGS:
                found |= (
                    self._read(
                        "COMMANDLOG GET", partial(replies.entries, log), "COMMANDLOG", "GET", NEWEST, log
                    )
                    or {}
                )
        if not any(name.startswith("slow ") for name in found):
            found |= (
                self._read("SLOWLOG GET", partial(replies.entries, "slow"), "SLOWLOG", "GET", NEWEST) or {}
            )
        return found

    def _histograms(self) -> dict[str, dict[int, int]]:
        return self._read("LATENCY HISTOGRAM", replies.histograms, "LATENCY", "HISTOGRAM") or {}

    def _clients(self) -> Clients | None:
        total = int(self.snapshots[-1].number("connected_clients"))
        if total > MOST_CLIENTS:
            self._note(
                f"CLIENT LIST: left out, because with {total:,} connections it would hold the server too long"
            )
            return None
        return self._read("CLIENT LIST", replies.clients, "CLIENT", "LIST")

    def _events(self) -> dict[str, float]:
        """Events of the latency monitor within this window."""
        since = partial(replies.events, since=int(self.snapshots[0].at))
        return self._read("LATENCY LATEST", since, "LATENCY", "LATEST") or {}

    def finish(self, prober: Prober) -> Window:
        """Read INFO and the logs once more, and put the window together."""
        try:
            self.snapshot()
        except Late:
            if len(self.snapshots) < 2:
                raise self._silent() from None
        for refused in prober.refused:
            self._note(f"{refused}, so the probe leaves it out")
        slow: dict[str, tuple[int, float]] = {}
        arguments = []
        logged = self._slow_entries() if self._logged is not None else {}
        for identity, (name, took_ms, words) in logged.items():
            if identity not in (self._logged or {}) and name.partition("|")[0] not in (
                "INFO",
                "CLIENT",
                "SLOWLOG",
            ):
                count, longest = slow.get(name, (0, 0.0))
                in_slow_log = identity.startswith("slow ")  # the others are of large requests and replies
                slow[name] = count + in_slow_log, max(longest, took_ms)
                arguments.append(words)
        lengths = {}
        executed = self._histograms() if self._lengths is not None else {}
        for name, now in executed.items():
            grown = _counted(now)
            for bound, were in _counted((self._lengths or {}).get(name, {})).items():
                grown[bound] = max(0, grown.get(bound, 0) - were)
            if any(grown.values()):
                lengths[name] = grown
        window = Window(
            shown=self._address.shown,
            product=self.product,
            version=self.version,
            snapshots=self.snapshots,
            probed=list(prober.probed),
            slow=slow,
            lengths=lengths,
            events=self._events(),
            settings=self._settings,
            clients=self._clients(),
            unseen=tuple(self.unseen),
            arguments=tuple(arguments) if self._show_arguments else (),
            probe_began=prober.began,
        )
        if window.set_back:
            said = "counters: they were set back meanwhile, so what came before is counted up to the last look only"
            window = replace(window, unseen=(*window.unseen, said))
        if stepped := window.stepped_s:
            said = f"the server's clock stepped by {stepped:+,.0f} s: times are by this machine's clock"
            window = replace(window, unseen=(*window.unseen, said))
        return local.add(window, self._local)


def _counted(cumulative: dict[int, int]) -> dict[int, int]:
    """Calls of each bin, from the cumulative counts by their bound."""
    found, before = {}, 0
    for bound, calls in sorted(cumulative.items()):
        found[bound], before = calls - before, calls
    return found


def _refuse(told: info.Fields, address: Address) -> None:
    if told.get("redis_mode") == "sentinel":
        raise UsageError(
            f"{address.shown} is a Sentinel, which holds no data: name the server that it watches."
        )
    if told.get("loading") == "1":
        raise StackError(f"the server at {address.shown} is loading its data: try again when it is done.")
    if not any(name.endswith("_version") for name in told):
        raise StackError(f"what answers at {address.shown} is no known server: its INFO names no version.")

"""Watches a server for some seconds, read-only: INFO every second beside the probe, the logs before and after.

The watch ends early when the server's figures say that one of our own commands held it for longer than a second.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from lab.diagnose.prober import Prober
from lab.diagnose.questions import PROBES_PER_S, SETTINGS, Questions, Refused
from lab.diagnose.window import OWN, TORN_US, Clients, Snapshot, Window
from lab.errors import StackError, UsageError
from lab.stacks.address import Address
from loadtest import info

EVERY_S = 1.0
STALL_S = 1.0
"""Execution time of one of our own commands that ends the watch."""
NEWEST = 128
MOST_CLIENTS = 1000
"""With more connections CLIENT LIST is left out: the server writes a line for each of them, in one piece."""
COMMANDLOGS = ("slow", "large-request", "large-reply")


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

    Raises `StackError` with one line when the server cannot be reached or goes away meanwhile, and `UsageError` when it
    is a Sentinel, which has no data.
    """
    progress, questions = progress or Progress(), Questions(address)
    try:
        gathering = _Gathering(questions, address, show_arguments)
        progress.begins(gathering.who)
        prober = _prober(address, per_second)
        prober.start()
        try:
            began = time.monotonic()
            while (gone := time.monotonic() - began) < seconds:
                time.sleep(min(EVERY_S, seconds - gone))
                if prober.lost:
                    raise prober.lost
                gathering.snapshot()
                progress.goes_on(min(time.monotonic() - began, seconds), seconds)
                if stall := gathering.own_stall():
                    gathering.unseen.append(stall)
                    break
        finally:
            prober.stop()
        if prober.lost:
            raise prober.lost
        window = gathering.finish(prober)
        return window, questions.sent + Counter(prober.sent)
    finally:
        questions.close()


def _prober(address: Address, per_second: float) -> Prober:
    try:
        return Prober(address, per_second)
    except Refused as error:
        raise StackError(f"the server at {address.shown} cannot be probed: {error}.") from None


@dataclass
class _Local:
    """Figures of a server that is a process of this machine, at one moment."""

    pid: int
    waited_s: float | None
    own_s: float
    machine_s: float
    at: float = field(default_factory=time.monotonic)


class _Gathering:
    """Gathers the contents of a window."""

    def __init__(self, questions: Questions, address: Address, show_arguments: bool) -> None:
        self._questions, self._address, self._show_arguments = questions, address, show_arguments
        self.unseen: list[str] = []
        self.snapshots: list[Snapshot] = []
        self.snapshot()
        told = self.snapshots[0].fields
        _refuse(told, address)
        self.product, self.version = info.product(told) or ("a server", "")
        self._settings = self._read_settings()
        self._logged = self._slow_entries()
        self._tails = self._histograms()
        self._local = _local(told) if address.is_here else None

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

    def snapshot(self) -> None:
        """Read INFO once more. Raises `StackError` if the server refuses it."""
        try:
            found = info.fields(self._questions.ask("INFO", "ALL"))
        except Refused as error:
            raise StackError(
                f"the server at {self._address.shown} refuses INFO ({error}), and a diagnosis needs it."
            ) from None
        micros = found.get("server_time_usec")
        at = float(micros) / 1e6 if micros else time.time()
        self.snapshots.append(Snapshot(at, found, time.monotonic()))

    def own_stall(self) -> str | None:
        """Return a sentence if one of our own commands held the server since the snapshot before, else None."""
        before, after = (info.counters(snapshot.fields) for snapshot in self.snapshots[-2:])
        for name in OWN - {"PING"}:
            calls, usec = (
                now - then
                for now, then in zip(after.get(name, (0.0, 0.0)), before.get(name, (0.0, 0.0)), strict=True)
            )
            if calls > 0 and usec / calls / 1e6 > STALL_S:
                command, seconds = name.replace("|", " "), usec / calls / 1e6
                return f"the diagnosis ended early: {command} held the server for {seconds:.1f} s"
        return None

    def _ask_if_allowed(self, what: str, *words: str | int) -> Any:
        """Return a reply, or None if the server refuses the command; a refusal is noted once."""
        try:
            return self._questions.ask(*words)
        except Refused as error:
            self._note(f"{what}: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.unseen:
            self.unseen.append(text)

    def _read_settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in SETTINGS:
            reply = self._ask_if_allowed("CONFIG GET", "CONFIG", "GET", name)
            if reply is None:
                break  # managed servers refuse all of it
            if len(reply) >= 2:
                found[str(reply[0]).replace("_", "-")] = str(reply[1])
        return found

    def _slow_entries(self) -> dict[str, tuple[str, float, str]]:
        """Log and number of an entry → (command, ms, its words); ms is 0 except in the log of slow commands."""
        entries: dict[str, Sequence[Any]] = {}
        if self.product == "valkey" and _at_least(self.version, (8, 1)):
            for log in COMMANDLOGS:
                reply = self._ask_if_allowed("COMMANDLOG GET", "COMMANDLOG", "GET", NEWEST, log)
                entries |= {f"{log} {entry[0]}": entry for entry in reply or ()}
        if not any(name.startswith("slow ") for name in entries):
            reply = self._ask_if_allowed("SLOWLOG GET", "SLOWLOG", "GET", NEWEST)
            entries |= {f"slow {_number(entry)}": _as_list(entry) for entry in reply or ()}
        return {
            identity: (
                _name(entry[3]),
                (float(entry[2]) / 1000 if identity.startswith("slow ") else 0.0),
                _text(entry[3]),
            )
            for identity, entry in entries.items()
        }

    def _histograms(self) -> dict[str, tuple[int, int]]:
        """Command → executions since the server started, and how many of them took longer than `TORN_US`."""
        reply = self._ask_if_allowed("LATENCY HISTOGRAM", "LATENCY", "HISTOGRAM") or []
        found = {}
        for name, told in zip(reply[::2], reply[1::2], strict=False):
            facts = dict(zip(told[::2], told[1::2], strict=False))
            counts = facts.get("histogram_usec", [])
            quick = max(
                (counts[at + 1] for at in range(0, len(counts), 2) if counts[at] <= TORN_US), default=0
            )
            found[str(name).upper()] = int(facts["calls"]), int(facts["calls"]) - int(quick)
        return found

    def _clients(self) -> Clients | None:
        total = int(self.snapshots[-1].number("connected_clients"))
        if total > MOST_CLIENTS:
            self._note(
                f"CLIENT LIST: left out, because with {total:,} connections it would hold the server too long"
            )
            return None
        reply = self._ask_if_allowed("CLIENT LIST", "CLIENT", "LIST")
        if reply is None:
            return None
        rows = [dict(word.partition("=")[::2] for word in line.split()) for line in str(reply).splitlines()]
        busiest = Counter(row.get("cmd", "?").upper() for row in rows)
        return Clients(len(rows), dict(busiest), sum(float(row.get("omem", 0)) for row in rows))

    def _events(self) -> dict[str, float]:
        """Events of the latency monitor within this window → duration of the latest, in ms."""
        began = int(self.snapshots[0].at)
        reply = self._ask_if_allowed("LATENCY LATEST", "LATENCY", "LATEST") or []
        return {str(event[0]): float(event[2]) for event in reply if int(event[1]) >= began}

    def finish(self, prober: Prober) -> Window:
        """Read INFO and the logs once more, and put the window together."""
        self.snapshot()
        for refused in prober.refused:
            self._note(f"{refused}, so the probe leaves it out")
        slow: dict[str, tuple[int, float]] = {}
        arguments = []
        for identity, (name, took_ms, words) in self._slow_entries().items():
            if identity not in self._logged and name.partition("|")[0] not in ("INFO", "CLIENT", "SLOWLOG"):
                count, longest = slow.get(name, (0, 0.0))
                slow[name] = count + 1, max(longest, took_ms)
                arguments.append(words)
        tails = {}
        for name, (calls, torn) in self._histograms().items():
            were, before = self._tails.get(name, (0, 0))
            if calls > were:
                tails[name] = calls - were, torn - before
        window = Window(
            shown=self._address.shown,
            product=self.product,
            version=self.version,
            snapshots=self.snapshots,
            probed=list(prober.probed),
            slow=slow,
            tails=tails,
            events=self._events(),
            settings=self._settings,
            clients=self._clients(),
            unseen=tuple(self.unseen),
            arguments=tuple(arguments) if self._show_arguments else (),
            probe_began=prober.began,
        )
        return _with_local_figures(window, self._local)


def _refuse(told: info.Fields, address: Address) -> None:
    if told.get("redis_mode") == "sentinel":
        raise UsageError(
            f"{address.shown} is a Sentinel, which holds no data: name the server that it watches."
        )
    if told.get("loading") == "1":
        raise StackError(f"the server at {address.shown} is loading its data: try again when it is done.")
    if "uptime_in_seconds" not in told:
        raise StackError(
            f"what answers at {address.shown} is no known server: its INFO lacks uptime_in_seconds."
        )


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= wanted


def _as_list(entry: Any) -> Sequence[Any]:
    return (
        [entry["id"], entry["start_time"], entry["duration"], entry["command"]]
        if isinstance(entry, dict)
        else entry
    )


def _number(entry: Any) -> str:
    listed = _as_list(entry)
    return f"{listed[0]}@{listed[1]}"


def _words(words: str | Iterable[str]) -> list[str]:
    return words.split(" ") if isinstance(words, str) else [str(word) for word in words]


def _name(words: str | Iterable[str]) -> str:
    return _words(words)[0].upper()


def _text(words: str | Iterable[str]) -> str:
    return " ".join(_words(words))[:200]


def _local(told: info.Fields) -> _Local | None:
    """The server's process, if it is one of this machine: one with the same process id and age. Else None."""
    with contextlib.suppress(psutil.Error, ValueError, KeyError):
        process = psutil.Process(int(told["process_id"]))
        age = time.time() - process.create_time()
        if abs(age - float(told["uptime_in_seconds"])) < 10:
            return _measure(process.pid)
    return None


def _measure(pid: int) -> _Local:
    times = psutil.Process(pid).cpu_times()
    machine = psutil.cpu_times()
    idle = machine.idle + getattr(machine, "iowait", 0.0) + getattr(machine, "guest", 0.0)
    return _Local(pid, _waited_s(pid), times.user + times.system, sum(machine) - idle)


def _waited_s(pid: int) -> float | None:
    """Seconds that a process's first thread was ready to run but had no core; None if unknown (only Linux tells)."""
    try:  # proc(5): time on a core, time waiting for one (both ns), and times it was put on one
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _with_local_figures(window: Window, before: _Local | None) -> Window:
    """Return the window with `waited` and `others` filled in, if the server runs on this machine."""
    if before is None:
        return window
    with contextlib.suppress(psutil.Error):
        after = _measure(before.pid)
        seconds = after.at - before.at
        waited = None
        if after.waited_s is not None and before.waited_s is not None:
            waited = (after.waited_s - before.waited_s) / seconds
        others = ((after.machine_s - before.machine_s) - (after.own_s - before.own_s)) / seconds
        return replace(window, waited=waited, others=max(0.0, others))
    return window

"""The window of a diagnosis: its raw observations, and the figures from them: shares, waits, stalls, parts of p99."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from lab.server.figures import CONSTANT, LEAST_GET_MS, TIMES_HEALTHY, Figures, Spent
from loadtest import info

TORN_US, TORN_SHARE = 528, 1 / 20_000
"""A command of constant time (`CONSTANT`) that takes longer was interrupted; from this share on, the server lacks a
core. (The bound is one of LATENCY HISTOGRAM's, which double.) On an idle machine of two cores none of 60,000 was
interrupted; with programs that compute on the server's core, one in a few hundred."""
LOOP_US, LOOP_COMMANDS_US = "eventloop_duration_sum", "eventloop_duration_cmd_sum"
"""Fields of INFO: µs that the main loop was busy, and the µs of these that commands took, waits included. Valkey, and
Redis from 7.2 on, report them."""
LOOP_FULL = 0.9
"""Share of the time from which the main loop is so seldom free that even the quickest twentieth of the round trips may
wait for it."""
CLOCK_S = 0.5
"""Seconds by which the server's clock may drift from this machine's between two snapshots."""
CAPPED = "expired_time_cap_reached_count"
"""Field of INFO: how often the server interrupted its removal of expired entries, to let commands through."""
ELSEWHERE = 20
"""The fewest requests outside of given stretches of time for a p99 of them."""
STALL_TIMES, STALL_MS = 10.0, 5.0
"""A request of the probe that waits this many times the floor, and this long, belongs to a stall."""
Z = 1.96


@dataclass(frozen=True)
class InfoSnapshot:
    """A reply to INFO, at a moment of the server's own clock (`at`, unix seconds).

    By this process's monotonic clock it was requested at `asked_at`, and read at `read_at`.
    """

    at: float
    fields: Mapping[str, str]
    read_at: float = 0.0
    asked_at: float = 0.0

    def number(self, name: str) -> float:
        """Return a field as a number; 0 if INFO lacks it."""
        try:
            return float(self.fields.get(name, 0))
        except ValueError:
            return 0.0

    @property
    def copying(self) -> bool:
        """True if a replica waits for its copy of the data set, or receives it."""
        return any(
            name.removeprefix("slave").isdigit()
            and ("state=wait_bgsave" in value or "state=send_bulk" in value)
            for name, value in self.fields.items()
            if name.startswith("slave")
        )


@dataclass(frozen=True)
class ClientCounts:
    """Figures of CLIENT LIST. `senders`: command → the client that most of its connections belong to, where that has a
    name or tells its library."""

    total: int
    senders: Mapping[str, str]
    output_bytes: float


@dataclass(frozen=True)
class Probed:
    """A request of the probe. `due_s`: due time since the probe began; `waited_s`: wait for its reply; `sent`: if sent.

    The wait of a sent request counts from its sending. No reply was outstanding then, so if it was sent after its due
    time, this process caused the delay (`lag_s`), not the server.
    """

    due_s: float
    waited_s: float
    lag_s: float = 0.0
    sent: bool = True


@dataclass(frozen=True, slots=True)
class Window(Figures):
    """Everything observed in a stretch of `seconds`.

    `slow`: command → new entries of the slow log, and the longest (ms); 0 entries if only the logs of large
    requests and replies got some. `lengths`: command → bound in µs → calls between half of it and it; empty without
    LATENCY HISTOGRAM. `events`: event of the latency monitor → ms. `waited` and `others` are known for a server on this
    machine: the share of the time that its thread was ready but had no core, and the cores that all other programs
    used. `machine`: what else of this machine can hold the server up, in sentences. `unseen`: observations that
    failed, and why.
    `probe_began`: the probe's beginning by the clock of `Snapshot.read_at`.
    """

    shown: str
    product: str
    version: str
    snapshots: Sequence[InfoSnapshot]
    probed: Sequence[Probed]
    slow: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    lengths: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    events: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    clients: ClientCounts | None = None
    waited: float | None = None
    others: float | None = None
    machine: Sequence[str] = ()
    unseen: Sequence[str] = ()
    arguments: Sequence[str] = ()
    probe_began: float = 0.0

    @property
    def senders(self) -> Mapping[str, str]:
        """Command → the client behind it, from CLIENT LIST."""
        return self.clients.senders if self.clients else {}

    @property
    def first(self) -> InfoSnapshot:
        """The first snapshot of INFO."""
        return self.snapshots[0]

    @property
    def last(self) -> InfoSnapshot:
        """The last snapshot of INFO."""
        return self.snapshots[-1]

    @cached_property
    def seconds(self) -> float:
        """Seconds from the first to the last snapshot, by the server's clock; while it stepped, by this process's."""
        return max(sum(_seconds_between(*pair) for pair in pairwise(self.snapshots)), 1e-3)

    @property
    def stepped_s(self) -> float:
        """The largest step of the server's clock, in seconds; 0 without one."""
        steps = ((pair[1].at - pair[0].at) - _seconds_between(*pair) for pair in pairwise(self.snapshots))
        return max(steps, key=abs, default=0.0)

    def per_s(self, name: str) -> float:
        """Return the rise of a counter of INFO, a second. A counter that fell was reset, and counts from 0."""
        steps = ((before.number(name), after.number(name)) for before, after in pairwise(self.snapshots))
        risen = (after - before if after >= before else max(0.0, after) for before, after in steps)
        return sum(risen) / self.seconds

    def setting(self, name: str) -> float:
        """Return a setting as a number; 0 if it is unknown or not a number ("1gb")."""
        try:
            return float(self.settings.get(name) or 0)
        except ValueError:
            return 0.0

    @cached_property
    def commands(self) -> dict[str, Spent]:
        """Command → its cost in this window, the diagnosis's own commands included.

        Counters that fell were reset (CONFIG RESETSTAT, a restart), and count from 0.
        """
        counted = [info.counters(snapshot.fields) for snapshot in self.snapshots]
        total: dict[str, tuple[float, float]] = {}
        for before, after in pairwise(counted):
            for name, (calls, usec) in after.items():
                were, spent = before.get(name, (0.0, 0.0))
                if calls < were or usec < spent:
                    were = spent = 0.0
                so_far = total.get(name, (0.0, 0.0))
                total[name] = so_far[0] + calls - were, so_far[1] + usec - spent
        return {
            name: Spent(calls / self.seconds, usec / 1e6 / self.seconds, usec / calls)
            for name, (calls, usec) in total.items()
            if calls
        }

    @property
    def set_back(self) -> bool:
        """True if the server's counters were reset, by CONFIG RESETSTAT or a restart."""
        counts = [snapshot.number("total_commands_processed") for snapshot in self.snapshots]
        return any(after < before for before, after in pairwise(counts))

    @cached_property
    def busy_by_second(self) -> list[float]:
        """Utilisation of the thread that executes commands, from each snapshot of INFO to the next."""
        found = []
        for before, after in pairwise(self.snapshots):
            used = [info.busy_seconds(snapshot.fields) for snapshot in (before, after)]
            if used[0] is not None and used[1] is not None:
                found.append(max(0.0, used[1] - used[0]) / _seconds_between(before, after))
        return found

    @property
    def busy(self) -> float:
        """Utilisation of the thread that executes commands, 0 to 1; by its CPU seconds, else by its commands' times."""
        used = [info.busy_seconds(snapshot.fields) for snapshot in (self.first, self.last)]
        if used[0] is None or used[1] is None or used[1] < used[0]:
            return min(1.0, sum(spent.share for spent in self.commands.values()) / self.threads)
        return min(1.0, (used[1] - used[0]) / self.seconds)

    @property
    def threads(self) -> int:
        """Threads that execute commands."""
        return info.threads(self.last.fields)

    @property
    def clock_includes_waits(self) -> bool:
        """True if the time of a command includes its waits for other commands: Dragonfly interleaves commands."""
        return self.product == "dragonfly"

    @property
    def looped(self) -> float | None:
        """Share of the time in which the main loop was busy. None if INFO does not report it."""
        return self.per_s(LOOP_US) / 1e6 if LOOP_US in self.last.fields else None

    @property
    def loop_waited(self) -> float | None:
        """Share of the time in which the main loop was busy, and neither computed nor executed a command.

        It then waited for a disk or a core. None if INFO does not report how long the loop was busy.
        """
        if self.looped is None:
            return None
        # A command's time includes its own waits, such as for swapped memory: these do not count.
        return max(0.0, self.looped - max(self.busy, self.per_s(LOOP_COMMANDS_US) / 1e6))

    @property
    def syncs_writes(self) -> bool | None:
        """True if the server waits for the disk at every write; None if appendfsync is unknown and matters."""
        if self.last.fields.get("aof_enabled") != "1":
            return False
        return self.settings["appendfsync"] == "always" if "appendfsync" in self.settings else None

    @cached_property
    def copies(self) -> list[tuple[float, float]]:
        """Stretches between two snapshots (s since the probe began) in which a replica's full copy was under way."""
        return [
            (before.read_at - self.probe_began, after.read_at - self.probe_began)
            for before, after in pairwise(self.snapshots)
            if before.copying or after.copying or after.number("sync_full") > before.number("sync_full")
        ]

    @property
    def copied(self) -> bool:
        """True if GETs are slow while a replica copies the whole data set, and are not slow at other times."""
        apart_ms = self.apart_ms(self.copies)
        return self.slow_gets and bool(self.copies) and (apart_ms is None or apart_ms < self.slow_from_ms)

    @property
    def keys(self) -> int:
        """Keys in all databases."""
        return info.keys(self.last.fields)

    @property
    def memory(self) -> float:
        """The largest share of maxmemory in use; 0 without a limit."""
        limit = self.last.number("maxmemory") or self.setting("maxmemory")
        return max(snapshot.number("used_memory") for snapshot in self.snapshots) / limit if limit else 0.0

    @property
    def evicted_per_s(self) -> float:
        """Entries evicted a second."""
        return self.per_s("evicted_keys")

    @property
    def expired_per_s(self) -> float:
        """Entries that expired, a second."""
        return self.per_s("expired_keys")

    @property
    def capped_per_s(self) -> float | None:
        """Interruptions of the removal of expired entries, a second. None if INFO does not report them."""
        return self.per_s(CAPPED) if CAPPED in self.last.fields else None

    @property
    def connects_per_s(self) -> float:
        """Connections that the server accepted, a second."""
        return self.per_s("total_connections_received")

    @property
    def sent_mb_per_s(self) -> float:
        """Rate at which the server sends to clients, in MB/s; without the part for replicas, if INFO reports it."""
        to_replicas = self.per_s("total_net_repl_output_bytes")
        return max(0.0, self.per_s("total_net_output_bytes") - to_replicas) / 1e6

    # --- the probe

    @cached_property
    def waits_ms(self) -> list[float]:
        """Every wait of the probe, ascending."""
        return sorted(1000 * each.waited_s for each in self.probed)

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the probe's waits by nearest rank, in ms; 0 without any."""
        waits = self.waits_ms
        return waits[max(0, math.ceil(len(waits) * percent / 100) - 1)] if waits else 0.0

    @property
    def get_ms(self) -> float:
        """p99 of the probe's waits, in ms."""
        return self.percentile_ms(99)

    @property
    def interval_ms(self) -> tuple[float, float]:
        """95 % interval of that p99, by the ranks between which it lies (binomial, normal approximation)."""
        count = len(self.waits_ms)
        if not count:
            return 0.0, 0.0
        spread = Z * math.sqrt(count * 0.99 * 0.01)
        low, high = (math.floor(0.99 * count - spread), math.ceil(0.99 * count + spread))
        return self.waits_ms[max(0, low - 1)], self.waits_ms[min(count, high) - 1]

    @property
    def p99_text(self) -> str:
        """That p99 and its interval in words."""
        low, high = self.interval_ms
        return f"p99 of the probe {self.get_ms:.1f} ms ({low:.1f} to {high:.1f})"

    @property
    def wait_ms(self) -> float:
        """The probe's mean wait without a round trip."""
        trip = self.floor_ms if self.floor_is_the_network else 0.0
        return max(0.0, sum(self.waits_ms) / max(1, len(self.waits_ms)) - trip)

    @cached_property
    def floor_ms(self) -> float:
        """A round trip without queues, in ms: only a twentieth of the requests sent were quicker."""
        trips = sorted(1000 * each.waited_s for each in self.probed if each.sent)
        return trips[len(trips) // 20] if trips else 0.0

    @property
    def lag_ms(self) -> float:
        """p99 of the lateness of the probe's own process."""
        lags = sorted(1000 * each.lag_s for each in self.probed if each.sent)
        return lags[math.ceil(0.99 * len(lags)) - 1] if lags else 0.0

    @property
    def floor_is_the_network(self) -> bool:
        """True if the quickest round trips found the server idle, so that `floor_ms` is the network's share.

        No round trip finds it idle if the main loop is hardly ever free. The loop of a server that waits for the disk
        at every write may be like that; if INFO of such a server lacks the loop's time, the answer is False.
        """
        if self.busy >= LOOP_FULL or (self.threads > 1 and not self.clock_includes_waits):
            return False
        return self.syncs_writes is False if self.looped is None else self.looped < LOOP_FULL

    @property
    def slow_from_ms(self) -> float:
        """The wait in ms from which it is a symptom; the floor stands for the healthy value."""
        return max(TIMES_HEALTHY * self.floor_ms if self.floor_is_the_network else 0.0, LEAST_GET_MS)

    def apart_ms(self, stretches: Sequence[tuple[float, float]]) -> float | None:
        """Return p99 in ms of the requests due outside of these stretches; None with fewer than `ELSEWHERE`."""
        waits = sorted(
            1000 * each.waited_s
            for each in self.probed
            if not any(begin <= each.due_s < end for begin, end in stretches)
        )
        return waits[math.ceil(0.99 * len(waits)) - 1] if len(waits) >= ELSEWHERE else None

    @cached_property
    def stalls(self) -> list[tuple[float, float]]:
        """Stalls of the probe: (beginning in s since the probe began, length in s)."""
        limit_s = max(STALL_TIMES * self.floor_ms, STALL_MS) / 1000
        found: list[tuple[float, float]] = []
        for each in self.probed:
            if each.waited_s < limit_s:
                continue
            end = each.due_s + each.waited_s
            if found and each.due_s <= found[-1][0] + found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], end - found[-1][0])
            else:
                found.append((each.due_s, each.waited_s))
        return found

    @property
    def period_s(self) -> float | None:
        """The median time from one stall's beginning to the next; None with fewer than four."""
        begins = [at for at, _ in self.stalls]
        gaps = sorted(after - before for before, after in pairwise(begins))
        return gaps[len(gaps) // 2] if len(gaps) >= 3 else None

    @property
    def parts_ms(self) -> dict[str, float]:
        """The probe's p99 in parts: execution of a GET, the round trip without it, and waiting (the rest).

        If the floor is not the network's, the round trip is unknown, and is part of the waiting.
        """
        execution = min(self.spent("GET").mean_us or self.spent("PING").mean_us, 1000 * self.get_ms) / 1000
        trip = max(0.0, min(self.floor_ms, self.get_ms) - execution) if self.floor_is_the_network else 0.0
        return {
            "execution": execution,
            "round trip": trip,
            "waiting": max(0.0, self.get_ms - trip - execution),
        }

    @property
    def torn(self) -> tuple[int, int] | None:
        """Executions of commands of constant time, and the number interrupted; None without LATENCY HISTOGRAM."""
        known = [self.lengths[name] for name in CONSTANT if name in self.lengths]
        torn = (calls for bins in known for bound, calls in bins.items() if bound > TORN_US)
        return (sum(sum(bins.values()) for bins in known), sum(torn)) if known else None

    @property
    def interrupted(self) -> bool:
        """True if commands of constant time were interrupted too often for chance."""
        torn = self.torn
        return torn is not None and torn[0] > 0 and torn[1] / torn[0] >= TORN_SHARE and torn[1] >= 2

    @property
    def per_read(self) -> float | None:
        """Commands per read of a socket: near 1 without pipelining. None if INFO does not report reads."""
        reads = self.per_s("total_reads_processed")
        return self.per_s("total_commands_processed") / reads if reads else None


def _seconds_between(before: InfoSnapshot, after: InfoSnapshot) -> float:
    """Return seconds from one snapshot to the next: by the server's clock if plausible, else by this process's."""
    shortest, longest = after.asked_at - before.read_at, after.read_at - before.asked_at
    step = after.at - before.at
    plausible = step > 0 and shortest - CLOCK_S <= step <= longest + CLOCK_S
    return step if plausible else max(after.read_at - before.read_at, 1e-3)


def at_least(version: str, wanted: tuple[int, int]) -> bool:
    """Return True if a version, such as 8.1.4, is this one or newer."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= wanted

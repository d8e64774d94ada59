"""The scene as a workshop meets it, measured: `python -m bench.scene [--rounds N] [--write FILE] [--soak MINUTES]`.

`--rounds`: first the scene is brought up without its story (`CONTROL_STORY=off`), and its idle cost is measured.

A round: `docker compose up` from nothing; five minutes untouched; ten more, in which both servers must be ill and
stable; *index*: how long until both are cured (see `cured`); *scan*: how long until p99 is ten times the healthy p99
again; *Restart server*: how long until the incident is over, and until it is back. It prints a table with a row for
each server and round.

`--write` keeps the figures of processor, memory and disk, idle and at the edge, so that `make up` can announce them.

`--soak`: then the scene is left at its edge for that many minutes, and what grows is reported: each container's memory
with its slope and 95 % interval, the disks of Prometheus and Tempo, restarts, the keys at the edge. `make soak` does it
for ten minutes. Exit code 0 when every figure is within what is promised.

It needs a Docker Engine, takes the compose project of this folder (as `make up` does), and ends with `make down`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from lab import ROOT
from lab.errors import StackError
from lab.stacks.docker import Docker
from lab.stacks.http import Http
from lab.stacks.usage import Usage, usage_of

UNTOUCHED_S, HELD_S, HELD_WITHIN_S = 300.0, 600.0, 420.0
ILL, WELL, LEFT, KNEE_WITHIN = 10.0, 2.0, 0.1, 0.20
EVERY_S = 2.0
SETTLE_S, IDLE_S = 30.0, 30.0
STOREFRONT = ("web", "invalidator", "warmer")
BUDGET_EDGE_CORES, BUDGET_IDLE_CORES, BUDGET_IDLE_GB = 0.35, 0.15, 1.5
VOLUMES = ("prometheus-data", "tempo-data")
LOOK_S = 10.0
WORKSHOP_HOURS, GROWS_MB, GROWS_SHARE, DRIFT_MOST = 3.0, 30.0, 0.5, 0.10
"""A container's memory is flat if at the lower end of its slope it would grow in a workshop by at most GROWS_MB plus
GROWS_SHARE of what it was."""
SOAK_HEAD = ("| container | memory | slope, MB an hour (95 % interval) | |", "|---|---|---|---|")

Rows = dict[str, dict[str, Any]]


@dataclass
class Watch:
    """Samples of one server while the scene was left untouched."""

    times: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)


class Scene:
    """The running scene: its control page and its containers."""

    def __init__(self) -> None:
        port = os.environ.get("CONTROL_PORT") or "8080"
        self.control = Http("the control page", f"http://127.0.0.1:{port}")
        self.docker = Docker()
        self.usage: Usage | None = None
        self.began = 0.0

    def up(self, story: str = "on") -> None:
        """Bring the scene up from nothing, until its containers are healthy."""
        compose("down", "--volumes", "--remove-orphans")
        compose("up", "--detach", "--wait", "--wait-timeout", "300", CONTROL_STORY=story)
        self.began = time.monotonic()
        containers = self.docker.containers()
        self.usage = usage_of(self.docker, {found.service: [found] for found in containers})

    def rows(self) -> Rows:
        """The control page's figures by server."""
        return {row["name"]: row for row in self.control.ask("GET", "/api/state")["servers"]}

    def act(self, action: str, **body: Any) -> None:
        """Take the same action on every server."""
        for server in self.rows():
            self.control.ask("POST", f"/api/servers/{server}/{action}", body)

    def cores(self, seconds: float) -> dict[str, float]:
        """Cores that each service uses on average over that many seconds."""
        assert self.usage is not None
        before, began = self.usage.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        after, elapsed = self.usage.cpu_seconds(), time.monotonic() - began
        return {service: (after[service] - before[service]) / elapsed for service in after}

    def memory_mb(self) -> dict[str, float]:
        """Memory of each service, in MB."""
        assert self.usage is not None
        return self.usage.memory_mb()

    def seconds_until(self, check: Callable[[dict[str, Any]], bool], limit: float) -> dict[str, float]:
        """Seconds from now until each server's row passes `check`; infinity if it does not within the limit."""
        began = time.monotonic()
        found: dict[str, float] = {}
        while len(found) < len(rows := self.rows()) and time.monotonic() - began < limit:
            found |= {
                name: time.monotonic() - began
                for name, row in rows.items()
                if name not in found and check(row)
            }
            time.sleep(0.5)
        return {name: found.get(name, float("inf")) for name in rows}

    def disk_mb(self, volume: str) -> float:
        """What a volume of the project holds on disk, in MB."""
        project = self.docker.containers()[0].project
        said = self.docker.ask("volume", "inspect", "--format", "{{.Mountpoint}}", f"{project}_{volume}")
        return sum(path.stat().st_size for path in Path(said.strip()).rglob("*") if path.is_file()) / 1e6

    def restarts(self) -> int:
        """How often the engine has restarted containers, all together."""
        ids = [container.id for container in self.docker.containers()]
        return sum(map(int, self.docker.ask("inspect", "--format", "{{.RestartCount}}", *ids).split()))

    def until_held(self) -> None:
        """Wait until both servers are at their edge and ill. Raises `StackError` after seven minutes."""
        took = self.seconds_until(lambda row: bool(row["edge_keys"]) and ill(row), HELD_WITHIN_S)
        if float("inf") in took.values():
            raise StackError(f"the scene did not come to its edge within {HELD_WITHIN_S:g} s.")


def compose(*arguments: str, **settings: str) -> None:
    """docker compose in this folder, with these environment variables. Raises `StackError` with its last words."""
    done = subprocess.run(
        ["docker", "compose", *arguments],
        cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StackError(f"docker compose {arguments[0]} failed: {' '.join(done.stderr.split())[-300:]}")


def times(row: dict[str, Any]) -> float | None:
    """p99 of the last ten seconds as a multiple of the healthy p99; None if one is unknown."""
    return row["p99_ms"] / row["healthy_p99_ms"] if row["p99_ms"] and row["healthy_p99_ms"] else None


def ill(row: dict[str, Any]) -> bool:
    """True if p99 is at least ten times the healthy p99."""
    return (times(row) or 0.0) >= ILL


def cured(row: dict[str, Any], before: float) -> bool:
    """True if p99 is known, and the incident is gone from it; `before` is `times` of the row during the incident.

    The incident is gone once p99 is below twice the healthy p99. It is gone as well once p99 is below ten times the
    healthy p99 and nine tenths of what the incident had added are gone. On a fast machine the healthy p99 is a few
    milliseconds, and what the machine's other programs do doubles it at times; an incident is there hundreds of times
    the healthy p99.
    """
    now = times(row)
    return now is not None and now < max(WELL, min(ILL, 1 + LEFT * (before - 1)))


def watchers(cores: dict[str, float], servers: Rows) -> float:
    """Cores used by everything that is neither a server nor part of a storefront."""
    return sum(
        used for name, used in cores.items() if name not in servers and not name.startswith(STOREFRONT)
    )


def looks(scene: Scene, seconds: float) -> Iterator[Rows]:
    """The rows every two seconds, for that many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield scene.rows()
        time.sleep(EVERY_S)


def hold(scene: Scene, seconds: float) -> dict[str, Watch]:
    """Sample the scene for that many seconds, untouched."""
    seen: dict[str, Watch] = {}
    for rows in looks(scene, seconds):
        for name, row in rows.items():
            watch = seen.setdefault(name, Watch())
            if (ratio := times(row)) is not None:
                watch.times.append(ratio)
                watch.p99_ms.append(row["p99_ms"])
            watch.in_flight.append(row["events_in_flight"])
            watch.keys.append(row["keys"])
    return seen


def idle(scene: Scene) -> dict[str, float]:
    """What the scene costs without its story, in cores and GB."""
    scene.up(story="off")
    time.sleep(SETTLE_S)
    cores = scene.cores(IDLE_S)
    return {"idle_cores": sum(cores.values()), "idle_gb": sum(scene.memory_mb().values()) / 1e3}


def one_round(scene: Scene, number: int) -> tuple[list[str], bool, dict[str, float]]:
    """Make a round; return lines of the table, True if all is as promised, and the budget's figures."""
    scene.up()
    for _ in looks(scene, UNTOUCHED_S):
        pass
    first = scene.rows()
    half = hold(scene, HELD_S / 2)
    edge = scene.cores(20.0)
    memory = sum(scene.memory_mb().values()) / 1e3
    rest = hold(scene, HELD_S / 2)
    before = {name: times(row) or ILL for name, row in scene.rows().items()}

    def gone(row: dict[str, Any]) -> bool:
        return cured(row, before[row["name"]])

    scene.act("strategy", strategy="index")
    over = scene.seconds_until(gone, 120)
    time.sleep(20)
    scene.act("strategy", strategy="scan")
    again = scene.seconds_until(ill, 120)
    time.sleep(10)
    scene.act("restart")
    time.sleep(3)
    restarted = scene.seconds_until(gone, 60)
    back = scene.seconds_until(ill, 300)
    lines, good = [], True
    for name, row in first.items():
        ratios = half[name].times + rest[name].times
        p99, keys = half[name].p99_ms + rest[name].p99_ms, half[name].keys + rest[name].keys
        share = sum(ratio >= ILL for ratio in ratios) / len(ratios)
        said, reached = row["knee_keys"], row["edge_keys"]
        backlog = max(half[name].in_flight + rest[name].in_flight)
        good = (
            good
            and ill(row)
            and share >= 0.95
            and abs((said or 0) / (reached or 1) - 1) <= KNEE_WITHIN
            and over[name] <= 15
            and again[name] < 120
            and restarted[name] + 3 <= 20
            and back[name] < 300
        )
        lines.append(
            f"| {number} | {name} | {row['healthy_p99_ms']:.1f} ms | {times(row) or 0:.0f} × | "
            f"{statistics.median(p99):,.0f} ms ({min(ratios):.0f} to {max(ratios):.0f} ×) | {share:.0%} | "
            f"{backlog:.0f} | {said or 0:,} / {reached or 0:,} | {min(keys):,} to {max(keys):,} | "
            f"{over[name]:.0f} s | {again[name]:.0f} s | {restarted[name] + 3:.0f} s | {back[name]:.0f} s |"
        )
    figures = {
        "edge_watchers_cores": watchers(edge, first),
        "edge_cores": sum(edge.values()),
        "edge_gb": memory,
    }
    return lines, good, figures


HEAD = (
    "| round | server | healthy p99 | after 5 min | p99 for 10 min more | ill | backlog at most | knee shown / edge | "
    "keys | index: cured after | scan: ill after | restart: over after | then ill after |\n"
    + "|---" * 13
    + "|"
)


def soak(scene: Scene, minutes: float) -> tuple[list[str], bool, dict[str, float]]:
    """Leave the scene at its edge for that many minutes, and see what grows.

    Returns lines of a table, True if all of it stays within bounds, and the gigabytes of disk that traces and metrics
    take in an hour.
    """
    memory: dict[str, list[float]] = {}
    keys: dict[str, list[int]] = {}
    hours: list[float] = []
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 60 * minutes:
        hours.append(elapsed / 3600)
        for name, used in scene.memory_mb().items():
            memory.setdefault(name, []).append(used)
        for name, row in scene.rows().items():
            keys.setdefault(name, []).append(row["keys"])
        time.sleep(LOOK_S)
    lines, good = [f"\nheld at the edge for {minutes:g} minutes\n", *SOAK_HEAD], True
    for name, megabytes in sorted(memory.items()):
        (slope, _), covariance = np.polyfit(hours, megabytes, 1, cov=True)
        within = 1.96 * math.sqrt(covariance[0, 0])
        least = slope - within
        flat = least * WORKSHOP_HOURS <= GROWS_MB + GROWS_SHARE * megabytes[0]
        good = good and flat
        lines.append(
            f"| {name} | {megabytes[0]:.0f} → {megabytes[-1]:.0f} MB | {slope:+.1f} (± {within:.1f}) | "
            f"{'flat' if flat else 'GROWS'} |"
        )
    part = max(1, len(hours) // 6)
    for name, counts in keys.items():
        first, last = statistics.median(counts[:part]), statistics.median(counts[-part:])
        good = good and abs(last / first - 1) <= DRIFT_MOST
        lines.append(f"\n{name}: {first:,.0f} keys at first, {last:,.0f} at last ({last / first - 1:+.1%})")
    disks = {volume: scene.disk_mb(volume) for volume in VOLUMES}
    an_hour = sum(disks.values()) / 1e3 / ((time.monotonic() - scene.began) / 3600)
    lines += [f"\n{volume}: {size:.0f} MB" for volume, size in disks.items()]
    lines.append(f"\n{an_hour:.2f} GB of disk an hour")
    restarts = scene.restarts()
    lines.append(f"\nrestarts of containers: {restarts}")
    return lines, good and restarts == 0, {"disk_gb_per_hour": an_hour}


def keep(path: Path, figures: dict[str, float]) -> None:
    """Write figures to the file, beside those that other runs wrote."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept |= {"date": date.today().isoformat(), "cores": os.cpu_count()}
    kept |= {name: round(value, 2) for name, value in figures.items()}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def rounds(scene: Scene, count: int, write: Path | None) -> bool:
    """Make the rounds, print their table and the budget; True if all is as promised."""
    figures, good = idle(scene), True
    print(HEAD, flush=True)
    for number in range(1, count + 1):
        lines, fine, edge = one_round(scene, number)
        figures |= edge
        print("\n".join(lines), flush=True)
        good = good and fine
    print(
        f"\nidle: {figures['idle_cores']:.2f} cores, {figures['idle_gb']:.2f} GB; at the edge: observers "
        f"{figures['edge_watchers_cores']:.2f} cores, all containers {figures['edge_cores']:.2f} cores, "
        f"{figures['edge_gb']:.2f} GB",
        flush=True,
    )
    if write:
        keep(write, figures)
    return (
        good
        and figures["edge_watchers_cores"] <= BUDGET_EDGE_CORES
        and figures["idle_cores"] <= BUDGET_IDLE_CORES
        and figures["idle_gb"] <= BUDGET_IDLE_GB
    )


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench.scene", description="The scene on Docker, measured.")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--write", type=Path, metavar="FILE", help="file that keeps the budget's figures")
    options = parser.parse_args()
    scene, good = Scene(), True
    try:
        if options.rounds:
            good = rounds(scene, options.rounds, options.write)
        if options.soak:
            if not options.rounds:
                scene.up()
            scene.until_held()
            lines, fine, figures = soak(scene, options.soak)
            print("\n".join(lines))
            if options.write:
                keep(options.write, figures)
            good = good and fine
    except StackError as error:
        print(f"bench.scene: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        compose("down", "--volumes", "--remove-orphans")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

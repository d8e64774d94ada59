"""A run from beginning to end: folder, stack, conductor, verdict, clean-up."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import psutil

from lab.claims.verdict import Verdict, write_result
from lab.errors import StackError, UsageError
from lab.results.folder import Run, RunFacts, RunWriter, check_folder, make_folder, new_folder
from lab.results.schema import StackName
from lab.runner.judging import reach
from lab.runner.phases import Conductor, Display, most_others
from lab.runner.repetition import check_machine
from lab.scenarios.model import Scenario
from lab.server.address import Route
from lab.server.inside import COMPOSE
from lab.server.processes import port_taken, uninterrupted
from lab.server.server_stats import ServerObserver
from lab.server.servers import IN_COMPOSE, SERVERS, STACKS, Server, check_stack, find_server
from lab.stacks.base import Stack
from lab.stacks.cluster import ClusterStack
from lab.stacks.memory import keys_bytes, require_native_memory, require_scene_memory
from lab.stacks.native import NativeStack
from lab.stacks.quota import why_none
from lab.stacks.rights import check_server

FEWEST_KEYS, MOST_KEYS = 10_000, 50_000_000


@dataclass(frozen=True)
class Request:
    """A requested run. Without a `server` the stack chooses one. `spoilers`: the cause is shown.

    `count`: COUNT of each SCAN. `despite_noise`: run even if the machine is too busy for a verdict.
    """

    scenario: Scenario
    server: str | None
    pace: str
    keys: int | None
    seed: int
    out: Path | None
    route: Route | None = None
    port: int | None = None
    stack: str = "native"
    spoilers: bool = False
    count: int | None = None
    despite_noise: bool = False

    @property
    def server_name(self) -> str:
        """The requested server, or the stack's default."""
        return self.server or STACKS[self.stack]


def opening(request: Request) -> str:
    """Return the text before the measurement: only the symptom, or with `spoilers` the whole story."""
    scenario = request.scenario
    if request.spoilers:
        return scenario.story
    if scenario.refutes:
        return "the same phases without the cause. Every claim must be refuted."
    return f"{scenario.symptom}."


def command_of(request: Request) -> str:
    """Return the command that repeats a run (into a folder of its own)."""
    words = ["bin/lab", "run", request.scenario.id, "--pace", request.pace]
    if request.stack != "native":
        words += ["--stack", request.stack]
    if request.route:
        words += request.route.words
    elif request.server_name != STACKS[request.stack]:
        words += ["--server", request.server_name]
    if not request.route and (given := SERVERS[request.server_name].path):
        words += ["--server-path", given]
    if request.keys is not None:
        words += ["--keys", str(request.keys)]
    if request.count is not None:
        words += ["--count", str(request.count)]
    if request.despite_noise:
        words += ["--despite-noise"]
    return shlex.join([*words, "--seed", str(request.seed)])


def host_facts() -> dict[str, str | int | float]:
    """Return facts about this machine."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory(request: Request, keys: int) -> str:
    """Return a sentence on needed and available memory; empty if the server reports no limit.

    Raises `UsageError` if the keys do not fit, or a server of --url would refuse the run's commands.
    """
    scenario, server = request.scenario, SERVERS[request.server_name]
    pace = scenario.paces[request.pace]
    if request.route:
        # The kind of server is unknown yet: assume the largest entry of all servers that the lab knows.
        largest = max(SERVERS.values(), key=lambda each: each.key_bytes)
        needed = keys_bytes(pace, largest, keys) + pace.loads_mb * 1e6
        others = most_others(scenario.plan(pace, keys))
        return check_server(request.route, needed, f"{keys:,} keys, with what the loads write,", others)
    if request.stack == COMPOSE:
        return require_scene_memory(pace, server, keys)
    return require_native_memory(scenario, pace, server, keys)


def _count(request: Request, server: Server) -> int:
    """Return COUNT of the run's SCANs: the scenario's, else the requested one, else the server's default.

    A server of --url is identified by INFO. Raises `UsageError` for a request if the scenario has its own.
    """
    own = request.scenario.scan_count
    if own:
        if request.count is not None:
            raise UsageError(f"{request.scenario.id} has COUNTs of its own: leave --count out.")
        return own
    if request.count is not None:
        return request.count
    if request.route:
        observer = ServerObserver(request.route.url, 5, request.route.shown)
        try:
            server = SERVERS.get(observer.identity()[0], server)
        finally:
            observer.close()
    return server.scan_count


def check_names(request: Request) -> Server:
    """Return the server of a request. Raises `UsageError` for an unknown pace or stack, or a server outside of it."""
    paces = request.scenario.paces
    if request.pace not in paces:
        raise UsageError(
            f"there is no pace {request.pace!r}; {request.scenario.id} knows {', '.join(paces)}."
        )
    check_stack(request.stack)
    server = find_server(request.server_name)
    if request.stack == "compose" and not server.in_compose:
        known = ", ".join(row.name for row in IN_COMPOSE)
        raise UsageError(f"the compose stack has no {server.name} server; it knows {known}.")
    return server


def cannot_hold(scenario: Scenario) -> str:
    """Return the reason why a scenario's nodes cannot be limited to a share of a core here; empty without one."""
    return why_none(scenario.node_share) if scenario.node_share else ""


def _check_request(request: Request, server: Server) -> None:
    """Check the request before anything is created.

    Raises `UsageError`, or `StackError` when something is missing.
    """
    if request.route is None and (unfit := server.unfit_for(request.scenario.server_settings, request.stack)):
        raise UsageError(f"{request.scenario.id} cannot be run on {server.name}. {unfit}.")
    if request.stack != "native":
        if request.port:
            raise UsageError(f"--port is for the native stack: leave --stack {request.stack} out.")
        from lab.stacks.scene import require_server  # a native run opens no file about containers

        require_server(server)
    elif request.route is not None:
        if request.scenario.own_server:
            raise UsageError(
                f"{request.scenario.id} changes the server's settings, which no run does at a --url: leave --url out."
            )
    else:
        server.require()
        if why := cannot_hold(request.scenario):
            raise StackError(f"{request.scenario.id} cannot be run here: {why}")
        if request.port and port_taken(request.port):
            raise UsageError(f"port {request.port} is taken. Choose another --port, or leave it out.")


def conduct(request: Request, display: Display) -> tuple[Run, Verdict]:
    """Carry out the run and judge it. However it ends, its processes end and its samples are kept.

    Raises `LabError`. A native run with a server of its own raises `NotFair` within seconds, before anything is
    started, if no phase could be measured fairly on this machine.
    """
    scenario = request.scenario
    server = check_names(request)
    pace = scenario.paces[request.pace]
    keys = request.keys if request.keys is not None else pace.keys
    if not FEWEST_KEYS <= keys <= MOST_KEYS:
        raise UsageError(f"--keys must be between {FEWEST_KEYS:,} and {MOST_KEYS:,}, not {keys:,}.")
    if request.out:
        check_folder(request.out)
    _check_request(request, server)
    memory = _memory(request, keys)
    scenario = replace(scenario, scan_count=_count(request, server))
    noise = check_machine(request.despite_noise) if request.stack == "native" and not request.route else ""
    started = datetime.now(UTC)
    folder = make_folder(request.out) if request.out else new_folder(f"{started:%Y%m%d-%H%M%S}-{scenario.id}")
    folder = folder.resolve()  # processes of the run work in another directory
    writer = RunWriter(folder)
    display.say(f"{scenario.id}: {opening(request)}")
    if memory:
        display.say(memory)
    if noise:
        display.say(f"despite noise: {noise}")
    stack: Stack | None = None
    facts = RunFacts(
        scenario=scenario.id,
        title=scenario.title,
        story=scenario.story,
        source=scenario.source,
        refutes=scenario.refutes,
        server="",
        server_version="",
        stack=cast(StackName, request.stack),  # one of STACKS: see check_names
        pace=request.pace,
        seed=request.seed,
        keys=keys,
        started=started.isoformat(timespec="seconds"),
        command=command_of(request),
        host=host_facts(),
        load={
            "reads_per_second": scenario.reads_per_second,
            "probe_per_second": scenario.probe_per_second,
            "events_per_second": scenario.events_per_second,
        },
        scan_count=scenario.scan_count,
        slowlog_threshold_us=scenario.slowlog_threshold_us,
        plan=scenario.plan(pace, keys),
        despite_noise=noise,
    )
    try:
        if request.stack == COMPOSE:
            from lab.stacks.scene import SceneStack

            stack = SceneStack(scenario, server, folder, request.seed)
        elif scenario.node_share:
            stack = ClusterStack(scenario, server, folder, request.seed, request.port)
        else:
            stack = NativeStack(scenario, server, folder, request.seed, request.route, request.port)
        stack.up(display.say)
        facts.server, facts.server_version = stack.server.identity()
        # The product at a --url, or of another binary, is known only now.
        if kind := server if server.product == facts.server else SERVERS.get(facts.server):
            facts.cannot |= kind.cannot
            facts.whole_scans = kind.whole_scans
        facts.cannot |= stack.cannot
        Conductor(scenario, pace, stack, writer, facts, display).run()
        facts.interrupted = False
    finally:
        with uninterrupted(), contextlib.ExitStack() as last:
            last.callback(shutil.rmtree, folder / "state", ignore_errors=True)
            last.callback(writer.close)
            last.callback(writer.facts, facts)
            if stack:
                display.say("taking the stack down")
                stack.down()
            if facts.interrupted and facts.phases:
                display.say(f"the samples until then: {shlex.join(['bin/lab', 'report', str(folder)])}")
    run = Run(folder)
    verdict = reach(run)
    write_result(run, verdict)
    return run, verdict

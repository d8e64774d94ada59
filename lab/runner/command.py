"""`bin/lab list`, `run` and `report`: show the scenarios, run them, and judge what was measured."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lab import ROOT, scenarios
from lab.errors import UsageError
from lab.report import terminal
from lab.runner.story import tell
from lab.server import inside
from lab.server.address import PLAIN_HELP, Route, read_address, route_to
from lab.server.inside import NATIVE, STACK_HELP
from lab.server.servers import SERVERS, STACKS, add_servers

if TYPE_CHECKING:
    from lab.runner.run import Request
    from lab.runner.series import Pages

MOST_COUNT = 10_000_000
"""The storefront's own bound (`app.settings`)."""
QuietCause = Annotated[
    bool,
    typer.Option(
        "--quiet-cause",
        help="For people who look for the cause: terminal and page show it only where it is unfolded.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List the quality checks that passed, too.")]
ALL = "all"
"""The word for all scenarios in place of a scenario's id, and for every server here in place of a server's name."""


def list_scenarios(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show every scenario with its source and its claims."""
    known = list(scenarios.catalogue().values())
    if as_json:
        print(json.dumps(terminal.catalogue(known), indent=1))
    else:
        terminal.show_catalogue(Console(markup=False, highlight=False), known)


def run(
    scenario: Annotated[
        str, typer.Argument(help="A scenario's id, as `bin/lab list` shows it, or `all`.", metavar="ID")
    ],
    server: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(SERVERS)}, or {ALL}: each that is here; if left out, embedded (native) or redis "
            "(compose)."
        ),
    ] = None,
    server_path: Annotated[
        list[str] | None,
        typer.Option(
            help="Use this binary for a server. A new name adds a server: redis-8.4=/opt/redis/src/redis-server. "
            "Options of the binary may follow: 'dragonfly-2=dragonfly --proactor_threads=2'. May be repeated.",
            metavar="NAME=FILE",
        ),
    ] = None,
    stack: Annotated[str | None, typer.Option(help=STACK_HELP)] = None,
    pace: Annotated[str, typer.Option(help="quick, standard or full.")] = "standard",
    keys: Annotated[
        int | None, typer.Option(help="Entries cached at the most; if left out, as the pace has it.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            help="COUNT of each SCAN, for a scenario without COUNTs of its own; if left out, "
            f"{SERVERS['redis'].scan_count:,}, on Dragonfly {SERVERS['dragonfly'].scan_count:,}.",
            min=1,
            max=MOST_COUNT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of arrivals and resampling.", min=0)] = 1,
    out: Annotated[Path | None, typer.Option(help="Run folder; a new one under runs/ if left out.")] = None,
    url: Annotated[str | None, typer.Option(help=f"A server that already runs: {PLAIN_HELP}")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the lab's own server.", min=1, max=65535)] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before writing to a non-empty --url.")
    ] = False,
    despite_noise: Annotated[
        bool,
        typer.Option(
            "--despite-noise",
            help="Run also where other programs leave too little of the processor for a verdict; the report says so.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print result.json (with `all`: summary.json), and nothing else, on stdout.",
        ),
    ] = False,
    controls: Annotated[bool, typer.Option("--controls", help="With `all`: the controls too.")] = False,
    quiet_cause: QuietCause = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario and judge it by its claims."""
    stack = inside.chosen(stack) if url is None and not server_path else stack or NATIVE
    if server_path and (stack != NATIVE or url is not None):
        raise UsageError(
            "--server-path is for servers that the lab starts natively: leave --stack and --url out."
        )
    named = add_servers(server_path or [])
    if unused := [name for name in named if (server or STACKS[NATIVE]) not in (name, ALL)]:
        raise UsageError(f"--server-path names {unused[0]}, which is not run: name it with --server, too.")
    if scenario == ALL:
        for option, given in (("--keys", keys), ("--count", count), ("--url", url), ("--port", port)):
            if given is not None:
                raise UsageError(f"{option} is for one run, not for `bin/lab run {ALL}`.")
    if controls and scenario != ALL:
        raise UsageError(f"--controls is for `bin/lab run {ALL}`; a control alone is run by its own id.")
    if server == ALL:
        taken = {"--url": url, "--port": port, "--json": as_json, f"--stack {stack}": stack != NATIVE}
        if unfit := [option for option, given in taken.items() if given]:
            raise UsageError(f"{unfit[0]} is for a run on one server: leave --server {ALL} out.")
        if scenario == ALL:
            raise UsageError(f"--server {ALL} is for one scenario: name it in place of {ALL}.")
    elif inside.is_elsewhere(stack) and url is None:
        _enter(scenario, server, pace, stack, seed, out)
    from lab.report import write_report
    from lab.runner.live import LiveDisplay
    from lab.runner.run import Request, conduct

    if url is not None and stack == NATIVE and (server is not None or port is not None):
        raise UsageError("--url names a server that already runs: leave out --server and --port.")
    if url is not None and stack != NATIVE:
        raise UsageError(f"--url is for the native stack: leave --stack {stack} out.")
    wanted = scenarios.find(scenario) if scenario != ALL else next(iter(scenarios.catalogue().values()))
    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    route = route_to(read_address(url, called="--url")) if url is not None else None
    if route:
        _ask_first(route, yes)
    request = Request(
        wanted, server, pace, keys, seed, out, route, port, stack, not quiet_cause, count, despite_noise
    )
    if server == ALL:
        raise typer.Exit(_run_everywhere(request, console))
    if scenario == ALL:
        raise typer.Exit(_run_all(request, console, controls, as_json))
    with LiveDisplay(console, request.spoilers, asks=not despite_noise) as display:
        finished, verdict = conduct(request, display)
        display.say("drawing the report")
        report = write_report(finished, request.spoilers)
    if as_json:
        print((finished.folder / "result.json").read_text())
    else:
        terminal.show_verdict(
            Console(markup=False, highlight=False), finished.folder, request.spoilers, verbose
        )
        print(f"report: {inside.as_seen(report)}")
    raise typer.Exit(verdict.exit_code)


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="A run folder, or several to put side by side.", metavar="DIR...")
    ],
    story: Annotated[
        bool,
        typer.Option(
            "--story",
            help="Explain it in plain sentences: what rose with what, where the time went, what it refutes.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="With several: the page; an existing one is replaced.", metavar="FILE")
    ] = Path("compare.html"),
    quiet_cause: QuietCause = False,
    verbose: Verbose = False,
) -> None:
    """Judge a run folder again and redraw its report, or put several runs side by side."""
    if len(folders) > 1:
        if story:
            raise UsageError("--story explains one run: name one run folder.")
        _compare(folders, out, not quiet_cause)
        return
    if story:
        raise typer.Exit(tell(folders[0]))
    raise typer.Exit(_judge_again(folders[0], not quiet_cause, verbose))


def _judge_again(folder: Path, spoilers: bool, verbose: bool) -> int:
    """Judge a run folder, redraw its report, and print the verdict; return its exit code. Raises `UsageError`."""
    from lab.claims.verdict import write_result
    from lab.report import write_report
    from lab.results.folder import Run
    from lab.runner.judging import reach

    finished = Run(folder)
    verdict = reach(finished)
    write_result(finished, verdict)
    path = write_report(finished, spoilers)
    terminal.show_verdict(Console(markup=False, highlight=False), folder, spoilers, verbose)
    print(f"report: {inside.as_seen(path)}")
    return verdict.exit_code


def _compare(folders: list[Path], out: Path, spoilers: bool) -> None:
    """Print runs side by side, and write a page with the same. Raises `UsageError`."""
    from lab.report import write_comparison
    from lab.report.comparison import side_by_side
    from lab.results.folder import Run

    runs = [Run(folder) for folder in folders]
    side_by_side(Console(markup=False, highlight=False), runs, spoilers)
    print(f"page: {inside.as_seen(write_comparison(runs, out, spoilers))}")


def _enter(scenario: str, server: str | None, pace: str, stack: str, seed: int, out: Path | None) -> None:
    """Carry out this command in the container `lab`. Raises `UsageError` for arguments that it would refuse.

    The run folder is below runs/, which the container shares with this machine.
    """
    from lab.runner.run import Request, check_names

    wanted = next(iter(scenarios.catalogue().values())) if scenario == ALL else scenarios.find(scenario)
    check_names(Request(wanted, server, pace, None, seed, out, stack=stack))
    if out is not None and (out.is_absolute() or not (ROOT / out).resolve().is_relative_to(ROOT / "runs")):
        raise UsageError(f"--stack compose writes below runs/ only: --out runs/{out.name}, not {out}.")
    inside.enter(sys.argv[1:])


def _pages(spoilers: bool) -> Pages:
    """Return the writers of a series' pages."""
    from lab.report import write_report, write_summary
    from lab.runner.series import Pages

    return Pages(partial(write_report, spoilers=spoilers), partial(write_summary, spoilers=spoilers))


def _run_all(request: Request, console: Console, controls: bool, as_json: bool) -> int:
    """Run every scenario as requested, one after the other; return the exit code of the whole series."""
    from lab.runner.live import LiveDisplay
    from lab.runner.series import chosen, run_series

    series = run_series(
        chosen(controls),
        lambda scenario, folder: replace(request, scenario=scenario, out=folder),
        request.out,
        _pages(request.spoilers),
        lambda: LiveDisplay(console, request.spoilers, asks=not request.despite_noise),
        lambda text: console.print(f"\n{text}", style="bold"),
    )
    if as_json:
        print((series.folder / "summary.json").read_text())
    else:
        page = series.folder / "summary.html"
        terminal.show_series(Console(markup=False, highlight=False), series.summary(), page, request.spoilers)
    if series.interrupted:
        raise KeyboardInterrupt
    return series.exit_code


def _run_everywhere(request: Request, console: Console) -> int:
    """Run a scenario on every server that is here, and put the runs side by side; return the exit code of the whole."""
    from lab.report import write_comparison
    from lab.report.comparison import side_by_side
    from lab.runner.everywhere import run_everywhere
    from lab.runner.live import LiveDisplay

    folder, finished, code = run_everywhere(
        request.scenario,
        lambda name, place: replace(request, server=name, out=place),
        request.out,
        _pages(request.spoilers),
        lambda: LiveDisplay(console, request.spoilers, asks=not request.despite_noise),
        lambda text: console.print(f"\n{text}", style="bold"),
    )
    if len(finished) > 1:
        side_by_side(Console(markup=False, highlight=False), finished, request.spoilers)
        print(f"page: {write_comparison(finished, folder / 'compare.html', request.spoilers).resolve()}")
    return code


def _ask_first(route: Route, yes: bool) -> None:
    from lab.server.server_stats import ServerObserver

    server = ServerObserver(route.url, timeout_s=5, shown=route.shown)
    keys = server.keys_everywhere()
    server.close()
    if yes or not keys:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{route.shown} holds {keys:,} keys. If the lab may add its own keys, add --yes.")
    print(
        f"{route.shown} holds {keys:,} keys. The lab will saturate this server, write keys that begin with "
        "'latency-lab', and remove only those.",
        file=sys.stderr,
    )
    if not typer.confirm("Go on?", err=True):
        raise UsageError("nothing was done.")

"""The command `lab replay`, which also records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lab.errors import StackError, UsageError
from lab.replay import NoAnswer

if TYPE_CHECKING:
    from lab.replay.replay import Say


def _record(folder: Path, minutes: float, max_mb: float) -> None:
    """Record the last minutes of the running scene: metrics and traces, into a folder that `lab replay` serves."""
    from lab.replay.prometheus import Prometheus
    from lab.replay.record import MB
    from lab.replay.record import record as take
    from lab.replay.replay import address
    from lab.replay.tempo import Tempo

    try:
        with (
            Prometheus(address("PROMETHEUS_PORT")) as prometheus,
            Tempo(address("TEMPO_PORT")) as tempo,
            _saying() as say,
        ):
            done = take(folder, prometheus, tempo, minutes, max_mb, say)
    except NoAnswer as error:
        raise StackError(f"{error} Is the scene running? `make up` starts it.") from error
    counts = done.meta.counts
    print(
        f"{folder}: {done.size / MB:.2f} MB, {(done.meta.end - done.meta.start) / 60:.1f} minutes of "
        f"{', '.join(done.meta.servers) or 'no server'}; {counts['samples']:,} samples of {counts['series']:,} series, "
        f"{counts['traces']:,} traces, {counts['exemplars']:,} exemplars that lead to them"
    )
    for item in done.meta.dropped:
        print(f"left out (at most {max_mb:g} MB): {item}")
    print(f"bin/lab replay {folder} serves it.")


def replay(
    folder: Annotated[
        Path | None, typer.Argument(help="A recording.", metavar="DIR", show_default=False)
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="End the replay; nothing is left.")] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Record the running scene into DIR, a new folder, instead of serving it."
        ),
    ] = False,
    minutes: Annotated[
        float, typer.Option(help="Minutes to record, up to now.", min=1, max=120, metavar="MINUTES")
    ] = 15.0,
    max_mb: Annotated[
        float,
        typer.Option("--max-mb", help="Megabytes that it may take; traces are left out first.", min=0.1),
    ] = 5.0,
) -> None:
    """Serve a recording in Prometheus, Tempo and Grafana, as if it had ended just now; no load, no servers."""
    if down == (folder is not None) or (down and record):
        raise UsageError("name a recording to serve, or give --down to end the replay.")
    if record and folder is not None:
        _record(folder, minutes, max_mb)
        return
    from lab.replay import replay as served
    from lab.replay.docker import Docker
    from lab.replay.recording import read

    docker = Docker()
    if folder is None:
        there = served.running(docker)
        served.down(docker)
        print("ended; nothing is left." if there else "no replay was running.")
        return
    with _saying() as say:
        say("reading the recording")
        recording = read(folder)
        result, used = served.replay(recording, docker, say)
    print(
        f"{result.samples:,} samples, {result.traces:,} traces ({result.spans:,} spans): "
        f"{(result.end - result.start) / 60:.1f} minutes that seem to have ended just now"
    )
    print(f"Tempo finds {result.traces - len(result.missing):,} of {result.traces:,} traces.")
    if result.missing:
        print(
            f"MISSING: {len(result.missing):,}, though sent twice, so some exemplars lead nowhere. "
            "`docker logs redis-latency-lab-replay-tempo-1` may say why; or end this and replay again."
        )
    print("\ndashboards, set to the time of the recording:")
    for title, address in served.dashboards(result):
        print(f"  {title:<24} {address}")
    print(f"\nPrometheus {served.address('PROMETHEUS_PORT')}   Tempo {served.address('TEMPO_PORT')}")
    parts = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sorted(used.items()))
    print(f"memory: {sum(used.values()) / 1e9:.2f} GB ({parts})")
    print("bin/lab replay --down ends it and leaves nothing behind.")


@contextmanager
def _saying() -> Iterator[Say]:
    """Show the current step in a status line on stderr, if it is a terminal. Yields the function that sets it."""
    console = Console(stderr=True, markup=False, highlight=False)
    with console.status("") as status:
        yield status.update

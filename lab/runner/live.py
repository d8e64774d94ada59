"""The display of a run in progress: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.results.folder import PhaseRecord
from lab.runner.recorder import SampleRow
from lab.scenarios.model import Phase


class LiveDisplay:
    """The display of a run, a context manager. It writes to stderr, so that stdout stays free for results.

    It names neither a strategy nor its command, and phases by their neutral titles, because its reader may still look
    for the cause. With `spoilers` phases have their own titles.
    """

    def __init__(self, console: Console, spoilers: bool = False, asks: bool = False) -> None:
        """`asks`: when a run can have no verdict any more, wait for Enter, if there is a terminal."""
        self._console = console
        self._spoilers = spoilers
        self._asks = asks
        self._names: dict[str, str] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._whole = self._progress.add_task("run", total=None)
        self._step = self._progress.add_task("starting", total=None)
        self._began = 0.0
        self._seconds = 1.0
        self._row: SampleRow = {}
        self._table = _phase_table()
        self._live: Live | None = None

    def __enter__(self) -> LiveDisplay:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def say(self, text: str) -> None:
        """Show the current step."""
        self._progress.update(self._step, description=text, total=None)
        if not self._live:
            self._console.print(text, highlight=False)

    def phase(self, number: int, total: int, phase: Phase, seconds: float) -> None:
        """Show that a phase begins."""
        self._progress.update(self._whole, total=total, completed=number - 1)
        self._began, self._seconds = time.monotonic(), seconds + 1.0
        name = self._names[phase.id] = phase.named(self._spoilers)
        self._progress.update(
            self._step, description=f"{number}/{total} {name}", total=self._seconds, completed=0
        )

    def row(self, row: SampleRow) -> None:
        """Show the latest sample."""
        self._row = row

    def finished(self, record: PhaseRecord, p99_ms: dict[str, float | None]) -> None:
        """Show a measured phase. `p99_ms` is by probe.

        Each further probe of the same phase gets a line.
        """
        cells = (
            self._names[record.id],
            f"{record.keys:,.0f}",
            _figure(p99_ms["main"], ".2f", ""),
            f"{record.utilisation:.0%}" if record.utilisation is not None else "",
            f"{sum(map(record.rate, record.commands)):,.0f}",
        )
        self._table.add_row(*cells)
        others = [(f"  at the same moments: {name}", each) for name, each in p99_ms.items() if name != "main"]
        for name, each in others:
            self._table.add_row(name, "", _figure(each, ".2f", ""), "", "")
        if not self._live:
            self._console.print(
                f"  {cells[0]:<42} {cells[1]:>9} keys   p99 {cells[2]:>8} ms   "
                f"server busy {cells[3]:>4}   {cells[4]:>6} commands/s",
                highlight=False,
            )
            for name, each in others:
                self._console.print(
                    f"  {name:<42} {'':>9}        p99 {_figure(each, '.2f', ''):>8} ms", highlight=False
                )

    def lost(self, why: str) -> None:
        """Show why the run can have no verdict any more, and wait for Enter. Ctrl-C ends the run, as always."""
        asks = self._asks and self._live is not None and sys.stdin.isatty()
        goes_on = "Enter goes on, Ctrl-C ends." if asks else "It goes on, and shows what is seen."
        if self._live and asks:
            self._live.stop()
        self._console.print(f"this run can have no verdict any more: {why}. {goes_on}", highlight=False)
        if self._live and asks:
            sys.stdin.readline()
            self._live.start(refresh=True)

    def _render(self) -> RenderableType:
        if self._began:
            self._progress.update(self._step, completed=min(self._seconds, time.monotonic() - self._began))
        now = Table.grid(padding=(0, 3))
        row = self._row
        now.add_row(
            f"keys {_figure(row.get('keys'), ',.0f')}",
            f"p99 of a GET {_figure(row.get('probe_p99_ms'), '.2f')} ms",
            f"server busy {_figure(row.get('utilisation'), '.0%')}",
            f"events in flight {_figure(row.get('events_in_flight'), '.0f')}",
        )
        return Group(self._table, now, self._progress)


def _phase_table() -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("phase", min_width=42)
    for heading in ("keys", "p99 ms", "server busy", "commands/s"):
        table.add_column(heading, justify="right")
    return table


def _figure(value: float | str | None, form: str, unknown: str = "-") -> str:
    return format(value, form) if isinstance(value, (int, float)) else unknown

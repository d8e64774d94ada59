"""The table that a scenario prints at its end: a row for each window of time, and conclusions from the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtest.customers.ranks import rank_correlation
from loadtest.customers.shop import Buckets, quantile
from loadtest.histogram import Histogram

HEAD = (
    f"{'seconds':>8} {'strategy':<12} {'keys':>9} {'visits/s':>8} {'events/s':>8} {'missed':>6} "
    f"{'p99 GET':>9} {'p99 page':>9}"
)


@dataclass
class WindowRow:
    """A window of the table. Its times are in s since the start. `settled`: keys had grown, the strategy was not new.

    `keys`: of all customers who had come by its end; those that an event has deleted since are counted, too.
    """

    began: float
    ended: float
    strategy: str
    keys: int
    growing: bool
    settled: bool
    visits: int
    events: int
    missed: int
    gets: Buckets
    pages: Histogram

    def __str__(self) -> str:
        seconds = self.ended - self.began
        return (
            f"{self.ended:>8.0f} {self.strategy:<12} {self.keys:>9,} {self.visits / seconds:>8.1f} "
            f"{self.events / seconds:>8.2f} {self.missed:>6} {_shown(get_ms([self])):>9} {_shown(page_ms([self])):>9}"
        )


def get_ms(rows: Sequence[WindowRow]) -> float | None:
    """p99 of a GET over these windows, in ms, from the storefront's histogram; None without any."""
    total: Buckets = {}
    for row in rows:
        for bound, count in row.gets.items():
            total[bound] = total.get(bound, 0.0) + count
    found = quantile(total, 0.99)
    return None if found is None else found * 1000


def page_ms(rows: Sequence[WindowRow]) -> float | None:
    """p99 of a page over these windows, in ms, as Locust measured it; None without any."""
    total = Histogram()
    for row in rows:
        total.add(row.pages)
    return total.percentile(99) / 1000 if total.total else None


def lines(rows: Sequence[WindowRow]) -> list[str]:
    """The table, the rank correlation of keys and both p99s while keys grew, and each strategy at the most keys."""
    table = [HEAD, *(str(row) for row in rows), "(latencies in ms)"]
    growing = [row for row in rows if row.growing]
    for what, p99_of in (("a GET", get_ms), ("a page", page_ms)):
        table.append(
            f"while keys grew, rank correlation of keys and p99 of {what}: {_correlation(growing, p99_of)}"
        )
    settled = [row for row in rows if row.settled]
    for strategy in dict.fromkeys(row.strategy for row in settled):
        plateau = [row for row in settled if row.strategy == strategy]
        table.append(
            f"at {plateau[-1].keys:,} keys under {strategy}: "
            f"p99 of a GET {_shown(get_ms(plateau))} ms, of a page {_shown(page_ms(plateau))} ms"
        )
    return table


def _correlation(rows: Sequence[WindowRow], p99_of: Callable[[Sequence[WindowRow]], float | None]) -> str:
    pairs = [(float(row.keys), p99) for row in rows if (p99 := p99_of([row])) is not None]
    found = rank_correlation([keys for keys, _ in pairs], [p99 for _, p99 in pairs])
    if found is None:
        return f"not known ({len(pairs)} windows)"
    r, low, high = found
    return f"{r:.2f} (95 % interval {low:.2f} to {high:.2f}, {len(pairs)} windows)"


def _shown(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.1f}"

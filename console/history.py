"""The history of the last minutes: p99 over a short window, rates, and a curve for the page."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from console.clients import SceneSample
from lab.results.correlation import spearman
from lab.server.http import Buckets, bucket_quantile

WINDOW_S = 10.0
MOST_S = 60.0
CURVE_S = 300.0
CURVE_STEP_S = 2.0
FEWEST_PAIRS = 10


@dataclass(frozen=True)
class RecentFigures:
    """Figures from more than one sample. None: not known.

    `p99_ms` covers the last ten seconds, or a longer window if they have no reply. `beyond`: the p99 is at least
    `p99_ms`, because it lies above the probe's last bucket.
    """

    p99_ms: float | None = None
    beyond: bool = False
    finished_per_second: float | None = None


class History:
    """Samples of one server over time. `at` is in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, Buckets]] = deque()
        self._curve: deque[tuple[float, float | None, int]] = deque(maxlen=int(CURVE_S / CURVE_STEP_S))
        self.figures = RecentFigures()

    def add(self, at: float, sample: SceneSample) -> RecentFigures:
        """Add a sample. Returns the current figures."""
        if self._samples and (
            sample.finished < self._samples[-1][1] or _count(sample.probe) < _count(self._samples[-1][2])
        ):
            self._samples.clear()  # a process was restarted and counts from 0
        self._samples.append((at, sample.finished, sample.probe))
        while len(self._samples) > 2 and self._samples[1][0] <= at - MOST_S:
            self._samples.popleft()
        self.figures = self._read(at)
        if not self._curve or at - self._curve[-1][0] >= CURVE_STEP_S - 0.1:
            self._curve.append((at, self.figures.p99_ms, sample.keys))
        return self.figures

    def _read(self, at: float) -> RecentFigures:
        now = self._samples[-1]
        earlier = [sample for sample in self._samples if sample[0] < at]
        if not earlier:
            return RecentFigures()
        window = [sample for sample in earlier if sample[0] <= at - WINDOW_S + 0.5] or earlier[:1]
        first = window[-1]
        rate = (now[1] - first[1]) / (at - first[0])
        for start in reversed(window):
            seconds = bucket_quantile(start[2], now[2], 0.99)
            if seconds is not None:
                last = max((bound for bound in now[2] if bound != float("inf")), default=0.0)
                return RecentFigures(seconds * 1000, beyond=seconds >= last, finished_per_second=rate)
        return RecentFigures(finished_per_second=rate)

    def curve(self, at: float) -> dict[str, list[float | int | None]]:
        """Return the last five minutes, oldest first: seconds ago, p99 in ms, keys."""
        return {
            "ago_s": [round(at - moment, 1) for moment, _, _ in self._curve],
            "p99_ms": [p99 if p99 is None else round(p99, 3) for _, p99, _ in self._curve],
            "keys": [keys for _, _, keys in self._curve],
        }


class Follows:
    """The correlation of p99 and keys, from pairs of both since the growth began.

    A pair is taken each time the keys have moved by `step_keys`. While the keys stand still no pair is taken, because
    such moments carry no information about the relation.
    """

    def __init__(self, step_keys: float) -> None:
        self._step = step_keys
        self._pairs: list[tuple[float, float]] = []

    def begin(self) -> None:
        """Forget all pairs: growth begins."""
        self._pairs.clear()

    def add(self, keys: float, p99_ms: float | None) -> None:
        """Add a moment. It counts if the keys have moved by a step since the last moment that counted."""
        if p99_ms is not None and (not self._pairs or abs(keys - self._pairs[-1][0]) >= self._step):
            self._pairs.append((keys, p99_ms))

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation; None with fewer than ten pairs, or if the keys or the p99 never changed."""
        if len(self._pairs) < FEWEST_PAIRS:
            return None
        keys, p99 = zip(*self._pairs, strict=True)
        return spearman(keys, p99) if min(len(set(keys)), len(set(p99))) > 1 else None


def _count(buckets: Buckets) -> float:
    return buckets.get(float("inf"), 0.0)

"""Decodes histograms to arrays of values, fast enough for a whole run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadtest.histogram import BadHistogram, Histogram

MOST = 10_000_000
"""No interval of a probe holds as many latencies. A text with more was altered; decoding it would fill the memory."""


def values_of(encoded: str) -> NDArray[np.float64]:
    """The values of an encoded histogram in ascending order (µs), each repeated as often as it was counted.

    Every value is the highest one of its bucket, as HdrHistogram's own readers give it.

    Raises:
        BadHistogram: The text is not one of the lab's histograms.
    """
    histogram = Histogram.decode(encoded)
    if histogram.total > MOST:
        raise BadHistogram(f"it holds {histogram.total} latencies, more than an interval of a probe can have")
    buckets = histogram.buckets()
    values = np.array([value for value, _ in buckets], dtype=np.float64)
    return np.repeat(values, [count for _, count in buckets])

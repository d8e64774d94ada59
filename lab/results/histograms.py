"""Encoded HdrHistograms to arrays of values, fast enough for a whole run."""

from __future__ import annotations

import numpy as np
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped] # the package has no type information
from numpy.typing import NDArray


def values_of(encoded: str) -> NDArray[np.float64]:
    """The values of an encoded HdrHistogram, each as often as it was counted, in ascending order (µs).

    Every value is the highest one of its bucket, as the package's own iterators give it. They walk through
    some twenty thousand buckets in Python; this looks at the counted ones only.
    """
    histogram = HdrHistogram.decode(encoded)
    counts = np.frombuffer(histogram.counts, dtype=f"i{histogram.word_size}")
    (used,) = np.nonzero(counts)
    half, magnitude = histogram.sub_bucket_half_count, histogram.sub_bucket_half_count_magnitude
    bucket = (used >> magnitude) - 1
    sub = (used & (half - 1)) + np.where(bucket < 0, 0, half)
    unit = np.left_shift(1, np.maximum(bucket, 0) + histogram.unit_magnitude)
    return np.asarray(np.repeat((sub + 1) * unit - 1, counts[used]), dtype=np.float64)

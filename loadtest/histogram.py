"""Latencies counted in buckets, in the format of HdrHistogram (V2, base64): one process counts, another reads or adds.

The layout is that of an HdrHistogram for 1 µs to two minutes with three significant digits, the only one that the lab
uses: microseconds below 2,048 have a bucket each; above, every doubling is divided into 1,024 buckets. So a value is
off by at most 0.1 %. Format: github.com/HdrHistogram/HdrHistogram, `AbstractHistogram.java`, `encodeIntoByteBuffer` and
`ZigZagEncoding.java`; any reader of that format can read these texts. Only the buckets in use are kept.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator

LOWEST_US = 1
HIGHEST_US = 120_000_000
"""A longer latency is counted as two minutes."""
DIGITS = 3

_SUB_BITS = 11  # 2,048 is the smallest power of 2 that holds twice 10 ** DIGITS
_HALF = 1 << (_SUB_BITS - 1)
_FULL = 1 << _SUB_BITS

_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314
_OUTER = struct.Struct(">II")  # cookie, length of what follows
_INNER = struct.Struct(
    ">IIIIQQd"
)  # cookie, length, offset, digits, lowest, highest, ratio of integers to doubles
_MOST_BYTES = 1 << 20  # a full histogram takes a tenth of it: no text may unpack to gigabytes
_LONGEST_NUMBER = 9  # bytes


class BadHistogram(ValueError):
    """A text is not a histogram that the lab can read; says why."""


def bucket_of(value: int) -> int:
    """The number of the bucket that counts a value in microseconds."""
    if value < _FULL:
        return value
    shift = value.bit_length() - _SUB_BITS
    return (shift << (_SUB_BITS - 1)) + (value >> shift)


def highest_in(bucket: int) -> int:
    """The highest value in microseconds that a bucket counts."""
    if bucket < _FULL:
        return bucket
    shift = (bucket >> (_SUB_BITS - 1)) - 1
    return (((bucket & (_HALF - 1)) + _HALF + 1) << shift) - 1


_LAST = bucket_of(HIGHEST_US)


class Histogram:
    """Counts of latencies in microseconds.

    `counts` has the buckets in use, by number; `total` is their sum.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0

    def record(self, microseconds: int) -> None:
        """Count a latency. A value outside the range counts as the lowest or the highest value of it."""
        bucket = bucket_of(min(max(microseconds, LOWEST_US), HIGHEST_US))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total += 1

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total

    def buckets(self) -> list[tuple[int, int]]:
        """Each bucket in use: the highest latency that it counts, in microseconds, and its count; ascending."""
        return [(highest_in(bucket), self.counts[bucket]) for bucket in sorted(self.counts)]

    def percentile(self, percent: float) -> int:
        """Return the percentile of the latencies in microseconds; 0 if there are none."""
        wanted = max(1, int(min(percent, 100.0) * self.total / 100 + 0.5))
        seen = 0
        for value, count in self.buckets():
            seen += count
            if seen >= wanted:
                return value
        return 0

    def encode(self) -> str:
        """The histogram as a text."""
        numbers = b"".join(_numbers(self.counts))
        inner = _INNER.pack(_COOKIE, len(numbers), 0, DIGITS, LOWEST_US, HIGHEST_US, 1.0)
        packed = zlib.compress(inner + numbers)
        return base64.b64encode(_OUTER.pack(_COMPRESSED_COOKIE, len(packed)) + packed).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """The histogram that a text holds.

        Raises:
            BadHistogram: The text holds no histogram, or one with another range or precision.
        """
        histogram = cls()
        for bucket, count in _counts(_unpacked(text)):
            histogram.counts[bucket] = count
            histogram.total += count
        return histogram


def _numbers(counts: dict[int, int]) -> Iterator[bytes]:
    """The counts in the order of their buckets; a negative number stands for that many empty ones."""
    following = 0
    for bucket in sorted(counts):
        if empty := bucket - following:
            yield _number(-empty)
        yield _number(counts[bucket])
        following = bucket + 1


def _number(value: int) -> bytes:
    """A number in ZigZag LEB128: the sign in the lowest bit, then seven bits a byte, the lowest first."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _unpacked(text: str) -> bytes:
    """The numbers of an encoded histogram, without its two headers."""
    try:
        outer = base64.b64decode(text.encode("ascii"), validate=True)
        outer_cookie, outer_length = _OUTER.unpack_from(outer)
        packed = outer[_OUTER.size :]
        unpacked = zlib.decompressobj().decompress(packed, _MOST_BYTES)
        cookie, length, offset, digits, lowest, highest, _ = _INNER.unpack_from(unpacked)
    except (binascii.Error, UnicodeEncodeError, struct.error, zlib.error) as error:
        raise BadHistogram(f"it is not an HdrHistogram: {error}") from error
    numbers = unpacked[_INNER.size :]
    if (outer_cookie, cookie) != (_COMPRESSED_COOKIE, _COOKIE):
        raise BadHistogram("it is not an HdrHistogram V2")
    if (outer_length, length) != (len(packed), len(numbers)):
        raise BadHistogram("it was cut, or something was added to it")
    if (offset, digits, lowest, highest) != (0, DIGITS, LOWEST_US, HIGHEST_US):
        raise BadHistogram(
            f"it counts {lowest} to {highest} with {digits} digits, not {LOWEST_US} to {HIGHEST_US} µs with {DIGITS}"
        )
    return numbers


def _counts(numbers: bytes) -> Iterator[tuple[int, int]]:
    """Each bucket in use and its count."""
    bucket = rest = shift = 0
    for byte in numbers:
        rest |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift >= 7 * _LONGEST_NUMBER:
                raise BadHistogram("a number in it is too long")
            continue
        value = rest >> 1 if rest % 2 == 0 else -(rest + 1 >> 1)
        rest = shift = 0
        if value > 0:
            if bucket > _LAST:
                raise BadHistogram("it has more buckets than its range")
            yield bucket, value
        bucket += max(1, -value)
    if shift:
        raise BadHistogram("its last number was cut")

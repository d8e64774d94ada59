"""Histograms of latencies: as exact as promised, with the same texts as other programs of the format write."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.histogram import HIGHEST_US, BadHistogram, Histogram, bucket_of, highest_in

LATENCIES = st.lists(
    st.one_of(
        st.integers(1, 5_000),
        st.integers(1, HIGHEST_US),
        st.sampled_from([1, 2047, 2048, 4095, 4096, HIGHEST_US]),
    ),
    max_size=60,
)
FEW = settings(max_examples=25, deadline=None)


def counted(values: list[int]) -> Histogram:
    """A histogram of these values."""
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def theirs(values: list[int]) -> Any:
    """The same by the package `hdrhistogram`; skips the test if it is not installed."""
    package = pytest.importorskip(
        "hdrh.histogram", reason="the package hdrhistogram has no wheel for this machine"
    )
    histogram = package.HdrHistogram(1, HIGHEST_US, 3)
    for value in values:
        histogram.record_value(value)
    return histogram


def text_of(numbers: bytes, **changed: int) -> str:
    """An encoded histogram with these numbers, and other fields in its header."""
    header = {
        "cookie": 0x1C849313,
        "length": len(numbers),
        "offset": 0,
        "digits": 3,
        "lowest": 1,
        "highest": HIGHEST_US,
    }
    inner = struct.pack(">IIIIQQd", *(header | changed).values(), 1.0) + numbers
    packed = zlib.compress(inner)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode()


@FEW
@given(LATENCIES)
def test_texts_are_those_of_the_package(values: list[int]) -> None:
    """Unpacked, a text is byte for byte what the package `hdrhistogram` writes, and either reads the other's."""
    other, own = theirs(values), counted(values)
    ours = base64.b64decode(own.encode())
    assert zlib.decompress(ours[8:]) == zlib.decompress(base64.b64decode(other.encode())[8:])
    assert struct.unpack(">II", ours[:8]) == (0x1C849314, len(ours) - 8)
    read = [
        (i.value_iterated_to, i.count_at_value_iterated_to)
        for i in other.decode(own.encode()).get_recorded_iterator()
    ]
    assert read == own.buckets() == Histogram.decode(other.encode().decode()).buckets()


@FEW
@given(LATENCIES, st.sampled_from([0.1, 25, 50, 90, 99, 99.9, 100]))
def test_percentiles_are_those_of_the_package(values: list[int], percent: float) -> None:
    """A percentile has the package's value, and is 0 for an empty histogram."""
    assert counted(values).percentile(percent) == theirs(values).get_value_at_percentile(percent)


@FEW
@given(LATENCIES)
def test_what_is_read_is_what_was_written(values: list[int]) -> None:
    """Encoded and decoded, a histogram has the same counts."""
    histogram = counted(values)
    back = Histogram.decode(histogram.encode())
    assert (back.counts, back.total) == (histogram.counts, len(values))


@FEW
@given(LATENCIES, LATENCIES)
def test_two_added_are_as_one_that_counted_both(first: list[int], second: list[int]) -> None:
    """Addition loses nothing, and leaves the added histogram as it was."""
    one, other = counted(first), counted(second)
    one.add(other)
    assert (one.counts, one.total) == (counted(first + second).counts, len(first) + len(second))
    assert other.counts == counted(second).counts


@FEW
@given(st.integers(1, HIGHEST_US))
def test_a_bucket_is_narrow_and_holds_its_value(value: int) -> None:
    """Three significant digits: the highest value of a bucket is at most 0.1 % above each of its values."""
    top = highest_in(bucket_of(value))
    assert value <= top <= value * 1.001
    assert bucket_of(top) == bucket_of(value) == bucket_of(top + 1) - 1


def test_values_outside_of_the_range_count_at_its_ends() -> None:
    """A clock that went backwards counts as a microsecond, a wait of an hour as two minutes: none is lost."""
    assert counted([-5, 0]).buckets() == [(1, 2)]
    assert counted([3_600_000_000]).buckets() == counted([HIGHEST_US]).buckets()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an HdrHistogram"),
        ("ä", "not an HdrHistogram"),
        ("no base64!", "not an HdrHistogram"),
        (
            base64.b64encode(
                struct.pack(">II", 0x1C849304, 49) + base64.b64decode(counted([5]).encode())[8:]
            ).decode(),
            "not an HdrHistogram V2",
        ),
        (base64.b64encode(struct.pack(">II", 0x1C849314, 4) + b"1234").decode(), "not an HdrHistogram"),
        (counted([5]).encode()[:-8], "cut"),
        (text_of(b"\x02", cookie=0x1C849301), "not an HdrHistogram V2"),
        (text_of(b"\x02", length=2), "cut"),
        (text_of(b"\x02", digits=2), "with 2 digits"),
        (text_of(b"\x02", highest=1000), "1 to 1000"),
        (text_of(b"\x82"), "last number was cut"),
        (text_of(b"\xff" * 9 + b"\x01"), "too long"),
        (text_of(b"\xff\xff\xff\x7f\x02"), "more buckets"),
    ],
    ids=str,
)
def test_a_text_that_is_no_histogram_is_refused(text: str, why: str) -> None:
    """A text that is no histogram raises BadHistogram, which says what is wrong; it never gives a wrong count."""
    with pytest.raises(BadHistogram, match=why):
        Histogram.decode(text)


def test_a_text_that_unpacks_to_gigabytes_is_refused() -> None:
    """A short text that unpacks to very many zeros is refused: it would fill the memory."""
    packed = zlib.compress(bytes(50_000_000), 9)
    assert len(packed) < 100_000
    with pytest.raises(BadHistogram):
        Histogram.decode(base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode())

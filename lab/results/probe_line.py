"""A line that an open-loop probe prints for each interval (`loadtest.probe.record`), as its readers take it."""

from __future__ import annotations

from typing import Any

from lab.errors import StackError
from lab.results.histograms import MOST
from lab.results.jsontext import parse
from lab.results.schema import LAST_SECOND
from loadtest.histogram import BadHistogram, Histogram

NUMBERS = ("t", "interval_s", "sent", "received", "errors", "max_us", "oldest_in_flight_us")
HISTOGRAMS = ("intended", "service", "lag")


def read_probe_line(raw: str | bytes) -> dict[str, Any] | None:
    """The fields of a probe's line; None if it is cut off, as the last line of a probe that was ended may be.

    Numbers are finite and not negative, and histograms can be decoded.

    Raises:
        StackError: The line is whole JSON, and is not a probe's. One line says what is wrong with it.
    """
    try:
        line = parse(raw)
    except ValueError:
        return None
    if wrong := _wrong(line):
        raise StackError(f"a probe says something unexpected: {wrong}.")
    return dict(line)


def _wrong(line: object) -> str:
    """Return the first error of a line, in words; empty if there is none."""
    if not isinstance(line, dict):
        return f"{line!r:.40} in place of an object"
    for name in NUMBERS:
        value = line.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_SECOND:
            return f"{name} is {value!r:.40}"
    if (by := line.get("by")) not in ("arrival", "due"):
        return f"by is {by!r:.40}"
    if not isinstance(reported := line.get("last_error", ...), str | None):
        return "last_error is missing" if reported is ... else f"last_error is {reported!r:.40}"
    for name in HISTOGRAMS:
        text = line.get(name)
        if not isinstance(text, str):
            return f"{name} is {text!r:.40}"
        try:
            total = Histogram.decode(text).total
        except BadHistogram as error:
            return f"{name}: {error}"
        if total > MOST:
            return f"{name} holds {total} latencies"
    return ""

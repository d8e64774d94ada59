"""Numbers for people: three significant digits, a dash where nothing is known."""

from __future__ import annotations

import math

UNKNOWN = "–"


def sig(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, never in scientific notation."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.{min(decimals, 6)}f}"


def ms(value: float | None) -> str:
    """A latency given in milliseconds, in the unit that reads best."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 1000:
        return f"{sig(value / 1000)} s"
    return f"{sig(value)} ms" if abs(value) >= 0.1 or value == 0 else f"{sig(value * 1000)} µs"


def us(value: float | None) -> str:
    """A duration given in microseconds, in the unit that reads best."""
    return ms(value / 1000) if value is not None else UNKNOWN


def setting(microseconds: float) -> str:
    """A duration that is a setting: written without trailing zeros."""
    return f"{microseconds / 1000:g} ms" if microseconds >= 1000 else f"{microseconds:g} µs"


def times(value: float | None) -> str:
    """A ratio."""
    return f"{sig(value)} ×" if value is not None and math.isfinite(value) else UNKNOWN


def count(value: float | None) -> str:
    """A whole number."""
    return f"{value:,.0f}" if value is not None and math.isfinite(value) else UNKNOWN


def short(value: float | None) -> str:
    """A number: all digits if it is whole, else three significant digits."""
    if value is not None and math.isfinite(value) and value == round(value):
        return count(value)
    return sig(value)


def size(value: float | None) -> str:
    """An amount of memory given in bytes, in the unit that reads best (powers of 1000)."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= factor:
            return f"{sig(value / factor)} {unit}"
    return f"{count(value)} bytes"


def share(value: float | None) -> str:
    """A share near 100 %, with enough digits to differ from 100 %; given as a fraction of one."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0.995:
        return f"{value * 100:.1f} %"
    return f"{value * 100:.2f} %" if value < 0.99995 else "over 99.99 %"


def percent(value: float | None) -> str:
    """A share in whole per cent, given as a fraction of one."""
    return f"{value * 100:.0f} %" if value is not None and math.isfinite(value) else UNKNOWN


def ratio(over: float | None, under: float | None) -> float | None:
    """Return `over` / `under`; None if one is unknown or `under` is 0."""
    return over / under if over is not None and under else None


def number(text: str | None) -> float | None:
    """The number in a cell of a CSV file; None if the cell is empty or not a finite number."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None

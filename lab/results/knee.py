"""The arithmetic of the knee: the cost of a scanned key, and the event rate that saturates the server.

The server is busy a share U = U₀ + λ · P · N · c of the time: λ events a second, P patterns for each, N keys,
c seconds of its CPU for each key visited, U₀ for everything else. It saturates where U = 1, so at
N* = (1 - U₀) / (λ · P · c) keys. (The utilisation law, U = X · S: Denning and Buzen, ACM Computing Surveys
10(3), 1978.) Plain numbers in and out, no server: the runs' calibration and the control page both use it.
"""

from __future__ import annotations

PATTERNS_PER_EVENT = 3
"""Each event runs one pattern per area of the storefront (page, cart, offer)."""


def cost_of_each(busy_s: float, base_share: float, elapsed_s: float, count: float) -> float:
    """Seconds of the server's time per key visited, or per event, after subtracting the base load's share.

    Zero or negative when the scans' work is lost in the noise of the base load.
    """
    return (busy_s - base_share * elapsed_s) / count


def demand(
    base_share: float,
    events_per_second: float,
    keys: float,
    cost_s: float,
    patterns: int = PATTERNS_PER_EVENT,
) -> float:
    """The share of the server's time that arrivals ask for; above 1 the server cannot keep up."""
    return base_share + events_per_second * patterns * keys * cost_s


def saturating_events(
    base_share: float, keys: float, cost_s: float, patterns: int = PATTERNS_PER_EVENT
) -> float:
    """Events per second that keep the server busy all the time at that number of keys."""
    return (1 - base_share) / (patterns * keys * cost_s)


def saturating_keys(
    base_share: float, events_per_second: float, cost_s: float, capacity_share: float = 1.0
) -> float:
    """Number of keys at which that rate of events keeps the server busy all the time: the knee.

    `capacity_share`: the share of a core that the server can get, where other processes want the processors too.
    """
    return max(0.0, capacity_share - base_share) / (PATTERNS_PER_EVENT * events_per_second * cost_s)

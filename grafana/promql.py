"""PromQL that several dashboards share, as small functions that return text.

A panel must not be empty because what it counts has not happened: no SCAN under the index, no slow-log entry on
a healthy server. The usual ``or vector(0)`` would add a nameless line to every graph, since its labels match
nothing; `zero` and its kin fill in a zero that carries the right labels, and only when nothing else does.

Nor may it show a zero for an unknown figure: a server in a stall does not answer its exporter either, and "no commands,
no processor" would be the opposite of the truth. `zero_reported` is for what a server says of itself, and leaves a gap.
"""

from __future__ import annotations

SCOPE = 'server="$server"'
"""The selector of every panel about one server."""

WINDOW = "[$__rate_interval]"
"""Grafana's window for rates: at least four scrapes, wider when zoomed out."""


def zero(expression: str) -> str:
    """``expression`` summed over everything but the server, or 0 for the chosen server.

    The sum also takes the metric's name away, which the zero lacks: else one line would become two.
    """
    return f"sum by (server) ({expression}) or {nothing()}"


def zero_by(expression: str, **labels: str) -> str:
    """``expression``, with labels {server, ...}, or one 0 that carries ``labels`` where it has no series."""
    stand_in = nothing()
    for name, value in labels.items():
        stand_in = f'label_replace({stand_in}, "{name}", "{value}", "", "")'
    return f"({expression}) or ({stand_in} unless on (server) ({expression}))"


def zero_reported(expression: str) -> str:
    """As `zero`, for figures that the server reports itself: 0 only while it reports any."""
    return f"sum by (server) ({expression}) or 0 * sum by (server) (server_cmd:store_commands:rate10s{{{SCOPE}}})"


def zero_before(expression: str, counter: str) -> str:
    """``expression`` summed over everything but the server, or 0 until ``counter`` has counted for the first time.

    For durations: while no event ends there is no duration, and a 0 would say that events are quick.
    """
    return f"sum by (server) ({expression}) or ({nothing()} unless on (server) {counter}{{{SCOPE}}} > 0)"


def nothing() -> str:
    """0 for the chosen server: the probe is scraped, or known to be down, as long as the server is in the lab."""
    return f'0 * sum by (server) (up{{job="probe", {SCOPE}}})'


def per_second(metric: str, selector: str = SCOPE, by: str = "server", window: str = WINDOW) -> str:
    """A counter's rate, summed."""
    return f"sum by ({by}) (rate({metric}{{{selector}}}{window}))"


def quantile(q: float, metric: str, selector: str = SCOPE, by: str = "server", window: str = WINDOW) -> str:
    """A quantile of a histogram (name without ``_bucket``); the form that exemplars can be found for."""
    return f"histogram_quantile({q:g}, sum by ({by}, le) (rate({metric}_bucket{{{selector}}}{window})))"


def in_force(selector: str = SCOPE) -> str:
    """1 with the labels {server, strategy} for the strategy in force; ``selector`` may ask for a certain one."""
    return f'max by (server, strategy) (cache_invalidation_strategy{{job="invalidator", {selector}}}) == 1'


def by_phase(expression: str, phases: str) -> str:
    """``expression``, which has the label server only, with the phase as a second label, one of ``phases`` (regex).

    At other times there is nothing: the calibration fills and empties the server, and an idle one proves nothing. A
    recording from before there were phases has all its moments.
    """
    there = f'max by (server, phase) (lab_phase{{phase=~"{phases}", {SCOPE}}}) == 1'
    untold = f"({expression}) unless on (server) lab_phase{{{SCOPE}}}"
    return (
        f"({expression}) * on (server) group_right () ({there})"
        f' or label_replace({untold}, "phase", "any phase", "", "")'
    )


def while_strategy(expression: str, strategy: str) -> str:
    """``expression``, which has the label server only, at the times at which ``strategy`` was in force."""
    chosen = in_force(f'strategy="{strategy}", {SCOPE}')
    return f"({expression}) and on (server) ({chosen})"


def by_strategy(expression: str) -> str:
    """``expression``, which has the label server only, with the strategy in force as a second label."""
    return f"({expression}) * on (server) group_right () ({in_force()})"

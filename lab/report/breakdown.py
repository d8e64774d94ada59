"""Charts phase by phase: the parts of each p99, and each p99 as different observers saw it."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt

from lab.report import style
from lab.report.quantities import quantity
from lab.report.style import Chart, Row
from lab.report.view import RunView
from lab.results import numbers
from lab.results.folder import PhaseRecord

STEP = 30
FONT = 15
OBSERVERS = (
    ("probe, from the intended time", "circle", style.CAUSE),
    ("probe, from the send time", "cross", style.INK),
    ("the application's histogram", "square", style.CURE),
    ("Locust, the whole HTTP request", "triangle-up", style.FOURTH),
)


@dataclass(frozen=True)
class Parts:
    """The parts of a phase's p99, in ms; None where it was not measured.

    `late`: the part that is the probe's own lateness, which no client waited.
    """

    p99: float | None
    execution: float | None
    floor: float | None
    late: float = 0.0

    @property
    def waiting(self) -> float | None:
        """The rest: neither execution, nor the bare round trip, nor the probe's own lateness."""
        if self.p99 is None or self.execution is None or self.floor is None:
            return None
        return max(0.0, self.p99 - self.execution - self.floor - self.late)

    @property
    def share(self) -> float | None:
        """Waiting as a share of the p99."""
        return numbers.ratio(self.waiting, self.p99)


def parts(view: RunView, phase: PhaseRecord) -> Parts:
    """A phase's p99 of a GET, the server's mean execution time of GET, and the idle server's round trip.

    The probe's lateness is the p99 from the intended time less the p99 from the send time, but at most the p99 of the
    lateness itself.
    """
    execution = phase.execution_us("GET")
    floor = view.facts.calibration.get("ping_floor_us")
    p99, sent = view.p99(phase), view.p99(phase, kind="service")
    lag = phase.probes.get("main", {}).get("lag_p99_us", 0.0) / 1000
    return Parts(
        p99,
        execution / 1000 if execution is not None else None,
        float(floor) / 1000 if floor is not None else None,
        min(lag, max(0.0, p99 - sent)) if p99 is not None and sent is not None else 0.0,
    )


def where_time_went(view: RunView) -> Chart:
    """Stacked bars to scale, and beside them the same parts on a log axis, where the small ones can be seen."""
    stacked: list[Row] = []
    dots: list[Row] = []
    ends: list[Row] = []
    names = _names(view)
    for phase, name in zip(view.run.phases, names, strict=True):
        part = parts(view, phase)
        found = (
            ("execution", part.execution),
            ("round trip", part.floor),
            ("probe late", part.late if part.late and part.waiting is not None else None),
            ("waiting", part.waiting),
        )
        at = 0.0
        for kind, value in found:
            if value is None:
                continue
            stacked.append({"phase": name, "part": kind, "from": at, "to": at + value, "ms": value})
            at += value
            if value > 0:
                dots.append({"phase": name, "part": kind, "ms": value})
        if part.p99 is not None:
            ends.append({"phase": name, "p99": part.p99, "text": numbers.ms(part.p99)})
    kinds = ["execution", "round trip", "probe late", "waiting"]
    colour = alt.Scale(domain=kinds, range=[style.INK, style.CURE, style.FOURTH, "#d9a27f"])
    shape = alt.Scale(domain=kinds, range=["square", "cross", "triangle-up", "circle"])
    y = _rows(names)
    room = style.label_room(names, FONT)
    width = (style.WIDTH - 100 - room) / 2
    highest = max([row["p99"] for row in ends] + [1.0])
    x = alt.X(
        "from:Q",
        axis=alt.Axis(title="p99 of a GET, ms, to scale", tickCount=5),
        scale=alt.Scale(domain=[0, highest * 1.3]),
    )
    bars = (
        style.chart(stacked)
        .mark_bar(stroke=style.INK, strokeWidth=0.6, height=18)
        .encode(
            x=x,
            x2=alt.X2("to:Q"),
            y=y,
            color=alt.Color("part:N", scale=colour, legend=alt.Legend()),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("part:N"), alt.Tooltip("ms:Q")],
        )
    )
    values = (
        style.chart(ends)
        .mark_text(align="left", dx=6, fontSize=FONT)
        .encode(x=alt.X("p99:Q"), y=y, text=alt.Text("text:N"))
    )
    height = STEP * max(len(names), 1)
    bars_to_scale = alt.layer(bars, values).properties(width=width + 20, height=height)
    scale = style.log_scale([row["ms"] for row in dots])
    dots_on_log = (
        style.chart(dots)
        .mark_point(opacity=1, size=110, strokeWidth=2.5)
        .encode(
            x=alt.X("ms:Q", scale=scale, axis=style.latency_axis("the same parts, log scale", scale)),
            y=alt.Y("phase:N", sort=names, title=None, axis=alt.Axis(labels=False, ticks=False, grid=True)),
            shape=alt.Shape("part:N", scale=shape, legend=alt.Legend()),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=kinds, range=[style.INK, style.CURE, style.FOURTH, style.CAUSE]),
                legend=alt.Legend(),
            ),
            tooltip=["phase:N", "part:N", alt.Tooltip("ms:Q", format=",.3~r")],
        )
        .properties(width=width, height=height)
    )
    both: Chart = alt.hconcat(bars_to_scale, dots_on_log, spacing=30).resolve_scale(
        color="independent", shape="independent"
    )
    return both


def p99_by_observer(view: RunView, phase: PhaseRecord) -> list[float | None]:
    """p99 (ms) of a phase as each of `OBSERVERS` saw it."""
    known = phase.client_p99_ms
    return [view.p99(phase), view.p99(phase, kind="service"), known.get("app"), known.get("locust")]


def three_p99s(view: RunView) -> Chart:
    """Draw a row for each phase, and in it a symbol for each observer."""
    names = _names(view)
    rows: list[Row] = [
        {"phase": name, "observer": observer, "ms": value}
        for phase, name in zip(view.run.phases, names, strict=True)
        for (observer, _, _), value in zip(OBSERVERS, p99_by_observer(view, phase), strict=True)
        if value is not None and value > 0
    ]
    scale = style.log_scale([row["ms"] for row in rows])
    known = [observer for observer, _, _ in OBSERVERS]
    drawn: Chart = (
        style.chart(rows)
        .mark_point(opacity=1, strokeWidth=2.5)
        .encode(
            x=alt.X("ms:Q", scale=scale, axis=style.latency_axis("p99, log scale", scale)),
            y=_rows(names, grid=True),
            shape=alt.Shape(
                "observer:N",
                scale=alt.Scale(domain=known, range=[s for _, s, _ in OBSERVERS]),
                legend=alt.Legend(columns=2),
            ),
            color=alt.Color(
                "observer:N",
                scale=alt.Scale(domain=known, range=[c for _, _, c in OBSERVERS]),
                legend=alt.Legend(columns=2),
            ),
            size=alt.Size(
                "observer:N",
                scale=alt.Scale(type="ordinal", domain=known, range=[330, 60, 130, 130]),
                legend=None,
            ),
            tooltip=["phase:N", "observer:N", alt.Tooltip("ms:Q", format=",.3~r")],
        )
        .properties(width=style.WIDTH - 30 - style.label_room(names, FONT), height=STEP * max(len(names), 1))
    )
    return drawn


def stalls(view: RunView) -> Chart:
    """Draw a row for each phase: the main probe's p99 and longest wait, and the p99 of further probes."""
    names = _names(view)
    longest = quantity("max")
    marks = [("p99", "circle", style.CAUSE), ("longest of all", "triangle-right", style.INK)]
    signs = (
        ("square", style.CURE),
        ("diamond", style.FOURTH),
        ("cross", style.CURE),
        ("triangle-up", style.FOURTH),
    )
    marks += [(f"p99, probe “{name}”", *signs[i % len(signs)]) for i, name in enumerate(view.probes)]
    rows: list[Row] = []
    for phase, name in zip(view.run.phases, names, strict=True):
        further = [view.p99(phase, probe) for probe in view.probes]
        for (what, _, _), value in zip(
            marks, [view.p99(phase), longest.read(phase, view.latencies), *further], strict=True
        ):
            if isinstance(value, float) and value > 0:
                rows.append({"phase": name, "what": what, "ms": value, "said": numbers.ms(value)})
    scale = style.log_scale([row["ms"] for row in rows])
    whats = [what for what, _, _ in marks]
    legend = alt.Legend(columns=3)
    x = alt.X("ms:Q", scale=scale, axis=style.latency_axis("wait of a GET, log scale", scale))
    y = _rows(names, grid=True)
    signed = (
        style.chart(rows)
        .mark_point(opacity=1, strokeWidth=2.5, size=120)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape(
                "what:N", scale=alt.Scale(domain=whats, range=[s for _, s, _ in marks]), legend=legend
            ),
            color=alt.Color(
                "what:N", scale=alt.Scale(domain=whats, range=[c for _, _, c in marks]), legend=legend
            ),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("what:N"), alt.Tooltip("said:N")],
        )
    )
    drawing: Chart = alt.layer(signed).properties(
        width=style.WIDTH - 30 - style.label_room(names, FONT), height=STEP * max(len(names), 1)
    )
    return drawing


def _rows(names: list[str], grid: bool = False) -> alt.Y:
    axis = alt.Axis(labelLimit=style.LABEL, labelFontSize=FONT, grid=grid)
    return alt.Y("phase:N", sort=names, title=None, axis=axis)


def _names(view: RunView) -> list[str]:
    """A name for each phase; the phase's id is added to a name that occurs more than once."""
    names = [view.name(phase) for phase in view.run.phases]
    return [
        name if names.count(name) == 1 else f"{name} ({phase.id})"
        for name, phase in zip(names, view.run.phases, strict=True)
    ]

"""Panels of the lab's dashboards: one function per kind; its arguments are the parts that every panel must have.

Every panel gets a title, a description that says what to look for, a unit, and its data source on the panel and
on each query (Grafana does not copy it down). Legends are switched on: the builders leave them off.

The phases of the story (`PHASES`) are drawn in two ways: as bands behind curves (`lines(..., phases=True)`) and as
bars, one a server (`phase_bars`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

from grafana.promql import SCOPE

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="prometheus")
TEMPO = DataSourceRef(type_val="tempo", uid="tempo")

GREY = "#8e8e8e"
"""The colour of the lab's own commands, and of placeholder series for events that have not happened."""

COLOURS = {
    r"/^(SCAN|scan)\b/": "red",
    r"/^(KEYS|keys)$/": "orange",
    r"/^(GET|get)(,|$)/": "green",
    r"/^(UNLINK|unlink|DEL|del)$/": "purple",
    r"/^(SET|set)(,| SADD|$)/": "blue",
    r"/^(MULTI|multi|EXEC|exec)$/": "yellow",
    r"/^(SADD|sadd|SREM|srem)$/": "light-orange",
    r"/^(SSCAN|sscan)$/": "dark-green",
    r"/^(INFO|info|PING|CONFIG|COMMAND|DBSIZE|SLOWLOG|FLUSHALL|none|no events)$/": GREY,
    r"/^waiting/": "red",
    r"/^execution/": "green",
    r"/^network/": "blue",
    r"/^application's/": "blue",
    r"/^bystander's/": "yellow",
    r"/^cached keys/": "light-blue",
    r"/^saturation/": "#00c8e0",
    r"/^used$/": "orange",
    r"/^threads$/": "#00c8e0",
    r"/^under scan/": "red",
    r"/^(under )?index$/": "green",
}
"""The same thing has the same colour on every dashboard: by its name in the legend."""

PHASES = {
    "waiting": ("starting", GREY),
    "calibrating": ("calibrating", "purple"),
    "healthy": ("healthy", "blue"),
    "growing": ("growing", "yellow"),
    "level": ("keys level", "orange"),
    "over_the_edge": ("over the edge", "red"),
    "cured": ("cured", "green"),
    "stale": ("stale", "dark-purple"),
    "stopped": ("stopped", "#5f5f5f"),
    "leased": ("lent to a run", "#c4a484"),
}
"""The phases of the story by their names in `lab_phase`: the words people read, and one colour each."""

COMMANDS = "suffix:commands"
"""The unit of a mean number of commands under way at once."""

CORES = "suffix:cores"

BAND_OPACITY = 14
"""Per cent: enough to distinguish the phases, too little to hide a curve."""

NAMED = re.compile(r"\{\{(cmd|command|db_operation_name|span_name|strategy)\}\}")
"""Legends that Grafana fills in with something that has a colour of its own."""


@dataclass(frozen=True)
class Query:
    """A PromQL query and the name of its lines."""

    expr: str
    legend: str
    exemplars: bool = False
    """Show dots that lead to traces; only where the expression reads the application's own histograms."""
    right: str | None = None
    """The unit, if these lines have an axis of their own on the right."""
    dashed: bool = False
    """A border rather than a curve: a dashed line without an area."""


def target(query: Query, index: int, *, at_once: bool = False) -> prometheus.Dataquery:
    """A query as Grafana has it; ``index`` gives its letter, ``at_once`` asks for the newest value only."""
    target = (
        prometheus.Dataquery()
        .expr(query.expr)
        .legend_format(query.legend)
        .datasource(PROMETHEUS)
        .ref_id(chr(ord("A") + index))
        .exemplar(query.exemplars)
    )
    return target.instant() if at_once else target.range()


def legend() -> common_builders.VizLegendOptions:
    """A legend that shows: the builders' default hides it."""
    return (
        common_builders.VizLegendOptions()
        .show_legend(True)
        .placement(common.LegendPlacement.BOTTOM)
        .display_mode(common.LegendDisplayMode.LIST)
    )


def _steps(steps: Sequence[tuple[float | None, str]]) -> dashboard_builders.ThresholdsConfig:
    return (
        dashboard_builders.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=colour) for value, colour in steps])
    )


def fixed(colour: str) -> DynamicConfigValue:
    """Return a single colour for all values."""
    return DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})


def phase_bands() -> Query:
    """The phases of the chosen server that were there in the time shown, by their words: 1 while they last.

    Zeros at other times, rather than nothing: Grafana draws the last step of a line on to the panel's edge.
    """
    phase_metric = f"lab_phase{{{SCOPE}}}"
    expr = f"max by (phase) ({phase_metric} and max_over_time({phase_metric}[$__range] @ end()) == 1)"
    return Query(in_words(expr), "{{phase}}")


def in_words(expr: str) -> str:
    """``expr`` with the words of `PHASES` in its label `phase`."""
    for name, (words, _) in PHASES.items():
        if words != name:
            expr = f'label_replace({expr}, "phase", "{words}", "phase", "{name}")'
    return expr


def phase_number(selector: str = "") -> str:
    """The phase of every server as its number in `PHASES`, for panels that show words for numbers."""
    return " or ".join(
        f"{number} * max by (server) (lab_phase{{{', '.join(filter(None, (selector, wanted)))}}} == 1)"
        for number, wanted in enumerate((f'phase="{name}"' for name in PHASES), start=1)
    )


def phase_words() -> ValueMap:
    """Words and colours for the numbers of `phase_number`."""
    return ValueMap(
        options={
            str(number): ValueMappingResult(text=words, color=colour, index=number - 1)
            for number, (words, colour) in enumerate(PHASES.values(), start=1)
        }
    )


def _band() -> list[DynamicConfigValue]:
    """Return the override that draws a phase: the whole height of the panel, without a line, on a hidden axis."""
    return [
        DynamicConfigValue(id_val="unit", value="none"),
        DynamicConfigValue(id_val="min", value=0),
        DynamicConfigValue(id_val="max", value=1),
        DynamicConfigValue(
            id_val="mappings",
            value=[
                ValueMap(options={"0": ValueMappingResult(text="-"), "1": ValueMappingResult(text="now")})
            ],
        ),
        DynamicConfigValue(id_val="custom.axisPlacement", value="hidden"),
        DynamicConfigValue(id_val="custom.scaleDistribution", value={"type": "linear"}),
        DynamicConfigValue(id_val="custom.lineInterpolation", value="stepAfter"),
        DynamicConfigValue(id_val="custom.lineWidth", value=0),
        DynamicConfigValue(id_val="custom.fillOpacity", value=BAND_OPACITY),
        DynamicConfigValue(id_val="custom.stacking", value={"mode": "none", "group": "A"}),
        DynamicConfigValue(id_val="custom.thresholdsStyle", value={"mode": "off"}),
    ]


def colours(queries: Sequence[Query]) -> list[tuple[str, str]]:
    """The rows of `COLOURS` that may matter: all of them where Grafana fills in a name of a command or strategy."""
    names = [query.legend for query in queries]
    return [
        (pattern, colour)
        for pattern, colour in COLOURS.items()
        if any(NAMED.search(name) or re.search(pattern.strip("/"), name) for name in names)
    ]


def lines(
    title: str,
    teaches: str,
    queries: Sequence[Query],
    *,
    unit: str,
    width: int = 12,
    height: int = 9,
    log: bool = False,
    stacked: bool = False,
    limit: float | None = None,
    top: float | None = None,
    bottom: float | None = None,
    phases: bool = False,
) -> timeseries.Panel:
    """Lines over time.

    ``limit`` draws a dashed red line. ``log`` is for latencies that span decades; ``bottom`` is where its axis begins
    (without it, a single quick command would give a decade to nothing). ``phases`` colours the background by the
    story's phase.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit(unit)
        .span(width)
        .height(height)
        # A stack is areas: a line on top of each would paint a command that takes nothing over one that takes all.
        # On a logarithmic scale an area means nothing, and those of six lines make mud.
        .line_width(0 if stacked else 2)
        .fill_opacity(70 if stacked else 0 if log else 8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(legend())
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
    )
    if log:
        panel = panel.scale_distribution(
            common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        )
    else:
        panel = panel.min(0)
    if bottom is not None:
        panel = panel.min(bottom)
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if limit is not None:
        panel = panel.thresholds(_steps([(None, "green"), (limit, "red")])).thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    for pattern, colour in colours(queries):
        panel = panel.override_by_regexp(pattern, [fixed(colour)])
    for index, query in enumerate(queries):
        panel = panel.with_target(target(query, index))
        if query.right is not None:
            panel = panel.override_by_query(
                chr(ord("A") + index),
                [
                    DynamicConfigValue(id_val="unit", value=query.right),
                    DynamicConfigValue(id_val="custom.axisPlacement", value="right"),
                    DynamicConfigValue(id_val="custom.scaleDistribution", value={"type": "linear"}),
                    DynamicConfigValue(id_val="custom.fillOpacity", value=0 if query.dashed else 12),
                    DynamicConfigValue(id_val="custom.lineWidth", value=2 if query.dashed else 1),
                    DynamicConfigValue(id_val="custom.stacking", value={"mode": "none", "group": "A"}),
                    # A number that moves slowly: a few scrapes that failed need not tear it apart.
                    DynamicConfigValue(id_val="custom.spanNulls", value=30_000),
                    # The limit is one of the left axis.
                    DynamicConfigValue(id_val="custom.thresholdsStyle", value={"mode": "off"}),
                    DynamicConfigValue(id_val="min", value=0),
                ],
            )
        if query.dashed:
            panel = panel.override_by_query(
                chr(ord("A") + index),
                [
                    DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [12, 8]}),
                ],
            )
    if phases:
        # Grafana puts exemplars on the first axis of the panel, so the axis of the bands must not be the first one:
        # the bands come last, although that draws them over the curves.
        panel = panel.with_target(target(phase_bands(), len(queries)))
        panel = panel.override_by_query(chr(ord("A") + len(queries)), _band())
        for words, colour in PHASES.values():
            panel = panel.override_by_name(words, [fixed(colour)])
    return panel


def number(
    title: str,
    teaches: str,
    queries: Sequence[Query],
    *,
    unit: str,
    width: int = 4,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),),
    at_once: bool = False,
    names: bool = False,
    zero_means: str | None = None,
    none_means: str | None = None,
    words: ValueMap | None = None,
    decimals: int | None = None,
) -> stat.Panel:
    """The last value, large.

    ``names`` shows the lines' names instead. ``zero_means`` is shown for 0 and for no value, ``none_means`` for no
    value only; ``words`` gives words for numbers.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit(unit)
        .span(width)
        .height(height)
        .thresholds(_steps(steps))
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .text_mode(common.BigValueTextMode.NAME if names else common.BigValueTextMode.AUTO)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    if zero_means is not None:
        panel = panel.mappings(
            [
                ValueMap(options={"0": ValueMappingResult(text=zero_means)}),
                _without_value(zero_means),
            ]
        )
    if none_means is not None:
        panel = panel.no_value(none_means).mappings([_without_value(none_means)])
    if words is not None:
        panel = panel.mappings([words])
    if decimals is not None:
        panel = panel.decimals(decimals)
    for index, query in enumerate(queries):
        panel = panel.with_target(target(query, index, at_once=at_once))
    return panel


def _without_value(text: str) -> SpecialValueMap:
    return SpecialValueMap(
        options={"match": SpecialValueMatch.NULL_AND_NAN, "result": {"text": text}}  # type: ignore[arg-type] # the encoder takes it
    )


def states(
    title: str,
    teaches: str,
    queries: Sequence[Query],
    *,
    on: str,
    off: str,
    good: bool | None,
    height: int = 5,
) -> statetimeline.Panel:
    """Return bars over time for states that are 1 or 0. ``good``: True if 1 is good; None if neither is."""
    yes, no = ("blue", "transparent") if good is None else ("green", "red") if good else ("red", "green")
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit("none")
        .span(24)
        .height(height)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .legend(legend())
        .mappings(
            [
                ValueMap(
                    options={
                        "0": ValueMappingResult(text=off, color=no, index=0),
                        "1": ValueMappingResult(text=on, color=yes, index=1),
                    }
                )
            ]
        )
        # The mapping colours the bars; under thresholds the legend would say "< 1" and "1+" instead of words.
        .color_scheme(dashboard_builders.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    )
    for index, query in enumerate(queries):
        panel = panel.with_target(target(query, index))
    return panel


def phase_bars(title: str, teaches: str, *, width: int = 24, height: int = 5) -> statetimeline.Panel:
    """The phase of every server over time, one bar a server, in the colours of the bands."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit("none")
        .span(width)
        .height(height)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.85)
        .legend(legend())
        .mappings([phase_words()])
        .color_scheme(dashboard_builders.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .with_target(target(Query(phase_number(), "{{server}}"), 0))
    )

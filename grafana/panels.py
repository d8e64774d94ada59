"""Panels as the lab's dashboards use them: one function per kind, with what every panel must have as arguments.

Every panel gets a title, a description that says what to look for, a unit, and its data source on the panel and
on each query (Grafana does not copy it down). Legends are switched on: the builders leave them off.
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

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="prometheus")
TEMPO = DataSourceRef(type_val="tempo", uid="tempo")

GREY = "#8e8e8e"
"""For what the lab itself asks a store, and for the stand-ins of what has not happened."""

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
    r"/^under scan/": "red",
    r"/^(under )?index$/": "green",
}
"""The same thing has the same colour on every dashboard: by its name in the legend."""

NAMED = re.compile(r"\{\{(cmd|command|db_operation_name|span_name|strategy)\}\}")
"""Legends that Grafana fills in with something that has a colour of its own."""


@dataclass(frozen=True)
class Query:
    """One PromQL query and the name of its lines."""

    expr: str
    legend: str
    exemplars: bool = False
    """Show dots that lead to traces; only where the expression reads the application's own histograms."""
    right: str | None = None
    """The unit, if these lines have an axis of their own on the right."""


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
    """One colour, whatever the value."""
    return DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})


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
) -> timeseries.Panel:
    """Lines over time. ``limit`` draws a dashed red line; ``log`` is for latencies that span decades."""
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
                    DynamicConfigValue(id_val="custom.fillOpacity", value=18),
                    DynamicConfigValue(id_val="custom.lineWidth", value=1),
                    # A number that moves slowly: a few scrapes that failed need not tear it apart.
                    DynamicConfigValue(id_val="custom.spanNulls", value=30_000),
                    # The limit is one of the left axis.
                    DynamicConfigValue(id_val="custom.thresholdsStyle", value={"mode": "off"}),
                    DynamicConfigValue(id_val="min", value=0),
                ],
            )
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
) -> stat.Panel:
    """The last value, large. ``names`` shows the lines' names instead; ``zero_means`` is shown for 0."""
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
                SpecialValueMap(
                    options={"match": SpecialValueMatch.NULL_AND_NAN, "result": {"text": zero_means}}  # type: ignore[arg-type] # the encoder takes it
                ),
            ]
        )
    for index, query in enumerate(queries):
        panel = panel.with_target(target(query, index, at_once=at_once))
    return panel


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
    """Bars over time for things that are 1 or 0. ``good``: 1 is what one hopes for, or (None) neither is."""
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

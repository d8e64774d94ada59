"""The rarer kinds of panel: scatter plot, heat map, traces, service graph, actions, words."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import heatmap, nodegraph, table, tempo, text, xychart
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import xychart as models
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    RegexMap,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import SearchTableType
from grafana_foundation_sdk.models.text import TextMode

from grafana.panels import PHASES, PROMETHEUS, TEMPO, Query, colours, fixed, legend, target
from grafana.promql import SCOPE, zero_by

ACTIONS = {
    "restart": "server restarted",
    "story": "story started again",
    "stop": "everything stopped",
    "growth_start": "growth started",
    "growth_stop": "growth stopped",
    "rate": "event rate changed",
    "pause": "events held back",
    "resume": "events let go again",
    "plan": "load planned",
    "count": "COUNT changed",
    "over_the_edge": "three times the events",
    "back_to_the_edge": "events as planned again",
}
"""Words for the actions of `lab_actions_total`; those that switch the strategy are named by it."""


def scatter(
    title: str,
    teaches: str,
    x: Query,
    ys: Sequence[Query],
    *,
    x_unit: str,
    unit: str,
    y_label: str,
    width: int = 12,
    height: int = 9,
) -> xychart.Panel:
    """Points, one a moment: ``x`` across, ``ys`` upwards on a logarithmic scale, under the name ``y_label``.

    Values of the same moment are joined by time, which is then left out.
    """
    across = xychart.XYSeriesConfig().x(
        xychart.XychartXYSeriesConfigX().matcher(xychart.MatcherConfig().id("byName").options(x.legend))
    )
    panel = (
        xychart.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit(unit)
        .axis_label(y_label)
        .span(width)
        .height(height)
        .mapping(models.SeriesMapping.AUTO)
        .series([across])
        .show(models.XYShowMode.POINTS)
        .scale_distribution(
            common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        )
        .legend(legend())
        .with_transformation(
            DataTransformerConfig(id_val="joinByField", options={"byField": "Time", "mode": "outer"})
        )
        .with_transformation(
            DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
        )
        .override_by_name(
            x.legend,
            [
                DynamicConfigValue("unit", x_unit),
                DynamicConfigValue("custom.scaleDistribution", {"type": "linear"}),
                DynamicConfigValue("custom.axisLabel", x.legend),
            ],
        )
    )
    for pattern, colour in colours((x, *ys)):
        panel = panel.override_by_regexp(pattern, [fixed(colour)])
    if any("{{phase}}" in y.legend for y in ys):
        for words, colour in PHASES.values():
            panel = panel.override_by_name(words, [fixed(colour)])
    for index, query in enumerate((x, *ys)):
        panel = panel.with_target(target(query, index))
    return panel


def heat(title: str, teaches: str, expr: str, *, width: int = 12, height: int = 9) -> heatmap.Panel:
    """A histogram over time: ``expr`` gives rates by ``le`` in seconds."""
    query = Query(expr, "{{le}}")
    return (
        heatmap.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit("s")
        .span(width)
        .height(height)
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .show_legend()
        .with_target(target(query, 0).format(PromQueryFormat.HEATMAP))
    )


def slow_traces(title: str, teaches: str, traceql: str, *, width: int = 12, height: int = 9) -> table.Panel:
    """The traces that a TraceQL query finds; each leads to its picture."""
    return (
        table.Panel()
        .title(title)
        .description(teaches)
        .datasource(TEMPO)
        .unit("ms")
        .span(width)
        .height(height)
        .with_target(
            tempo.Dataquery()
            .query(traceql)
            .query_type("traceql")
            .limit(50)
            .table_type(SearchTableType.TRACES)
            .datasource(TEMPO)
            .ref_id("A")
        )
    )


def service_graph(title: str, teaches: str, *, width: int = 12, height: int = 9) -> nodegraph.Panel:
    """The services that traces have shown, and who calls whom."""
    return (
        nodegraph.Panel()
        .title(title)
        .description(teaches)
        .datasource(TEMPO)
        .unit("ms")
        .span(width)
        .height(height)
        .with_target(tempo.Dataquery().query("").query_type("serviceMap").datasource(TEMPO).ref_id("A"))
    )


def actions(title: str, teaches: str, *, width: int = 8, height: int = 5) -> table.Panel:
    """Return a panel of the actions on the chosen server within the last minute, with their counts."""
    counted = f"round(sum by (server, action) (increase(lab_actions_total{{{SCOPE}}}[1m]))) > 0"
    return (
        table.Panel()
        .title(title)
        .description(teaches)
        .datasource(PROMETHEUS)
        .unit("short")
        .span(width)
        .height(height)
        .mappings(
            [
                ValueMap(options={name: ValueMappingResult(text=label) for name, label in ACTIONS.items()}),
                RegexMap(
                    options={  # type: ignore[arg-type] # the encoder takes it
                        "pattern": "/^strategy_late_(.*)$/",
                        "result": {"text": "strategy: $1, without a restart"},
                    }
                ),
                RegexMap(
                    options={  # type: ignore[arg-type] # the encoder takes it
                        "pattern": "/^strategy_(.*)$/",
                        "result": {"text": "strategy: $1"},
                    }
                ),
            ]
        )
        .with_transformation(
            DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True, "server": True},
                    "renameByName": {"action": "what was done", "Value": "times", "Value #A": "times"},
                },
            )
        )
        .override_by_name("times", [DynamicConfigValue("custom.width", 90)])
        .with_target(
            target(Query(zero_by(counted, action="nothing"), "{{action}}"), 0, at_once=True).format(
                PromQueryFormat.TABLE
            )
        )
    )


def words(markdown: str, *, title: str, teaches: str, width: int = 12, height: int = 6) -> text.Panel:
    """Return a text panel."""
    return (
        text.Panel()
        .title(title)
        .description(teaches)
        .span(width)
        .height(height)
        .mode(TextMode.MARKDOWN)
        .content(markdown)
    )

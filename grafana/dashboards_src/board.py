"""What every dashboard of the lab has: address, range, links to the others, the server, and the actions taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import PROMETHEUS

TITLES = {
    "incident": "1 The incident",
    "where-time-goes": "2 Where did the time go",
    "before-after": "3 Before and after",
    "redis": "4 Redis",
    "dragonfly": "5 Dragonfly",
    "the-lab": "6 The lab itself",
}
"""Address (/d/...) and title of every dashboard, in the order in which an investigation takes them."""

ALL_SERVERS = "label_values(probe_latency_seconds_count, server)"


def board(
    uid: str,
    description: str,
    panels: Sequence[Any],
    *,
    servers: str = ALL_SERVERS,
    first: str = "dragonfly",
) -> Dashboard:
    """A dashboard with the given panels, placed in reading order.

    ``servers`` fills the variable `server`, ``first`` is chosen at first. The dashboards of one kind of store
    offer only stores of that kind, so links to them leave the chosen server behind.
    """
    made = (
        builders.Dashboard(TITLES[uid])
        .uid(uid)
        .description(description)
        .tags(["latency-lab"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(_server(servers, first))
        .annotation(_annotation("Actions", "What was done to this server", "orange", _ACTIONS, "{{action}}"))
        .annotation(_annotation("Alerts", "An alert began to fire", "red", _ALERTS, "{{alertname}}"))
    )
    for other, title in TITLES.items():
        if other != uid:
            made = made.link(_link(other, title, keep_server=servers == ALL_SERVERS))
    for number, panel in enumerate(panels, start=1):
        made = made.with_panel(panel.id(number))
    built = made.build()
    # The builders put links and the switches of annotations into a menu; here they are how one gets around.
    for shown in (*(built.links or ()), *(built.annotations.list_val or ())):
        shown.placement = None
    return built


# Every point of an annotation's query becomes a mark, so both give points only for the moments after a change.
_ACTIONS = 'increase(lab_actions_total{server="$server"}[6s]) > 0'
_ALERTS = 'ALERTS{alertstate="firing", server="$server"} unless ALERTS{alertstate="firing", server="$server"} offset 6s'


def _annotation(name: str, text: str, colour: str, expr: str, title: str) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(PROMETHEUS)
        .enable(True)
        .icon_color(colour)
        .expr(expr)
        .step("2s")
        .title_format(title)
        .text_format(text)
        .tag_keys("server")
    )


def _server(query: str, first: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable("server")
        .label("Server")
        .description("The store, and the storefront in front of it")
        .datasource(PROMETHEUS)
        .query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .definition(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .current(VariableOption(text=first, value=first))
    )


def _link(uid: str, title: str, *, keep_server: bool) -> builders.DashboardLink:
    keep = keep_server and uid not in ("redis", "dragonfly")
    return (
        builders.DashboardLink(title)
        .type(DashboardLinkType.LINK)
        .url(f"/d/{uid}")
        .keep_time(True)
        .include_vars(keep)
    )

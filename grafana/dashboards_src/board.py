"""The common parts of the lab's dashboards: address, time range, links to the others, the choice of a server, marks of
actions and alerts, and the question of the chapter that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from grafana.plots import words

TITLES = {
    "incident": "1 The incident",
    "where-time-goes": "2 Where did the time go",
    "before-after": "3 Before and after",
    "redis": "4 Redis",
    "dragonfly": "5 Dragonfly",
    "the-lab": "6 The lab itself",
}
"""Address (/d/...) and title of every dashboard, in the order in which an investigation takes them."""

CONTROL_PAGE = "http://127.0.0.1:8080"

ALL_SERVERS = "label_values(probe_latency_seconds_count, server)"


@dataclass(frozen=True)
class Chapter:
    """A chapter of the guide. Grafana does not serve the guide, so a text can only name its file."""

    number: int
    page: str

    def __str__(self) -> str:
        return f"chapter {self.number} (`workshop/{self.page}`)"


READING = Chapter(0, "reading-p99.md")
KEY_GROWTH = Chapter(1, "key-growth.md")
EMPTY_SLOWLOG = Chapter(2, "empty-slowlog.md")
KEYS_COMMAND = Chapter(3, "keys-command.md")
SECOND_ACT = Chapter(7, "second-act.md")


def board(
    uid: str,
    description: str,
    panels: Sequence[Any],
    *,
    question: str,
    chapters: Sequence[Chapter],
    then: str | None = None,
    servers: str = ALL_SERVERS,
    first: str = "dragonfly",
) -> Dashboard:
    """A dashboard with the given panels, placed in reading order under a text with the ``question``.

    ``chapters``: where the question is asked; ``then``: the dashboard to go on to. ``servers``: the query that fills
    the variable `server`; ``first``: its first value. The dashboards of one kind of server offer only servers of that
    kind, so links to them do not pass on the chosen server.
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
        .annotation(_annotation("Plan", _PLAN_TEXT, "blue", _PLAN, "load planned"))
        .annotation(_annotation("Alerts", "An alert began to fire", "red", _ALERTS, "{{alertname}}"))
    )
    for other, title in TITLES.items():
        if other != uid:
            made = made.link(_link(other, title, keep_server=servers == ALL_SERVERS))
    for number, panel in enumerate((_question(question, chapters, then), *panels), start=1):
        made = made.with_panel(panel.id(number))
    built = made.build()
    # The builders put links and the switches of annotations into a menu; here they are the navigation, always shown.
    for shown in (*(built.links or ()), *(built.annotations.list_val or ())):
        shown.placement = None
    return built


def _question(question: str, chapters: Sequence[Chapter], then: str | None) -> Any:
    """The text at the top. Its links begin with a slash: they lead to the same Grafana, wherever it listens."""
    keep = "" if then in ("redis", "dragonfly") else "?var-server=$server"
    next_links = [f"Go on to [{TITLES[then]}](/d/{then}{keep})"] if then else []
    links = " · ".join([*next_links, f"Change something: [the control page]({CONTROL_PAGE})"])
    return words(
        # Two spaces break the line without the gap of a new paragraph.
        f"**{question}**  \nThe guide: {', '.join(map(str, chapters))}. {links}\n",
        title="The question",
        teaches="What this dashboard is for, the chapter of the guide that asks it (a file of this repository), and "
        "the way to the levers. The control page is elsewhere if CONTROL_PORT in .env is another.",
        width=24,
        height=3,
    )


# Every point of an annotation's query becomes a mark, so both queries compare a point with the one before: one mark a
# change. Grafana asks for a hundred points in the time shown, whatever the step below says: in a quarter of an hour,
# one every ten seconds. A fixed, shorter window would lose marks.
_DONE = 'lab_actions_total{server="$server"}'
_ACTIONS = f"{_DONE} - {_DONE} offset $__interval > 0"
_PLANNED = 'lab_plan_timestamp_seconds{server="$server"}'
_PLAN = f"{_PLANNED} unless {_PLANNED} offset $__interval"
_PLAN_TEXT = (
    "A search of {{keys}} keys, COUNT {{scan_count}}, takes {{search_seconds}} s here: {{events_per_second}} events a "
    "second take {{utilisation}} of the server's time."
)
_FIRING = 'ALERTS{alertstate="firing", server="$server"}'
_ALERTS = f"{_FIRING} unless {_FIRING} offset $__interval"


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
        .description("The server, and the storefront in front of it")
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

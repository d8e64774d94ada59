"""The story on the dashboards: phases as bands and bars, words for actions, parts that add up, honest units."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.settings import STRATEGY_NAMES
from console.metrics import ACTIONS, PHASES
from grafana import panels, plots, promql
from grafana.dashboards_src import where_time_goes
from tests.grafana.computed import faults
from tests.grafana.metricnames import ROOT
from tests.grafana.test_dashboards import UIDS, filled

WITH_BANDS = {"incident", "where-time-goes", "before-after"}
DRAGONFLY = '{server="dragonfly"}'


def named(boards: list[Any], uid: str, title: str) -> Any:
    """A copy of one panel of one dashboard, to be changed as a test likes."""
    (panel,) = (
        panel
        for board in boards
        if board["uid"] == uid
        for panel in board["panels"]
        if panel["title"] == title
    )
    return copy.deepcopy(panel)


def properties(panel: Any, matcher: str, options: str) -> dict[str, Any]:
    """The properties that the panel overrides for a query or a name."""
    return {
        row["id"]: row["value"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"] == {"id": matcher, "options": options}
        for row in override["properties"]
    }


# --- the phases


def phase_series(server: str, now: str) -> dict[str, list[float]]:
    """`lab_phase` of a server: the phase `now` is in force, the others are not."""
    return {
        f'lab_phase{{server="{server}", phase="{name}", job="control"}}': [float(name == now)] * 5
        for name in PHASES
    }


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_has_words_as_a_band_and_as_a_bar(name: str, tmp_path: Path) -> None:
    """Each phase is one band and one bar, and the number of the bar stands for the words of the band."""
    series = phase_series("dragonfly", name) | phase_series("redis", "stopped")
    words, _ = panels.PHASES[name]
    number = list(panels.PHASES).index(name) + 1
    band = filled(panels.phase_bands().expr)
    assert not faults(tmp_path, series, band, {f'{{phase="{words}"}}': 1}, 4)
    ended = {key: [*values, *([0.0] * 5)] for key, values in series.items()}
    assert not faults(tmp_path, ended, band, {f'{{phase="{words}"}}': 0}, 8)
    assert faults(tmp_path, series, band, {'{phase="another"}': 1}, 4)
    wanted = {DRAGONFLY: number, '{server="redis"}': list(panels.PHASES).index("stopped") + 1}
    assert not faults(tmp_path, series, panels.phase_number(), wanted, 4)
    assert panels.phase_words().options[str(number)].text == words


def test_every_phase_has_a_colour_of_its_own() -> None:
    """Nine phases, nine words, nine colours."""
    assert tuple(panels.PHASES) == PHASES
    assert len({words for words, _ in panels.PHASES.values()}) == len(PHASES)
    assert len({colour for _, colour in panels.PHASES.values()}) == len(PHASES)


def band_faults(panel: Any) -> Iterator[str]:
    """Yield what keeps the phases of a panel from being bands behind its curves."""
    *others, last = panel["targets"]
    if any("lab_phase" in query["expr"] for query in others) or "lab_phase" not in last["expr"]:
        yield "the bands' axis must not be the first: exemplars would be drawn on it"
    drawn = properties(panel, "byFrameRefID", last["refId"])
    if (drawn.get("min"), drawn.get("max"), drawn.get("custom.axisPlacement")) != (0, 1, "hidden"):
        yield "a band fills the panel's height on an axis that is not shown"
    if drawn.get("custom.scaleDistribution") != {"type": "linear"}:
        yield "0 has no place on a logarithmic axis"
    if drawn.get("custom.lineWidth") != 0 or not 5 <= drawn.get("custom.fillOpacity", 0) <= 25:
        yield "a band has no line, and curves are seen through it"
    if drawn.get("custom.lineInterpolation") != "stepAfter":
        yield "a phase begins at once"
    for words, colour in panels.PHASES.values():
        if properties(panel, "byName", words).get("color", {}).get("fixedColor") != colour:
            yield f"{words} has not its colour"


def banded(boards: list[Any]) -> list[tuple[str, Any]]:
    """Every graph with phases, and the dashboard that it is on."""
    return [
        (board["uid"], panel)
        for board in boards
        for panel in board["panels"]
        if panel["type"] == "timeseries" and any("lab_phase" in q["expr"] for q in panel["targets"])
    ]


def test_phases_are_bands_behind_the_curves(boards: list[Any]) -> None:
    """On each dashboard that shows the climb of p99 the background is the phase, everywhere in the same colours."""
    assert {uid for uid, _ in banded(boards)} == WITH_BANDS
    for uid, panel in banded(boards):
        assert list(band_faults(panel)) == [], (uid, panel["title"])


def test_bands_that_hide_or_bend_a_panel_are_noticed(boards: list[Any]) -> None:
    """The check above can fail: the bands first, opaque, on a visible axis, in another colour."""
    for change, fault in (
        (lambda p: p["targets"].reverse(), "exemplars"),
        (lambda p: _override(p, "byFrameRefID", "custom.fillOpacity", 80), "through it"),
        (lambda p: _override(p, "byFrameRefID", "custom.axisPlacement", "right"), "not shown"),
        (lambda p: _override(p, "byName", "color", {"mode": "fixed", "fixedColor": "pink"}), "its colour"),
    ):
        panel = banded(boards)[0][1]
        panel = copy.deepcopy(panel)
        change(panel)
        assert any(fault in said for said in band_faults(panel)), fault


def _override(panel: Any, matcher: str, name: str, value: Any) -> None:
    for override in panel["fieldConfig"]["overrides"]:
        for row in override["properties"]:
            if override["matcher"]["id"] == matcher and row["id"] == name:
                row["value"] = value


def test_only_moments_of_the_story_are_points(tmp_path: Path) -> None:
    """The scatter plot leaves out calibration, and names a point by its phase."""
    expr = filled(promql.by_phase('p99{server="$server"}', "growing|held"))
    series = {f"p99{DRAGONFLY}": [0.2] * 5}
    growing = '{phase="growing", server="dragonfly"}'
    assert not faults(tmp_path, series | phase_series("dragonfly", "growing"), expr, {growing: 0.2}, 4)
    assert not faults(tmp_path, series | phase_series("dragonfly", "calibrating"), expr, {}, 4)
    assert faults(tmp_path, series | phase_series("dragonfly", "growing"), expr, {}, 4)
    without_phases = 'p99{phase="any phase", server="dragonfly"}'
    assert not faults(tmp_path, series, expr, {without_phases: 0.2}, 4), (
        "a recording without phases is shown whole"
    )


# --- the first dashboard


def test_the_climb_fills_the_panel(boards: list[Any]) -> None:
    """From 1 ms to 300 ms is most of the height: the axis begins just below, and is logarithmic. Keys begin at 0,
    and the edge is a dashed line on their axis.
    """
    panel = named(
        boards, "incident", "p99 of every command as the application saw it, and the number of keys"
    )
    defaults = panel["fieldConfig"]["defaults"]
    assert 0.0003 <= defaults["min"] <= 0.001
    assert defaults["custom"]["scaleDistribution"]["type"] == "log"
    assert "max" not in defaults, "p99 goes to seconds"
    letters = {query["legendFormat"]: query["refId"] for query in panel["targets"]}
    keys = properties(panel, "byFrameRefID", letters["cached keys"])
    edge = properties(panel, "byFrameRefID", letters["saturation, in keys"])
    for axis in (keys, edge):
        assert (axis["unit"], axis["min"], axis["custom.axisPlacement"]) == ("short", 0, "right")
    assert edge["custom.lineStyle"]["fill"] == "dash"
    assert edge["custom.fillOpacity"] == 0


def test_a_saturation_far_away_does_not_press_the_keys_down(boards: list[Any], tmp_path: Path) -> None:
    """Saturation is not drawn at twice as many keys as there are, or more."""
    panel = named(
        boards, "incident", "p99 of every command as the application saw it, and the number of keys"
    )
    (expr,) = (filled(q["expr"]) for q in panel["targets"] if q["legendFormat"] == "saturation, in keys")
    there = {f"server:store_keys:sum{DRAGONFLY}": [100_000] * 5}
    for keys, wanted in ((150_000, {DRAGONFLY: 150_000.0}), (400_000, {}), (0, {})):
        series = {f"lab_knee_keys{DRAGONFLY}": [keys] * 5, **there}
        assert not faults(tmp_path, series, expr, wanted, 4), keys


def clue_faults(panel: Any) -> list[str]:
    """The misleading colours and thresholds of a panel that shows a correlation."""
    steps = [
        (step["value"], step["color"]) for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    ]
    wrong = [f"{colour} says that all is well" for _, colour in steps if "green" in colour]
    if [value for value, _ in steps] != [None, 0.6, 0.8]:
        wrong.append("a clue begins at 0.6 and is strong at 0.8")
    return wrong


def test_a_strong_correlation_is_never_green(boards: list[Any]) -> None:
    """A high correlation is the clue; a low one is no proof of health."""
    panel = named(boards, "incident", "Correlation of keys and p99")
    assert clue_faults(panel) == []
    assert "lab_keys_p99_rank_correlation" in panel["targets"][0]["expr"]
    panel["fieldConfig"]["defaults"]["thresholds"]["steps"] = [
        {"value": None, "color": "green"},
        {"value": 0.5, "color": "orange"},
        {"value": 0.8, "color": "red"},
    ]
    assert len(clue_faults(panel)) == 2


def said(panel: Any, action: str) -> str:
    """The words that a table shows for an action; the action's name if it has no words."""
    for mapping in panel["fieldConfig"]["defaults"]["mappings"]:
        if mapping["type"] == "value" and action in mapping["options"]:
            return str(mapping["options"][action]["text"])
        if mapping["type"] == "regex":
            pattern = mapping["options"]["pattern"].strip("/")
            if found := re.fullmatch(pattern, action):
                return str(mapping["options"]["result"]["text"]).replace("$1", found[1])
    return action


def test_every_action_has_words(boards: list[Any]) -> None:
    """The table has words for each action that the console counts; an unknown action keeps its name."""
    panel = named(boards, "incident", "Done in the last minute")
    ours = {*ACTIONS, *plots.ACTIONS}
    ours |= {f"{kind}_{name}" for kind in ("strategy", "strategy_late") for name in STRATEGY_NAMES}
    for action in ours:
        assert "_" not in said(panel, action) and said(panel, action) != action, action
    assert said(panel, "strategy_index") == "strategy: index"
    assert said(panel, "strategy_late_index-naive") == "strategy: index-naive, without a restart"
    assert said(panel, "unheard_of") == "unheard_of"


def test_the_last_minute_is_the_last_minute(boards: list[Any], tmp_path: Path) -> None:
    """For a minute the table shows an action and how often it was done; after that it shows the word *nothing*."""
    (query,) = named(boards, "incident", "Done in the last minute")["targets"]
    assert (query["format"], query["instant"]) == ("table", True)
    counted = 'lab_actions_total{server="dragonfly", action="rate", job="control"}'
    series = {counted: [0.0] * 10 + [2.0] * 60, 'up{job="probe", server="dragonfly"}': [1.0] * 70}
    labels = '{{server="dragonfly", action="{}"}}'
    assert not faults(tmp_path, series, filled(query["expr"]), {labels.format("rate"): 2}, 36)
    assert not faults(tmp_path, series, filled(query["expr"]), {labels.format("nothing"): 0}, 60)
    assert faults(tmp_path, series, filled(query["expr"]), {labels.format("rate"): 2}, 60)


@pytest.mark.parametrize("step", [2, 10, 30])
def test_a_change_is_one_mark_whatever_is_shown(board: Any, step: int, tmp_path: Path) -> None:
    """Each action, and each alert that begins to fire, is exactly one mark, although Grafana asks for annotations in
    steps that depend on the time shown.
    """
    done = 'lab_actions_total{server="dragonfly", action="restart", job="control"}'
    alert = 'ALERTS{server="dragonfly", alertname="A", alertstate="firing"}'
    series: dict[str, Sequence[float | str]] = {done: [0] * 37 + [1] * 113, alert: ["_"] * 37 + [1] * 113}
    marks = {row["name"]: row["expr"] for row in board["annotations"]["list"] if "expr" in row}
    for expr, labels in (
        (marks["Actions"], '{server="dragonfly", action="restart", job="control"}'),
        (marks["Alerts"], 'ALERTS{server="dragonfly", alertname="A", alertstate="firing"}'),
    ):
        asked = filled(expr.replace("$__interval", f"{step}s"))
        counted = f"count_over_time(({asked})[4m:{step}s])"
        assert not faults(tmp_path, series, counted, {labels.removeprefix("ALERTS"): 1}, 120)
        assert faults(tmp_path, series, counted, {labels.removeprefix("ALERTS"): 2}, 120)


# --- times that are summed


SUMS = re.compile(r"server_cmd:store_execution:rate10s|lab_slowlog_duration_seconds")
ONE_THREAD = {"redis"}
"""Dashboards of servers that carry out one command at a time: there a sum is a share of the thread."""


def sum_faults(uid: str, panel: Any) -> list[str]:
    """Return the errors and omissions of a panel that sums a server's execution times."""
    if not any(SUMS.search(query.get("expr", "")) for query in panel.get("targets", ())):
        return []
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if uid in ONE_THREAD:
        return [] if unit == "percentunit" else [f"{unit}: a share of the thread is per cent"]
    wrong = []
    if unit != panels.COMMANDS and panel["type"] != "stat":
        wrong.append(f"{unit}: a sum of clocks is a number of commands")
    if "under way at once" not in panel["title"]:
        wrong.append("the title says what the number is")
    if any(word not in panel["description"] for word in ("Little's law", "Dragonfly")):
        wrong.append("the description says why, and what it means on Dragonfly")
    return wrong


def test_sums_of_execution_times_are_true_for_every_server(boards: list[Any]) -> None:
    """Where calls interleave, their execution times add up to the calls under way; panels say so and have that unit."""
    summed = [
        (board["uid"], panel)
        for board in boards
        for panel in board["panels"]
        if any(SUMS.search(query.get("expr", "")) for query in panel.get("targets", ()))
    ]
    assert {uid for uid, _ in summed} == {"incident", "where-time-goes", "before-after", "dragonfly", "redis"}
    for uid, panel in summed:
        assert sum_faults(uid, panel) == [], (uid, panel["title"])


def test_an_untrue_sum_is_noticed(boards: list[Any]) -> None:
    """A panel with a misleading title, unit and text is reported: it once showed 400, without a unit, on Dragonfly."""
    panel = named(boards, "where-time-goes", "Commands under way at once, by command")
    panel["title"] = "What the server spends its time on"
    panel["fieldConfig"]["defaults"]["unit"] = "none"
    panel["description"] = "Seconds of execution a second by command."
    assert len(sum_faults("where-time-goes", panel)) == 3
    assert len(sum_faults("redis", panel)) == 1


@pytest.mark.parametrize(
    ("execution", "parts"),
    [(0.00002, (0.00002, 0.00038, 0.0996)), (0.03, (0.03, 0.0, 0.07))],
    ids=["redis", "dragonfly"],
)
def test_the_parts_of_a_p99_add_up_to_it(
    boards: list[Any], execution: float, parts: tuple[float, float, float], tmp_path: Path
) -> None:
    """The parts add up even where the server's clock runs while a call waits: *waiting* does not repeat what is in
    *execution*.
    """
    series: dict[str, Sequence[float | str]] = {
        f"server:probe_latency:p99_10s{DRAGONFLY}": [0.1] * 5,
        f"server:probe_latency:floor_1h{DRAGONFLY}": [0.0004] * 5,
        'server_cmd:store_execution:mean_10s{server="dragonfly", cmd="get"}': [execution] * 5,
        'server_cmd:store_commands:rate10s{server="dragonfly", cmd="get"}': [200] * 5,
    }
    panel = named(boards, "where-time-goes", "p99 of a bystander's GET, taken apart")
    expressions = {q["legendFormat"]: filled(q["expr"]) for q in panel["targets"]}
    for name, value in zip(("execution", "network and loops", "waiting"), parts, strict=True):
        rounded = f"round({expressions[name]}, 1e-6)"
        assert not faults(tmp_path, series, rounded, {DRAGONFLY: value}, 4), name
        assert faults(tmp_path, series, rounded, {DRAGONFLY: value + 0.001}, 4), name
    assert sum(parts) == pytest.approx(0.1)


def test_waiting_is_known_while_the_server_says_nothing(tmp_path: Path) -> None:
    """While a stalled server reports no execution times, the waiting of reads is known all the same."""
    series = {
        f"server:probe_latency:floor_1h{DRAGONFLY}": [0.0004] * 5,
    }
    assert not faults(tmp_path, series, filled(where_time_goes.BEYOND_FLOOR), {DRAGONFLY: 0}, 4)


# --- the question


def question_faults(board: Any, root: Path = ROOT) -> list[str]:
    """Return the errors in the text at the top of a dashboard."""
    panel = board["panels"][0]
    if panel["type"] != "text":
        return ["a dashboard begins with its question"]
    text = panel["options"]["content"]
    wrong = [] if re.match(r"\*\*.*\?\*\*  \n", text) else ["no question"]
    chapters = re.findall(r"chapter (\d+) \(`(workshop/[\w-]+\.md)`\)", text)
    if not chapters:
        wrong.append("no chapter")
    for number, page in chapters:
        path = root / page
        heading = path.read_text(encoding="utf-8").partition("\n")[0] if path.exists() else ""
        if not heading.startswith(f"# Chapter {number}: "):
            wrong.append(f"{page} is not chapter {number}")
    links = re.findall(r"\]\((.+?)\)", text)
    for link in links:
        own = re.fullmatch(r"/d/([a-z-]+)(\?var-server=\$server)?", link)
        if not own and link != "http://127.0.0.1:8080":
            wrong.append(f"{link} leads nowhere: Grafana does not serve the guide")
        elif own and own[1] not in UIDS:
            wrong.append(f"no dashboard {own[1]}")
    if "http://127.0.0.1:8080" not in links or not any(link.startswith("/d/") for link in links):
        wrong.append("no way on")
    return wrong


def test_every_dashboard_begins_with_its_question(board: Any) -> None:
    """A dashboard begins with its question, its chapter by file (Grafana does not serve the guide), and links to the
    next dashboard and the console.
    """
    assert question_faults(board) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("?**", ".**", "no question"),
        ("chapter 1", "chapter 4", "is not"),
        ("key-growth.md", "gone.md", "is not"),
        ("(/d/", "(workshop/", "leads nowhere"),
        ("(/d/where", "(/d/nowhere", "no dashboard"),
        ("(http://127.0.0.1:8080)", "", "no way on"),
    ],
)
def test_a_question_without_an_answer_is_noticed(boards: list[Any], old: str, new: str, fault: str) -> None:
    """The check above can fail in each of its parts."""
    (board,) = (copy.deepcopy(board) for board in boards if board["uid"] == "incident")
    options = board["panels"][0]["options"]
    assert old in options["content"]
    options["content"] = options["content"].replace(old, new)
    assert any(fault in said for said in question_faults(board))

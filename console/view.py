"""What the page and the HTTP interface show of a server."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from console.config import Config
from console.server_control import KEPT_SHARE, ServerControl
from console.steering import Growth

DASHBOARDS = (
    ("incident", "The incident"),
    ("where-time-goes", "Where did the time go"),
    ("before-after", "Before and after"),
    ("redis", "Redis"),
    ("dragonfly", "Dragonfly"),
    ("the-lab", "The lab itself"),
)


def status(stage: ServerControl) -> str:
    """What goes on, without numbers that change all the time: it is read aloud whenever it changes."""
    story = {
        "waiting": f"Waiting: {stage.trouble or 'starting.'}",
        "resting": "Letting the machine come to rest. The story begins in a few seconds.",
        "clearing": "Ending what is under way.",
        "queued": "Waiting for its turn to calibrate.",
        "calibrating": "Calibrating: measuring what a scanned key costs here.",
        "emptying": "Calibrated. Emptying the store.",
        "healthy": "Healthy: few keys, all the load. Measuring p99 before the growth.",
        "leased": "A run of the lab has the scene; nothing is changed from here.",
        "retrying": f"Trying again: {stage.trouble}",
    }
    if stage.phase in story:
        return story[stage.phase]
    if stage.restarting:
        return "Restarting the store."
    if stage.complaint or not stage.up:
        return stage.complaint or "The store does not answer."
    if stage.trouble:
        return f"Trouble: {stage.trouble}"
    return f"{_growth(stage)} {_events(stage)}"


def _growth(stage: ServerControl) -> str:
    keys = stage.config.keys
    if not stage.growing:
        return "Growth is stopped."
    if stage.grows_at is not None:
        return "The store is empty. In a few seconds keys grow again."
    if stage.look and not stage.look.filling and stage.look.keys >= KEPT_SHARE * keys:
        return f"All {keys:,} keys are there."
    if not stage.over and stage.steering.growth is Growth.HELD:
        return "Held: keys as they were at the edge." if stage.shown_phase == "cured" else "Held at the edge."
    if not stage.over and stage.steering.growth is Growth.SLOWLY and stage.searching:
        return "Near the edge: keys grow slowly."
    return f"Keys are growing towards {keys:,}."


def _events(stage: ServerControl) -> str:
    if stage.paused:
        return (
            f"Events held back: more than {stage.config.backlog_pause:,} were in flight. "
            f"They go on below {stage.config.backlog_resume:,}."
        )
    if stage.planned <= 0:
        return "No events."
    if stage.over:
        return "Over the edge: events pile up."
    return (
        "Events arrive as fast as they can be finished." if stage.asked < stage.planned else "Events arrive."
    )


def server(stage: ServerControl, with_curve: bool = False) -> dict[str, Any]:
    """Everything about one server. Numbers that are not known are null."""
    look, figures, found, knee = stage.look, stage.history.figures, stage.tuning, stage.knee_keys()
    shown: dict[str, Any] = {
        "name": stage.server,
        "product": stage.product,
        "phase": stage.phase,
        "free": stage.free,
        "status": status(stage),
        "up": stage.up,
        "restarting": stage.restarting is not None,
        "strategy": stage.strategy or (look.strategy if look else None),
        "strategies": stage.strategies,
        "keys": look.keys if look else None,
        "target_keys": look.target_keys if look and stage.target is None else stage.target,
        "growth": stage.growing,
        "shown_phase": stage.shown_phase,
        "over": stage.over,
        "edge_keys": stage.edge_keys,
        "p99_ms": figures.p99_ms,
        "p99_beyond": figures.beyond,
        "events_in_flight": look.in_flight if look else None,
        "events_per_second": stage.asked,
        "events_planned_per_second": stage.planned,
        "healthy_p99_ms": stage.steering.healthy_ms,
        "rank_correlation": stage.follows.correlation,
        "events_finished_per_second": figures.finished_per_second,
        "events_paused": stage.paused,
        "knee_keys": None if knee is None else round(knee),
        "calibrated_events_per_second": round(found.events_per_second, 2) if found else None,
        "cost_us_per_key": round(found.cost_s * 1e6, 4) if found else None,
    }
    if with_curve:
        shown["curve"] = stage.history.curve(time.monotonic())
    return shown


def scene(stages: list[ServerControl], config: Config, with_curves: bool = False) -> dict[str, Any]:
    """The whole scene: servers that belong to it, and what the page must know of the settings."""
    return {
        "servers": [server(stage, with_curves) for stage in stages if stage.phase != "absent"],
        "keys": config.keys,
        "story": config.story,
    }


def links(config: Config, present: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Where else to look, by heading: (text, address). Only what was configured, and only servers that are present."""
    found: dict[str, list[tuple[str, str]]] = {}
    if config.grafana_url:
        found["Dashboards"] = [(title, f"{config.grafana_url}/d/{uid}") for uid, title in DASHBOARDS]
    tools = [
        (f"Locust on {name}", address) for name, address in config.locust_urls.items() if name in present
    ]
    if config.prometheus_url:
        tools.append(("Prometheus", config.prometheus_url))
    if config.tempo_url:
        tools.append(("Tempo", f"{config.tempo_url}/status"))
    if tools:
        found["Tools"] = tools
    return found

"""The state of servers as the page and the HTTP interface show it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from console.config import Config
from console.observed import STALE
from console.server_control import ServerControl

DASHBOARDS = (
    ("incident", "The incident"),
    ("where-time-goes", "Where did the time go"),
    ("before-after", "Before and after"),
    ("redis", "Redis"),
    ("dragonfly", "Dragonfly"),
    ("the-lab", "The lab itself"),
)


def status(control: ServerControl) -> str:
    """Return the state in sentences, without numbers that keep changing: screen readers read each change aloud."""
    story = {
        "waiting": f"Waiting: {control.trouble or 'starting.'}",
        "resting": "Letting the machine come to rest. The story begins in a few seconds.",
        "clearing": "Finishing the events under way.",
        "queued": "Waiting for its turn to calibrate.",
        "calibrating": "Calibrating: measuring what a search of all keys costs here.",
        "emptying": "Calibrated. Emptying the server.",
        "healthy": "Healthy: few customers, but all visits and events. Measuring p99 before the growth.",
        "leased": "A run of the lab is using the scene; this page changes nothing until the run is over.",
        "retrying": f"Trying again: {control.trouble}",
    }
    if control.phase in story:
        return story[control.phase]
    if control.restarting:
        return "Restarting the server."
    if control.complaint or not control.up:
        return control.complaint or "The server does not answer."
    if control.trouble:
        return f"Trouble: {control.trouble}"
    return f"{_growth(control)} {_events(control)}"


def _growth(control: ServerControl) -> str:
    keys = control.config.keys
    if not control.awake:
        return "No visits."
    if control.few_until is not None:
        return "The server is empty: for twenty seconds only a few customers come."
    if control.all_keys:
        return f"All {keys:,} keys are there."
    if not control.growing:
        return "No new customers come."
    return f"Customers come: keys grow towards {keys:,}."


def _events(control: ServerControl) -> str:
    if control.paused:
        return (
            f"Events held back: more than {control.config.backlog_pause:,} were in flight. "
            f"They go on below {control.config.backlog_resume:,}."
        )
    if control.planned <= 0:
        return "No events."
    if control.over_until is not None:
        return "Over the edge: three times the events, for a minute."
    if control.strategy == STALE:
        return "Events delete nothing: customers see old pages until the entries expire."
    return "Events arrive at a constant rate."


def plan(control: ServerControl) -> str:
    """Return the plan in a sentence; empty before there is one."""
    made = control.plan
    if made is None:
        return ""
    return (
        f"Measured here: one search of {made.keys:,} keys, COUNT {made.scan_count:,}, takes the server "
        f"{made.search_s * 1000:.3g} ms. Planned from it, once: {control.config.visits_per_second:.3g} visits and "
        f"{made.events_per_second:.3g} events a second, three searches each, which take {made.utilisation:.0%} of the "
        "server's time when all keys are there."
    )


def server(control: ServerControl, with_curve: bool = False) -> dict[str, Any]:
    """Everything about one server. Numbers that are not known are null."""
    sample, figures, made = control.sample, control.history.figures, control.plan
    saturating = control.saturating_keys
    shown: dict[str, Any] = {
        "name": control.server,
        "product": control.product,
        "phase": control.phase,
        "free": control.free,
        "status": status(control),
        "plan": plan(control),
        "up": control.up,
        "restarting": control.restarting is not None,
        "strategy": control.strategy or (sample.strategy if sample else None),
        "strategies": control.strategies,
        "scan_count": control.scan_count,
        "keys": sample.keys if sample else None,
        "growth": control.growing,
        "all_keys": control.all_keys,
        "shown_phase": control.shown_phase,
        "over": control.over_until is not None,
        "p99_ms": figures.p99_ms,
        "p99_beyond": figures.beyond,
        "events_in_flight": sample.in_flight if sample else None,
        "visits_per_second": control.config.visits_per_second if control.awake else 0.0,
        "events_per_second": control.requested,
        "events_planned_per_second": control.planned,
        "healthy_p99_ms": control.healthy_ms,
        "rank_correlation": control.follows.correlation,
        "events_finished_per_second": figures.finished_per_second,
        "events_finished": sample.finished if sample else None,
        "events_paused": control.paused,
        "knee_keys": None if saturating is None else round(saturating),
        "calibrated_events_per_second": made.events_per_second if made else None,
        "cost_us_per_key": round(made.cost_s * 1e6, 4) if made else None,
    }
    if with_curve:
        shown["curve"] = control.history.curve(time.monotonic())
    return shown


def scene(controls: list[ServerControl], config: Config, with_curves: bool = False) -> dict[str, Any]:
    """Return the whole scene: its servers, and the settings that the page needs."""
    return {
        "servers": [server(control, with_curves) for control in controls if control.phase != "absent"],
        "keys": config.keys,
        "story": config.story,
    }


def _chosen(config: Config, uid: str) -> str:
    """Return the query that chooses a server of this page on a shared dashboard, of the dashboard's kind."""
    if not config.series_prefix:
        return ""
    names = [server.name for server in config.servers]
    if uid in ("dragonfly", "redis"):
        names = [name for name in names if name.startswith("dragonfly") == (uid == "dragonfly")]
    return f"?var-server={config.series_prefix}{names[0]}" if names else ""


def links(config: Config, present: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return links to the configured tools, for the servers that are present: heading → (text, address)."""
    found: dict[str, list[tuple[str, str]]] = {}
    if config.grafana_url:
        found["Dashboards"] = [
            (title, f"{config.grafana_url}/d/{uid}{_chosen(config, uid)}") for uid, title in DASHBOARDS
        ]
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

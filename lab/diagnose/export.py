"""`bin/lab export`: a dashboard and alert rules for an existing Grafana and Prometheus.

They use only metrics of redis_exporter. Rules on commands see shares and means only, and have bounds of their own. All
other rules have the bounds of `bin/lab diagnose` (`lab.server.signs`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jinja2
import typer

from lab import ROOT
from lab.errors import UsageError
from lab.server.signs import (
    CONNECTIONS_SHARE,
    EVICTED_PER_S,
    LONG_MS,
    MEMORY_SHARE,
    REMOVED_PER_S,
    REMOVED_US,
)

RULES, BOARD = ROOT / "prometheus/export", ROOT / "grafana/export/dashboard.json"
LATE_S = 0.1
"""A scrape that takes this long waits for the server. On an idle Redis 7.0 it takes 4 ms. While clients send long calls
it takes about three turns of the server's loop, each as long as all their calls together (measured: 60 ms at 18 ms of
KEYS a turn, 340 ms at 108 ms)."""
SCANS_PER_S, SCANS_SHARE, LONG_SHARE = 50, 0.4, 0.1
"""Calls of SCAN a second, and shares of the time that SCAN, or a command with long calls, takes."""
BUSY_SHARE = 0.8
"""Utilisation from which the wait in a queue is a multiple of the work: four times at 0.8 (M/M/1)."""
SCRAPES = 4
"""Scrapes in the window of a rate. If one fails, three are left, one more than a rate needs."""
UNITS = {"s": 1, "m": 60}
LONGEST_S = 300
NAME, LABEL = re.compile(r"[\w./:@-]+"), re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAKEN_LABELS = ("job", "cmd")
EVERY = re.compile(r"([1-9]\d*)([sm])")
SERVER = "cache-1:6379"
SAMPLES = 60
INPUT = "DS_PROMETHEUS"


@dataclass(frozen=True)
class RuleCase:
    """A case in the rules' test: series by name with their values, and the alert that must fire (empty: none may)."""

    series: dict[str, str]
    fires: str = ""


@dataclass(frozen=True)
class PrometheusNames:
    """Names in the user's Prometheus: the job, and the label that separates servers; and seconds between scrapes."""

    job: str
    label: str
    every_s: int

    @classmethod
    def parse(cls, job: str, label: str, every: str) -> PrometheusNames:
        """Parse the options as typed. Raises `UsageError` when one is not valid."""
        if not NAME.fullmatch(job):
            raise UsageError(f"--job {job!r}: letters, digits and . / : @ _ - only.")
        if not LABEL.fullmatch(label) or label in TAKEN_LABELS:
            raise UsageError(
                f"--label {label!r}: letters, digits and _ only, no digit first, and neither job nor cmd."
            )
        found = EVERY.fullmatch(every)
        seconds = int(found[1]) * UNITS[found[2]] if found else 0
        if not 1 <= seconds <= LONGEST_S:
            raise UsageError(f"--every {every!r}: the scrape interval, from 1s to 5m, such as 15s.")
        return cls(job, label, seconds)

    def template_values(self) -> dict[str, object]:
        """Return the values for the names in the templates."""
        return {
            "job": self.job,
            "label": self.label,
            "every": f"{self.every_s}s",
            "window": f"{SCRAPES * self.every_s}s",
            "hold": f"{SCRAPES * self.every_s}s",
            "later": f"{SAMPLES // 2 * self.every_s}s",
            "late_s": LATE_S,
            "taken": BUSY_SHARE,
            "scans_share": SCANS_SHARE,
            "scans_per_s": SCANS_PER_S,
            "long_share": LONG_SHARE,
            "long_s": LONG_MS / 1e3,
            "evicted_per_s": EVICTED_PER_S,
            "memory_share": MEMORY_SHARE,
            "removed_per_s": REMOVED_PER_S,
            "removed_s": REMOVED_US / 1e6,
            "connected_share": CONNECTIONS_SHARE,
            "cases": self.cases(),
        }

    def cases(self) -> dict[str, RuleCase]:
        """Return test cases by name: one just beyond each bound, and one just below all of them."""
        longest, removals = LONG_MS / 1e3, REMOVED_PER_S
        return {
            "a server just below every bound": RuleCase(
                self._level("redis_up", 1)
                | self._level("redis_exporter_last_scrape_duration_seconds", 0.99 * LATE_S)
                | self._command("scan", 1000, 0.99 * SCANS_SHARE)
                | self._command("keys", 0.99 * LONG_SHARE / longest, 0.99 * LONG_SHARE)
                | self._command("hgetall", 0.25 / (0.99 * longest), 0.25)
                | self._command("unlink", 0.99 * removals, 0.01)
                | self._rate("redis_evicted_keys_total", 0.99 * EVICTED_PER_S)
                | self._level("redis_memory_used_bytes", 96)
                | self._level("redis_memory_max_bytes", 100)
                | self._level("redis_connected_clients", 0.99 * CONNECTIONS_SHARE * 10_000)
                | self._level("redis_config_maxclients", 10_000)
            ),
            "a server with room and many evictions": RuleCase(
                self._rate("redis_evicted_keys_total", 10 * EVICTED_PER_S)
                | self._level("redis_memory_used_bytes", 94)
                | self._level("redis_memory_max_bytes", 100)
            ),
            "it does not answer": RuleCase(
                self._level("redis_up", 0), self._fires("RedisDoesNotAnswer", "page", job=self.job)
            ),
            "it answers too late for a scrape": RuleCase(
                self._level("up", 0), self._fires("RedisDoesNotAnswer", "page", job=self.job)
            ),
            "its exporter waits": RuleCase(
                self._level("redis_exporter_last_scrape_duration_seconds", 1.01 * LATE_S),
                self._fires("RedisMakesItsExporterWait", "page", job=self.job),
            ),
            "short commands take the thread": RuleCase(
                self._command("get", 200_000, 1.01 * BUSY_SHARE), self._fires("RedisThreadTaken", "page")
            ),
            "short scans": RuleCase(
                self._command("scan", 1000, 1.01 * SCANS_SHARE),
                self._fires("RedisScansTakeTheTime", "ticket"),
            ),
            "long calls": RuleCase(
                self._command("keys", 0.11 / (1.01 * longest), 0.11),
                self._fires("RedisLongCalls", "ticket", cmd="keys"),
            ),
            "evictions at the limit": RuleCase(
                self._rate("redis_evicted_keys_total", 1.01 * EVICTED_PER_S)
                | self._level("redis_memory_used_bytes", 96)
                | self._level("redis_memory_max_bytes", 100),
                self._fires("RedisEvictsInBursts", "ticket"),
            ),
            "deletes one by one": RuleCase(
                self._command("del", 1.01 * removals, 0.05),
                self._fires("RedisDeletesOneByOne", "ticket", cmd="del"),
            ),
            "deletes of large things": RuleCase(self._command("del", removals * 2, 0.3)),
            "too many connections": RuleCase(
                self._level("redis_connected_clients", 1.01 * CONNECTIONS_SHARE * 1000)
                | self._level("redis_config_maxclients", 1000),
                self._fires("RedisConnectionsAtTheLimit", "ticket"),
            ),
        }

    def _series(self, metric: str, **labels: str) -> str:
        return _selector(metric, {"job": self.job, self.label: SERVER, **labels})

    def _level(self, metric: str, value: float) -> dict[str, str]:
        return {self._series(metric): f"{value:g}+0x{SAMPLES}"}

    def _rate(self, metric: str, per_s: float, **labels: str) -> dict[str, str]:
        return {self._series(metric, **labels): f"0+{per_s * self.every_s:.9f}x{SAMPLES}"}

    def _command(self, name: str, calls_per_s: float, share: float) -> dict[str, str]:
        calls = self._rate("redis_commands_total", calls_per_s, cmd=name)
        return calls | self._rate("redis_commands_duration_seconds_total", share, cmd=name)

    def _fires(self, alert: str, severity: str, **labels: str) -> str:
        known = {"alertname": alert, "alertstate": "firing", "severity": severity}
        return _selector("ALERTS", {**known, self.label: SERVER, **labels})


def _selector(metric: str, labels: dict[str, str]) -> str:
    return f"{metric}{{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def board(names: PrometheusNames, datasource: str | None) -> dict[str, Any]:
    """Return the dashboard. Without a data source Grafana asks for one when the file is imported."""
    text = BOARD.read_text(encoding="utf-8").replace("<<job>>", names.job).replace("<<label>>", names.label)
    source = datasource or f"${{{INPUT}}}"
    dashboard: dict[str, Any] = json.loads(text.replace('"uid": "prometheus"', f'"uid": "{source}"'))
    if datasource is None:
        prompt = {"name": INPUT, "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
        dashboard["__inputs"] = [
            prompt | {"pluginName": "Prometheus", "description": "Scrapes redis_exporter"}
        ]
    return dashboard


def export(
    folder: Annotated[Path, typer.Argument(help="Folder for the files, new or empty.", metavar="DIR")],
    job: Annotated[str, typer.Option(help="redis_exporter's job in your Prometheus.")] = "redis",
    label: Annotated[str, typer.Option(help="The label that separates your servers.")] = "instance",
    every: Annotated[str, typer.Option(help="How often that job is scraped.", metavar="15s")] = "15s",
    datasource: Annotated[
        str | None,
        typer.Option(
            help="The uid of Grafana's data source; without it Grafana asks at import.", metavar="UID"
        ),
    ] = None,
) -> None:
    """Write a dashboard, alert rules and their tests for a Grafana and a Prometheus of your own."""
    names = PrometheusNames.parse(job, label, every)
    if datasource is not None and not NAME.fullmatch(datasource):
        raise UsageError(f"--datasource {datasource!r}: a uid has letters, digits, - and _ only.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder: choose another, nothing is overwritten.")
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(RULES),
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # YAML and Markdown; the options were checked above
    )
    values = names.template_values() | {"datasource": datasource}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("rules.yml", "rules_test.yml", "README.md"):
            text = templates.get_template(name).render(values)
            (folder / name).write_text(text, encoding="utf-8")
        text = json.dumps(board(names, datasource), indent=2, ensure_ascii=False) + "\n"
        (folder / "dashboard.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    print(f"{folder}: dashboard.json, rules.yml, rules_test.yml, README.md")

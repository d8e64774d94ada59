"""Lists from the code, as Markdown: commands and options, scenarios, panels, alerts, and the others in `LISTS`."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml

from docs.pages import (
    frompredict,
    fromscene,
    fromservers,
)
from docs.pages.fromruns import machine, table
from docs.pages.records import Records, nearest
from lab import scenarios
from lab.claims.wording import outcome, tally
from lab.errors import UsageError
from lab.report.view import RunView
from lab.server.servers import SERVERS
from lab.stacks.rights import ACL


def block(root: Path, records: Records, kind: str, words: list[str]) -> str:
    """The block `list: NAME` or `help: COMMAND`. Raises `UsageError`, with the nearest name, where there is none."""
    if kind == "help":
        return options(words)
    name = " ".join(words)
    if name == "incidents":
        return incidents(records)
    if name not in LISTS:
        raise UsageError(f"there is no list {name!r}; {nearest(name, ['incidents', *LISTS])}")
    return LISTS[name](root)


SHORTEST = 60
"""Characters: a first sentence that is shorter ("Traffic.") says little without the next one."""


def first_sentence(text: str) -> str:
    """The first sentence, with the next ones added until there are `ENOUGH` characters."""
    sentences = re.split(r"(?<=[^.][.?])\s+(?=[A-Z`*\"])", " ".join(text.split()))
    text = sentences.pop(0)
    while sentences and len(text) < SHORTEST:
        text += " " + sentences.pop(0)
    return text


# --- scenarios


def scenario_list(_: Path) -> str:
    """Every scenario, controls last."""
    rows = []
    for found in scenarios.catalogue().values():
        story = (
            "the same scene without the cause: every claim must be refuted" if found.refutes else found.story
        )
        paces = ", ".join(f"{name} {pace.keys:,}" for name, pace in found.paces.items())
        rows.append([f"`{found.id}`", story, found.source, str(len(found.claims)), paces])
    return table(["scenario", "what happens", "source", "claims", "keys at each pace"], rows, [3])


def claim_list(_: Path) -> str:
    """Every claim of every scenario, by its id. A control's claims are its scenario's."""
    rows = [
        [f"`{found.id}`", f"`{claim.id}`", claim.statement, claim.bound]
        for found in scenarios.catalogue().values()
        if not found.refutes
        for claim in found.claims
    ]
    return table(["scenario", "claim", "what is claimed", "bound"], rows)


def incidents(records: Records) -> str:
    """Every incident with its headline claim as its record measured it. Raises `UsageError` where one has no record."""
    wanted = [scenario.id for scenario in scenarios.catalogue().values() if not scenario.refutes]
    views = [records.view(name) for name in wanted]
    commands = dict.fromkeys(s.facts.command.replace(f" {s.facts.scenario} ", " ID ") for s in views)
    places = dict.fromkeys(machine(view.facts) for view in views)
    head = f"Measured by {', '.join(f'`{command}`' for command in commands)} on {'; '.join(places)}:"
    titles = ["scenario", "symptom", "cause", "claim", "measured", "claims"]
    return f"{head}\n\n{table(titles, [_incident(view) for view in views])}"


def _incident(view: RunView) -> list[str]:
    found, headline = scenarios.find(view.facts.scenario), view.headline
    if headline is None:
        raise UsageError(f"{found.id} names no claim of its own as its headline.")
    not_so = headline["holds"] is view.control  # a control's claim should not hold
    return [
        f"`{found.id}`",
        found.symptom,
        found.cause,
        f"{headline['statement']}: {headline['bound']}",
        headline["measured"] + (f" ({outcome(headline['holds'], view.control)})" if not_so else ""),
        tally((view.result or {})["claims"], view.control),
    ]


def server_list(_: Path) -> str:
    """Every server: where it runs, claims that it cannot answer, and scenarios that cannot be run on it."""
    rows = []
    for server in SERVERS.values():
        stacks = "native, compose" if server.in_compose else "native"
        cannot = [f"`{claim}`: {why}" for claim, why in server.cannot.items()]
        incidents = [scenario for scenario in scenarios.catalogue().values() if not scenario.refutes]
        unfit = [
            f"`{scenario.id}`: {why}"
            for scenario in incidents
            if (why := server.unfit_for(scenario.server_settings))
        ]
        rows.append([f"`{server.name}`", stacks, server.install, "; ".join(cannot), "; ".join(unfit)])
    headings = [
        "`--server`",
        "`--stack`",
        "if it is missing",
        "claims it cannot answer",
        "scenarios it cannot run",
    ]
    return table(headings, rows)


# --- the command line


@cache
def commands() -> dict[str, Any]:
    """Every command of `bin/lab` by its words, groups resolved: ``run``, ``blind start`` and so on."""
    from lab.cli import build

    return dict(_flat(typer.main.get_command(build()), ()))


def _flat(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for name, part in inner.items():
        yield from _flat(part, (*words, name))


def option_list(_: Path) -> str:
    """Every command with its arguments and options."""
    parts = []
    for name, command in commands().items():
        parts.append(f"**`{' '.join(['bin/lab', name, *_arguments(command)])}`** {_sentence(command.help)}")
        if rows := _rows(command):
            parts.append(table(["", "", "if left out"], rows))
    return "\n\n".join(parts)


def options(words: list[str]) -> str:
    """The arguments and options of one command."""
    known, name = commands(), " ".join(words)
    if name not in known:
        raise UsageError(f"there is no command {name!r}; {nearest(name, list(known))}")
    return table(["", "", "if left out"], _rows(known[name]))


def _arguments(command: Any) -> list[str]:
    return [_name(p) for p in command.params if p.param_type_name == "argument"]


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _rows(command: Any) -> list[list[str]]:
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            rows.append(
                [f"`{_name(parameter)}`", _sentence(parameter.help), "needed" if parameter.required else ""]
            )
            continue
        takes = "" if parameter.is_flag else f" {_name(parameter)}"
        usual = parameter.default
        left_out = "" if usual in (None, False, (), "") or callable(usual) else f"`{usual}`"
        rows.append([f"`{'`, `'.join(parameter.opts)}{takes}`", _sentence(parameter.help), left_out])
    return rows


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def targets(root: Path) -> dict[str, str]:
    """The verbs of the Makefile, with what they do."""
    found = re.findall(r"^([a-z-]+):[^\n#]*## (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    return dict(found)


def target_list(root: Path) -> str:
    """Every verb of the Makefile."""
    return table(["", ""], [[f"`make {name}`", text] for name, text in targets(root).items()])


# --- modules and settings


def _module_lines(root: Path, folder: str, wanted: Callable[[str, str], bool]) -> list[list[str]]:
    rows = []
    for path in sorted((root / folder).glob("*.py")):
        source = path.read_text()
        if wanted(path.stem, source):
            rows.append(
                [path.stem, first_sentence((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0])]
            )
    return rows


def strategies(root: Path) -> dict[str, str]:
    """The invalidation strategies by name, with what each does."""
    rows = _module_lines(root, "app/strategies", lambda stem, _: not stem.startswith("_"))
    return {stem.replace("_", "-"): text.split(": ", 1)[-1] for stem, text in rows}


def strategy_list(root: Path) -> str:
    """Every strategy."""
    return table(
        ["strategy", "what it does"], [[f"`{name}`", text] for name, text in strategies(root).items()]
    )


def loads(root: Path) -> dict[str, str]:
    """The loads that are processes of their own, by module."""
    rows = [
        (f"{folder}.{stem}".replace("/", ".").removesuffix(".__main__"), text)
        for folder in ("loadtest", "loadtest/probe", "loadtest/incidents")
        for stem, text in _module_lines(
            root, folder, lambda stem, source: "__main__" in source or "from locust import events" in source
        )
    ]
    return dict(rows)


def load_list(root: Path) -> str:
    """Every load."""
    return table(["load", "what it is"], [[f"`{name}`", text] for name, text in loads(root).items()])


def settings(root: Path) -> dict[str, tuple[str, str]]:
    """The variables of .env: value and comment, its own or that of the variables right above it."""
    found: dict[str, tuple[str, str]] = {}
    text: list[str] = []
    fresh = True
    for line in (root / ".env").read_text().splitlines():
        if line.startswith("# ---") or not line.strip():
            text, fresh = [], True
        elif line.startswith("#"):
            text, fresh = ([] if fresh else text) + [line[1:].strip()], False
        elif "=" in line:
            name, _, value = line.partition("=")
            found[name] = value, " ".join(text)
            fresh = True
    return found


def setting_list(root: Path) -> str:
    """Every variable of .env."""
    rows = [
        [f"`{name}`", f"`{value}`" if value else "", text] for name, (value, text) in settings(root).items()
    ]
    for i in range(len(rows) - 1, 0, -1):  # one comment above several variables is shown once
        if rows[i][2] == rows[i - 1][2]:
            rows[i][2] = ""
    return table(["variable", "as it comes", ""], rows)


# --- the scene


@cache
def dashboards(root: Path) -> list[dict[str, Any]]:
    """The dashboards as Grafana gets them, sorted by title."""
    found = [json.loads(path.read_text()) for path in (root / "grafana/dashboards").glob("*.json")]
    return sorted(found, key=lambda board: str(board["title"]))


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of a dashboard that show something, those in rows included."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panels(panel)
        elif panel.get("title"):
            yield panel


def dashboard_title(board: dict[str, Any]) -> str:
    """A dashboard's title without the number that sorts it."""
    return re.sub(r"^\d+ ", "", str(board["title"]))


def dashboard_list(root: Path) -> str:
    """Every dashboard, its photograph if `make pictures` took one, and what each of its panels is for."""
    parts = []
    for board in dashboards(root):
        parts.append(f"## {dashboard_title(board)}\n\n{board['description']}")
        picture = f"docs/pictures/{board['uid']}.png"
        if (root / picture).is_file():
            parts.append(f"![The dashboard in a running scene](../{picture})")
        rows = [[f"*{p['title']}*", first_sentence(p.get("description", ""))] for p in panels(board)]
        parts.append(table(["panel", ""], rows))
    return "\n\n".join(parts)


def alerts(root: Path) -> list[dict[str, Any]]:
    """The alert rules."""
    groups = yaml.safe_load((root / "prometheus/rules/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def alert_list(root: Path) -> str:
    """Every alert, what it says, and the page on which the search for the cause begins."""
    rows = []
    for rule in alerts(root):
        notes = rule["annotations"]
        text = re.sub(r"\s*on \{\{.*?\}\}|\s*for \{\{.*?\}\}", "", notes["summary"])
        link = notes["runbook_url"].removeprefix("workshop/")
        rows.append([f"`{rule['alert']}`", text, rule["labels"]["severity"], f"[{link}]({link})"])
    return table(["alert", "says", "severity", "begin at"], rows)


# --- machines


def right_list(_: Path) -> str:
    """Return the least rights with which a run on a foreign server reaches its verdict."""
    return "```text\n" + "\n    ".join(textwrap.wrap(ACL, 120, break_on_hyphens=False)) + "\n```\n"


LISTS: dict[str, Callable[[Path], str]] = {
    "rights": right_list,
    "scenarios": scenario_list,
    "claims": claim_list,
    "servers": server_list,
    "options": option_list,
    "targets": target_list,
    "strategies": strategy_list,
    "loads": load_list,
    "settings": setting_list,
    "dashboards": dashboard_list,
    "alerts": alert_list,
    **frompredict.LISTS,
    **fromscene.LISTS,
    **fromservers.LISTS,
}

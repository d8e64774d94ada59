"""Names that are documented but gone. What exists is in workshop/reference.md, which is made from the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docs.pages import fromcode
from lab import scenarios
from lab.server.servers import SERVERS, STACKS
from tests.docs.pagekit import ROOT, Page

SHOWN = ("lab/report", "console", "lab/scenarios", "lab/claims", "grafana/dashboards")
"""Folders with the words that a report, the console or a dashboard shows."""
SOURCES = (
    "app",
    "lab",
    "loadtest",
    "bench",
    "bin",
    "grafana",
    "prometheus",
    "tempo",
    "tests",
    "workshop",
    "docs",
    "deploy",
)
CODE = (".py", ".json", ".yml", ".yaml", ".j2", ".html", ".js", "")
OTHERS = ("PIP_", "COMPOSE_", "DOCKER_", "HTTP_", "HTTPS_", "LC_")
"""Prefixes of other programs' variables."""
KINDS = ("dashboard", "dashboards", "panel", "panels", "claim")
"""Words that say what kind of title follows in italics."""
PLACEHOLDER = re.compile(r"\$?[A-Z][A-Z0-9_.]*|\.\.\.|…")
"""ID, DIR, $SERVER: the reader puts a value in its place."""


def gone(page: Page, root: Path = ROOT) -> list[str]:
    """Commands, options, targets, files, variables and titles that a page names but that do not exist."""
    found: list[str] = []
    written = [(number, snippet) for number, snippet in page.snippets if number not in page.generated]
    code = written + [(t.line + 1, line) for t in page.typed for line in t.commands]
    for number, snippet in code:
        found += [
            f"{page.name}:{number}: {words}" for words in [*wrong_line(snippet), *_names(snippet, root)]
        ]
    for number, title, before in page.italics:
        if words := _title(title, before, root):
            found.append(f"{page.name}:{number}: {words}")
    return found


def wrong_line(snippet: str) -> Iterator[str]:
    """Yield what is wrong with a command or an option: an unknown target of make, command, scenario or option."""
    for target in re.findall(r"(?:^|[\s;&|])make ([a-z][a-z-]*)", f" {snippet}"):
        if target not in fromcode.targets(ROOT):
            yield f"there is no target make {target}"
    snippet = re.sub(r" \d>&\d", "", snippet)  # the shell's own: no argument
    call = re.search(r"(?:^|[\s;&|(])(?:bin/)?lab ((?:\"[^\"]*\"|[^;&|)<>])*)", f" {snippet}")
    if call:
        yield from wrong_call(call[1])
    elif re.fullmatch(r"--[a-z-]+(?: \S+)?", snippet):
        options = {o for c in fromcode.commands().values() for p in c.params for o in p.opts}
        if snippet.split()[0] not in options:
            yield f"no command has the option {snippet.split()[0]}"


def wrong_call(arguments: str) -> Iterator[str]:
    """Yield what is wrong with a call of `bin/lab`: an unknown command, scenario or option, or too many arguments."""
    try:
        words = [word for word in shlex.split(arguments) if word not in ("...", "…")]
    except ValueError:
        words = arguments.split()
    known = fromcode.commands()
    if not words or words[0].startswith("-"):
        return
    size = 2 if " ".join(words[:2]) in known else 1
    name, rest = " ".join(words[:size]), words[size:]
    if name not in known:
        if any(command.startswith(f"{name} ") for command in known):
            if not rest or PLACEHOLDER.fullmatch(rest[0]):
                return
            name = " ".join(words[:2])
        if not PLACEHOLDER.fullmatch(name):
            yield f"there is no command bin/lab {name}"
        return
    if name == "load":
        yield from _wrong_load(*rest)
        return
    options = {opt: p for p in known[name].params if p.param_type_name == "option" for opt in p.opts}
    at = 0
    plain: list[str] = []
    while at < len(rest):
        option, _, inline = rest[at].partition("=")
        if option.startswith("--"):
            if option not in options and option != "--help":
                yield f"bin/lab {name} has no option {option}"
                return
            takes = option in options and not options[option].is_flag and not inline
            value = rest[at + 1] if takes and at + 1 < len(rest) else inline
            yield from _wrong_value(option, value)
            at += takes
        else:
            plain.append(rest[at])
        at += 1
    if (
        name == "run"
        and plain
        and plain[0] not in ("all", *scenarios.catalogue())
        and not PLACEHOLDER.fullmatch(plain[0])
    ):
        yield f"there is no scenario {plain[0]}"
    arguments_taken = [p for p in known[name].params if p.param_type_name == "argument"]
    if len(plain) > len(arguments_taken) and not any(p.nargs < 0 for p in arguments_taken):
        yield f"bin/lab {name} takes {len(arguments_taken)} arguments, not {len(plain)}"


def _wrong_load(name: str = "NAME", *words: str) -> Iterator[str]:
    """Yield an unknown load, and options that it does not have: they are the fields of its dataclass."""
    source = ROOT / "loadtest" / "incidents" / f"{name}.py"
    if not source.is_file():
        if not PLACEHOLDER.fullmatch(name):
            yield f"there is no load {name}"
        return
    fields = source.read_text(encoding="utf-8")
    for word in words:
        if word.startswith("--") and f"    {word[2:].replace('-', '_')}: " not in fields:
            yield f"bin/lab load {name} has no option {word}"


def _wrong_value(option: str, value: str) -> Iterator[str]:
    paces = {pace for scenario in scenarios.catalogue().values() for pace in scenario.paces}
    known = {"--pace": paces, "--server": {*SERVERS, "all"}, "--stack": set(STACKS)}
    if value and option in known and value not in known[option] and not PLACEHOLDER.fullmatch(value):
        yield f"{option} cannot be {value}"


def _names(snippet: str, root: Path) -> Iterator[str]:
    for path in re.findall(rf"(?<![\w/.:-])((?:{'|'.join(SOURCES)})/[\w./*-]*)", snippet):
        if not list(root.glob(path.rstrip("/").rstrip("."))) and not re.search(r"/[A-Z]+(/|$)", path):
            yield f"there is no {path}"
    for module in re.findall(r"-m ((?:app|lab|loadtest|bench|grafana)[\w.]*)", snippet):
        place = root / module.replace(".", "/")
        if not place.with_suffix(".py").is_file() and not (place / "__main__.py").is_file():
            yield f"there is no module {module}"
    for variable in re.findall(r"(?<![\w/.$-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?![\w(])", snippet):
        if variable not in _source(root) and not variable.startswith(OTHERS):
            yield f"nothing reads {variable}"
    if re.fullmatch(r"(?:[A-Z][a-z]+){3,}", snippet) and snippet not in _source(root):
        yield f"there is no {snippet}"


@cache
def _titles(root: Path) -> dict[str, list[str]]:
    """Titles of dashboards and of panels."""
    boards = fromcode.dashboards(root)
    return {
        "dashboard": [fromcode.dashboard_title(board) for board in boards],
        "panel": [panel["title"] for board in boards for panel in fromcode.panels(board)],
    }


def _title(title: str, before: str, root: Path) -> str:
    kind = before.removesuffix("s")
    if kind in ("dashboard", "panel"):
        known = _titles(root)[kind]
    elif before == "claim":
        statements = [claim.statement for s in scenarios.catalogue().values() for claim in s.claims]
        known = [title] if any(statement.startswith(title) for statement in statements) else []
    elif title[:1].isupper():
        known = [title] if _plain(title) in _shown(root) else []
    else:
        return ""
    return "" if title in known else f"no {before if before in KINDS else 'title'} is called *{title}*"


@cache
def _shown(root: Path) -> str:
    return _plain("\n".join(path.read_text() for folder in SHOWN for path in _files(root / folder)))


@cache
def _source(root: Path) -> str:
    whole = [path.read_text() for folder in SOURCES[:8] for path in _files(root / folder)]
    return "\n".join([*whole, *((root / n).read_text() for n in (".env", "compose.yaml", "Makefile"))])


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in CODE]


def _plain(text: str) -> str:
    """A source's text as it is shown: adjacent strings joined, quotation marks made alike."""
    joined = re.sub(r"\"\s*\n\s*f?\"", "", text)
    return re.sub(r"\s+", " ", joined.replace("’", "'").replace("\\u2019", "'"))

"""Searches everything that a participant of a blind session can read for a name of its cause.

It reads arguments, environments and thread names of all processes, every endpoint of the storefront and its helpers,
every file of the session (the database too), what was printed, and what the session answers. It does not read what the
server itself says of its commands: that is behaviour, which a participant is meant to read.
"""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import psutil

from lab.blind.causes import CAUSES
from lab.blind.session import Session
from lab.errors import LabError
from lab.server.http import Http

Sources = dict[str, str]
"""Name of a source → its text."""

ENDPOINTS = ("/metrics", "/settings/invalidation", "/settings/warming", "/readyz", "/load")
ANSWERS = ("users", "processes")


def _processes(session: Session) -> list[tuple[str, psutil.Process]]:
    """Every process of the scene and its children, with the scene's name for it."""
    found = []
    for name, pid in session.stack.pids().items():
        process = psutil.Process(pid)
        found += [(name, each) for each in (process, *process.children(recursive=True))]
    return found


def _threads(process: psutil.Process) -> list[str]:
    """Names of a process's threads, where the system lists them under /proc."""
    tasks = Path(f"/proc/{process.pid}/task")
    return [path.read_text().strip() for path in tasks.glob("*/comm")] if tasks.is_dir() else []


def gather(session: Session, printed: list[str]) -> Sources:
    """Read every source of a running session. `printed`: the lines that the session printed."""
    sources = {"printed": "\n".join(printed)}
    for name, process in _processes(session):
        sources[f"arguments of {name} {process.pid}"] = " ".join([process.name(), *process.cmdline()])
        sources[f"environment of {name} {process.pid}"] = repr(process.environ())
        sources[f"threads of {name} {process.pid}"] = " ".join(_threads(process))
    stack = session.stack
    for client in (stack.web, stack.invalidator, stack.locust):
        for path in ENDPOINTS:
            sources[f"{client.name} {path}"] = _page(client, path)
    for file in sorted(session.folder.rglob("*")):
        path = str(file.relative_to(session.folder.parent))
        content = file.read_bytes().decode("latin-1") if file.is_file() else ""
        sources[f"file {path}"] = f"{path}\n{content}"
    for what in ANSWERS:
        try:
            sources[f"look {what}"] = session.reply({"verb": "look", "what": what})
        except LabError as error:
            sources[f"look {what}"] = str(error)
    return sources


def _page(client: Http, path: str) -> str:
    """The text of a GET's answer, also of a refusal; empty if none comes, as from a storefront without a connection."""
    try:
        return httpx.get(client.base_url + path, timeout=10.0, trust_env=False).text
    except httpx.HTTPError:
        return ""


def leaks(sources: Sources) -> list[str]:
    """The sources in which a cause's name stands, in any spelling; empty if the session is sealed."""
    names = [word for cause in CAUSES.values() for word in cause.words]
    pattern = re.compile("|".join(re.escape(name).replace(r"\-", "[-_ ]?") for name in names), re.IGNORECASE)
    return [
        f"{where}: {found.group(0)!r}" for where, text in sources.items() for found in pattern.finditer(text)
    ]


def outline(session: Session) -> dict[str, list[str]]:
    """Return the parts that must be the same under every cause: processes, arguments, files, metrics and so on.

    Numbers (ports, ids) and the session's folder are left out: they differ between two starts of the same cause.
    """
    folder = str(session.folder)
    processes = set()
    for name, process in _processes(session):
        variables = sorted(f"{key}={value}" for key, value in process.environ().items())
        processes.add(f"{name}: {' '.join(process.cmdline())} [{' '.join(variables)}]")
    files = {str(path.relative_to(session.folder)) for path in session.folder.rglob("*")}
    metrics = {
        line.split()[2]
        for client in (session.stack.web, session.stack.invalidator)
        for line in client.text("/metrics").splitlines()
        if line.startswith("# TYPE")
    }
    settings = [_page(session.stack.web, "/settings/invalidation")]
    parts = {"processes": processes, "files": files, "metrics": metrics, "settings": settings}
    return {
        part: sorted(alike(text.replace(folder, "FOLDER")) for text in texts) for part, texts in parts.items()
    }


def alike(text: str) -> str:
    """The text with numbers replaced by N and blanks collapsed (a server pads a title that names its port)."""
    return re.sub(r"\s+", " ", re.sub(r"\d+", "N", text))

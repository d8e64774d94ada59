"""Every scenario on every server: tables from docs/servers.json. `make docs RUNS=DIR` takes the matrix of DIR into it.

A matrix is what `bin/lab run all --servers` writes (`lab.runner.matrix`). The file has its shape, but a server is named
by its product and version there, and a program by its name alone, since its folder is nobody else's. So several
matrices stand side by side: of several versions, or of several days. A cell that is taken again takes the place of the
former one, and each server has the commands that made its cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table
from lab.claims import wording
from lab.errors import HOLDS, UsageError
from lab.report import matrix
from lab.report.tables import Table
from lab.results.folder import write_json

FILE = Path("docs/servers.json")
MATRIX = "matrix.json"
NOT_YET = "Not measured yet: `bin/lab run all --pace quick --servers NAME,NAME --out DIR`, then `make docs RUNS=DIR`."
ABOUT = ("pace", "started", "host")
"""What a matrix says of all its servers, and the file of each."""
SAME = ("pace", "host")
"""What the cells of a server have in common."""
HOST = ("processor", "cores")
FOLDER = re.compile(r"(--server-path '?[^=\s]+=)(?:[^\s']*/)?")
"""What stands before the name of a program: NAME= and its folder."""
OWN_NAME, COLUMN = re.compile(r"(?<= on )(.+)( is left out: )\w+-\S+ has no "), r"\1\2\1 has no "
"""A server's name with a label, which only the command of the matrix knew; and that of its column in its place."""


def load(root: Path) -> dict[str, Any]:
    """What was kept: servers, and scenarios with a cell for each server. Empty lists where nothing was."""
    path = root / FILE
    found: dict[str, Any] = {"servers": [], "scenarios": []}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else found


def take(folder: Path, root: Path) -> Path:
    """Take the matrix of a folder into docs/servers.json; return its path.

    Raises `UsageError`, and takes nothing, where the matrix is not whole, a server of it told no product, two told the
    same product and options, or a server has other cells of another machine or pace.
    """
    found = json.loads((folder / MATRIX).read_text(encoding="utf-8"))
    if found["interrupted"] or found["not_run"]:
        raise UsageError(f"{folder} was interrupted, so it is no whole matrix: run its command again.")
    names = {server["name"]: server["product"] for server in found["servers"]}
    if nameless := [name for name, product in names.items() if not product]:
        raise UsageError(f"no run on {nameless[0]} told the server's version: see its summary in {folder}.")
    if len(set(names.values())) < len(names):
        raise UsageError(
            f"two servers of {folder} are the same product with the same options: leave one of them out."
        )
    kept = load(root)
    rows = {row["id"]: row for row in kept["scenarios"]}
    about = {key: found[key] for key in ABOUT} | {"host": {key: found["host"][key] for key in HOST}}
    taken = {row["id"] for row in found["scenarios"]}
    command = FOLDER.sub(r"\1", found["command"])
    servers = {server["name"]: server for server in kept["servers"]}
    for name in names.values():
        others = [row["cells"].get(name) for row in rows.values() if row["id"] not in taken]
        former = servers[name] if any(others) else None
        if former and any(former[key] != about[key] for key in SAME):
            raise UsageError(
                f"{name} has cells of another machine or pace in {FILE}: take a matrix of all scenarios first."
            )
        commands = [old for old in former["commands"] if old != command] if former else []
        servers[name] = {"name": name, **about, "commands": [*commands, command]}
    for row in found["scenarios"]:
        cells = rows[row["id"]]["cells"] if row["id"] in rows else {}
        for name, cell in row["cells"].items():
            cells[names[name]] = cell and {key: value for key, value in cell.items() if key != "report"}
        rows[row["id"]] = row | {"cells": cells}
    for row in rows.values():
        row["cells"] = {name: row["cells"].get(name) for name in servers}
    write_json(root / FILE, {"servers": list(servers.values()), "scenarios": list(rows.values())})
    return root / FILE


def block(told: Callable[[dict[str, Any]], str]) -> Callable[[Path], str]:
    """Return a block that tells what was kept, or by which command it would be."""

    def text(root: Path) -> str:
        kept = load(root)
        return told(kept) if kept["servers"] else NOT_YET

    return text


def _shown(found: Table) -> str:
    return table(found.headings, found.rows, sorted(found.figures))


def _products(kept: dict[str, Any]) -> str:
    """A row for each server: how its runs ended, the commands that made its cells, the machine and the day."""
    rows = [
        [
            server["name"],
            _verdict(server["name"], kept),
            "; ".join(f"`{command}`" for command in server["commands"]),
            f"{server['host']['cores']} cores of {server['host']['processor']}",
            f"{datetime.fromisoformat(server['started']):%Y-%m-%d}",
        ]
        for server in kept["servers"]
    ]
    return table(["server", "its runs", "command", "machine", "day"], rows)


def _verdict(server: str, kept: dict[str, Any]) -> str:
    """How the runs on a server ended, in a sentence."""
    cells = [cell for row in kept["scenarios"] if (cell := row["cells"][server]) and "exit_code" in cell]
    return wording.series(sum(cell["exit_code"] == HOLDS for cell in cells), len(cells), len(cells), False)


def _reasons(kept: dict[str, Any]) -> str:
    """Which claims ended otherwise than promised, and why a scenario is not applicable: once for each reason."""
    said = [f"- {OWN_NAME.sub(COLUMN, line)}" for line in matrix.reasons(kept)]
    return "\n".join(said) if said else "Every claim ended as promised, and no scenario was left out."


LISTS: dict[str, Callable[[Path], str]] = {
    "servers run": block(_products),
    "servers outcomes": block(lambda kept: _shown(matrix.outcomes(kept))),
    "servers headlines": block(lambda kept: _shown(matrix.headlines(kept))),
    "servers costs": block(lambda kept: _shown(matrix.costs(kept))),
    "servers reasons": block(_reasons),
}

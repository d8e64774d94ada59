"""The matrix of scenario × server, from what matrix.json holds: its tables, and the page."""

from __future__ import annotations

from typing import Any

from lab import scenarios
from lab.claims.wording import sign
from lab.errors import HOLDS, INTERRUPTED
from lab.report.page import fill
from lab.report.summary import SIGNS, minutes
from lab.report.tables import Table, started
from lab.results.numbers import UNKNOWN, us

LEFT_OUT = "not applicable"


def verdict(content: dict[str, Any]) -> str:
    """The verdict over all servers, in a sentence."""
    done = [
        cell for row in content["scenarios"] for cell in row["cells"].values() if cell and "exit_code" in cell
    ]
    good = sum(cell["exit_code"] == HOLDS for cell in done)
    said = (
        f"{good} of {len(done)} runs on {len(content['servers'])} servers ended as their scenarios promise."
    )
    return f"Interrupted. {said}" if content["exit_code"] == INTERRUPTED else said


def cell_text(cell: dict[str, Any] | None) -> str:
    """A run in a few words: its sign and verdict; that it cannot be run on this server; a dash if it was not run."""
    if cell is None:
        return UNKNOWN
    if "left_out" in cell:
        return LEFT_OUT
    return f"{sign(cell['holds'], '?')} {cell['verdict']}"


def outcomes(content: dict[str, Any]) -> Table:
    """A row for each scenario, a column for each server."""
    names = [server["name"] for server in content["servers"]]
    rows = [[row["id"], *(cell_text(row["cells"][name]) for name in names)] for row in content["scenarios"]]
    return Table("Each scenario on each server", ["scenario", *names], rows)


def costs(content: dict[str, Any]) -> Table:
    """What a visited key costs the main thread, as each run's calibration found it.

    It is the execution time that the server counts; where that is incomplete, as on KeyDB, its CPU time. Scenarios
    whose nodes are held to a share of a core are left out: there that time includes the time in which a node was held.
    """
    names = [server["name"] for server in content["servers"]]
    held = {scenario.id for scenario in scenarios.catalogue().values() if scenario.node_share}
    rows = []
    for row in content["scenarios"]:
        if row["id"] in held:
            continue
        found = [(row["cells"][name] or {}).get("visited_key_us") for name in names]
        if any(value is not None for value in found):
            rows.append([row["id"], *(us(value) for value in found)])
    return Table(
        "The main thread's time for a visited key, as calibrated before each run",
        ["scenario", *names],
        rows,
        figures=frozenset(range(1, len(names) + 1)),
    )


def products(content: dict[str, Any]) -> Table:
    """The servers by name, with product and version as they told it, and how their series ended."""
    rows = [
        [
            server["name"],
            server["product"] or UNKNOWN,
            f"{SIGNS.get(server['exit_code'], '?')} {server['verdict']}",
            minutes(server["seconds"]),
        ]
        for server in content["servers"]
    ]
    return Table("The servers", ["name", "product and version", "verdict", "time"], rows)


def headlines(content: dict[str, Any]) -> Table:
    """What each headline claim measured. It tells the causes."""
    names = [server["name"] for server in content["servers"]]
    rows = []
    for row in content["scenarios"]:
        found = [row["cells"][name] or {} for name in names]
        statement = next((cell["headline"]["statement"] for cell in found if cell.get("headline")), UNKNOWN)
        rows.append([row["id"], statement, *(cell.get("said") or UNKNOWN for cell in found)])
    return Table("Each headline claim, and what was measured", ["scenario", "claim", *names], rows)


def reasons(content: dict[str, Any]) -> list[str]:
    """Why scenarios were left out on a server, and which claims of valid runs ended not as promised.

    The ids of claims tell causes.
    """
    said = []
    for row in content["scenarios"]:
        for name, cell in row["cells"].items():
            if cell and "left_out" in cell:
                said.append(f"{row['id']} on {name} is left out: {cell['left_out']}.")
            elif cell and cell["holds"] is False and row["refutes"]:
                said.append(
                    f"{row['id']} on {name}: claims hold without the cause: {', '.join(cell['held'])}."
                )
            elif cell and cell["holds"] is False:
                said.append(f"{row['id']} on {name}: refuted are {', '.join(cell['refuted'])}.")
    return said


def render(content: dict[str, Any], spoilers: bool = False) -> str:
    """The page as HTML, from what matrix.json holds. What tells a cause is folded unless `spoilers` is given."""
    return fill(
        "matrix.html.j2",
        {},
        content=content,
        spoilers=spoilers,
        sign=SIGNS.get(content["exit_code"], "?"),
        verdict=verdict(content),
        outcomes=outcomes(content),
        costs=costs(content),
        products=products(content),
        headlines=headlines(content),
        reasons=reasons(content),
        minutes=minutes,
        started=started,
    )

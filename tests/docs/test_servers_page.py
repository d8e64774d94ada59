"""The tables of docs/servers.md: what is taken from a matrix, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromservers
from docs.pages.__main__ import taken
from lab.errors import UsageError


def cell(holds: bool, said: str) -> dict[str, Any]:
    """A run of a matrix that reached its verdict."""
    return {
        "exit_code": 0 if holds else 1,
        "holds": holds,
        "verdict": "all 2 hold" if holds else "1 of 2 refuted",
        "said": said,
        "headline": {"id": "climbs", "statement": "p99 climbs"},
        "refuted": [] if holds else ["climbs"],
        "held": ["climbs"] if holds else [],
        "not_applicable": [],
        "visited_key_us": 0.25 if holds else 0.5,
        "report": "embedded/key-growth/report.html",
    }


def written(folder: Path, products: dict[str, str], said: str = "20 ×", **more: Any) -> Path:
    """Write the matrix of a run in which the first server's claims hold and the others' do not; return its folder."""
    folder.mkdir()
    content = {
        "command": f"bin/lab run all --pace quick --servers {','.join(products)} --seed 1",
        "pace": "quick",
        "started": "2026-11-26T10:00:00+00:00",
        "host": {"processor": "a processor", "cores": 2, "name": "somebody's machine"},
        "servers": [
            {
                "name": name,
                "product": product,
                "exit_code": 0,
                "verdict": "1 of 1",
                "seconds": 60.0,
                "summary": f"{name}/summary.html",
            }
            for name, product in products.items()
        ],
        "not_run": [],
        "scenarios": [
            {
                "id": "key-growth",
                "title": "t",
                "symptom": "s",
                "refutes": None,
                "cells": {name: cell(place == 0, said) for place, name in enumerate(products)},
            }
        ],
        "interrupted": False,
    }
    (folder / "matrix.json").write_text(json.dumps(content | more))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty project."""
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_a_server_is_named_by_its_version(root: Path) -> None:
    """Each table has a column or a row for each product, and nothing of the machine but its processor."""
    assert taken(root, written(root / "m", {"embedded": "valkey 9.1.2", "redis": "redis 7.0.15"})) == [
        root / "docs/servers.json"
    ]
    tables = {name: told(root) for name, told in fromservers.LISTS.items()}
    assert "| scenario | valkey 9.1.2 | redis 7.0.15 |" in tables["servers outcomes"]
    assert "| key-growth | ✓ all 2 hold | ✗ 1 of 2 refuted |" in tables["servers outcomes"]
    assert "| key-growth | p99 climbs | 20 × | 20 × |" in tables["servers headlines"]
    assert "| key-growth | 0.250 µs | 0.500 µs |" in tables["servers costs"]
    assert "refuted are climbs" in tables["servers reasons"]
    assert "valkey" not in tables["servers reasons"]
    first = "bin/lab run all --pace quick --servers embedded,redis --seed 1"
    assert f"| redis 7.0.15 | 0 of 1 runs are as promised. | `{first}` |" in tables["servers run"]
    assert "somebody" not in (root / "docs/servers.json").read_text()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("redis-8=/home/somebody/bin/redis-server", "redis-8=redis-server"),
        ("redis-8=redis-server", "redis-8=redis-server"),
        (
            "'dragonfly-2=../some/dragonfly --proactor_threads=2'",
            "'dragonfly-2=dragonfly --proactor_threads=2'",
        ),
    ],
)
def test_a_program_is_named_without_its_folder(root: Path, given: str, shown: str) -> None:
    """The folder is one of the machine that ran the matrix."""
    command = f"bin/lab run all --pace quick --servers embedded,redis --server-path {given} --seed 1"
    fromservers.take(
        written(root / "m", {"embedded": "valkey 9.1.2", "redis": "redis 8"}, command=command), root
    )
    assert f"`{command.replace(given, shown)}`" in fromservers.LISTS["servers run"](root)


def test_another_version_stands_beside_the_first(root: Path) -> None:
    """The same name with another version is another server; the same version takes the former's place."""
    fromservers.take(written(root / "one", {"embedded": "valkey 9.1.2", "redis": "redis 7.0.15"}), root)
    fromservers.take(
        written(root / "two", {"redis": "redis 8.2.1", "embedded": "valkey 9.1.2"}, "30 ×"), root
    )
    outcomes = fromservers.LISTS["servers headlines"](root)
    assert "| scenario | claim | valkey 9.1.2 | redis 7.0.15 | redis 8.2.1 |" in outcomes
    assert "| key-growth | p99 climbs | 30 × | 20 × | 30 × |" in outcomes
    assert fromservers.load(root)["servers"][0]["commands"] == [
        "bin/lab run all --pace quick --servers redis,embedded --seed 1"
    ]


def test_a_scenario_that_one_matrix_did_not_have_was_not_run(root: Path) -> None:
    """Its cell is a dash."""
    fromservers.take(written(root / "one", {"embedded": "valkey 9.1.2", "redis": "redis 7.0.15"}), root)
    two = written(root / "two", {"dragonfly": "dragonfly 1.40.1", "keydb": "keydb 6.3.4"})
    content = json.loads((two / "matrix.json").read_text())
    content["scenarios"][0]["id"] = "shards"
    (two / "matrix.json").write_text(json.dumps(content))
    fromservers.take(two, root)
    assert "| shards | – | – | ✓ all 2 hold | ✗ 1 of 2 refuted |" in fromservers.LISTS["servers outcomes"](
        root
    )


def test_a_server_that_was_held_has_no_cost_of_a_key(root: Path) -> None:
    """The nodes of `shards` are held to a share of a core, and the server's clock goes on. Older records have it."""
    fromservers.take(written(root / "all", PRODUCTS), root)
    fromservers.take(of_shards(root / "one"), root)
    assert fromservers.load(root)["scenarios"][1]["cells"]["valkey 9.1.2"]["visited_key_us"] == 0.25
    told = fromservers.LISTS["servers costs"](root)
    assert "| key-growth |" in told
    assert "| shards |" not in told


PRODUCTS = {"embedded": "valkey 9.1.2", "redis": "redis 7.0.15"}
AGAIN = "bin/lab run shards --pace quick --servers embedded,redis --seed 1"


def of_shards(folder: Path, **more: Any) -> Path:
    """Write a matrix that has the scenario shards alone; return its folder."""
    written(folder, PRODUCTS, "3 ×", command=AGAIN, **more)
    content = json.loads((folder / "matrix.json").read_text())
    content["scenarios"][0]["id"] = "shards"
    (folder / "matrix.json").write_text(json.dumps(content))
    return folder


def test_a_reason_names_the_column(root: Path) -> None:
    """The name with a label is known to the command of the matrix alone."""
    folder = written(
        root / "m", {"dragonfly": "dragonfly 1.40.1", "dragonfly-2": "dragonfly 1.40.1 --threads=2"}
    )
    content = json.loads((folder / "matrix.json").read_text())
    for name, reason in content["scenarios"][0]["cells"].items():
        reason.clear()
        reason["left_out"] = f"{name} has no cluster-enabled: it has another one"
    (folder / "matrix.json").write_text(json.dumps(content))
    fromservers.take(folder, root)
    assert fromservers.LISTS["servers reasons"](root).splitlines() == [
        "- key-growth on dragonfly 1.40.1 is left out: dragonfly has no cluster-enabled: it has another one.",
        "- key-growth on dragonfly 1.40.1 --threads=2 is left out: dragonfly 1.40.1 --threads=2 has no "
        "cluster-enabled: it has another one.",
    ]


def test_one_scenario_taken_again_leaves_the_other_cells(root: Path) -> None:
    """Each server is told with the commands of all its cells."""
    fromservers.take(written(root / "all", PRODUCTS), root)
    for folder in ("one", "two"):
        fromservers.take(of_shards(root / folder), root)
    tables = {name: told(root) for name, told in fromservers.LISTS.items()}
    assert "| key-growth | p99 climbs | 20 × | 20 × |" in tables["servers headlines"]
    assert "| shards | p99 climbs | 3 × | 3 × |" in tables["servers headlines"]
    first = "bin/lab run all --pace quick --servers embedded,redis --seed 1"
    assert f"| valkey 9.1.2 | All 2 runs are as promised. | `{first}`; `{AGAIN}` |" in tables["servers run"]


@pytest.mark.parametrize("other", [{"pace": "full"}, {"host": {"processor": "another", "cores": 64}}])
def test_cells_of_two_machines_or_paces_are_not_mixed(root: Path, other: dict[str, Any]) -> None:
    """One line, and what was kept stays."""
    fromservers.take(written(root / "all", PRODUCTS), root)
    before = (root / "docs/servers.json").read_text()
    with pytest.raises(UsageError, match=r"valkey 9\.1\.2 has cells of another machine or pace"):
        fromservers.take(of_shards(root / "one", **other), root)
    assert (root / "docs/servers.json").read_text() == before


@pytest.mark.parametrize(
    ("products", "more", "why"),
    [
        ({"embedded": "valkey 9.1.2", "redis": ""}, {}, "no run on redis told the server's version"),
        ({"redis": "redis 7.0.15", "redis-b": "redis 7.0.15"}, {}, "the same product with the same options"),
        ({"embedded": "valkey 9.1.2"}, {"interrupted": True}, "was interrupted"),
        ({"embedded": "valkey 9.1.2"}, {"not_run": ["redis"]}, "was interrupted"),
    ],
)
def test_half_a_matrix_is_refused(
    root: Path, products: dict[str, str], more: dict[str, Any], why: str
) -> None:
    """Nothing is taken then."""
    with pytest.raises(UsageError, match=why):
        fromservers.take(written(root / "m", products, **more), root)
    assert not (root / "docs/servers.json").exists()


def test_what_was_not_measured_is_said(root: Path) -> None:
    """Each block names the command."""
    for told in fromservers.LISTS.values():
        assert told(root).startswith("Not measured yet: `bin/lab run all")

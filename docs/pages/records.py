"""Records: committed runs, pruned; each is judged again whenever it is read."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from lab import scenarios
from lab.claims.verdict import as_result
from lab.errors import UsageError
from lab.report.view import RunView
from lab.results.folder import Run
from lab.runner.judging import reach

FOLDER = Path("docs/runs")
COPIED, LOADS = ("probe.hlog", "samples.csv", "slowlog.csv"), "loads.jsonl"
"""Files of a run folder that claims and charts read, beside run.json: `COPIED` are copied, `LOADS` is shortened."""
COMPACT = (",", ":")
HOST = ("processor", "cores", "memory_gb")
"""Facts about the machine that a record keeps: a reader needs them to judge the figures."""
USUAL_PACE, USUAL_SERVER = "quick", "valkey"


class Record(Run):
    """A committed run. Its verdict is reached from its data, by the claims of today."""

    @cached_property
    def _judged(self) -> dict[str, Any]:
        return as_result(self, reach(self))

    def result(self) -> dict[str, Any]:
        """Return the content that result.json of this run would have."""
        return self._judged


class Records:
    """All committed runs, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: dict[str, RunView] = {}

    @property
    def names(self) -> list[str]:
        """Names of the records in the catalogue's order, all records of a scenario together."""
        order = list(scenarios.catalogue())
        found = [path.parent for path in self.folder.glob("*/run.json")]
        place = {path.name: order.index(Record(path).facts.scenario) for path in found}
        return sorted(place, key=lambda name: (place[name], name))

    def view(self, name: str) -> RunView:
        """A record as the report looks at a run. Raises `UsageError`, with the nearest name, where there is none."""
        if name not in self._views:
            folder = self.folder / name
            if not (folder / "run.json").is_file():
                raise UsageError(f"there is no record {name!r} in {FOLDER}; {nearest(name, self.names)}")
            self._views[name] = RunView(Record(folder))
        return self._views[name]


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known name, or all of them."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}."


def server_of(run: Run) -> str:
    """The server's name: its product, or the lab's own name for it where that distinguishes versions of a product."""
    match = re.search(rf"--server ({run.facts.server}-\S+)", run.facts.command)
    return match[1] if match else run.facts.server


def name_of(run: Run) -> str:
    """The name of a run's record: its scenario, and its pace and server where they are not the usual ones."""
    facts = run.facts
    unusual = [facts.pace] if facts.pace != USUAL_PACE else []
    unusual += [server_of(run)] if facts.server != USUAL_SERVER else []
    return "-".join([facts.scenario, *unusual])


def take(source: Path, records: Path) -> list[str]:
    """Take records from a run folder, or from every run in a folder of them; return their names.

    Raises `UsageError` when there is no run, or any has no verdict. Nothing is taken then.
    """
    folders = (
        [source] if (source / "run.json").is_file() else sorted(p.parent for p in source.glob("*/run.json"))
    )
    if not folders:
        raise UsageError(f"{source} holds no runs: name a run folder, or a folder of `bin/lab run all`.")
    runs = [Record(folder) for folder in folders]
    for run in runs:
        if run.result()["holds"] is None:
            raise UsageError(f"{run.folder} has no verdict, so it makes no record: run the scenario again.")
    for run in runs:
        _prune(run, records / name_of(run))
    return [name_of(run) for run in runs]


def _prune(run: Run, record: Path) -> None:
    shutil.rmtree(record, ignore_errors=True)
    record.mkdir(parents=True)
    facts = asdict(run.facts)
    facts["host"] = {key: facts["host"][key] for key in HOST if key in facts["host"]}
    lists = "".join(
        f',\n "{name}": [\n'
        + ",\n".join(json.dumps(one, separators=COMPACT) for one in facts.pop(name))
        + "\n ]"
        for name in ("plan", "phases")
    )
    head = json.dumps(facts, indent=1).removesuffix("\n}")
    (record / "run.json").write_text(f"{head}{lists}\n}}\n")
    if run.loads:
        (record / LOADS).write_text(
            "".join(f"{json.dumps(_rounded(line), separators=COMPACT)}\n" for line in run.loads)
        )
    for name in COPIED:
        shutil.copyfile(run.folder / name, record / name)


def _rounded(value: Any) -> Any:
    """The value with its numbers rounded to the digits that a load can measure."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1e6 else float(f"{value:.7g}")  # moments are large numbers
    return value

"""Write the dashboards: ``python -m grafana.generate`` renews ``grafana/dashboards/*.json``, which Grafana loads, and
``grafana/export/*.json``, which `bin/lab export` fills in for your own server.

With ``--check`` nothing is written; exit code 1 if a file is not what the code makes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

# The package advises its second schema, which Grafana before 13 does not load from files.
warnings.filterwarnings("ignore", category=DeprecationWarning, module="grafana")

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: E402

from grafana.dashboards_src import (  # noqa: E402
    before_after,
    dragonfly,
    incident,
    redis,
    take_home,
    the_lab,
    where_time_goes,
)

FOLDER = Path(__file__).parent
LOADED, EXPORTED = "dashboards", "export"
MODULES = (incident, where_time_goes, before_after, redis, dragonfly, the_lab)


def text_of(board: Dashboard) -> str:
    """A dashboard as its file has it."""
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"


def documents() -> dict[str, str]:
    """The text of every dashboard by its file's path below `FOLDER`."""
    loaded = {f"{LOADED}/{board.uid}.json": text_of(board) for board in (made.build() for made in MODULES)}
    return loaded | {f"{EXPORTED}/dashboard.json": text_of(take_home.build())}


def committed() -> dict[str, Path]:
    """Every file that is there, by its path below `FOLDER`."""
    return {
        f"{part}/{path.name}": path for part in (LOADED, EXPORTED) for path in (FOLDER / part).glob("*.json")
    }


def stale() -> list[str]:
    """Return the files that are missing, differ from the generated ones, or are no longer generated."""
    made = documents()
    found = {name: path.read_text(encoding="utf-8") for name, path in committed().items()}
    return sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(prog="grafana.generate", description="Write the dashboards' JSON.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    if parser.parse_args(arguments).check:
        for name in stale():
            print(f"not current: grafana/{name} (run: python -m grafana.generate)", file=sys.stderr)
        return 1 if stale() else 0
    made = documents()
    for name, path in committed().items():
        if name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

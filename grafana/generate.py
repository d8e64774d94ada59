"""Write the dashboards: ``python -m grafana.generate`` renews ``grafana/dashboards/*.json``.

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

from grafana.dashboards_src import (  # noqa: E402
    before_after,
    dragonfly,
    incident,
    redis,
    the_lab,
    where_time_goes,
)

FOLDER = Path(__file__).parent / "dashboards"
MODULES = (incident, where_time_goes, before_after, redis, dragonfly, the_lab)


def documents() -> dict[str, str]:
    """The text of every dashboard by its file's name."""
    boards = [module.build() for module in MODULES]
    return {
        f"{board.uid}.json": JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n" for board in boards
    }


def stale() -> list[str]:
    """Names of files that are missing, differ from what the code makes, or are made by nothing."""
    made = documents()
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    return sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(prog="grafana.generate", description="Write the dashboards' JSON.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    if parser.parse_args(arguments).check:
        for name in stale():
            print(
                f"not current: grafana/dashboards/{name} (run: python -m grafana.generate)", file=sys.stderr
            )
        return 1 if stale() else 0
    made = documents()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m docs.pages [RUNS]` renews pages and plots; if it is given runs, it takes records from them first."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pages.pages import expected_files, stale
from docs.pages.records import FOLDER, take
from lab.errors import USAGE, LabError

ROOT = Path(__file__).resolve().parents[2]


def renew(root: Path, runs: Path | None = None) -> list[Path]:
    """Renew everything under `root`; return the changed paths. Raises `UsageError` for an unusable mark or run."""
    changed = [root / FOLDER / name for name in take(runs, root / FOLDER)] if runs else []
    files = expected_files(root)
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            changed.append(path)
    for path in stale(root, files):
        path.unlink()
        changed.append(path)
    return changed


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Entry point. Returns 0, or an error's exit code with one line on stderr."""
    given = [argument for argument in arguments if argument]
    if len(given) > 1 or any(argument.startswith("-") for argument in given):
        print("docs: make docs, or make docs RUNS=runs/...", file=sys.stderr)
        return USAGE
    try:
        changed = renew(root, Path(given[0]) if given else None)
    except LabError as error:
        print(f"docs: {error}", file=sys.stderr)
        return error.exit_code
    for path in changed:
        print(path.relative_to(root))
    print(f"docs: {len(changed) or 'nothing'} renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

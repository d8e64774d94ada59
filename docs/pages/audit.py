"""Known vulnerabilities in what the lab installs: `make audit`, which is `python -m docs.pages.audit`.

It gives requirements.lock, which contains requirements-stack.lock, to pip-audit, and writes docs/audit.json: the day,
the checksums of the lock files, and what was found. `--due` only says, in a line, if the lock files were not audited as
they are now; `make check` does that. Exit codes: 0 nothing found, 1 something found, 3 no database can be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from docs.pages.wheels import checksums
from lab.errors import USAGE

ROOT = Path(__file__).resolve().parents[2]
FILE = Path("docs/audit.json")
FOUND, NO_DATABASE = 1, 3
TOOL = [
    *(sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"),
    *("--vulnerability-service", "osv", "--progress-spinner", "off", "--requirement"),
]
"""OSV is a database of vulnerabilities; the tool's default is to ask a package index about every package."""


def findings(said: str) -> tuple[int, list[dict[str, Any]]]:
    """How many packages pip-audit looked at, and what it found. Raises `ValueError` if that is not its output."""
    try:
        looked_at = json.loads(said)["dependencies"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no {error}") from error
    found = [
        {
            "package": one["name"],
            "version": one["version"],
            "id": known["id"],
            "mended_in": known["fix_versions"],
        }
        for one in looked_at
        for known in one.get("vulns", ())
    ]
    return len(looked_at), found


def due(root: Path) -> str:
    """A line if the lock files were not audited as they are now, else ''."""
    path = root / FILE
    if not path.exists():
        return "audit: the lock files were never audited for known vulnerabilities: make audit"
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["locks"] == checksums(root):
        return ""
    return f"audit: the last audit, of {kept['date']}, was of other lock files: make audit"


def audit(root: Path, tool: list[str]) -> int:
    """Audit and write the file. Returns the exit code; prints what was found, or why nothing could be asked."""
    lock = str(root / "requirements.lock")
    done = subprocess.run([*tool, lock], capture_output=True, text=True, check=False)
    try:
        packages, found = findings(done.stdout)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"audit: the database of vulnerabilities cannot be asked: {why[:300]}", file=sys.stderr)
        return NO_DATABASE
    kept = {
        "date": date.today().isoformat(),
        "locks": checksums(root),
        "packages": packages,
        "findings": found,
    }
    (root / FILE).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for one in found:
        mended = ", ".join(one["mended_in"]) or "no version yet"
        print(f"audit: {one['package']} {one['version']} has {one['id']}, mended in {mended}")
    print(f"audit: {packages} packages, {len(found)} known vulnerabilities")
    return FOUND if found else 0


def main(arguments: list[str], root: Path = ROOT, tool: list[str] | None = None) -> int:
    """Entry point; `tool`: the command of pip-audit, without the lock file."""
    if arguments == ["--due"]:
        if line := due(root):
            print(line)
        return 0
    if arguments:
        print("audit: make audit, or python -m docs.pages.audit [--due]", file=sys.stderr)
        return USAGE
    return audit(root, tool or TOOL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

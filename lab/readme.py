"""Renews what the README shows of a run: `python -m lab.readme DIR` (`make picture RUN=DIR`).

Writes docs/key-growth.svg and the block between the `verdict` marks. The README holds no other figure of a run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from lab.errors import LabError, UsageError
from lab.report import picture
from lab.runfolder import Run

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- verdict: [^\n]*-->\n).*?(<!-- /verdict -->)", re.DOTALL)


def verdict_block(run: Run) -> str:
    """The claims of a judged run as a Markdown table. Raises `UsageError` for a run without a verdict."""
    result = run.result()
    if result is None or result["holds"] is None:
        raise UsageError(f"{run.folder} has no verdict to show.")
    words = {True: "holds", False: "refuted", None: "not applicable"}
    rows = [
        f"| {claim['statement']} | {claim['bound']} | {claim['measured']} | {words[claim['holds']]} |"
        for claim in result["claims"]
    ]
    facts = run.facts
    head = (
        f"Measured by `{facts.command}` on {facts.host['cores']} cores of {facts.host['processor']}, "
        f"{facts.server} {facts.server_version}, {facts.keys:,} keys, "
        f"{facts.load['events_per_second']:.1f} events and {facts.load['reads_per_second']:.0f} reads a second:\n\n"
    )
    return head + "| claim | bound | measured | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def renew(folder: Path, readme: Path = ROOT / "README.md") -> None:
    """Rewrite picture and block from a run folder."""
    run = Run(folder)
    text = readme.read_text()
    renewed, count = BLOCK.subn(lambda found: found.group(1) + verdict_block(run) + found.group(2), text)
    if count != 1:
        raise UsageError(f"{readme} has {count} verdict blocks, not one.")
    readme.write_text(renewed)
    target = readme.parent / "docs" / f"{run.facts.scenario}.svg"
    target.parent.mkdir(exist_ok=True)
    picture(run, target)
    # Kept beside the picture, so that a test can tell whether the README still says what the run said.
    (target.parent / f"{run.facts.scenario}.json").write_text(
        json.dumps({"command": run.facts.command, "block": verdict_block(run)}, indent=1) + "\n"
    )


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2:
        print("readme: name one run folder: make picture RUN=runs/…", file=sys.stderr)
        return 2
    try:
        renew(Path(sys.argv[1]))
    except LabError as error:
        print(f"readme: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

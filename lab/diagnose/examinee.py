"""`bin/lab diagnose` as a candidate of `bin/lab exam`: it looks at the storefront's way to the server, and answers.

A program of the examination (see `lab.blind.exam.candidates`): `python -m lab.diagnose.examinee`. It asks nothing of
the session. It names every cause that the diagnosis finds, `nothing` where it finds nothing wrong with the server, and
none where the diagnosis cannot tell.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lab.diagnose.findings import Judgement, judge
from lab.diagnose.watch import watch
from lab.errors import HOLDS, LabError
from lab.stacks.address import read_address

SECONDS = 20.0
NOTHING = "nothing"


def answers(judgement: Judgement, causes: int) -> list[tuple[str, str]]:
    """The causes to name, at most `causes` of them, each with its line in the diagnosis."""
    if judgement.found:
        return [(each.cause.id, each.cause.line) for each in judgement.found[:causes]]
    return [(NOTHING, "nothing is wrong with the server")] if judgement.outcome == NOTHING else []


def main() -> int:
    """Read the scene, diagnose its server, and answer. Returns the exit code; an error is one line on stderr."""
    paper: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        window, _ = watch(read_address(paper["link"], environ={}), SECONDS)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    for cause, why in answers(judge(window), paper["causes"]):
        _ask({"verb": "answer", "cause": cause, "evidence": f"bin/lab diagnose says: {why}"})
    print(json.dumps({"verb": "done"}), flush=True)
    return HOLDS


def _ask(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)
    sys.stdin.readline()  # the points do not matter here


if __name__ == "__main__":
    sys.exit(main())

"""Commands that the pages give to type beside the running scene."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import errors
from tests.compose.stack import Stack
from tests.docs.pagekit import Typed, read
from tests.docs.shell import execute, workplace

BESIDE = [typed for page in read() for typed in page.typed if typed.needs == "compose"]
BRINGS_UP = re.compile(r"(?:\w+=\S+ )*make (?:up|down)|docker compose (?:up|down)")
"""Commands left out here, where the scene is up and stays up: other tests bring it up and down."""
JUDGED = (errors.HOLDS, errors.CLAIM_FAILED, errors.NOT_VALID)
"""Exit codes of a run that came to its end. Any verdict will do: pages promise none beside a scene on two cores."""


@pytest.mark.parametrize("typed", BESIDE, ids=lambda typed: typed.where)
def test_what_is_typed_beside_the_scene_works(typed: Typed, stack: Stack, tmp_path: Path) -> None:
    """Every command but those that bring the scene up or down succeeds; a run ends with a verdict."""
    place = workplace(tmp_path / "lab")
    for line in typed.commands:
        if BRINGS_UP.match(line):
            continue
        answer = execute(line, place, stack.environ)
        if "--stack compose" in line:
            assert answer.code in JUDGED, answer.output
            assert "report: " in answer.output
        else:
            assert answer.code == 0, answer.output

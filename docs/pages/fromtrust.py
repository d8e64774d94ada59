"""How far verdicts can be trusted, as the benchmarks measured it: tables from docs/trust.json."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/trust.json")
REASONS = Path("docs/pages/unnoticed.toml")
"""Why some changes of the judging code make no difference, by hand."""
REPEAT = "bench.repeat --claim p99-is-one-search --hold 0.5"
STRICT = re.compile("[<>]=?")
VERDICTS = {0: "every claim holds", 1: "a claim failed", 4: "not valid"}


def block(part: str, command: str, told: Callable[[dict[str, Any], Path], str]) -> Callable[[Path], str]:
    """Return the block about one part of the file: who measured it, where and when, and what `told` makes of it.

    Where the part is missing, the block says that it was not measured, and by which command it would be.
    """

    def text(root: Path) -> str:
        path = root / FILE
        kept = json.loads(path.read_text(encoding="utf-8")).get(part) if path.exists() else None
        if kept is None:
            return f"Not measured yet: `.venv/bin/python -m {command} --write {FILE}`."
        return f"`{kept['command']}` on {kept['machine']}, {kept['date']}: {told(kept, root)}"

    return text


def _ended(code: int) -> str:
    return VERDICTS.get(code, f"exit code {code}")


def _rows(kept: dict[str, Any]) -> str:
    """A row a run: how it ended, what disturbed it, and what it says of phases measured again."""
    rows = [
        [
            str(number),
            _ended(row["code"]),
            str(row["seconds"]),
            "; ".join(row["done"]) or "nothing",
            " ".join(row["told"]) or "nothing",
        ]
        for number, row in enumerate(kept["rows"], start=1)
    ]
    return table(["run", "verdict", "seconds", "disturbed by", "measured again"], rows)


def _disturbed(kept: dict[str, Any], _: Path) -> str:
    """Runs beside disturbances."""
    runs = len(kept["rows"])
    said = (
        f"{kept['verdicts']} of {runs} runs ended in a verdict; in {kept['held']} of those every claim held."
    )
    return f"{said}\n\n{_rows(kept)}"


def _repeated(kept: dict[str, Any], _: Path) -> str:
    """Runs with seeds in a row: how each ended, and the ratio of the claim that runs can be compared by."""
    claim = kept["claim"]
    rows = [
        [
            str(row["seed"]),
            _ended(row["code"]),
            f"{row['seconds']:.0f}",
            row["claims"] or "–",
            f"{row['ratios'][claim]:.2f} ×" if claim in row["ratios"] else "–",
        ]
        for row in kept["rows"]
    ]
    judged = sum(row["code"] in (0, 1) for row in kept["rows"])
    holds = sum(row["code"] == 0 for row in kept["rows"])
    said = f"{judged} of {len(rows)} runs ended in a verdict; in {holds} of those every claim held. `{kept['wanders']}`"
    return (
        f"{said}\n\n{table(['seed', 'verdict', 'seconds', 'claims that hold', f'`{claim}`'], rows, (2, 4))}"
    )


def _demos(kept: dict[str, Any], _: Path) -> str:
    """`make demo` from fresh clones."""
    said = f"{kept['good']} of {len(kept['rows'])} ended with every claim held, within {kept['within_s']:g} seconds."
    return f"{said}\n\n{_rows(kept)}"


def _suite(kept: dict[str, Any], _: Path) -> str:
    """`make test` in a row."""
    rows = [
        [
            str(number),
            "a program that takes half a core" if row["hogged"] else "nothing",
            str(row["seconds"]),
            row["closing"],
            " ".join(row["failed"]) or "none",
        ]
        for number, row in enumerate(kept["rows"], start=1)
    ]
    green = sum(row["code"] == 0 for row in kept["rows"])
    runs = table(["time", "beside it", "seconds", "tests", "failed"], rows)
    return f"{green} of {len(rows)} ended without a failure.\n\n{runs}"


def _mutations(kept: dict[str, Any], root: Path) -> str:
    """Small changes of the judging code: a row a file, and the changes that no test noticed."""
    tried, noticed = kept["tried"], kept["noticed"]
    sampled = f"of {kept['changes']:,} changes {tried:,} were tried, and "
    interval = f" (95 % interval {kept['low']:.1%} to {kept['high']:.1%})"
    said = f"{sampled if tried < kept['changes'] else ''}{noticed:,} of {tried:,} were noticed: {noticed / tried:.1%}"
    rows = [[f"`{file}`", f"{of:,}", f"{seen:,}"] for file, (of, seen) in kept["files"].items()]
    files = table(["file", "tried", "noticed"], rows, (1, 2))
    return f"{said}{interval if tried < kept['changes'] else ''}.\n\n{files}\n\n{_unnoticed(root, kept)}"


def _unnoticed(root: Path, kept: dict[str, Any]) -> str:
    """The changes that no test noticed, each with the reason why it makes no difference, where it is known."""
    by_hand = tomllib.loads((root / REASONS).read_text(encoding="utf-8"))["change"]
    known = {(each["in"], *each["lines"]): each["why"] for each in by_hand}
    rows = [
        [
            f"`{survivor['in']}`",
            "<br>".join(f"`{line}`" for line in survivor["change"]),
            known.get((survivor["in"], *survivor["change"])) or _reason(survivor["change"]) or "not examined",
        ]
        for survivor in kept["survivors"]
    ]
    return table(["in", "not noticed", "why"], rows)


def _reason(change: Sequence[str]) -> str:
    """The reason that is the same for all changes of a kind, else an empty text."""
    before, after = ("".join(line[1:] for line in change if line[0] == sign) for sign in "-+")
    if before != after and STRICT.sub("=", before) == STRICT.sub("=", after):
        return "Differs only if a measured figure equals its bound to the last digit."
    return ""


LISTS: dict[str, Callable[[Path], str]] = {
    "disturbed": block("disturbed 3 a minute, hog 0, embedded", "bench.disturb --per-minute 3", _disturbed),
    "repeated": block("repeat key-growth on embedded, held to 0.5", REPEAT, _repeated),
    "demos": block("demos", "bench.demos", _demos),
    "mutations": block("mutations", "bench.mutants --one-in 8", _mutations),
    "suite": block("suite", "bench.suite", _suite),
}

"""Sentences of the guide that a run could contradict. docs/sentences.toml has each, by page, with what must hold:

    ["workshop/keys-command.md"]
    "The server is idle most of the time." = 'keys-command busy("grow[-1]") < 0.5'

First comes a record, whose scenario the sentence is about, then a comparison of figures of its phases. A phase is given
by its id, or by its place in an arm, as in ``grow[0]`` and ``grow[-1]``. A condition is made of `FIGURES`, numbers,
+ - * /, comparisons, ``and`` and ``or``. `make docs` and a test evaluate every sentence on its record.
"""

from __future__ import annotations

import ast
import operator
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.errors import UsageError
from lab.report.quantities import quantity
from lab.report.view import RunView
from lab.results.folder import PhaseRecord

FILE = Path("docs/sentences.toml")
FIGURES = {
    "p99": "p99", "p50": "p50", "longest": "max", "busy": "utilisation", "keys": "keys", "demand": "demand",
    "execution": "exec", "calls": "rate", "figure": "figure", "foretold": "foretold",
}  # fmt: skip
"""Name → quantity (`lab.report.quantities`). The last four take a command or a figure's name first, then the phase."""
NAMED = {"exec", "rate", "figure", "foretold"}
COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
PLACE = re.compile(r"(\w+)\[(-?\d+)\]")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a page, the record that could contradict it, and the condition that the record must meet."""

    words: str
    record: str
    condition: str

    def stands_in(self, text: str) -> bool:
        """True if a page has these words, whatever its line breaks and comments."""
        return self.words in " ".join(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())

    def broken(self, view: RunView) -> str:
        """Return why a run breaks the condition; empty if it holds. Raises `UsageError` when it is unusable."""
        try:
            tree = ast.parse(self.condition, mode="eval").body
        except (SyntaxError, ValueError):
            raise UsageError(f"{self.condition!r} is no comparison.") from None
        parts: list[str] = []
        if _holds(view, tree, parts):
            return ""
        return f"{self.condition} does not hold: {'; '.join(parts)}"


def sentences(root: Path) -> dict[str, list[Sentence]]:
    """The sentences of each page, by its path from `root`. Raises `UsageError` for a file that cannot be read."""
    path = root / FILE
    try:
        pages = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{FILE}: {error}.") from None
    return {
        page: [Sentence(words, *condition.partition(" ")[::2]) for words, condition in conditions.items()]
        for page, conditions in pages.items()
    }


def _holds(view: RunView, tree: ast.expr, parts: list[str]) -> bool:
    """True if a condition holds. The figures that were compared are added to `parts`."""
    if isinstance(tree, ast.BoolOp):
        each = [_holds(view, value, parts) for value in tree.values]
        return all(each) if isinstance(tree.op, ast.And) else any(each)
    if not isinstance(tree, ast.Compare):
        raise UsageError(f"{ast.unparse(tree)!r} is no comparison.")
    values = [_number(view, side) for side in (tree.left, *tree.comparators)]
    parts.append(" against ".join(f"{value:.4g}" for value in values))
    compared = zip(tree.ops, values, values[1:], strict=False)
    if unknown := [each for each in tree.ops if type(each) not in COMPARE]:
        raise UsageError(f"{type(unknown[0]).__name__} cannot compare measured figures: take <, <=, > or >=.")
    return all(COMPARE[type(op)](left, right) for op, left, right in compared)


def _number(view: RunView, tree: ast.expr) -> float:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(view, tree.operand)
        case ast.BinOp() if type(tree.op) in ARITHMETIC:
            return ARITHMETIC[type(tree.op)](_number(view, tree.left), _number(view, tree.right))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FIGURES:
            words = [
                arg.value for arg in tree.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
            kind = FIGURES[name]
            if len(words) != len(tree.args) or len(words) != 1 + (kind in NAMED):
                raise UsageError(
                    f"{ast.unparse(tree)} does not say of which phase{' and what' * (kind in NAMED)}."
                )
            phase = _phase(view, words[-1])
            found = quantity(":".join([kind, *words[:-1]])).read(phase, view.latencies)
            if not isinstance(found, (int, float)):
                raise UsageError(f"{ast.unparse(tree)} was not measured in {view.facts.scenario}.")
            return float(found)
    raise UsageError(f"{ast.unparse(tree)!r} cannot be compared; figures are {', '.join(FIGURES)}.")


def _phase(view: RunView, name: str) -> PhaseRecord:
    if phase := view.run.phase(name):
        return phase
    if place := PLACE.fullmatch(name):
        try:
            return view.run.arm(place[1])[int(place[2])]
        except IndexError:
            pass
    raise UsageError(f"{view.facts.scenario} has no phase {name!r}.")

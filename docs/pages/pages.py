"""Pages with blocks: finds the marks, and renews what stands between them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

from docs.pages import fromcode, fromruns, schema, sentences
from docs.pages.records import FOLDER, Records, nearest
from lab.errors import UsageError

PLOTS = Path("docs/plots")
OUTSIDE_DOCS = (
    "README.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    "deploy/README.md",
    "deploy/room.md",
    "loadtest/README.md",
)
HAND_WRITTEN = (
    "incidents.md",
    "platforms.md",
    "diagnose.md",
    "trust.md",
    "licences.md",
    "history.md",
    "predict.md",
    "scale.md",
    "servers.md",
    "sessions.md",
    "scene.md",
)
"""Pages in docs/ that people write, except for their blocks."""
BEGIN = re.compile(r"<!-- (run|list|help|table)(?:: *(.*?))? *-->")
END = re.compile(r"<!-- /(run|list|help|table) -->")
TABLE = "table"
"""The kind of a block that its benchmark wrote: it stays as it is."""
FIGURE = re.compile(r"<!-- fig: *((?:(?!-->).)*?) *-->((?:(?!<!--).)*)<!-- /fig -->", re.DOTALL)
LOOSE = re.compile(r"<!-- (?:fig:|/fig)")


def pages(root: Path) -> list[Path]:
    """Return the README, other hand-written pages outside docs/, those in docs/, and the guide."""
    found = [root / name for name in OUTSIDE_DOCS]
    found += [root / "docs" / name for name in HAND_WRITTEN]
    return [*(path for path in found if path.is_file()), *sorted((root / "workshop").rglob("*.md"))]


@dataclass
class Renewal:
    """The pages as they should be. `files`: path → whole text, of the pages and plots that were renewed so far."""

    root: Path
    files: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = Records(self.root / FOLDER)
        self.sentences = sentences.sentences(self.root)

    def page(self, path: Path) -> str:
        """A page as it should be. Raises `UsageError`, in one line with file and line, for an unusable mark."""
        lines = path.read_text().splitlines(keepends=True)
        code = code_lines("".join(lines))
        renewed: list[str] = []
        begun: tuple[int, str] | None = None
        for number, line in enumerate(lines, start=1):
            mark, end = BEGIN.fullmatch(line.strip()), END.fullmatch(line.strip())
            if number in code:
                mark = end = None
            where = f"{path.relative_to(self.root)}:{number}"
            if mark:
                if begun:
                    raise UsageError(f"{where}: the block before it, at line {begun[0]}, has no end.")
                begun = number, mark[1]
                renewed.append(line)
                if mark[1] == TABLE:
                    continue
                try:
                    renewed.append(self._block(path, mark[1], (mark[2] or "").split()) + "\n")
                except UsageError as error:
                    raise UsageError(f"{where}: {error}") from None
            elif end:
                if not begun or end[1] != begun[1]:
                    raise UsageError(f"{where}: {line.strip()} ends a block never begun.")
                begun = None
                renewed.append(line)
            elif not begun or begun[1] == TABLE:
                renewed.append(line)
        if begun:
            raise UsageError(f"{path.relative_to(self.root)}:{begun[0]}: no <!-- /{begun[1]} --> follows.")
        text = self._figures(path, "".join(renewed))
        self._sentences(path, text)
        self.files[path] = text
        return text

    def _block(self, page: Path, kind: str, words: list[str]) -> str:
        if (kind, words) == ("list", ["waiting"]):
            return fromruns.waiting(page.read_text(), self.records)
        if kind != "run":
            return fromcode.block(self.root, self.records, kind, words)
        if len(words) < 2:
            raise UsageError(
                f"a mark `run` needs a record and one of {', '.join([*fromruns.KINDS, 'plot'])}."
            )
        record, what, *rest = words
        view = self.records.view(record)
        if what == "plot":
            svg, description = fromruns.plot(view, rest)
            target = self.root / PLOTS / f"{record}-{rest[0]}.svg"
            self.files[target] = svg
            link = os.path.relpath(target, page.parent)
            return f"![{description.replace('[', '(').replace(']', ')')}]({link})"
        if what not in fromruns.KINDS:
            raise UsageError(f"there is no kind {what!r}; {nearest(what, [*fromruns.KINDS, 'plot'])}")
        return fromruns.KINDS[what](view, rest)

    def _sentences(self, path: Path, text: str) -> None:
        """Evaluate the page's sentences on their records. Raises `UsageError` for one that is gone or does not hold."""
        page = str(path.relative_to(self.root))
        for each in self.sentences.get(page, []):
            where = f"{sentences.FILE}: {page}: {each.words!r}"
            if not each.stands_in(text):
                raise UsageError(f"{where} is not on the page.")
            try:
                broken = each.broken(self.records.view(each.record))
            except UsageError as error:
                raise UsageError(f"{where}: {error}") from None
            if broken:
                raise UsageError(f"{where} is not true of {each.record}. {broken}.")

    def _figures(self, path: Path, text: str) -> str:
        code = code_lines(text)

        def renewed(found: re.Match[str]) -> str:
            line = text.count("\n", 0, found.start()) + 1
            if line in code:
                return found[0]
            record, *words = found[1].split() or [""]
            try:
                figure = fromruns.figure(self.records.view(record), words)
            except UsageError as error:
                raise UsageError(f"{path.relative_to(self.root)}:{line}: {error}") from None
            return f"<!-- fig: {found[1]} -->{figure}<!-- /fig -->"

        for found in LOOSE.finditer(FIGURE.sub(lambda match: "\n" * match[0].count("\n"), text)):
            line = text.count("\n", 0, found.start()) + 1
            if line not in code:
                raise UsageError(
                    f"{path.relative_to(self.root)}:{line}: a mark `fig` without its end, or an end without its mark."
                )
        return FIGURE.sub(renewed, text)


def code_lines(text: str) -> set[int]:
    """Numbers of the lines in fenced code, from 1. Marks in such lines are examples."""
    fences = (token.map for token in MarkdownIt().parse(text) if token.type == "fence" and token.map)
    return {line + 1 for first, last in fences for line in range(first, last)}


def expected_files(root: Path) -> dict[Path, str]:
    """Every page, plot and schema as it should be, by path. Raises `UsageError` as `Renewal.page` does."""
    renewal = Renewal(root)
    for path in pages(root):
        renewal.page(path)
    return renewal.files | schema.files(root)


def stale(root: Path, files: dict[Path, str]) -> Iterator[Path]:
    """Plots that no page shows."""
    shown = "".join(text for path, text in files.items() if path.suffix == ".md")
    return (
        path
        for path in sorted((root / PLOTS).glob("*.svg"))
        if f"({PLOTS.name}/{path.name})" not in shown and path not in files
    )

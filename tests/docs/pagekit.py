"""Pages taken apart: what is typed, what is promised, what is prose. See `docs.pages` for the conventions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.pages.pages import BEGIN, END, FIGURE, pages

ROOT = Path(__file__).resolve().parents[2]
NEEDS = re.compile(
    r"<!-- needs: (?P<what>[a-z]+)(?: (?P<cause>[a-z-]+))?(?: [-–—] (?P<why>.*?))? -->", re.DOTALL
)
KINDS = ("scene", "compose", "person", "slow")
BY_DEFINITION = "<!-- by definition -->"
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)((?:[^\n]|\n(?!\s*(?:\n|\||[-*] |#)))+?)(?<!`)\1(?!`)")
"""Inline code lies within one paragraph, list item or table row: a backquote that is not closed there begins none."""


@dataclass(frozen=True)
class Typed:
    """A block of commands: where it stands, what it needs, and the output that the page promises."""

    page: str
    line: int
    text: str
    needs: str = ""
    cause: str = ""
    why: str = ""
    promised: str | None = None

    @property
    def where(self) -> str:
        """Page and line, for messages and test ids."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands, one a line: continued lines joined, comments and empty lines left out."""
        joined = self.text.replace("\\\n", " ")
        bare = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in bare if line]


class Page:
    """A Markdown page."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.lines = text.splitlines()
        self.tokens: list[Token] = MarkdownIt("commonmark").enable("table").parse(text)

    @cached_property
    def typed(self) -> list[Typed]:
        """The blocks to be typed, in their order."""
        found: list[Typed] = []
        top = [token for token in self.tokens if token.level == 0 or token.type in ("fence", "html_block")]
        for i, token in enumerate(top):
            if token.type != "fence" or token.info.strip() != "sh" or token.map is None:
                continue
            before = top[i - 1] if i else None
            near = before and before.type == "html_block" and before.map and before.map[1] >= token.map[0] - 1
            need = NEEDS.search(before.content) if near and before else None
            parts = need.groupdict() if need else {}
            found.append(
                Typed(
                    self.name,
                    token.map[0] + 1,
                    token.content,
                    parts.get("what") or "",
                    parts.get("cause") or "",
                    " ".join((parts.get("why") or "").split()),
                    self._promised(top[i + 1 :]),
                )
            )
        return found

    @staticmethod
    def _promised(after: list[Token]) -> str | None:
        """The content of a ```text block that follows directly or after one paragraph; else None."""
        for token in after[:3]:
            if token.type == "fence":
                return token.content if token.info.strip() == "text" else None
            if token.type not in ("paragraph_open", "paragraph_close"):
                return None
        return None

    @cached_property
    def generated(self) -> set[int]:
        """Numbers of the lines between marks of generated blocks, from 1."""
        inside, found = False, set()
        for number, line in enumerate(self.lines, start=1):
            if END.fullmatch(line.strip()):
                inside = False
            if inside:
                found.add(number)
            if BEGIN.fullmatch(line.strip()):
                inside = True
        return found

    @cached_property
    def code(self) -> set[int]:
        """Numbers of the lines in code blocks, fenced or indented."""
        blocks = [t.map for t in self.tokens if t.type in ("fence", "code_block") and t.map]
        return {line + 1 for first, last in blocks for line in range(first, last)}

    @cached_property
    def defined(self) -> set[int]:
        """Numbers of the lines in paragraphs, tables and lists that are marked as true by definition, inside or right
        above.
        """
        marked = {number for number, line in enumerate(self.lines, start=1) if BY_DEFINITION in line}
        found = set(marked)
        for token in self.tokens:
            if token.map and token.type in (
                "paragraph_open",
                "table_open",
                "bullet_list_open",
                "ordered_list_open",
            ):
                first, last = token.map[0] + 1, token.map[1]
                alone = {n for n in marked if self.lines[n - 1].strip() == BY_DEFINITION}
                if token.type == "paragraph_open" and marked & set(range(first, last + 1)):
                    found |= set(range(first, last + 1))
                if alone & {first - 1, first - 2, first}:
                    found |= set(range(first, last + 1))
        return found

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Numbered lines that people wrote, without code, figures of runs, comments and addresses."""
        text = FIGURE.sub(lambda found: re.sub(r"[^\n]", "", found[0]), self.text)
        text = INLINE_CODE.sub(lambda found: "\n" * found[2].count("\n") + "`code`", self._without_code(text))
        text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
        text = re.sub(r"\]\([^)\n]*\)", "]", text)
        return [(n, line) for n, line in enumerate(text.splitlines(), start=1) if n not in self.generated]

    def _without_code(self, text: str) -> str:
        lines = text.splitlines()
        return "\n".join("" if n in self.code else line for n, line in enumerate(lines, start=1))

    @cached_property
    def snippets(self) -> list[tuple[int, str]]:
        """Inline code, with the number of its line."""
        text = self._without_code(self.text)
        return [
            (text.count("\n", 0, found.start()) + 1, " ".join(found[2].split()))
            for found in INLINE_CODE.finditer(text)
        ]

    @cached_property
    def italics(self) -> list[tuple[int, str, str]]:
        """The texts in *italics*, with the number of its line and the word before it."""
        text = "\n".join(line for _, line in self._numbered_prose())
        found = re.finditer(r"(?:(\w+)\s+)?(?<!\*)\*(?!\*)([^*\n][^*]*?)\*(?!\*)", text)
        return [(text.count("\n", 0, f.start(2)) + 1, " ".join(f[2].split()), f[1] or "") for f in found]

    def _numbered_prose(self) -> list[tuple[int, str]]:
        known = dict(self.prose)
        return [(n, known.get(n, "")) for n in range(1, len(self.lines) + 1)]

    @cached_property
    def links(self) -> list[tuple[int, str]]:
        """Targets of links and images, generated ones included."""
        found = []
        for token in self.tokens:
            for child in token.children or []:
                target = child.attrGet("href") or child.attrGet("src")
                if target:
                    found.append(((token.map or [0])[0] + 1, str(target)))
        return found

    @cached_property
    def anchors(self) -> set[str]:
        """The addresses of the headings, as GitHub makes them."""
        found: set[str] = set()
        for i, token in enumerate(self.tokens):
            if token.type == "heading_open":
                children = self.tokens[i + 1].children or []
                words = "".join(c.content for c in children if c.type in ("text", "code_inline"))
                slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
                copies = sum(
                    1 for known in found if known == slug or re.fullmatch(re.escape(slug) + r"-\d+", known)
                )
                found.add(f"{slug}-{copies}" if copies else slug)
        return found


@cache
def read(root: Path = ROOT) -> list[Page]:
    """All pages; parsed once in a process, since several files of tests go through them."""
    return [Page(str(path.relative_to(root)), path.read_text()) for path in pages(root)]

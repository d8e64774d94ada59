"""Existing metrics, and the metrics that a query asks for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
OURS = ("app", "loadtest", "console")
KINDS = (
    "Counter",
    "Gauge",
    "Histogram",
    "Summary",
    "gauge",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
)
KEYWORDS = {
    "and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right",
    "bool", "offset", "inf", "nan",
}  # fmt: skip


def known() -> set[str]:
    """Every series name that something in the stack exposes: from our code, our rules and the catalogue."""
    names = set(_catalogue()) | set(_recorded())
    for folder in OURS:
        for path in (ROOT / folder).rglob("*.py"):
            names |= set(_exposed(ast.parse(path.read_text(encoding="utf-8"))))
    return names


def asked_for(query: str) -> set[str]:
    """The metric names in a PromQL expression."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', query)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\boffset\s+\w+", " ", text)
    words = re.findall(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])", text)
    return {word for word in words if word.lower() not in KEYWORDS}


def _exposed(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to prometheus_client, with the endings that it adds."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kind, name = called.lstrip("_"), node.args[0].value
        if kind not in KINDS or not isinstance(name, str):
            continue
        if kind.startswith("Counter"):
            yield name.removesuffix("_total") + "_total"
        elif kind.startswith(("Histogram", "Summary")):
            yield from (name + ending for ending in ("_bucket", "_sum", "_count"))
        else:
            yield name


def _recorded() -> Iterator[str]:
    rules = yaml.safe_load((ROOT / "prometheus/rules/recording.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        yield from (rule["record"] for rule in group["rules"])


def _catalogue() -> Iterator[str]:
    for line in (Path(__file__).parent / "catalogue.txt").read_text(encoding="utf-8").splitlines():
        if name := line.partition("#")[0].strip():
            yield name

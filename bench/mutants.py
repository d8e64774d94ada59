"""Is each small change of the judging code noticed by a test? `python -m bench.mutants [--one-in N]`.

`make mutate` makes every change (mutmut; pyproject.toml says of which files) and tries each, which takes hours.
`--one-in N` tries a sample of them, chosen by a hash of the change's name, so that it is the same everywhere.
It prints a row a file: changes tried and noticed, and at the end the share that was noticed, with its 95 % interval
(Wilson) for a sample. The changes that no test noticed are printed as differences. Exit code 0 when at least 90 %
were noticed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

from scipy.stats import binomtest

from bench.kit import ROOT

MUTANTS = ROOT / "mutants"
NOTICED = frozenset((1, 3, 24, 36, 37, 152, 255, -24))
"""mutmut's exit codes of a change that made a test fail, the tests' time run out, or the type check complain."""
UNNOTICED = frozenset((0, 5, 33))
"""mutmut's exit codes of a change that passed all tests, and of one that no test reaches."""
ENOUGH = 0.90
NONE = "no change has this name"


def results() -> dict[str, int | None]:
    """mutmut's exit code by the name of the change; None for a change that was not tried."""
    found: dict[str, int | None] = {}
    for path in MUTANTS.rglob("*.meta"):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def sample(names: Iterator[str], one_in: int) -> list[str]:
    """Return one in `one_in` of the names (at most 256), the same ones on every machine."""
    return sorted(name for name in names if hashlib.sha256(name.encode()).digest()[0] % one_in == 0)


def file_of(name: str) -> str:
    """The file of a change."""
    return name.rsplit(".", 1)[0].replace(".", "/") + ".py"


def difference(name: str) -> list[str]:
    """The lines that a change takes out and puts in, with - and + before them."""
    source = (MUTANTS / file_of(name)).read_text(encoding="utf-8")
    lines = source.splitlines()
    functions = {
        node.name: lines[node.lineno : node.end_lineno]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    changed = name.rsplit(".", 1)[1]
    original = re.sub(r"__mutmut_\d+$", "__mutmut_orig", changed)
    both = difflib.unified_diff(functions[original], functions[changed], n=0, lineterm="")
    return [" ".join(line.split()) for line in both if not line.startswith(("---", "+++", "@@"))]


def function_of(name: str) -> str:
    """The function that a change is in, as `file.py: name`."""
    plain = re.sub(r"__mutmut_\d+$", "", name.rsplit(".", 1)[1]).removeprefix("x_").removeprefix("xǁ")
    return f"{file_of(name)}: {plain.replace('ǁ', '.')}"


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="bench.mutants", description="Are small changes noticed?")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="try one change in N (1)")
    parser.add_argument("--only-read", action="store_true", help="report what was tried before")
    options = parser.parse_args()
    mutmut = [sys.executable, "-m", "mutmut", "run"]
    if not options.only_read:
        if options.one_in > 1:
            subprocess.run(
                [*mutmut, NONE], cwd=ROOT, stdout=subprocess.DEVNULL
            )  # makes the changes, tries none
            mutmut += sample(iter(results()), options.one_in)
        subprocess.run(mutmut, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    chosen = frozenset(sample(iter(results()), options.one_in))
    tried = {name: code for name, code in results().items() if name in chosen and code in NOTICED | UNNOTICED}
    if not tried:
        print("mutants: no change was tried", file=sys.stderr)
        return 1
    by_file: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, code in tried.items():
        by_file[file_of(name)][0] += 1
        by_file[file_of(name)][1] += code in NOTICED
    print("| file | tried | noticed |\n|---|---:|---:|")
    for file, (all_of_it, noticed) in sorted(by_file.items()):
        print(f"| {file} | {all_of_it} | {noticed} |")
    survivors = [
        {"in": function_of(name), "change": difference(name)}
        for name, code in sorted(tried.items())
        if code in UNNOTICED
    ]
    for survivor in survivors:
        print(f"\n{survivor['in']}", *survivor["change"], sep="\n    ")
    noticed = len(tried) - len(survivors)
    interval = binomtest(noticed, len(tried)).proportion_ci(method="wilson")
    of_all = f" (95 % interval {interval.low:.1%} to {interval.high:.1%})" if options.one_in > 1 else ""
    print(f"\n{noticed} of {len(tried)} changes were noticed: {noticed / len(tried):.1%}{of_all}.")
    return 0 if noticed >= ENOUGH * len(tried) else 1


if __name__ == "__main__":
    sys.exit(main())

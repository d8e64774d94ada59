"""Tools shared by benchmarks: a server of their own, one line of output, a command line, and figures for the pages."""

import argparse
import json
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import redis

from lab.errors import USAGE, UsageError
from lab.runner.run import host_facts
from lab.server.servers import SERVERS

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = ("--out", "--write")
"""Options that name a path of this machine: they do not affect the measurement, and are not kept."""


@contextmanager
def server(name: str = "embedded") -> Iterator[str]:
    """Start one of the lab's servers (without persistence), as a run would; yields its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            SERVERS[name].command(port, folder),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    redis.Redis(port=port, protocol=2).ping()
                    break
                except redis.RedisError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


class OneLineParser(argparse.ArgumentParser):
    """Bad arguments get one line and the exit code of the contract."""

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parse_names(text: str, known: Sequence[str], what: str) -> list[str]:
    """The names in a list with commas, in the order of `known`. Raises argparse's error for one that is unknown, or
    if there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no {what} {name!r}; known are {', '.join(known)}")
    if not names:
        raise argparse.ArgumentTypeError(f"names no {what}; known are {', '.join(known)}")
    return [name for name in known if name in names]


def interrupts_raise() -> None:
    """Let a signal that ends the process raise KeyboardInterrupt, so that what was started is ended first."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def report(what: str, ratio: float, goal: str, **figures: float) -> None:
    """Print one JSON line: the ratio, its goal and what it was made of."""
    shown = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"bench": what, "ratio": round(ratio, 3), "goal": goal, **shown}))


def typed(module: str) -> str:
    """The command that runs this process, without the places of its files. `module` stands after ``python -m``."""
    words = iter(sys.argv[1:])
    words_kept = [word for word in words if not (word in ELSEWHERE and next(words, ""))]
    return shlex.join(["python", "-m", module, *words_kept])


@dataclass(frozen=True)
class Evidence:
    """The stored figures of a benchmark: a JSON file, and tables of them in pages.

    `tables`: page → name of a table → the function that makes it from the figures; it returns None where its part was
    not measured yet.
    """

    figures: str
    tables: Mapping[str, Mapping[str, Callable[[dict[str, Any]], str | None]]]
    root: Path = ROOT

    def records(self) -> dict[str, Any]:
        """The figures kept so far, by the names of their parts."""
        path = self.root / self.figures
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def keep(self, part: str, module: str, **figures: Any) -> None:
        """Keep figures under the name `part`, with the command, the day and the machine, and renew the tables.

        `module` is the benchmark's name after ``python -m``. Other parts stay. Raises `UsageError` as `write` does.
        """
        machine = host_facts()
        about = {
            "command": typed(module),
            "date": date.today().isoformat(),
            "machine": f"{machine['cores']} cores of {machine['processor']}",
        }
        self.write(dict(sorted((self.records() | {part: {**about, **figures}}).items())))

    def write(self, records: dict[str, Any]) -> None:
        """Write all figures, and the tables of them. Raises `UsageError` for a page that has no place for a table."""
        (self.root / self.figures).write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        for page, tables in self.tables.items():
            for name, make in tables.items():
                if (table := make(records)) is not None:
                    write_table(self.root / page, name, table)


def write_table(page: Path, name: str, table: str) -> None:
    """Put a table between its marks `table: NAME` in a page. Raises `UsageError` where the page has none."""
    begin, end = f"<!-- table: {name} -->\n", "<!-- /table -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UsageError(f"{page} has no marks for the table {name!r}.")
    page.write_text(f"{before}{begin}{table}\n{end}{after}", encoding="utf-8")


def days(parts: Iterable[dict[str, Any]]) -> str:
    """The machines of some parts, and the first and last day."""
    parts = list(parts)
    dates = sorted(part["date"] for part in parts)
    machines = ", ".join(sorted({part["machine"] for part in parts}))
    return f"{machines}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."

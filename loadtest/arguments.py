"""The command line of the load's processes: numbers in a range, names, a server, and when to end.

Bad arguments end a process: one line on stderr, exit code 2.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from loadtest.resp import Server


class Parser(argparse.ArgumentParser):
    """A parser with the arguments of every load: --url (default: PROBE_URL), and --until-stdin-ends."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self.add_argument(
            "--url",
            type=server,
            default=os.environ.get("PROBE_URL"),
            help="server: redis://[[user]:password@]host[:port][/database] (PROBE_URL, which hides a password from ps)",
        )
        self.add_argument(
            "--until-stdin-ends",
            action="store_true",
            help="end when stdin ends: for a parent process that cannot send signals (docker exec) or may die",
        )

    def error(self, message: str) -> NoReturn:
        """End the process: one line on stderr, exit code 2."""
        self.exit(2, f"{self.prog}: {message}\n")

    def read(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse the arguments. A missing server address ends the process, as bad arguments do."""
        options = self.parse_args(arguments)
        if options.url is None:
            self.error("no server: give --url, or set PROBE_URL")
        return options


def number(low: float, high: float, kind: Callable[[str], float] = float) -> Callable[[str], float]:
    """A reader of numbers from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"not a {'whole ' if kind is int else ''}number: {text}"
            ) from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low:g} and {high:g}: {text}")
        return value

    return read


def word(text: str) -> str:
    """Parse a name or a prefix of keys."""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", text):
        raise argparse.ArgumentTypeError(f"letters, digits and _.:- only, at most 64: {text!r}")
    return text


def key_prefix(text: str) -> str:
    """Parse a prefix of keys, which may have a hash tag."""
    if not re.fullmatch(r"[A-Za-z0-9_.:{}-]{1,64}", text):
        raise argparse.ArgumentTypeError(f"letters, digits and _.:{{}}- only, at most 64: {text!r}")
    return text


def server(text: str) -> Server:
    """Parse a server's address."""
    try:
        return Server.from_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def stop_with_stdin(stop: Callable[[], None]) -> None:
    """Wait until stdin ends, then call `stop`. Blocks in read(2), so it costs the measurement nothing."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    stop()

"""The command line of the load's processes. A load declares each option once, as a field of its plan.

    @dataclass(frozen=True, kw_only=True)
    class Plan(ServerPlan):
        rate: float = option("requests a second", number(1, 2000), 60.0)

has --rate, --url and --until-stdin-ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, NoReturn, TypeVar

from loadtest.resp import Server


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """End the process: one line on stderr, exit code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def option(text: str, read: Callable[[str], object] = str, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field of a plan that is an option of its load: field `key_bytes` is --key-bytes.

    Args:
        text: its help, to which the default is added.
        read: parses its value.
        default: without one the option must be given. With False it is a switch.
        more: further arguments for `add_argument`; `flag`, where the option's name is not the field's; `variable` of
            the environment, which holds the value where the option is not given.
    """
    return field(default=default, metadata={"help": text, "type": read, **more})


def _add(parser: argparse.ArgumentParser, each: Field[Any]) -> None:
    words = dict(each.metadata)
    flag = words.pop("flag", f"--{each.name.replace('_', '-')}")
    variable = words.pop("variable", "")
    if each.default is False:
        del words["type"]
        words["action"] = "store_true"
    elif each.default is MISSING:
        words["default"] = os.environ.get(variable)
        words["required"] = not variable
    else:
        words["default"] = each.default
        if shown := _shown(each.default):
            words["help"] += f" ({shown})"
    parser.add_argument(flag, dest=each.name, **words)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def read_plan(kind: type[P], prog: str, about: str | None, arguments: Sequence[str] | None = None) -> P:
    """Read a plan from the command line; the first line of `about` describes the load in its help.

    Bad arguments end the process, and so does a `ValueError` of the plan: one line on stderr, exit code 2.
    """
    parser = Parser(prog, description=(about or "").partition("\n")[0], allow_abbrev=False)
    for each in fields(kind):
        _add(parser, each)
    options = vars(parser.parse_args(arguments))
    for each in fields(kind):
        if each.default is MISSING and options[each.name] is None:
            variable = each.metadata["variable"]
            parser.error(f"no {each.name}: give {each.metadata['flag']}, or set {variable}")
    try:
        return kind(**options)
    except ValueError as error:
        parser.error(str(error))


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


def server_address(text: str) -> Server:
    """Parse a server's address."""
    try:
        return Server.from_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def words(text: str) -> tuple[str, ...]:
    """Parse names of commands with commas between them."""
    return tuple(text.upper().split(","))


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The option of every load."""

    until_stdin_ends: bool = option(
        "end when stdin ends: for a parent process that cannot send signals (docker exec) or may die",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class ServerPlan(Ending):
    """The options of every load that asks a server."""

    server: Server = option(
        "server: redis://[[user]:password@]host[:port][/database] (PROBE_URL, which hides a password from ps)",
        server_address,
        flag="--url",
        metavar="URL",
        variable="PROBE_URL",
    )


P = TypeVar("P", bound=Ending)


def stop_with_stdin(stop: Callable[[], None]) -> None:
    """Wait until stdin ends, then call `stop`. Blocks in read(2), so the measurement is not disturbed."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    stop()

"""Errors that end a command with one clear line and a documented exit code."""

from __future__ import annotations

HOLDS, CLAIM_FAILED, USAGE, STACK_BROKE, NOT_VALID, INTERRUPTED = 0, 1, 2, 3, 4, 130


class LabError(Exception):
    """An error for the user: the message says what is wrong and what to do about it."""

    exit_code = STACK_BROKE


class UsageError(LabError):
    """The command cannot be carried out as given."""

    exit_code = USAGE


class Unfit(UsageError):
    """The server, once started, turns out to lack a feature that the scenario needs; the message names it.

    `server`: its product and version.
    """

    def __init__(self, message: str, server: str) -> None:
        super().__init__(message)
        self.server = server


class StackError(LabError):
    """A process of the stack did not start, died or does not answer."""

    exit_code = STACK_BROKE


class NotFair(LabError):
    """This machine is too busy for a fair run; the message says what uses its processors."""

    exit_code = NOT_VALID


class Interrupted(LabError):
    """The user pressed Ctrl-C; the message says which results were kept."""

    exit_code = INTERRUPTED

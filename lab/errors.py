"""Errors that end a command with one clear line and the exit code of the contract."""

from __future__ import annotations

HOLDS, CLAIM_FAILED, USAGE, STACK_BROKE, NOT_VALID, INTERRUPTED = 0, 1, 2, 3, 4, 130


class LabError(Exception):
    """Something a person must know: the message says what is wrong and what to do about it."""

    exit_code = STACK_BROKE


class UsageError(LabError):
    """The command cannot be carried out as it was given."""

    exit_code = USAGE


class StackError(LabError):
    """A process of the stack did not start, died or does not answer."""

    exit_code = STACK_BROKE


class NotFair(LabError):
    """This machine cannot give a fair run; the message says what takes its time."""

    exit_code = NOT_VALID


class Interrupted(LabError):
    """Somebody pressed Ctrl-C; the message says what has become of the work."""

    exit_code = INTERRUPTED

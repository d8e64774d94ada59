"""`bin/lab diagnose`: finds the cause of a running server's slowness, without writing to it."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from lab.diagnose import questions
from lab.diagnose.diagnosis import AFTERWARDS, FILE, Diagnosis, changes, read
from lab.diagnose.findings import judge
from lab.diagnose.watch import Progress, watch
from lab.errors import CLAIM_FAILED, Interrupted, StackError, UsageError
from lab.foreign_text import shown
from lab.results import numbers
from lab.server.address import (
    Address,
    Certificate,
    CertificateAuthority,
    CertificateKey,
    Insecure,
    Tls,
    read_address,
)
from lab.server.window import Window

SECONDS, LONGEST_S = 30.0, 3600.0
"""Default length of a diagnosis, and the most: every wait of the probe is kept until the end."""
WATCHED_S, SHORTEST_S = 10.0, 1.0
"""Length of each diagnosis with --watch, and the shortest diagnosis."""
LEAST_FREE_BYTES = 200_000_000
FailOn = Literal["finding", "unknown"]


class _ShownProgress(Progress):
    """Shows the plan and the progress of a diagnosis on stderr."""

    def __init__(self, console: Console, seconds: float, per_second: float) -> None:
        self._console, self._seconds, self._per_second = console, seconds, per_second

    def begins(self, what: str) -> None:
        """Print the plan."""
        self._console.print(
            f"{what}\nFor {self._seconds:g} s: INFO once a second, PING and GET of a key that does not exist, "
            f"{self._per_second:g} a second together; before and after, the slow log, latency events, settings, "
            "connections. Nothing is written.",
            markup=False,  # an IPv6 address has brackets
        )

    def goes_on(self, seconds: float, total: float) -> None:
        """Print the seconds that have passed, if stderr is a terminal."""
        if self._console.is_terminal:
            self._console.print(f"\r{seconds:3.0f} of {total:g} s", end="" if seconds < total else "\n")


def diagnose(
    url: Annotated[
        str,
        typer.Argument(
            help="redis[s]://[user:password@]host:port[/db], or unix:///path.",
            metavar="URL",
        ),
    ],
    seconds: Annotated[
        float | None,
        typer.Option(help=f"Seconds to watch the server ({SECONDS:g}). With --watch: end after that time."),
    ] = None,
    rate: Annotated[
        float, typer.Option(help=f"Requests of the probe a second, {questions.MOST_PROBES_PER_S:g} at most.")
    ] = questions.PROBES_PER_S,
    compare: Annotated[
        Path | None,
        typer.Option(
            help="An earlier diagnosis, such as one of a better day: show what changed since.", metavar="FILE"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print diagnosis.json, and nothing else, on stdout.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for diagnosis.json and diagnosis.html.", metavar="DIR")
    ] = None,
    show_arguments: Annotated[
        bool,
        typer.Option(
            "--show-arguments",
            help="Show slow commands with their arguments, on the terminal only.",
        ),
    ] = False,
    watched: Annotated[
        bool,
        typer.Option("--watch", help=f"Diagnose again and again, {WATCHED_S:g} s each, a line for each."),
    ] = False,
    above: Annotated[
        float | None,
        typer.Option(
            help="With --watch: keep every diagnosis whose p99 is above this many ms.", metavar="MS"
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(help="With --above: number of diagnoses to keep, the newest ones.", min=1, max=1000)
    ] = 20,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            help="For scripts: exit code 1 if a cause is named (finding), or also if the outcome is unknown (unknown)."
        ),
    ] = None,
    ca: CertificateAuthority = None,
    cert: Certificate = None,
    key: CertificateKey = None,
    insecure: Insecure = False,
) -> None:
    """Watch a running server, read-only, and show what takes its time. The exit code is 0 unless --fail-on is given."""
    # With --watch, --seconds is the length of the whole watch: one that a script starts has to end by itself.
    if seconds is not None and not SHORTEST_S <= seconds <= (math.inf if watched else LONGEST_S):
        raise UsageError(
            f"--seconds must be from {SHORTEST_S:g} to {LONGEST_S:g}; with --watch it may be more."
        )
    if not 1 <= rate <= questions.MOST_PROBES_PER_S:
        raise UsageError(f"--rate must be from 1 to {questions.MOST_PROBES_PER_S:g}.")
    if above is not None and not above >= 0:
        raise UsageError("--above must be 0 or more.")
    if above is not None and not watched:
        raise UsageError("--above needs --watch.")
    if watched and (as_json or compare or fail_on):
        raise UsageError(
            "--watch prints a line for each diagnosis: leave out --json, --compare and --fail-on."
        )
    address = read_address(url, Tls(ca, cert, key, insecure))
    before = read(compare) if compare else None
    if out and not watched:
        _require_writable(out)
    progress, console = (
        Console(stderr=True, markup=False, highlight=False, soft_wrap=True),
        Console(markup=False, highlight=False, soft_wrap=True),
    )
    if insecure:
        progress.print(
            "--insecure: the certificate is not checked, so any server that answers gets the password.",
            markup=False,
        )
    progress.print(f"A user for it needs no more rights than these: {questions.ACL}", markup=False)
    if watched:
        archive = _Archive(above, keep, out or Path("runs/diagnose"))
        _watch(address, seconds or math.inf, rate, archive, show_arguments, console)
        return
    seconds = seconds or SECONDS
    window, sent = watch(address, seconds, rate, _ShownProgress(progress, seconds, rate), show_arguments)
    diagnosis = Diagnosis.from_window(window, judge(window), sent)
    if as_json:
        print(diagnosis.model_dump_json(indent=1))
    else:
        print_diagnosis(console, diagnosis, window)
        if before:
            _print_changes(console, before, diagnosis)
    if out:  # last, so that the diagnosis is printed even if the disk is full
        page = diagnosis.write(out)
        if not as_json:
            console.print(f"page: {page.resolve()}", markup=False)
    failing = {None: (), "finding": ("named",), "unknown": ("named", "unknown")}[fail_on]
    if diagnosis.outcome in failing:
        raise typer.Exit(CLAIM_FAILED)


def _require_writable(folder: Path) -> None:
    """Make the folder before a diagnosis, which takes time. Raises `UsageError` if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}. Choose another --out.") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written: no right to it. Choose another --out.")


def print_diagnosis(console: Console, diagnosis: Diagnosis, window: Window | None = None) -> None:
    """Print a diagnosis: its sentence, the causes found, the causes refuted, and the replies that could not be read."""
    lines = ["", diagnosis.sentence, ""]
    for place, each in enumerate(diagnosis.found, 1):
        lines += [
            f"{place}. {each.line}",
            f"   evidence: {each.figures}",
            f"   what would refute it: {each.against}",
            f"   next: {each.next}",
            f"   in the guide: workshop/{each.chapter}",
            "",
        ]
    if diagnosis.outcome in AFTERWARDS:
        lines += [AFTERWARDS[diagnosis.outcome], ""]
    parts = ", ".join(f"{part} {numbers.ms(took)}" for part, took in diagnosis.figures.parts_ms.items())
    lines.append(f"where the probe's p99 of {numbers.ms(diagnosis.figures.p99_ms)} went: {parts}")
    lines += [
        f"  {command.name:<12} {numbers.percent(command.share):>5} of the time, {command.per_s:,.1f} calls a second of "
        f"{command.mean_us:,.1f} µs"
        for command in diagnosis.commands[:5]
    ]
    lines.append(f"no evidence for: {', '.join(other.id for other in diagnosis.refuted)}")
    lines += [
        f"not looked for, because INFO has no {name}: {', '.join(causes)}"
        for name, causes in diagnosis.not_looked_at.items()
    ]
    lines += [f"the machine: {what}" for what in diagnosis.machine]
    lines += [f"not seen: {what}" for what in diagnosis.unseen]
    if window:
        lines += _slow(window)
    console.print("\n".join(map(shown, lines)), markup=False)


def _slow(window: Window) -> list[str]:
    """Return slow commands with their arguments, one line for equal ones."""
    return [
        f"slow: {words}" + (f" ({times} times)" if times > 1 else "")
        for words, times in Counter(window.arguments).most_common()
    ]


def _print_changes(console: Console, before: Diagnosis, latest: Diagnosis) -> None:
    lines = changes(before, latest)
    console.print(f"\nsince {before.at}:", markup=False)
    console.print(
        shown("\n".join(f"  {line}" for line in lines)) or "  no figure changed by a fifth or more",
        markup=False,
    )


@dataclass(frozen=True)
class _Archive:
    """The folder of a watch, with the `keep` newest diagnoses whose p99 was above `above` ms (None: it keeps none)."""

    above: float | None
    keep: int
    folder: Path

    def prepare(self) -> str:
        """Make the folder; return the rule of the archive as text. Raises `UsageError` if it cannot be made."""
        if self.above is None:
            return ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be written: {error.strerror}.") from None
        return f"; kept in {self.folder} above {self.above:g} ms"

    def offer(self, diagnosis: Diagnosis) -> str:
        """Keep a diagnosis if its p99 is high enough; return the outcome as text, or an empty text."""
        if self.above is None or diagnosis.figures.p99_ms <= self.above:
            return ""
        return f"  kept: {keep_diagnosis(diagnosis, self.folder, self.keep)}"


def _watch(
    address: Address, seconds: float, rate: float, archive: _Archive, show_arguments: bool, console: Console
) -> None:
    """Diagnose repeatedly for `seconds` or until Ctrl-C, and print a line for each diagnosis.

    If the server does not answer, the line has the error. Slow commands with their arguments follow the line. Raises
    `UsageError` when diagnoses are to be kept in a folder that cannot be made.
    """
    archive_text = archive.prepare()
    until = f"for {seconds:g} s" if math.isfinite(seconds) else "until Ctrl-C"
    console.print(f"every {WATCHED_S:g} s, {until}{archive_text}", markup=False)
    end = time.monotonic() + seconds
    try:
        while (remaining := end - time.monotonic()) >= SHORTEST_S:
            clock, length = time.strftime("%H:%M:%S"), min(WATCHED_S, remaining)
            try:
                window, sent = watch(address, length, rate, show_arguments=show_arguments)
            except StackError as error:
                console.print(shown(f"{clock}  {error}"), markup=False)
                time.sleep(min(length, max(0.0, end - time.monotonic())))
                continue
            diagnosis = Diagnosis.from_window(window, judge(window), sent)
            lines = [
                f"{clock}  p99 {numbers.ms(diagnosis.figures.p99_ms):>8}  "
                f"busy {numbers.percent(diagnosis.figures.busy):>5}  {diagnosis.sentence}{archive.offer(diagnosis)}",
                *(f"{'':8}  {line}" for line in _slow(window)),
            ]
            console.print(shown("\n".join(lines)), markup=False)
    except KeyboardInterrupt:
        raise Interrupted("the watch was ended; the diagnoses that were kept stay.") from None


def keep_diagnosis(diagnosis: Diagnosis, folder: Path, keep: int) -> str:
    """Write a diagnosis to its own folder, and remove the server's oldest beyond `keep`.

    Returns the path, or why it is not kept. Diagnoses of other servers in the same folder stay.
    """
    server = re.sub(r"[^\w.]+", "-", diagnosis.server.partition("://")[2] or diagnosis.server).strip("-")
    target = folder / f"seen-{server}-{diagnosis.at.replace(':', '').replace('+0000', 'Z')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            return f"nothing, because the disk of {folder} is nearly full"
        diagnosis.write(target)
        for old in sorted(folder.glob(f"seen-{server}-*Z/{FILE}"))[:-keep]:
            shutil.rmtree(old.parent)
    except OSError as error:
        return f"nothing, because {folder} cannot be written: {error.strerror}"
    except StackError as error:
        return f"nothing, because {error}"
    return str(target)

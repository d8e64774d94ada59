"""`bin/lab diagnose`: finds what is wrong with a running server, without writing to it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab.diagnose import questions
from lab.diagnose.diagnosis import FILE, Diagnosis, changes, read
from lab.diagnose.findings import judge
from lab.diagnose.watch import Progress, watch
from lab.diagnose.window import Window
from lab.errors import Interrupted, StackError, UsageError
from lab.results import numbers
from lab.stacks.address import (
    Address,
    Certificate,
    CertificateAuthority,
    CertificateKey,
    Insecure,
    Tls,
    read_address,
)

LONGEST_S = 3600.0
WATCHED_S = 10.0
"""Length of one diagnosis with --watch."""
LEAST_FREE_BYTES = 200_000_000


class _ShownProgress(Progress):
    """Shows on stderr what will be done, and how far it is."""

    def __init__(self, console: Console, seconds: float, per_second: float) -> None:
        self._console, self._seconds, self._per_second = console, seconds, per_second

    def begins(self, what: str) -> None:
        """Say what will be done."""
        self._console.print(
            f"{what}\nFor {self._seconds:g} s: INFO once a second, PING and GET of a key that does not exist, "
            f"{self._per_second:g} a second together; before and after, the slow log, latency events, settings, "
            "connections. Nothing is written.",
            markup=False,  # an IPv6 address has brackets
        )

    def goes_on(self, seconds: float, of: float) -> None:
        """Count the seconds, if stderr is a terminal."""
        if self._console.is_terminal:
            self._console.print(f"\r{seconds:3.0f} of {of:g} s", end="" if seconds < of else "\n")


def diagnose(
    url: Annotated[
        str, typer.Argument(help="redis[s]://[user:password@]host:port[/db], or unix:///path.", metavar="URL")
    ],
    seconds: Annotated[float, typer.Option(help="Seconds to watch the server.")] = 30.0,
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
            "--show-arguments", help="Show slow commands with their arguments, on the terminal only."
        ),
    ] = False,
    watched: Annotated[
        bool, typer.Option("--watch", help=f"Diagnose again and again, {WATCHED_S:g} s each, until Ctrl-C.")
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
    ca: CertificateAuthority = None,
    cert: Certificate = None,
    key: CertificateKey = None,
    insecure: Insecure = False,
) -> None:
    """Watch a running server, read-only, and say what takes its time. The exit code is 0 even if something is wrong."""
    if not 1 <= seconds <= LONGEST_S:
        raise UsageError(f"--seconds must be from 1 to {LONGEST_S:g}.")
    if not 1 <= rate <= questions.MOST_PROBES_PER_S:
        raise UsageError(f"--rate must be from 1 to {questions.MOST_PROBES_PER_S:g}.")
    if above is not None and not above >= 0:
        raise UsageError("--above must be 0 or more.")
    if above is not None and not watched:
        raise UsageError("--above needs --watch.")
    if watched and (as_json or compare):
        raise UsageError("--watch prints a line for each diagnosis: leave out --json and --compare.")
    address = read_address(url, Tls(ca, cert, key, insecure))
    before = read(compare) if compare else None
    progress, console = (
        Console(stderr=True, highlight=False, soft_wrap=True),
        Console(highlight=False, soft_wrap=True),
    )
    if insecure:
        progress.print(
            "--insecure: the certificate is not checked, so any server that answers gets the password.",
            markup=False,
        )
    progress.print(f"A user for it needs no more rights than these: {questions.ACL}", markup=False)
    if watched:
        _watch(address, rate, above, keep, out or Path("runs/diagnose"), console)
        return
    window, sent = watch(address, seconds, rate, _ShownProgress(progress, seconds, rate), show_arguments)
    diagnosis = Diagnosis.of(window, judge(window), sent)
    page = diagnosis.write(out) if out else None
    if as_json:
        print(diagnosis.model_dump_json(indent=1))
        return
    show(console, diagnosis, window)
    if before:
        _show_changes(console, before, diagnosis)
    if page:
        console.print(f"page: {page.resolve()}", markup=False)


def show(console: Console, it: Diagnosis, window: Window | None = None) -> None:
    """Print a diagnosis: the sentence, the findings, what it refutes, and what could not be seen."""
    lines = ["", it.sentence, ""]
    for place, each in enumerate(it.found, 1):
        lines += [
            f"{place}. {each.line}",
            f"   evidence: {each.figures}",
            f"   refuted by: {each.against}",
            f"   next: {each.next}",
            f"   in the guide: workshop/{each.chapter}",
            "",
        ]
    parts = ", ".join(f"{part} {numbers.ms(took)}" for part, took in it.figures.parts_ms.items())
    lines.append(f"where the probe's p99 of {numbers.ms(it.figures.p99_ms)} went: {parts}")
    lines += [
        f"  {command.name:<12} {numbers.percent(command.share):>5} of the time, {command.per_s:,.1f} calls a second of "
        f"{command.mean_us:,.1f} µs"
        for command in it.commands[:5]
    ]
    lines.append(f"no evidence for: {', '.join(other.id for other in it.refuted)}")
    lines += [f"not seen: {what}" for what in it.unseen]
    if window:
        lines += [f"slow: {words}" for words in window.arguments]
    console.print("\n".join(lines), markup=False)


def _show_changes(console: Console, before: Diagnosis, now: Diagnosis) -> None:
    said = changes(before, now)
    console.print(f"\nsince {before.at}:", markup=False)
    console.print(
        "\n".join(f"  {line}" for line in said) or "  no figure changed by a fifth or more", markup=False
    )


def _watch(
    address: Address, rate: float, above: float | None, keep: int, folder: Path, console: Console
) -> None:
    """Diagnose again and again, a line each, until Ctrl-C. A server that does not answer gets a line, too.

    Raises `UsageError` when diagnoses are to be kept in a folder that cannot be made.
    """
    if above is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    console.print(
        f"every {WATCHED_S:g} s, until Ctrl-C{f'; kept in {folder} above {above:g} ms' if above is not None else ''}",
        markup=False,
    )
    try:
        while True:
            clock = time.strftime("%H:%M:%S")
            try:
                window, sent = watch(address, WATCHED_S, rate)
            except StackError as error:
                console.print(f"{clock}  {error}", markup=False)
                time.sleep(WATCHED_S)
                continue
            it = Diagnosis.of(window, judge(window), sent)
            kept = ""
            if above is not None and it.figures.p99_ms > above:
                kept = f"  kept: {keep_one(it, folder, keep)}"
            console.print(
                f"{clock}  p99 {numbers.ms(it.figures.p99_ms):>8}  busy {numbers.percent(it.figures.busy):>5}  "
                f"{it.sentence}{kept}",
                markup=False,
            )
    except KeyboardInterrupt:
        raise Interrupted("the watch was ended; the diagnoses that were kept stay.") from None


def keep_one(it: Diagnosis, folder: Path, keep: int) -> str:
    """Write a diagnosis to its own folder, remove the oldest beyond `keep`; return the path, or why it is not kept."""
    place = folder / f"seen-{it.at.replace(':', '').replace('+0000', 'Z')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            return f"nothing, because the disk of {folder} is nearly full"
        it.write(place)
        for old in sorted(folder.glob(f"seen-*/{FILE}"))[:-keep]:
            shutil.rmtree(old.parent)
    except OSError as error:
        return f"nothing, because {folder} cannot be written: {error.strerror}"
    except StackError as error:
        return f"nothing, because {error}"
    return str(place)

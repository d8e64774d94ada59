"""`bin/lab predict`: predicts other sizes from a run folder, or from a diagnosis of your own server."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from lab.diagnose import diagnosis
from lab.diagnose.diagnosis import CommandCost, Diagnosis
from lab.errors import UsageError
from lab.results import numbers, prediction
from lab.results.basis import CALL_S, SEARCHES, Basis, Costs, Range, read_basis, why_unfit
from lab.results.folder import Run
from lab.results.prediction import STRATEGIES, Prediction, Question

WIDEST = 110
MOST_KEYS, MOST_EVENTS, MOST_SHARDS = 1e15, 1e9, 16_384
"""A number beyond these is a typing error. A cluster has 16,384 slots."""


def predict(
    source: Annotated[
        Path,
        typer.Argument(
            help="A run folder, or the diagnosis.json that bin/lab diagnose --out wrote.",
            metavar="RUN_OR_DIAGNOSIS",
        ),
    ],
    keys: Annotated[
        float | None, typer.Option(help="Keys on all shards together, such as 1e9; if left out, as measured.")
    ] = None,
    events: Annotated[
        float | None, typer.Option(help="Events a second that invalidate; if left out, as measured.")
    ] = None,
    count: Annotated[float | None, typer.Option(help="COUNT of each SCAN; if left out, as measured.")] = None,
    shards: Annotated[float, typer.Option(help="Servers that share the keys.")] = 1,
    strategy: Annotated[
        str | None, typer.Option(help=f"{', '.join(STRATEGIES)}; if left out, the measured one.")
    ] = None,
    count_now: Annotated[
        float | None,
        typer.Option(
            help="For a diagnosis with SCAN: the COUNT of its calls, which a server does not report."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON on stdout.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw p99 and utilisation over the keys.", metavar="FILE.png")
    ] = None,
) -> None:
    """Predict utilisation, knee and p99 of bystanders at another size, with every assumption."""
    if plot is not None and plot.suffix.lower() != ".png":
        raise UsageError(f"--plot draws PNG: name a file that ends in .png, not {plot.name}.")
    if plot is not None and not plot.parent.is_dir():
        raise UsageError(f"--plot: there is no folder {plot.parent}.")
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(f"--strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}.")
    for name, value, least, most in (
        ("keys", keys, 1, MOST_KEYS),
        ("events", events, 1e-6, MOST_EVENTS),
        ("count", count, 1, MOST_KEYS),
        ("count-now", count_now, 1, MOST_KEYS),
        ("shards", shards, 1, MOST_SHARDS),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"--{name} must be from {least:g} to {most:g}, not {value:g}.")
    if shards != round(shards):
        raise UsageError(f"--shards must be a whole number, not {shards:g}.")
    basis = basis_of(source, count_now)
    if not (events or basis.events):
        raise UsageError(f"{source} does not say how many events a second there are: add --events.")
    question = Question(
        keys=keys or basis.keys,
        events=events or basis.events,
        count=count or basis.count,
        shards=round(shards),
        strategy=strategy or basis.strategy,
    )
    predicted = prediction.predict(basis, question)
    if as_json:
        print(json.dumps({"source": basis.source, **predicted.as_dict()}, indent=1, allow_nan=False))
    else:
        print(text(basis, predicted, min(WIDEST, max(60, shutil.get_terminal_size((WIDEST, 24)).columns))))
    if plot is not None:
        from lab.report.predicted import write_plot

        place = write_plot(basis, predicted, plot).resolve()
        if not as_json:
            print(f"\nplot: {place}")


def basis_of(source: Path, count_now: float | None = None) -> Basis:
    """Return the measurements of a run folder or a diagnosis. Raises `UsageError` for neither, or without searches."""
    folder = source.parent if source.name == "run.json" else source
    if (folder / "run.json").is_file():
        if count_now is not None:
            raise UsageError("--count-now is for a diagnosis: a run folder knows its COUNT.")
        try:
            return read_basis(Run(folder))
        except (ValueError, LookupError, ArithmeticError) as error:
            raise UsageError(f"{folder} is damaged ({error!r}): run the scenario again.") from error
    if not source.exists():
        raise UsageError(f"there is no {source}: name a run folder, or a diagnosis.json.")
    if source.is_dir() and not (source / diagnosis.FILE).is_file():
        raise UsageError(f"{source} is no run folder and has no {diagnosis.FILE}: name one that has either.")
    try:
        earlier = diagnosis.read(source)
    except UsageError as error:
        raise UsageError(f"{source} is neither a run folder nor a {diagnosis.FILE}: {error}") from None
    return of_diagnosis(earlier, count_now)


def of_diagnosis(diagnosed: Diagnosis, count_now: float | None = None) -> Basis:
    """Return the measurements of a diagnosis. Each search counts as an event: a server does not report which belong.

    Raises `UsageError` when nothing searches, when the COUNT of its SCANs is needed, or for a Dragonfly or a KeyDB.
    """
    figures, subject = diagnosed.figures, f"the diagnosis of {diagnosed.server}"
    if reason := why_unfit(diagnosed.product):
        raise UsageError(f"{subject} is of a {diagnosed.product}, which {reason}.")
    searches = {
        each.name: each for each in diagnosed.commands if each.name in SEARCHES.values() and each.mean_us > 0
    }
    if not searches or figures.keys < 1:
        raise UsageError(
            f"{subject} saw neither SCAN nor KEYS at work, so nothing in it grows with the keys."
        )
    dearest = max(searches.values(), key=lambda each: each.share)
    strategy = next(name for name, command in SEARCHES.items() if command == dearest.name)
    if "SCAN" in searches and count_now is None:
        raise UsageError(
            f"{subject} saw SCAN, and no server reports its COUNT: add --count-now N, the COUNT of your service."
        )
    visited = {
        name: figures.keys if name == "KEYS" else min(count_now or math.inf, figures.keys)
        for name in searches
    }
    call = _call_s(diagnosed.commands, figures.busy)
    others = [
        f"{name} ({numbers.percent(each.share)} of the time)"
        for name, each in searches.items()
        if each is not dearest
    ]
    return Basis(
        source=f"{subject} ({diagnosed.product} {diagnosed.version}, {diagnosed.at})",
        strategy=strategy,
        patterns=1,
        keys=figures.keys,
        events=dearest.per_s * visited[dearest.name] / figures.keys,
        count=round(count_now or 10),
        base=max(0.0, figures.busy - dearest.share - dearest.per_s * (call or CALL_S).likely),
        costs={
            name: Costs(((float(figures.keys), each.mean_us / 1e6 / visited[name]),))
            for name, each in searches.items()
        },
        call_s=call or CALL_S,
        event_s={},
        floor_ms=figures.floor_ms,
        room_keys=figures.keys / figures.memory if figures.memory > 0 else None,
        notes=(
            f"the {diagnosed.seconds:.0f} s that the diagnosis saw are typical",
            "each search counts as an event of its own; if an event begins several at once, p99 is that much longer",
            *(f"{other} is part of everything else, and does not grow with the keys" for other in others),
            *(() if figures.memory > 0 else ("there is memory for all keys: the server has no maxmemory",)),
        ),
    )


def _call_s(commands: tuple[CommandCost, ...], busy: float) -> Range | None:
    """Return the thread's time outside of executions for each call; None if it is too small to measure."""
    calls, executing = sum(each.per_s for each in commands), sum(each.share for each in commands)
    each_s = (busy - executing) / calls if calls else 0.0
    return Range(each_s / 2, each_s, 2 * each_s) if 1e-6 <= each_s <= 1e-4 else None


# --- output


def text(basis: Basis, found: Prediction, width: int) -> str:
    """Return a prediction as lines of at most `width` characters."""
    question = found.question
    head = f"{question.strategy}, {question.keys:,.0f} keys"
    if question.shards > 1:
        head += f" on {question.shards:,} shards ({question.keys / question.shards:,.0f} on each)"
    head += f", {question.events:,.4g} events a second"
    if question.strategy == "scan":
        head += f", COUNT {question.count:,.0f}"
    per_shard = " of a shard" if question.shards > 1 else ""
    rows = [
        ("cost of a visited key", found.cost_us, numbers.us),
        (f"time of one event{' on a shard' if per_shard else ''}", _in_ms(found.event_s), numbers.ms),
        (f"utilisation{per_shard}", found.utilisation, _utilisation),
        ("knee: keys", found.knee_keys, numbers.sig),
        ("knee: events a second", found.knee_events, numbers.sig),
        ("p99 of a bystander, events at even distances", found.even_ms, _wait),
        ("p99 of a bystander, events at random moments", found.random_ms, _wait),
    ]
    width_of_names = max(len(name) for name, _, _ in rows) + 2
    lines = [head, "", f"{'':<{width_of_names}}{'likely':>16}    range"]
    for name, estimate, format_ in rows:
        if estimate is None:
            continue
        low, high = format_(estimate.low), format_(estimate.high)
        between = low if low == high else f"{low} to {high}"
        lines.append(f"{name:<{width_of_names}}{format_(estimate.likely):>16}    {between}")
    for title, points in (("Note", found.warnings), ("Assumed", found.assumptions)):
        if points:
            lines += ["", f"{title}:"]
            for point in points:
                lines += textwrap.wrap(f"{point}.", width, initial_indent="  * ", subsequent_indent="    ")
    return "\n".join([*lines, "", *textwrap.wrap(f"From {basis.source}.", width)])


def _in_ms(seconds: Range) -> Range:
    return seconds.times(Range(1000, 1000, 1000))


def _utilisation(share: float) -> str:
    return numbers.share(share) if share < 1 else numbers.times(share)


def _wait(wait_ms: float) -> str:
    return numbers.ms(wait_ms) if math.isfinite(wait_ms) else "without limit"

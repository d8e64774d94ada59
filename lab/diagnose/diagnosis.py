"""The files of a diagnosis, `diagnosis.json` and the page `diagnosis.html`, and its differences from another one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.diagnose.findings import JudgedCause, WindowJudgement
from lab.errors import StackError, UsageError
from lab.results import numbers
from lab.server.window import Window
from lab.templates import templates

HERE = Path(__file__).parent
STYLE = HERE.parent / "report" / "page.css"
FILE, PAGE = "diagnosis.json", "diagnosis.html"
TOP_COMMANDS = 8
AFTERWARDS = {
    "nothing": "If clients still wait, look at them: their pools, their own CPU, their network route to the server. If "
    "it is slow only now and then, --watch --above MS keeps a diagnosis of each slow time.",
    "unknown": "Diagnose again while it is slow, for longer (--seconds 120), with the rights that were missing, and on "
    "the server's own machine: only there the system reports whether the server lacks a core.",
}
"""Outcome without a named cause → advice."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 240, 80, 14, 206


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CauseReport(_Strict):
    """A cause that was looked for, found or refuted.

    `line` describes the cause, `figures` are the measured figures, `against` is the observation that would refute it.
    `next` is the next experiment to type, `chapter` the guide's page on it.
    """

    id: str
    line: str
    figures: str
    against: str
    next: str
    chapter: str


class CommandCost(_Strict):
    """The cost of a command: calls a second, mean time of a call in µs, share of the main thread's time (0 to 1)."""

    name: str
    per_s: float
    mean_us: float
    share: float


class DiagnosisFigures(_Strict):
    """The figures of the server and of the probe. Shares are from 0 to 1.

    `p50_ms`, `p99_ms` and the 95 % interval of p99 (`p99_low_ms` to `p99_high_ms`) are the probe's waits. `floor_ms` is
    a round trip with nothing in its way. `parts_ms` divides p99 into execution, round trip and waiting. `busy` is the
    utilisation of the main thread, `memory` the largest share of maxmemory in use, `output_bytes` the memory of replies
    that clients have not read. A stall is a stretch in which the probe got no reply; `period_s` is the time from one to
    the next. `without_a_core` is the share of the time that the main thread was ready but had no core, `others_cores`
    the cores that other programs used. null: unknown.
    """

    p50_ms: float
    p99_ms: float
    p99_low_ms: float
    p99_high_ms: float
    floor_ms: float
    parts_ms: dict[str, float]
    busy: float
    keys: int
    memory: float
    evicted_per_s: float
    clients: int
    output_bytes: float | None
    stalls: int
    longest_stall_s: float
    period_s: float | None
    without_a_core: float | None
    others_cores: float | None


class Diagnosis(_Strict):
    """A whole diagnosis.

    `at` is when it began (UTC), `seconds` how long it took. `outcome`: `named` (a cause is found), `nothing` (nothing
    is wrong) or `unknown` (GETs are slow, no cause is found); `sentence` says it in words. `found` and `refuted` are
    the causes with and without evidence. `commands` are those that took the most time. `waits_ms` is, for each request
    of the probe, its due time (s) and its wait (ms). `sent` counts the commands that were sent. `machine`: what of the
    server's own machine can hold it up, where the lab runs there. `unseen` lists replies that could not be read, with
    the reasons. `not_looked_at`: for each field that INFO lacks, the causes that could not be looked for without it.
    """

    schema_version: Literal[1] = 1
    at: str
    server: str
    product: str
    version: str
    seconds: float
    outcome: Literal["named", "nothing", "unknown"]
    sentence: str
    found: tuple[CauseReport, ...]
    refuted: tuple[CauseReport, ...]
    figures: DiagnosisFigures
    commands: tuple[CommandCost, ...]
    waits_ms: tuple[tuple[float, float], ...]
    sent: dict[str, int]
    machine: tuple[str, ...] = ()
    unseen: tuple[str, ...]
    not_looked_at: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_window(cls, window: Window, judgement: WindowJudgement, sent: Mapping[str, int]) -> Diagnosis:
        """Build a diagnosis from a window and its judgement. The arguments of slow commands are left out."""
        low, high = window.interval_ms
        return cls(
            at=datetime.fromtimestamp(window.first.at, UTC).isoformat(timespec="seconds"),
            server=window.shown,
            product=window.product,
            version=window.version,
            seconds=round(window.seconds, 3),
            outcome=judgement.outcome,  # type: ignore[arg-type] # checked here
            sentence=judgement.sentence,
            found=tuple(map(_report, judgement.found)),
            refuted=tuple(map(_report, judgement.refuted)),
            figures=DiagnosisFigures(
                p50_ms=window.percentile_ms(50),
                p99_ms=window.get_ms,
                p99_low_ms=low,
                p99_high_ms=high,
                floor_ms=window.floor_ms,
                parts_ms=window.parts_ms,
                busy=window.busy,
                keys=window.keys,
                memory=window.memory,
                evicted_per_s=window.evicted_per_s,
                clients=int(window.last.number("connected_clients")),
                output_bytes=window.clients.output_bytes if window.clients else None,
                stalls=len(window.stalls),
                longest_stall_s=max((took for _, took in window.stalls), default=0.0),
                period_s=window.period_s,
                without_a_core=window.waited,
                others_cores=window.others,
            ),
            commands=tuple(
                CommandCost(name=name, per_s=spent.per_s, mean_us=spent.mean_us, share=window.share(name))
                for name, spent in window.dearest[:TOP_COMMANDS]
            ),
            waits_ms=tuple((round(each.due_s, 3), round(1000 * each.waited_s, 3)) for each in window.probed),
            sent=dict(Counter(sent)),
            machine=tuple(window.machine),
            unseen=tuple(window.unseen),
            not_looked_at={
                name.rstrip("_"): tuple(cause.id for cause, lacks in judgement.not_looked_at if lacks == name)
                for _, name in judgement.not_looked_at
            },
        )

    def write(self, folder: Path) -> Path:
        """Write both files; return the page's path. Raises `StackError` when the folder cannot be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE).write_text(self.model_dump_json(indent=1) + "\n")
            page = folder / PAGE
            page.write_text(
                templates(HERE)
                .get_template("page.html.j2")
                .render(
                    style=STYLE.read_text(),
                    it=self,
                    when=f"{datetime.fromisoformat(self.at):%d %B %Y, %H:%M %Z}",
                    afterwards=AFTERWARDS.get(self.outcome),
                    n=numbers,
                    plot=plot(self.waits_ms),
                )
            )
        except OSError as error:
            raise StackError(f"the diagnosis cannot be written to {folder}: {error.strerror}.") from None
        return page


def _report(judged: JudgedCause) -> CauseReport:
    cause = judged.cause
    return CauseReport(
        id=cause.id,
        line=cause.line,
        figures=judged.evidence.text,
        against=cause.against,
        next=judged.next,
        chapter=cause.chapter,
    )


def read(path: Path) -> Diagnosis:
    """Read an earlier diagnosis from its file or its folder. Raises `UsageError` when that is not possible."""
    file = path / FILE if path.is_dir() else path
    try:
        return Diagnosis.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        [first, *_] = error.errors()
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{file} is no diagnosis of this lab: {place}: {first['msg']}.") from None


def changes(before: Diagnosis, now: Diagnosis) -> list[str]:
    """Return a line for each figure that changed by a fifth or more since another diagnosis."""
    rows: list[tuple[str, float, float, str]] = [
        ("p99 of the probe", before.figures.p99_ms, now.figures.p99_ms, "ms"),
        ("a round trip with nothing in its way", before.figures.floor_ms, now.figures.floor_ms, "ms"),
        ("the main thread's utilisation", 100 * before.figures.busy, 100 * now.figures.busy, "%"),
        ("keys", before.figures.keys, now.figures.keys, ""),
        ("connections", before.figures.clients, now.figures.clients, ""),
        ("memory, of its limit", 100 * before.figures.memory, 100 * now.figures.memory, "%"),
        ("evictions a second", before.figures.evicted_per_s, now.figures.evicted_per_s, ""),
    ]
    costs = {each.name: each for each in before.commands}
    rows += [
        (
            f"{each.name}, calls a second",
            costs[each.name].per_s if each.name in costs else 0.0,
            each.per_s,
            "",
        )
        for each in now.commands
    ]
    rows += [
        (f"{each.name}, µs a call", costs[each.name].mean_us, each.mean_us, "")
        for each in now.commands
        if each.name in costs
    ]
    lines = []
    for name, earlier, later, unit in rows:
        if abs(later - earlier) >= 0.2 * max(abs(earlier), 1e-9) and max(earlier, later) > 0:
            times = f" ({numbers.times(later / earlier)})" if earlier else ""
            lines.append(f"{name}: {numbers.short(earlier)} → {numbers.short(later)} {unit}".rstrip() + times)
    return lines


def plot(waits_ms: tuple[tuple[float, float], ...]) -> dict[str, object]:
    """Return the plot of the probe's waits: a stroke for each, on a logarithmic scale from 0.1 ms."""
    from math import log10

    highest = max((wait for _, wait in waits_ms), default=1.0)
    decades = 1
    while 0.1 * 10**decades < highest:
        decades += 1
    last = max((at for at, _ in waits_ms), default=1.0) or 1.0

    def y(wait: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * min(1.0, max(0.0, log10(max(wait, 0.1) / 0.1) / decades)), 1)

    return {
        "strokes": [(round(LEFT + (WIDTH - LEFT - 10) * at / last, 1), y(wait)) for at, wait in waits_ms],
        "steps": [(y(0.1 * 10**step), numbers.ms(0.1 * 10**step)) for step in range(decades + 1)],
        "bottom": BOTTOM,
        "left": LEFT,
        "width": WIDTH,
        "height": HEIGHT,
        "last": last,
    }


def schema() -> str:
    """Return the JSON Schema of `diagnosis.json`."""
    return json.dumps(Diagnosis.model_json_schema(), indent=1) + "\n"

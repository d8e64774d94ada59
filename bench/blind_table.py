"""Blind sessions over all causes, levels and stacks: is each what it promises? `python -m bench.blind_table`.

Each session is played from its beginning to its cure, in place of a participant. A row says whether the evidence of the
causes is there and that of no other cause, whether the complaint is true, and what a tempting lever and the cures did.
A session takes some minutes. `--write` keeps its row at once in docs/sessions.json, in place of an older row of the
same session, and renews the table of docs/sessions.md. So the table can be made in parts (`--only`). Exit code 0 when
every row is as promised, else 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.blind_trial import Trial
from bench.kit import Evidence, OneLineParser, days, interrupts_raise, parse_names
from docs.pages.fromruns import table
from lab.blind.cause import CURE, LEVELS, Cause
from lab.blind.causes import CAUSES, PAIRS
from lab.blind.checking import LONGEST_S
from lab.blind.scene import BlindStack
from lab.blind.scene_stack import SceneBlindStack
from lab.blind.session import TICK_S, complaint
from lab.errors import CLAIM_FAILED, HOLDS, LabError
from lab.server.inside import COMPOSE, NATIVE, is_inside

LOOKS = 3


@dataclass(frozen=True)
class Pulled:
    """A pulled lever with the check's outcome. `well_after_s`: seconds until the symptom was gone; None: never."""

    lever: str
    cured: bool
    well_after_s: float | None
    text: str = ""


@dataclass(frozen=True)
class SessionRow:
    """A session. `others`: further causes whose evidence was found. `tempting` is None where no lever tempts."""

    stack: str
    level: int
    causes: tuple[str, ...]
    shown: bool
    others: tuple[str, ...]
    complaint_true: bool
    tempting: Pulled | None
    cures: tuple[Pulled, ...]
    seconds: float
    error: str = ""

    @property
    def _last(self) -> Pulled:
        return self.cures[-1] if self.cures else Pulled("", False, None, "its check did not end.")

    @property
    def broken(self) -> list[str]:
        """The promises that the session broke; empty where it was as promised."""
        if self.error:
            return [self.error]
        promises = {
            "the evidence is not there": self.shown,
            f"the evidence of {', '.join(self.others)} is there, too": not self.others,
            "the complaint is not true": self.complaint_true,
            "what tempts is a cure": self.tempting is None or not self.tempting.cured,
            f"what should cure does not: {self._last.text}": self._last.cured,
        }
        return [summary for summary, records in promises.items() if not records]


class FullSession(Trial):
    """A session that pulls its levers one after the other, until the last one has an outcome."""

    def __init__(
        self,
        causes: tuple[Cause, ...],
        folder: Path,
        levers: Sequence[str],
        level: int,
    ) -> None:
        make = SceneBlindStack if is_inside() else BlindStack
        super().__init__(causes, folder, looks=LOOKS, make=make, task=CURE, level=LEVELS[level])
        self._levers_to_pull = levers

    def _watch(self) -> None:
        super()._watch()
        for lever in self._levers_to_pull:
            known = len(self.journal.outcomes)
            self.reply({"verb": "cure", "words": lever.split()})
            for _ in range(round(2 * LONGEST_S / TICK_S)):
                self._wait(TICK_S)
                self._report_users()
                if len(self.journal.outcomes) > known:
                    break

    def pulled(self) -> list[Pulled]:
        """Return the outcome of each pulled lever, in order."""
        return [
            Pulled(each.lever, each.cured, each.healthy_after_s, each.text) for each in self.journal.outcomes
        ]


def play(causes: tuple[Cause, ...], level: int) -> SessionRow:
    """Play a session, in the running scene if this process is inside. An error that ends it is stored in the row."""
    stack = COMPOSE if is_inside() else NATIVE
    tempting = (
        next((lever for cause in causes for lever in cause.tempting), None) if len(causes) == 1 else None
    )
    cures = [next(iter(cause.cures)) for cause in causes]
    began = time.monotonic()
    ids = tuple(cause.id for cause in causes)
    with tempfile.TemporaryDirectory(prefix="lab-") as home:
        levers = [*([tempting] if tempting else []), *cures]
        session = FullSession(causes, Path(home) / "session", levers, level)
        try:
            session.run()
        except LabError as error:
            return SessionRow(
                stack, level, ids, False, (), False, None, (), time.monotonic() - began, str(error)
            )
    readings = session.outcome()
    healthy = any(cause.finds_health for cause in causes)
    pulled = session.pulled()
    return SessionRow(
        stack,
        level,
        ids,
        all(cause.evidence(readings).found for cause in causes),
        tuple(
            other.id for other in CAUSES.values() if other not in causes and other.evidence(readings).found
        ),
        not readings.symptom
        if healthy
        else complaint(causes).is_true_in(readings),  # a healthy scene needs no true complaint
        pulled[0] if tempting and pulled else None,
        tuple(pulled[1:] if tempting else pulled),
        time.monotonic() - began,
    )


def wanted(only: Sequence[str] | None) -> list[tuple[int, tuple[Cause, ...]]]:
    """The sessions: every cause at level 1 or 2 by turns, and every pair at level 3."""
    singles = [(1 + number % 2, (cause,)) for number, cause in enumerate(CAUSES.values())]
    pairs = [(3, tuple(CAUSES[name] for name in pair)) for pair in PAIRS]
    every = [*singles, *pairs]
    return [
        session_ for session_ in every if only is None or "+".join(cause.id for cause in session_[1]) in only
    ]


def line(row: SessionRow) -> str:
    """A row in a line."""
    outcome = "; ".join(row.broken) or "as promised"
    return f"{' + '.join(row.causes)} ({row.stack}, level {row.level}, {row.seconds:.0f} s): {outcome}"


def sessions(records: dict[str, Any]) -> str:
    """A row for each session, how many were as promised, and where and when they were played."""
    rows = sorted(records.values(), key=lambda row: (row["stack"], row["level"] == 3))
    good = sum(not row["broken"] for row in rows)
    minutes = sum(row["seconds"] for row in rows) / 60
    heads = ["causes", "stack", "level", "what tempts", "what cures, and when users were well", "as promised"]
    shown = [
        [
            " and ".join(f"`{cause}`" for cause in row["causes"]),
            row["stack"],
            str(row["level"]),
            f"`{row['tempting']['lever']}`" if row["tempting"] else "nothing",
            ", then ".join(_lever(each) for each in row["cures"]),
            "; ".join(row["broken"]) or "yes",
        ]
        for row in rows
    ]
    summary = f"{good} of {len(rows)} sessions were as promised, in {minutes:.0f} minutes. {days(rows)}"
    return f"{summary}\n\n{table(heads, shown)}"


def _lever(pulled: dict[str, Any]) -> str:
    after = pulled["well_after_s"]
    return f"`{pulled['lever']}`" + (f" ({after:.0f} s)" if pulled["cured"] and after is not None else "")


EVIDENCE = Evidence("docs/sessions.json", {"docs/sessions.md": {"sessions": sessions}})


def main() -> int:
    """Play the sessions; return the exit code."""
    parser = OneLineParser(prog="bench.blind_table", description="Blind sessions from complaint to cure.")
    known = ["+".join(cause.id for cause in causes) for _, causes in wanted(None)]
    parser.add_argument(
        "--only", type=partial(parse_names, known=known, what="session"), metavar="CAUSE,CAUSE", help="(all)"
    )
    parser.add_argument("--write", action="store_true", help="keep the rows, and renew the page's table")
    options = parser.parse_args()
    interrupts_raise()
    good = True
    for level, causes in wanted(options.only):
        row = play(causes, level)
        good = good and not row.broken
        name = f"{row.stack} {'+'.join(row.causes)}"
        if options.write:
            EVIDENCE.keep(name, "bench.blind_table", **asdict(row), broken=row.broken)
        print(line(row), flush=True)
    return HOLDS if good else CLAIM_FAILED


if __name__ == "__main__":
    sys.exit(main())

"""Loads of a phase besides the storefront's: processes that print JSON lines, the last one with their figures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.claims.planned import SEARCHES
from lab.errors import LabError, StackError
from lab.scenarios.model import LoadSpec, Phase
from lab.server.server_stats import Snapshot
from lab.stacks.base import LoadProcess

LoadFigures = dict[str, float]
ENDING_S = 30.0
"""Seconds for an ended load to print its figures."""
LOOK_S = 0.3
"""Seconds between two looks for searches of an ended load. On Dragonfly each search takes 0.1 s."""


def arguments_of(spec: LoadSpec, values: Mapping[str, object]) -> list[str]:
    """Return the arguments with the names in braces filled in. Raises `StackError` for a name without a value."""
    return [_filled_in(word, values, f"load {spec.name}") for word in spec.arguments]


def figure_of(phase: Phase, reference: str, measured: Mapping[str, LoadFigures]) -> float:
    """Return an earlier phase's figure, named as PHASE[FIGURE]. Raises `StackError` if there is none."""
    return float(_filled_in(f"{{{reference}}}", measured, f"phase {phase.id}"))


def _filled_in(text: str, values: Mapping[str, object], where: str) -> str:
    try:
        return text.format_map(values)
    except (KeyError, IndexError, ValueError) as error:
        raise StackError(
            f"{where} needs {text.strip('{}')}, which was not measured: take fewer keys (--keys) or a longer --pace."
        ) from error


def await_abandoned(snapshot: Callable[[], Snapshot], pause: Callable[[float], None], seconds: float) -> bool:
    """Wait until the server has finished the searches of ended loads, which takes Dragonfly seconds.

    They are finished when no search ends between two looks. Returns False if some still end after `seconds`: then
    other programs search.
    """
    before, end = _searches(snapshot()), time.monotonic() + seconds
    while time.monotonic() < end:
        pause(LOOK_S)
        now = _searches(snapshot())
        if now == before:
            return True
        before = now
    return False


def _searches(counted: Snapshot) -> float:
    return sum(counted.commands.get(name, (0.0, 0.0))[0] for name in SEARCHES)


class RunningLoad:
    """A load under way. A thread reads its lines and passes each to `keep`."""

    def __init__(
        self, spec: LoadSpec, process: LoadProcess, keep: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.spec = spec
        self.process = process
        self._keep = keep
        self._spoke = False
        self._figures: LoadFigures | None = None
        self._error: LabError | None = None
        self._thread = threading.Thread(target=self._read, name=f"load-{spec.name}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """True once it has ended and all its output was read."""
        return not self._thread.is_alive()

    @property
    def begun(self) -> bool:
        """True once it has printed a line; always True for a load that does not report when it is ready."""
        return self._spoke or not self.spec.reports_ready

    def figures(self) -> LoadFigures:
        """Wait for its end. Returns its figures. Raises `StackError` if it failed, does not end, or has no figures."""
        end = time.monotonic() + ENDING_S
        while not self.over:
            if time.monotonic() > end:
                raise StackError(f"load {self.spec.name} does not end on SIGTERM.")
            time.sleep(0.02)
        self.check()
        if self._figures is None:
            raise StackError(f"load {self.spec.name} ended without its figures{self._words()}")
        return self._figures

    def check(self) -> None:
        """Raise the error of the reading thread, or `StackError` if it ended with an exit code other than 0."""
        if self._error:
            raise self._error
        if self.over and (code := self.process.exit_code()) != 0:
            raise StackError(f"load {self.spec.name} failed (exit code {code}){self._words()}")

    def _words(self) -> str:
        words = self.process.last_words()
        return f": {words}" if words else "."

    def _read(self) -> None:
        try:
            for raw in self.process.lines():
                try:
                    line = json.loads(raw)
                except ValueError:
                    continue  # the last line of a load that was killed
                self._spoke = True
                if isinstance(line.get("figures"), dict):
                    self._figures = {name: float(value) for name, value in line["figures"].items()}
                self._keep(self.spec.name, line)
        except LabError as error:
            self._error = error
        except ValueError:  # the pipe was closed while we read
            return

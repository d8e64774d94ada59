"""Levers: an action on several parts of the scene, each on a thread of its own, so that a hanging part delays no other.

If a part does not answer in time, the action has not failed: the desired state stays noted, and is requested again
every second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab.errors import StackError

LEVER_S = 4.0
"""Timeout for all parts of a lever together; a lever must be done within five seconds."""

Parts = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class PartResult:
    """The result of one part of a lever; `said` is a sentence."""

    part: str
    done: bool
    said: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for the page."""
        return asdict(self)


def pull(parts: Parts, seconds: float | None = None) -> list[PartResult]:
    """Carry out all parts in parallel. Returns the result of each after at most `seconds` (default: `LEVER_S`)."""
    results: dict[str, PartResult] = {}
    threads = []
    for part, act in parts.items():
        thread = threading.Thread(target=_act, args=(part, act, results), name=f"lever-{part}", daemon=True)
        thread.start()
        threads.append(thread)
    end = time.monotonic() + (LEVER_S if seconds is None else seconds)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    done = dict(results)
    return [
        done.get(part, PartResult(part, False, "No answer yet; it is asked again every second."))
        for part in parts
    ]


def _act(part: str, act: Callable[[], object], results: dict[str, PartResult]) -> None:
    try:
        sentence = act()
        results[part] = PartResult(part, True, sentence if isinstance(sentence, str) else "Done.")
    except StackError as error:
        results[part] = PartResult(part, False, f"{error} It is asked again every second.")

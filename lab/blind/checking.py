"""Checks a cure: are users well again for a while, is no event lost, is nobody's work worse?

A cure must keep all three figures of users healthy for `HEALTHY_FOR_S` on end, by the same bounds that say at the start
whether the cause shows a symptom. What only hides the cause shows in the same time: the symptom returns.

No accepted event may be lost from the pull on: each price change that the lab put into the list of changes is carried
out or still in the list, and each event of the storefront is done or pending. Nobody's work may be worse while users
are well: the server refuses no price change, the list does not grow, pages and GETs come as often as when all was well,
and neither evictions nor pages that go past the cache exceed a small bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.blind.readings import Sample, Seen, Stretch, readings
from lab.server.signs import EVICTED_PER_S

HEALTHY_FOR_S = 30.0
PATIENCE_S = 30.0
"""Seconds within which users must be well for the first time, unless a queue of changes is getting shorter."""
LONGEST_S = 300.0
"""Seconds after which a scene that is well now and then, but never long enough, is not cured. A queue of changes may
take longer to get short: it does so at every sample."""
RETURNED_SAMPLES = 2
"""Bad samples in a row after a good one that are the symptom's return; a single one may be the machine's doing."""
LEAST_PACE = 0.8
"""Share of its usual pace at which work is not worse."""
LEAVE = "leave"
CHANGES_SLACK, EVENTS_SLACK, PAST_CACHE_PER_S = 2, 8, 1.0
"""What may be under way at both ends of the check, and so is not counted exactly."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check. `pulled_at`: unix seconds. `well_after_s`: seconds until users were well; None: never."""

    lever: str
    pulled_at: float
    cured: bool
    text: str
    well_after_s: float | None = None


@dataclass(frozen=True)
class Scene:
    """What a check compares with: users' figures and the pace of pages and GETs (a second) when all was well.

    `told`: an outcome may name these figures. From level 2 on nobody is told what is usual.
    """

    healthy: Seen
    cores: int
    pages_per_s: float
    gets_per_s: float
    told: bool = True


def pace(before: Sample, samples: Sequence[Sample]) -> tuple[float, float]:
    """Pages and GETs a second from the sample `before` to the last of `samples`."""
    seconds = samples[-1].at - before.at
    return sum(each.pages for each in samples) / seconds, sum(each.gets.total for each in samples) / seconds


def lost(before: Sample, samples: Sequence[Sample]) -> list[str]:
    """Sentences on accepted events that are neither done nor waiting; empty if none is lost."""
    last = samples[-1]
    window = Stretch(before, samples).window
    popped = round(window.spent("LPOP").per_s * window.seconds)
    changes = (last.asked - before.asked) - popped - (last.queue - before.queue)
    events = sum(each.accepted for each in samples)
    events -= round(last.finished - before.finished + last.pending - before.pending)
    said = []
    if changes > CHANGES_SLACK:
        said.append(f"{changes} accepted price changes are lost")
    if events > EVENTS_SLACK:
        said.append(f"{events} accepted events of the storefront are lost")
    return said


def worse(before: Sample, samples: Sequence[Sample], scene: Scene) -> list[str]:
    """Sentences on work that is worse than when all was well; empty if none is."""
    last, of = samples[-1], readings(before, list(samples), scene.healthy, scene.cores)
    said = []
    if refused := last.refused - before.refused:
        said.append(f"the server refused {refused} price changes")
    if last.queue - before.queue > CHANGES_SLACK:
        said.append(f"the list of price changes grew from {before.queue} to {last.queue}")
    pages, gets = pace(before, samples)
    for what, now, usual in (("pages", pages, scene.pages_per_s), ("GETs", gets, scene.gets_per_s)):
        if now < LEAST_PACE * usual:
            before_it = f"{usual:.0f}" if scene.told else "more"
            said.append(f"{now:.0f} {what} a second came, {before_it} when all was well")
    if of.past_cache_per_s >= PAST_CACHE_PER_S:
        said.append(f"{of.past_cache_per_s:.0f} pages a second went past the cache")
    if of.evicted_per_s >= EVICTED_PER_S:
        said.append(f"{of.evicted_per_s:,.0f} entries a second were evicted")
    return said


class Check:
    """Judges one lever by the samples that follow it."""

    def __init__(self, lever: str, pulled_at: float, scene: Scene, needed: bool) -> None:
        """`needed`: users had a symptom before the lever was pulled."""
        self.lever = lever
        self._pulled_at = pulled_at
        self._scene = scene
        self._needed = needed
        self._start: Sample | None = None
        self._all: list[Sample] = []
        self._base: Sample | None = None
        self._well: list[Sample] = []
        self._well_after_s: float | None = None
        self._well_for_s = 0.0
        self._bad = 0

    def add(self, before: Sample, sample: Sample) -> Outcome | None:
        """Judge the next sample, which followed the sample `before`; return the outcome once there is one."""
        self._start = self._start or before
        self._all.append(sample)
        if len(self._all) == 1:  # the lever was pulled in the middle of it
            return None
        of = readings(before, [sample], self._scene.healthy, self._scene.cores)
        if not of.symptom:
            return self._add_well(before, sample)
        self._bad += 1
        self._base, self._well = None, []
        after_s = sample.at - self._pulled_at
        told = f"{of.pages_text}; {of.p99_text}; {of.changes_text}" if self._scene.told else of.seen.text
        drains = self._drains(of.slow_pages or of.slow_gets, before, sample)
        if self._well_after_s is not None:
            if self._bad >= RETURNED_SAMPLES:
                return self._failed(
                    f"the symptom returned after {self._well_for_s:.0f} s: the lever hid the cause and did not "
                    f"end it. {told}."
                )
        elif after_s > PATIENCE_S and not drains:
            return self._failed(f"the symptom is still there {after_s:.0f} s later. {told}.")
        if after_s > LONGEST_S and not drains:
            return self._failed(
                f"users were not well for {HEALTHY_FOR_S:.0f} s on end in {after_s:.0f} s. {told}."
            )
        return None

    @staticmethod
    def _drains(slow: bool, before: Sample, sample: Sample) -> bool:
        """Return whether the only trouble left is a queue of changes that is getting shorter."""
        return not slow and sample.queue < before.queue

    def _add_well(self, before: Sample, sample: Sample) -> Outcome | None:
        self._bad = 0
        self._base = self._base or before
        self._well.append(sample)
        if self._well_after_s is None:
            self._well_after_s = max(0.0, before.at - self._pulled_at)
        self._well_for_s = sample.at - self._base.at
        if self._well_for_s < HEALTHY_FOR_S:
            return None
        if troubles := [*lost(self._start or before, self._all), *worse(self._base, self._well, self._scene)]:
            return self._failed(f"users are well, but {'; '.join(troubles)}.")
        if self.lever == LEAVE and not self._needed:
            return self._outcome(
                True, f"users were well for {self._well_for_s:.0f} s, and nothing was changed."
            )
        if self.lever == LEAVE:
            return self._failed("users are well now, but were not before, and nothing was changed.")
        if not self._needed:
            return self._failed(
                "users were well before it, too, so there was nothing to cure. If nothing is wrong, say so: "
                "bin/lab blind cure leave."
            )
        return self._outcome(
            True,
            f"users were well {self._well_after_s:.0f} s after it, and stayed so for {self._well_for_s:.0f} s; no "
            "accepted event was lost, and nobody's work is worse.",
        )

    def _failed(self, text: str) -> Outcome:
        return self._outcome(False, text)

    def _outcome(self, cured: bool, text: str) -> Outcome:
        return Outcome(self.lever, self._pulled_at, cured, text, self._well_after_s)

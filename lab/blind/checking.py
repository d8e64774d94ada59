"""Checks a cure: are users well for a while, are all accepted events there, is no other work worse?

A cure must keep all three figures of users healthy for `HEALTHY_FOR_S` on end, by the same bounds as decide at the
start whether the cause shows a symptom. A lever that only hides the cause fails in that time: the symptom returns.

From the pull on no accepted event may be lost: each price change that the lab put into the list of changes is carried
out or still in the list, and each event of the storefront is done or pending. No other work may be worse while users
are well: the server refuses no price change, the list does not grow, pages and GETs come as often as when all was well,
and neither evictions nor pages that go past the cache exceed a small bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.blind.readings import SampleSpan, SessionSample, UserFigures, compute_readings
from lab.server.signs import EVICTED_PER_S

HEALTHY_FOR_S = 30.0
PATIENCE_S = 30.0
"""Seconds within which users must be well for the first time, unless a queue of changes is getting shorter."""
LONGEST_S = 300.0
"""Seconds after which a scene that is healthy now and then, but never long enough, is not cured. Only a queue of
changes that is shorter at every sample may take longer."""
RETURNED_SAMPLES = 2
"""Bad samples in a row after a good one that are the symptom's return; a single one may be the machine's doing."""
LEAST_PACE = 0.8
"""Share of the healthy pace from which work is not worse."""
LEAVE = "leave"
CHANGES_SLACK, EVENTS_SLACK, PAST_CACHE_PER_S = 2, 8, 1.0
"""Price changes, events and pages a second that may be under way at the ends of a check, and so are not exact."""


@dataclass(frozen=True)
class CureOutcome:
    """The outcome of a check. `pulled_at`: unix seconds. `healthy_after_s`: seconds until users were well, or None."""

    lever: str
    pulled_at: float
    cured: bool
    text: str
    healthy_after_s: float | None = None


@dataclass(frozen=True)
class Baseline:
    """Healthy figures that a check compares with: what users saw, and pages and GETs a second.

    `is_shown`: an outcome may name these figures, as at level 1.
    """

    healthy: UserFigures
    cores: int
    pages_per_s: float
    gets_per_s: float
    is_shown: bool = True


def pace(before: SessionSample, samples: Sequence[SessionSample]) -> tuple[float, float]:
    """Return pages and GETs a second from the sample `before` to the last of `samples`."""
    seconds = samples[-1].at - before.at
    return sum(each.pages for each in samples) / seconds, sum(each.gets.total for each in samples) / seconds


def lost(before: SessionSample, samples: Sequence[SessionSample]) -> list[str]:
    """Return a sentence for each kind of accepted event that is neither done nor waiting."""
    last = samples[-1]
    window = SampleSpan(before, samples).window
    popped = round(window.spent("LPOP").per_s * window.seconds)
    changes = (last.changes_put - before.changes_put) - popped - (last.changes_queued - before.changes_queued)
    events = sum(each.events_accepted for each in samples)
    events -= round(last.events_done - before.events_done + last.events_pending - before.events_pending)
    sentences = []
    if changes > CHANGES_SLACK:
        sentences.append(f"{changes} accepted price changes are lost")
    if events > EVENTS_SLACK:
        sentences.append(f"{events} accepted events of the storefront are lost")
    return sentences


def worse(before: SessionSample, samples: Sequence[SessionSample], baseline: Baseline) -> list[str]:
    """Return a sentence for each kind of work that is worse than when all was well."""
    last, after = samples[-1], compute_readings(before, list(samples), baseline.healthy, baseline.cores)
    sentences = []
    if refused := last.changes_refused - before.changes_refused:
        sentences.append(f"the server refused {refused} price changes")
    if last.changes_queued - before.changes_queued > CHANGES_SLACK:
        sentences.append(
            f"the list of price changes grew from {before.changes_queued} to {last.changes_queued}"
        )
    pages, gets = pace(before, samples)
    for kind, now, healthy in (("pages", pages, baseline.pages_per_s), ("GETs", gets, baseline.gets_per_s)):
        if now < LEAST_PACE * healthy:
            before_it = f"{healthy:.0f}" if baseline.is_shown else "more"
            sentences.append(f"{now:.0f} {kind} a second came, {before_it} when all was well")
    if after.past_cache_per_s >= PAST_CACHE_PER_S:
        sentences.append(f"{after.past_cache_per_s:.0f} pages a second went past the cache")
    if after.evicted_per_s >= EVICTED_PER_S:
        sentences.append(f"{after.evicted_per_s:,.0f} entries a second were evicted")
    return sentences


class CureCheck:
    """Judges one lever by the samples that follow it."""

    def __init__(self, lever: str, pulled_at: float, baseline: Baseline, needed: bool) -> None:
        """`needed`: users had a symptom before the lever was pulled."""
        self.lever = lever
        self._pulled_at = pulled_at
        self._baseline = baseline
        self._was_needed = needed
        self._before: SessionSample | None = None
        self._samples: list[SessionSample] = []
        self._before_healthy: SessionSample | None = None
        self._healthy_samples: list[SessionSample] = []
        self._healthy_after_s: float | None = None
        self._healthy_for_s = 0.0
        self._bad_samples = 0

    def add(self, before: SessionSample, sample: SessionSample) -> CureOutcome | None:
        """Judge the next sample, which followed the sample `before`; return the outcome once there is one."""
        self._before = self._before or before
        self._samples.append(sample)
        if len(self._samples) == 1:  # the lever was pulled in the middle of it
            return None
        now = compute_readings(before, [sample], self._baseline.healthy, self._baseline.cores)
        if not now.symptom:
            return self._add_healthy(before, sample)
        self._bad_samples += 1
        self._before_healthy, self._healthy_samples = None, []
        after_s = sample.at - self._pulled_at
        figures = (
            f"{now.pages_text}; {now.p99_text}; {now.changes_text}"
            if self._baseline.is_shown
            else now.user_figures.text
        )
        drains = self._drains(now.slow_pages or now.slow_gets, before, sample)
        if self._healthy_after_s is not None:
            if self._bad_samples >= RETURNED_SAMPLES:
                return self._not_cured(
                    f"the symptom returned after {self._healthy_for_s:.0f} s: the lever hid the cause and did not "
                    f"end it. {figures}."
                )
        elif after_s > PATIENCE_S and not drains:
            return self._not_cured(f"the symptom is still there {after_s:.0f} s later. {figures}.")
        if after_s > LONGEST_S and not drains:
            return self._not_cured(
                f"users were not well for {HEALTHY_FOR_S:.0f} s on end in {after_s:.0f} s. {figures}."
            )
        return None

    @staticmethod
    def _drains(slow: bool, before: SessionSample, sample: SessionSample) -> bool:
        """Return whether a queue of changes that is getting shorter is the only trouble left."""
        return not slow and sample.changes_queued < before.changes_queued

    def _add_healthy(self, before: SessionSample, sample: SessionSample) -> CureOutcome | None:
        self._bad_samples = 0
        self._before_healthy = self._before_healthy or before
        self._healthy_samples.append(sample)
        if self._healthy_after_s is None:
            self._healthy_after_s = max(0.0, before.at - self._pulled_at)
        self._healthy_for_s = sample.at - self._before_healthy.at
        if self._healthy_for_s < HEALTHY_FOR_S:
            return None
        if troubles := [
            *lost(self._before or before, self._samples),
            *worse(self._before_healthy, self._healthy_samples, self._baseline),
        ]:
            return self._not_cured(f"users are well, but {'; '.join(troubles)}.")
        if self.lever == LEAVE and not self._was_needed:
            return self._outcome(
                True, f"users were well for {self._healthy_for_s:.0f} s, and nothing was changed."
            )
        if self.lever == LEAVE:
            return self._not_cured("users are well now, but were not before, and nothing was changed.")
        if not self._was_needed:
            return self._not_cured(
                "users were well before it, too, so there was nothing to cure. If nothing is wrong, say so: "
                "bin/lab blind cure leave."
            )
        return self._outcome(
            True,
            f"users were well {self._healthy_after_s:.0f} s after it, and stayed so for {self._healthy_for_s:.0f} s; "
            "no accepted event was lost, and no other work is worse.",
        )

    def _not_cured(self, text: str) -> CureOutcome:
        return self._outcome(False, text)

    def _outcome(self, cured: bool, text: str) -> CureOutcome:
        return CureOutcome(self.lever, self._pulled_at, cured, text, self._healthy_after_s)

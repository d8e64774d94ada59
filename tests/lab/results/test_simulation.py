"""The simulated turns of a server's loop, and the formulas of the wait held against them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from lab.results import formulas
from lab.results.operational import TIME_LEFT
from lab.results.prediction import EVENTS, RANDOM_TO
from lab.results.simulation import arrivals, turns, wait_s, waits

WITHIN = 0.10
PATTERNS = 3


def simulated(share: float, pages: int, events: int, even: bool, gap: float = 0.1) -> float:
    """p99 in times of one event's calls; an event takes a second, pages of equal length, `gap` is in pages."""
    page_s = 1 / PATTERNS / pages
    return wait_s(share, PATTERNS, pages, page_s, gap * page_s, events, even) / (PATTERNS * page_s)


def test_a_turn_takes_all_that_has_arrived_and_a_bystander_waits_for_the_next() -> None:
    """Two searches of two pages, 1 s a page: one turn for both, half a second of rest for the client, one more turn."""
    begins, ends = turns([1.0], 2, 2, 1.0, 0.5)
    assert list(zip(begins, ends, strict=True)) == [(1.0, 3.0), (3.5, 4.5), (4.5, 5.5)]
    found = waits(begins, ends, 6.0, count=6)  # asks at 0.5, 1.5, 2.5, 3.5, 4.5, 5.5
    assert list(found) == [0.0, 1.5, 0.5, 2.0, 1.0, 0.0]


def test_the_server_does_all_the_work_and_rests_between() -> None:
    """Turns never overlap, and together they take events × pages × time of a page."""
    begins, ends = turns(arrivals(0.5, 300, even=False, seed=3), PATTERNS, 4, 0.1, 0.01)
    assert float((ends - begins).sum()) == pytest.approx(300 * PATTERNS * 4 * 0.1)
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))


def test_the_same_seed_gives_the_same_moments() -> None:
    """Two simulations with one seed agree to the last digit; another seed gives other moments."""
    assert arrivals(2.0, 50, even=False, seed=7) == arrivals(2.0, 50, even=False, seed=7)
    assert arrivals(2.0, 50, even=False, seed=7) != arrivals(2.0, 50, even=False, seed=8)
    distances = {round(after - before, 9) for before, after in pairwise(arrivals(2.0, 50, even=True, seed=7))}
    assert distances == {0.5}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.5, 0.7, 0.85, TIME_LEFT])
@pytest.mark.parametrize("pages", [1, 5, 20])
def test_events_at_even_distances_are_absences(share: float, pages: int) -> None:
    """`wait_of_absences` agrees with the simulation, however many pages a search has."""
    assert simulated(share, pages, 200, even=True) == pytest.approx(
        formulas.wait_of_absences(1.0, share), rel=WITHIN
    )


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, RANDOM_TO])
def test_events_at_random_moments_wait_for_each_other(share: float) -> None:
    """`wait_at_random` agrees with the simulation where a call visits every key."""
    assert simulated(share, 1, 20_000, even=False) == pytest.approx(
        formulas.wait_at_random(1.0, share), rel=WITHIN
    )


@pytest.mark.parametrize(
    ("share", "pages"), [(0.1, 20), (0.3, 5), (0.5, 20), (0.7, 5), (RANDOM_TO, 5), (RANDOM_TO, 20)]
)
def test_pages_are_shorter_turns(share: float, pages: int) -> None:
    """In times of a page of each search, the wait is the same with many pages as with one."""
    assert simulated(share, pages, 6000, even=False) == pytest.approx(
        formulas.wait_at_random(1.0, share), rel=WITHIN
    )


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.009, 0.0), (1.0, np.inf), (2.0, np.inf)])
def test_the_ends_of_the_formula(share: float, expected: float) -> None:
    """Work below a hundredth of the time does not show in p99; from a share of 1 on the queue has no end."""
    assert formulas.wait_at_random(1.0, share) == expected


def test_at_random_is_never_better_than_evenly_and_grows_with_the_share() -> None:
    """Events that meet wait for longer. The wait grows with the share, and in step with the length."""
    shares = [share / 50 for share in range(1, 48)]
    found = [formulas.wait_at_random(1.0, share) for share in shares]
    assert all(a <= b for a, b in pairwise(found))
    assert all(
        wait >= 0.99 * formulas.wait_of_absences(1.0, share)
        for share, wait in zip(shares, found, strict=True)
    )
    assert formulas.wait_at_random(3.0, 0.5) == pytest.approx(3 * formulas.wait_at_random(1.0, 0.5))


def test_the_formula_does_not_hold_near_the_knee() -> None:
    """At 0.97 a thousand events from a calm beginning are too few: bystanders wait for less than in the long run.

    At 0.9 as many as are simulated are too few, so the simulation takes over before.
    """
    assert simulated(TIME_LEFT, 20, EVENTS, even=False) < (1 - WITHIN) * formulas.wait_at_random(
        1.0, TIME_LEFT
    )
    assert simulated(0.97, 1, 1000, even=False) < 0.8 * formulas.wait_at_random(1.0, 0.97)


def test_beyond_the_knee_the_wait_grows_for_as_long_as_it_lasts() -> None:
    """At 1.2 ten times the events are about ten times the wait, at even distances too."""
    for even in (True, False):
        assert simulated(1.2, 1, 2000, even) > 5 * simulated(1.2, 1, 200, even)


def test_clients_that_take_their_time_are_better_than_the_formula() -> None:
    """If the client takes ten pages' time between two pages, searches spread out, and the formula is too high."""
    assert simulated(0.7, 20, 2000, even=False, gap=10.0) < 0.9 * formulas.wait_at_random(1.0, 0.7)

"""The order of visits, and the rank correlation of two columns: without Locust."""

from __future__ import annotations

import pytest

from loadtest.customers.arrivals import Arrivals
from loadtest.customers.ranks import rank_correlation
from loadtest.customers.shop import between, quantile


def come(arrivals: Arrivals, count: int) -> list[int]:
    """The next `count` customers."""
    return [arrivals.next() for _ in range(count)]


def test_customers_come_by_number_and_then_again() -> None:
    """Visit number k is of customer (k - 1) mod N + 1."""
    arrivals = Arrivals(5)
    assert come(arrivals, 12) == [(k - 1) % 5 + 1 for k in range(1, 13)]
    assert arrivals.seen == 5


def test_a_larger_population_brings_new_customers_next() -> None:
    """When more customers are wanted the new ones come at once; when fewer are, the others count as never seen."""
    arrivals = Arrivals(4)
    come(arrivals, 6)
    arrivals.change(7)
    assert come(arrivals, 4) == [5, 6, 7, 1]
    arrivals.change(3)
    assert arrivals.seen == 3
    assert come(arrivals, 4) == [2, 3, 1, 2]
    arrivals.change(6)
    assert come(arrivals, 3) == [4, 5, 6]


@pytest.mark.parametrize(("of", "population"), [(2, 10), (3, 10), (4, 3)])
def test_several_processes_have_every_customer_between_them(of: int, population: int) -> None:
    """Each of N processes takes every N-th customer, in its own order, and none takes another's."""
    parts = [Arrivals(population) for _ in range(of)]
    for index, part in enumerate(parts):
        part.change(population, index, of)
    each = [come(part, population) for part in parts]
    assert set().union(*each) == set(range(1, population + 1))
    if population >= of:
        assert [sorted(set(one))[0] for one in each] == list(range(1, of + 1))
        assert sum(len(set(one)) for one in each) == population


def test_a_process_that_joins_begins_where_the_others_are() -> None:
    """With what the others have seen, a new process goes on with new customers."""
    late = Arrivals(100)
    late.change(100, 1, 2, seen=40)
    assert come(late, 3) == [42, 44, 46]


def test_the_rank_correlation_and_its_interval() -> None:
    """Spearman's figure is that of the ranks, ties share theirs, and the interval is that of Bonett and Wright."""
    found = rank_correlation([1, 2, 3, 4, 5, 6, 7, 8], [1, 3, 2, 4, 6, 5, 8, 7])
    assert found == pytest.approx((0.9286, 0.5366, 0.9909), abs=2e-4)
    tied = rank_correlation([1, 2, 3, 4, 5], [1, 2, 2, 3, 4])
    assert tied is not None and tied[0] == pytest.approx(0.9747, abs=1e-4)
    assert rank_correlation([1, 2, 3, 4, 5], [5, 40, 41, 50, 99]) == (1, 1, 1)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert rank_correlation([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None


def test_quantiles_are_prometheus_quantiles() -> None:
    """The quantile lies on a line through its bucket; above the last bound it is that bound; without calls, none."""
    assert quantile({0.1: 50.0, 0.2: 100.0, float("inf"): 100.0}, 0.75) == pytest.approx(0.15)
    assert quantile({0.1: 0.0, float("inf"): 10.0}, 0.99) == 0.1
    assert quantile({}, 0.99) is None and quantile({0.1: 0.0}, 0.99) is None
    assert between({0.1: 5.0, 1.0: 6.0}, {0.1: 7.0, 1.0: 9.0}) == {0.1: 2.0, 1.0: 3.0}
    assert between({0.1: 5.0, 1.0: 6.0}, {0.1: 1.0, 1.0: 2.0}) == {0.1: 1.0, 1.0: 2.0}

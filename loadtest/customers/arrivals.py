"""The order of visits: new customers as long as there are any, then the same ones again in the same order."""

from __future__ import annotations


class Arrivals:
    """Customers 1 to `population` come by their numbers, and begin again with the first after the last.

    With several `processes` each has every n-th customer, beginning with number `index` + 1. When the population or the
    share changes, the customers who have not visited yet come next.
    """

    def __init__(self, population: int) -> None:
        self.seen = 0  # the customers up to this number have come
        self._population = population
        self._index, self._processes = 0, 1
        self._last = 0

    def begin(self) -> None:
        """Forget all visits."""
        self.seen = self._last = 0

    def change(self, population: int, index: int = 0, processes: int = 1, seen: int = 0) -> None:
        """Set the population and this process's share. `seen`: the customers that other processes have seen."""
        self.seen = min(max(self.seen, seen), population)
        if population > self._population or (index, processes) != (self._index, self._processes):
            self._last = self.seen
        self._population, self._index, self._processes = population, index, processes

    def next(self) -> int:
        """The number of the customer who comes now."""
        after = self._last - self._index  # this process's customers are 1, 1 + processes, 1 + 2 processes, …
        customer = self._index + 1 + max(0, -(-after // self._processes)) * self._processes
        if customer > self._population:
            customer = min(self._index + 1, self._population)
        self._last = customer
        self.seen = max(self.seen, customer)
        return customer

"""The guide's arithmetic as functions, each with what it assumes and where it holds. Plain numbers in and out.

The knee has a module of its own (`lab.results.knee`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def wait_of_absences(length: float, share: float, percentile: float = 99.0) -> float:
    """A percentile of the wait of requests that arrive at random moments, at a server that is absent now and then.

    Every absence lasts `length`; together they fill a `share` of the time. A request that arrives during an absence
    waits for its rest, which is uniform from 0 to `length`. So P(wait > x) = share · (1 - x / length), and the
    percentile is length · (1 - (1 - p) / share); 0 where absences fill less than 1 - p of the time. In the unit of
    `length`.

    Assumes that absences have one length, never overlap, and are all there is to wait for. With different lengths the
    result is too small, because the longest ones make the percentile. The error grows with the share of the time that
    is taken, because absences that begin at irregular moments then overlap. So it is a lower bound. The guide uses it
    while the server has time to spare.
    """
    rest = 1 - percentile / 100
    return length * (1 - rest / share) if share > rest else 0.0


def mean_wait_of_random_work(length: float, share: float) -> float:
    """The mean wait behind jobs of equal `length` that arrive at random moments and take a `share` of the time.

    Pollaczek and Khinchine for constant service times (M/D/1): share · length / 2 (1 - share). Infinite from a share of
    1 on. In the unit of `length`.
    """
    return share * length / (2 * (1 - share)) if share < 1 else float("inf")


def wait_at_random(length: float, share: float, percentile: float = 99.0) -> float:
    """A percentile of a bystander's wait for searches that begin at random moments. In the unit of `length`.

    `length` is the time of the calls that one event has at the server at once: all of the event where a call visits
    every key (KEYS, or a COUNT above the keys), else one page for each of its walks. `share` is the share of the time
    that all searches take.

    The server's loop takes turns: it executes the calls that have arrived, and sends all replies at the end of the
    turn (`beforeSleep` in Redis and Valkey). So a request that arrives in a turn is answered at the end of the next
    one. While a turn of n events lasts, `share` · n events arrive in the mean (Poisson), and they are the next turn.
    After a turn in which none arrived the server rests, and the next event is a turn alone. These turn lengths are a
    branching process with immigration at zero; its stationary distribution gives the distribution of the wait: a
    uniform part of the present turn, and the whole next one. (Takagi, Analysis of Polling Systems, 1986, calls this
    service gated. A queue in order of arrival, M/D/1, waits for less: it has no replies that are held back.)

    Assumes equal events, clients that ask for the next page within about the time of a page, and a time long enough to
    become stationary. The last ends near the knee: from a share of 0.85 on `lab.results.simulation` takes over.
    Below it both agree within 10 %. With one event at a time at even distances use `wait_of_absences` instead. The
    result is infinite from a share of 1 on.
    """
    if share >= 1:
        return float("inf")
    return length * _turns_waited(round(share, 4), percentile)


@lru_cache(maxsize=1024)
def _turns_waited(share: float, percentile: float) -> float:
    """`wait_at_random` in lengths of one event."""
    if share <= 1 - percentile / 100:
        return 0.0
    most = round(60 / (1 - share)) + 20  # events in the longest turn that is counted
    sizes = np.arange(most + 1, dtype=np.float64)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(sizes[1:]))])
    follows = np.zeros((most + 1, most + 1))  # from the size of a turn (row) to that of the next (column)
    means = share * sizes[1:, np.newaxis]
    follows[1:] = np.exp(sizes * np.log(means) - means - log_factorials)
    follows[1:, -1] += 1 - follows[1:].sum(axis=1)
    follows[0, 1] = 1
    balance = follows.T - np.eye(most + 1)
    balance[-1] = 1
    turns = np.linalg.solve(balance, np.concatenate([np.zeros(most), [1.0]]))
    # The share of the time that turns of each size take; a rest (size 0) lasts 1 / share in the mean.
    time = turns * sizes / (turns @ sizes + turns[0] / share)
    weights = time[1:, np.newaxis] * follows[1:]
    ends = sizes[1:, np.newaxis] + sizes
    low, high = 0.0, 2.0 * most
    while high - low > 1e-4:
        middle = (low + high) / 2
        longer = float((weights * np.clip((ends - middle) / sizes[1:, np.newaxis], 0, 1)).sum())
        low, high = (middle, high) if longer > 1 - percentile / 100 else (low, middle)
    return low


def walk_s(keys: float, count: float, round_trip_s: float, call_s: float, name_s: float) -> float:
    """Seconds of one walk: keys / COUNT calls, each a round trip, the server's execution, and reading the names.

    `call_s`: the server's execution of a call that visits `count` keys; `name_s`: the client's time for each name.
    Assumes one walk at a time, and a pattern that all keys match.
    """
    return keys / count * (round_trip_s + call_s + count * name_s)


def gain_of_a_pipeline(round_trip_s: float, piped_key_s: float) -> float:
    """Return the speed of deletes in a pipeline as a multiple of that of one `DEL` after the other.

    `round_trip_s`: time of one `DEL`, including what client and server do for one message. `piped_key_s`: time of one
    key in the pipeline, including reading and parsing, so it is more than the execution that `commandstats` counts.
    """
    return round_trip_s / piped_key_s

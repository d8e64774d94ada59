"""The guide's arithmetic as functions, each with what it assumes and where it holds. Plain numbers in and out.

The knee has a module of its own (`lab.results.knee`).
"""

from __future__ import annotations


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


def walk_s(keys: float, count: float, round_trip_s: float, call_s: float, name_s: float) -> float:
    """Seconds of one walk: keys / COUNT calls, each a round trip, the server's execution, and reading the names.

    `call_s`: the server's execution of a call that visits `count` keys; `name_s`: the client's time for each name.
    Assumes one walk at a time, and a pattern that all keys match.
    """
    return keys / count * (round_trip_s + call_s + count * name_s)


def gain_of_a_pipeline(round_trip_s: float, piped_key_s: float) -> float:
    """How many times faster a pipeline deletes keys than one `DEL` after the other.

    `round_trip_s`: time of one `DEL`, including what client and server do for one message. `piped_key_s`: time of one
    key in the pipeline, including reading and parsing, so it is more than the execution that `commandstats` counts.
    """
    return round_trip_s / piped_key_s

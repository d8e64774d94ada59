"""The guide's arithmetic as functions, each with what it assumes and where it holds. Plain numbers in and out.

The knee has a module of its own (`lab.results.knee`).
"""

from __future__ import annotations


def wait_of_absences(length: float, share: float, percentile: float = 99.0) -> float:
    """What a percentile of those waits who come at random moments to a server that is away now and then.

    Absences all last `length` and fill a `share` of the time; who comes in one waits for its rest, anything from 0 to
    `length`, evenly. So P(wait > x) = share · (1 - x / length), and the percentile is length · (1 - (1 - p) / share);
    0 where absences fill less than 1 - p of the time. In the unit of `length`.

    Assumes: absences of one length that never meet, and nothing else to wait for. Where lengths differ it gives too
    little (a percentile is made by the longest), and the more so the more of the time is taken, since absences that
    begin at irregular moments then meet: a lower bound, which the guide uses while the server has time to spare.
    """
    rest = 1 - percentile / 100
    return length * (1 - rest / share) if share > rest else 0.0


def mean_wait_of_random_work(length: float, share: float) -> float:
    """The mean wait behind work of equal `length` that comes at random moments and takes a `share` of the time.

    Pollaczek and Khinchine for constant service times (M/D/1): share · length / 2 (1 - share). Without an end at a
    share of 1 and beyond. In the unit of `length`.
    """
    return share * length / (2 * (1 - share)) if share < 1 else float("inf")


def walk_s(keys: float, count: float, round_trip_s: float, call_s: float, name_s: float) -> float:
    """Seconds of one walk: ⌈keys / COUNT⌉ calls, each a round trip, the server's execution, and reading its names.

    `call_s`: the server's execution of a call that visits `count` keys; `name_s`: the client's time for each name.
    Assumes one walk at a time, and a pattern that all keys match.
    """
    return keys / count * (round_trip_s + call_s + count * name_s)


def gain_of_a_pipeline(round_trip_s: float, piped_key_s: float) -> float:
    """How many times as many keys a second a pipeline deletes as one `DEL` after the other.

    `round_trip_s`: of one `DEL`, with what client and server do for one message; `piped_key_s`: of a key in the
    pipeline, reading and parsing included, which is more than the execution that `commandstats` counts.
    """
    return round_trip_s / piped_key_s

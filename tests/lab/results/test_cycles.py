"""The detector of eviction cycles: what it finds in samples of a server, and what it does not take for a cycle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.results.cycles import (
    CycleSample,
    below_limit,
    cycles,
    evicted_per_insert,
    rate,
    read_sample,
    seconds,
)

SAMPLE_S = 0.125
HEALTHY, BURST, RECOVERY = 16, 4, 12
CYCLE = HEALTHY + BURST + RECOVERY
LIMIT_MB, RATE, KEY_MB = 200.0, 2000.0, 136e-6
Line = dict[str, Any]


def sample(t: float, **changes: float) -> Line:
    """Return a sample of a quiet server with free memory."""
    line: Line = {
        "t": t,
        "interval_s": SAMPLE_S,
        "offered_per_s": RATE,
        "answered": RATE * SAMPLE_S,
        "in_flight": 2,
        "inserted": 10_000,
        "evicted": 0,
        "expired": 0,
        "keys": 1_300_000,
        "used_mb": 0.7 * LIMIT_MB,
        "limit_mb": LIMIT_MB,
        "clients_mb": 3.0,
        "busy": 0.6,
    }
    return line | changes


def cycle(t0: float) -> list[Line]:
    """Return the samples of a cycle: memory climbs for 2 s, the server evicts for 0.5 s, memory falls for 1.5 s."""
    found, keys = [], 1_200_000.0
    for i in range(CYCLE):
        t = t0 + (i + 1) * SAMPLE_S
        if i < HEALTHY:
            keys += 12_000
            share = 0.86 + 0.125 * (i + 1) / HEALTHY
            found.append(sample(t, keys=keys, used_mb=share * LIMIT_MB))
        elif i < HEALTHY + BURST:
            keys -= 45_000
            found.append(
                sample(
                    t,
                    keys=keys,
                    used_mb=LIMIT_MB,
                    answered=60,
                    inserted=3_000,
                    evicted=48_000,
                    clients_mb=5.0,
                )
            )
        else:
            past = i + 1 - HEALTHY - BURST
            used, clients = 1.0 - 0.14 * past / RECOVERY, 20.0 - past
            found.append(
                sample(t, keys=keys, used_mb=used * LIMIT_MB, inserted=0, answered=150, clients_mb=clients)
            )
    return found


levels = st.lists(
    st.tuples(st.floats(0.5, 1.02), st.integers(0, 2) | st.integers(1000, 50_000)), min_size=1, max_size=60
)


def samples(count: int = 3) -> list[CycleSample]:
    """Return the samples of `count` cycles, one after the other."""
    lines = [line for i in range(count) for line in cycle(i * CYCLE * SAMPLE_S)]
    return [found for line in lines if (found := read_sample(line))]


def flat(**changes: float) -> list[CycleSample]:
    """Return fifty samples of a server that does not change."""
    return [CycleSample(**sample(i * SAMPLE_S, **changes)) for i in range(1, 51)]


@pytest.mark.parametrize("field", ["interval_s", "limit_mb"])
def test_a_sample_of_no_length_is_refused(field: str) -> None:
    """A sample of no length, or without a limit of memory, is unusable: figures are divided by both."""
    with pytest.raises(ValueError, match="above 0"):
        read_sample(sample(1.0, **{field: 0}))


def test_each_phase_of_each_cycle_is_found() -> None:
    """The beginning and end of each phase of each cycle are found, exact to the sample."""
    found = cycles(samples())
    assert len(found) == 3
    for i, each in enumerate(found):
        assert len(each.healthy) == HEALTHY
        assert len(each.burst) == BURST
        assert len(each.recovery) == RECOVERY
        assert each.healthy[0].start == i * CYCLE * SAMPLE_S


def test_a_cycle_that_is_cut_off_does_not_count() -> None:
    """A cycle in which the samples end, or in which they begin with memory full, does not count."""
    whole = samples()
    assert len(cycles(whole[: -RECOVERY - 1])) == 2
    assert len(cycles(whole[HEALTHY:])) == 2


def test_evicting_on_and_on_is_no_cycle() -> None:
    """A server at its limit that steadily evicts as much as is inserted has no cycle."""
    assert cycles(flat(used_mb=LIMIT_MB, evicted=10_000)) == []


def test_no_evictions_no_cycle() -> None:
    """Without evictions, or without samples, there is no cycle."""
    assert cycles(flat()) == []
    assert cycles([]) == []


def test_a_pause_at_the_limit_does_not_end_a_burst() -> None:
    """A sample without evictions does not end a burst while memory stays at its limit."""
    lines = cycle(0.0)
    lines[HEALTHY + 1]["evicted"] = 0
    (found,) = cycles([CycleSample(**line) for line in lines])
    assert len(found.burst) == BURST


def test_evictions_with_room_are_told() -> None:
    """Evictions of a stretch count as early if memory was full neither before nor after its first sample."""
    quiet = samples(1)
    assert below_limit(quiet) == 0
    assert below_limit(flat(evicted=7, used_mb=0.8 * LIMIT_MB)) == 7 * 49


@pytest.mark.parametrize(
    ("levels", "evicted", "early"),
    [
        ([0.90, 1.00, 0.96, 0.95, 0.94], [0, 5, 5, 5, 0], 0),
        ([0.90, 0.99, 0.96, 0.94, 0.94], [0, 0, 5, 5, 0], 0),
        ([0.90, 0.93, 0.96, 1.00, 0.94], [0, 5, 5, 5, 0], 15),
        ([0.99, 0.93, 0.93, 0.96, 0.94], [5, 5, 0, 5, 0], 5),
    ],
    ids=["begins full and dips", "was full when it began", "begins too early", "the second too early"],
)
def test_how_a_stretch_begins_decides(levels: list[float], evicted: list[int], early: int) -> None:
    """Only the first sample of a burst decides: later ones may end after buffers were freed, below the limit."""
    pairs = enumerate(zip(levels, evicted, strict=True))
    stretch = [
        CycleSample(**sample(i * SAMPLE_S, used_mb=share * LIMIT_MB, evicted=n)) for i, (share, n) in pairs
    ]
    assert below_limit(stretch) == early


def test_ratios() -> None:
    """On a flat stretch the ratios are those that can be worked out by hand."""
    stretch = flat(evicted=15_000)
    assert evicted_per_insert(stretch) == 1.5
    assert rate(stretch) == 2000
    assert seconds(stretch) == 50 * SAMPLE_S


def test_other_lines_are_no_samples() -> None:
    """A load's last line, which has its figures, is no sample."""
    assert read_sample({"figures": {"rate": 1.0}}) is None


@given(levels)
def test_phases_never_overlap_and_cover_no_foreign_evictions(found: list[tuple[float, int]]) -> None:
    """Whatever memory and evictions do, phases are in order, only bursts evict, and recoveries end below bursts."""
    stretch = [
        CycleSample(**sample(i * SAMPLE_S, used_mb=share * LIMIT_MB, evicted=evicted))
        for i, (share, evicted) in enumerate(found, start=1)
    ]
    last = -1.0
    for each in cycles(stretch):
        times = [sample.t for part in (each.healthy, each.burst, each.recovery) for sample in part]
        assert times == sorted(times)
        assert times[0] > last
        last = times[-1]
        assert not any(sample.evicted for sample in (*each.healthy, *each.recovery))
        assert each.burst[0].evicted
        assert each.burst[-1].evicted
        assert each.recovery[-1].used_mb < each.burst[-1].used_mb

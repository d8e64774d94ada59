"""Figures of a window: waits of the probe, stalls, shares, and the parts of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.diagnose import replies
from lab.diagnose.watch import server_time
from lab.server import signs
from lab.server.window import InfoSnapshot, Probed, Window
from tests.lab.diagnose.conftest import Make


def with_probe(window: Window, waits: list[tuple[float, float]]) -> Window:
    """Return the window with other waits: (due s, waited s)."""
    return Window(
        window.shown,
        window.product,
        window.version,
        window.snapshots,
        [Probed(at, took) for at, took in waits],
    )


def test_percentiles_and_their_interval(make: Make) -> None:
    """Percentiles are by nearest rank; the interval of p99 of a thousand waits is from the 983rd to the 997th."""
    of = with_probe(make(), [(number / 10, number / 1000) for number in range(1, 1001)])
    assert of.get_ms == pytest.approx(990)
    assert list(of.interval_ms) == pytest.approx([983, 997])
    assert of.percentile_ms(50) == pytest.approx(500)
    assert with_probe(make(), []).interval_ms == (0.0, 0.0)


def test_stalls_are_stretches_and_have_a_period(make: Make) -> None:
    """Requests that waited for the same thing are one stall; four stalls have a period."""
    waits = [(number / 10, 0.0002) for number in range(200)]
    for begin in (2.0, 6.0, 10.0, 14.0):
        waits += [(begin, 0.25), (begin + 0.1, 0.15), (begin + 0.2, 0.05)]
    of = with_probe(make(), sorted(waits))
    assert [(at, round(took, 3)) for at, took in of.stalls] == [
        (2.0, 0.25),
        (6.0, 0.25),
        (10.0, 0.25),
        (14.0, 0.25),
    ]
    assert of.period_s == 4.0
    assert with_probe(make(), sorted(waits)[:140]).period_s is None


def test_the_parts_of_p99_add_up(make: Make) -> None:
    """Execution, round trip and waiting (ms) add up to p99, and none is negative."""
    of = make(waits_ms=(0.3, 30.0))
    assert sum(of.parts_ms.values()) == pytest.approx(of.get_ms)
    assert of.parts_ms["execution"] == pytest.approx(0.003)
    assert of.parts_ms["waiting"] == pytest.approx(30 - 0.3)
    assert min(make(waits_ms=(0.001,)).parts_ms.values()) >= 0


def test_utilisation_is_the_main_threads_own(make: Make) -> None:
    """Utilisation is the main thread's CPU seconds by the server's clock."""
    assert make(busy=0.42).busy == pytest.approx(0.42, abs=1e-3)
    assert all(share == pytest.approx(0.42, abs=1e-3) for share in make(busy=0.42).busy_by_second)


def test_a_server_that_began_anew_counts_from_nothing(make: Make) -> None:
    """Counters that fell, as after a restart, give no negative rates."""
    of = make(per_second={"evicted_keys": -10})
    assert of.evicted_per_s == 0


def test_memory_without_a_limit_is_never_full(make: Make) -> None:
    """With a maxmemory of 0 the share of memory used is 0."""
    assert make(fields={"maxmemory": 0}).memory == 0
    assert make().memory == pytest.approx(0.5)


@pytest.mark.parametrize("written", ["1gb", "", "none"])
def test_a_setting_that_is_no_number_is_no_limit(written: str, make: Make) -> None:
    """A limit that a server writes in words is unknown; it is no fault."""
    of = make(fields={"maxmemory": 0}, settings={"maxmemory": written})
    assert of.memory == 0
    assert make(fields={"maxmemory": 0}, settings={"maxmemory": "50000000"}).memory == 1


def test_the_time_apart_needs_enough_requests(make: Make) -> None:
    """p99 outside of some stretches is None when fewer than twenty requests were due there."""
    of = with_probe(make(), [(number / 10, 0.001 * number) for number in range(100)])
    assert of.apart_ms([(2.0, 10.0)]) == pytest.approx(19)
    assert of.apart_ms([(1.9, 10.0)]) is None
    assert of.apart_ms([]) == pytest.approx(98)


def test_a_copy_that_began_between_two_looks_is_seen(make: Make) -> None:
    """A rise of sync_full counts even if the copy was done before the next look, on the probe's clock."""
    of = make()
    looks = [
        replace(look, fields={**look.fields, "sync_full": str(int(look.read_at >= 7))})
        for look in of.snapshots
    ]
    assert replace(of, snapshots=looks, probe_began=0.5).copies == [(5.5, 6.5)]


def test_the_client_behind_a_command_is_named(make: Make) -> None:
    """CLIENT LIST names it, by its name and library; a command whose clients have neither is nobody's."""
    rows = ["id=1 name=key-browser cmd=scan lib-name=redis-py"] * 3 + [
        "id=4 name= cmd=scan",
        "id=5 name= cmd=get",
    ]
    listed = replies.clients("\n".join(rows))
    assert listed.senders == {"SCAN": "key-browser of redis-py (3 connections)"}
    window = replace(make(busy=0.97, commands={"SCAN": (1000, 900)}), clients=listed)
    assert "sent by key-browser of redis-py" in signs.commands("scan-storm")(window).text
    assert "sent by" not in signs.commands("scan-storm")(replace(window, clients=None)).text


def test_own_commands_are_not_among_the_dearest(make: Make) -> None:
    """The diagnosis's own commands are not among the dearest."""
    of = make(commands={"INFO": (1, 90_000), "SLOWLOG|GET": (1, 9000), "SET": (10, 5)})
    assert [name for name, _ in of.dearest] == ["GET", "SET"]


def snapshot_at(second: float, processed: int, keys: tuple[int, int]) -> InfoSnapshot:
    """Return a snapshot of a server; `keys` are the calls of KEYS so far and their µs."""
    return InfoSnapshot(
        second,
        {
            "total_commands_processed": str(processed),
            "evicted_keys": str(processed),
            "cmdstat_keys": f"calls={keys[0]},usec={keys[1]}",
        },
        read_at=second,
    )


def test_counters_that_were_set_back_count_from_nothing(make: Make) -> None:
    """After CONFIG RESETSTAT the calls before and after it count, none of them twice and none below zero."""
    of = replace(
        make(),
        snapshots=[
            snapshot_at(0.0, 1_000, (100, 4_000_000)),
            snapshot_at(1.0, 1_100, (105, 4_200_000)),
            snapshot_at(2.0, 10, (3, 120_000)),
            snapshot_at(3.0, 110, (8, 320_000)),
        ],
    )
    assert of.set_back
    assert of.spent("KEYS").per_s == pytest.approx(13 / 3)
    assert of.spent("KEYS").mean_us == pytest.approx(40_000)
    assert of.evicted_per_s == pytest.approx(210 / 3)
    assert not make().set_back


def test_more_calls_in_less_time_is_a_reset_too(make: Make) -> None:
    """A counter of calls may have overtaken its old value between two looks, but not its time: no share is negative."""
    of = replace(
        make(), snapshots=[snapshot_at(0.0, 1_000, (3, 4_000_000)), snapshot_at(1.0, 1_100, (5, 200_000))]
    )
    assert of.spent("KEYS").share == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("time_usec", "is_kept"), [("1000000", True), ("1e30", False), ("-1e30", False), ("abc", False)]
)
def test_a_time_outside_the_calendar_is_not_the_servers(time_usec: str, is_kept: bool) -> None:
    """Such a time is replaced by this machine's, so a diagnosis always has a date."""
    assert (server_time({"server_time_usec": time_usec}) == 1.0) is is_kept
    assert server_time({}) > 1e9

"""Each cause is named by its evidence, and by nothing less; what is healthy or unknown gets no cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.diagnose.findings import CAUSES, answer_of, judge
from lab.server.figures import LEAST_GET_MS
from lab.server.law import ROWS, SATURATED
from lab.server.signs import saturates_at
from lab.server.window import CAPPED, LOOP_COMMANDS_US, LOOP_US, Window
from tests.lab.diagnose.conftest import Make

SENT = "total_net_output_bytes"
ILL = {"waits_ms": (0.3, 30.0, 60.0), "busy": 0.5}
SHOWN: dict[str, dict[str, Any]] = {
    "scan-storm": ILL | {"busy": 0.97, "commands": {"SCAN": (1000, 900)}},
    "keys-command": ILL | {"commands": {"KEYS": (5, 100_000)}},
    "giant-index": ILL | {"commands": {"SMEMBERS": (4, 100_000)}},
    "lua-script": ILL | {"commands": {"EVALSHA": (5, 100_000)}},
    "transaction": ILL | {"commands": {"EXEC": (5, 100_000), "SET": (50_000, 9)}},
    "fork": ILL | {"per_second": {"total_forks": 0.2}, "fields": {"latest_fork_usec": 400_000}},
    "many-at-once": ILL | {"commands": {"MGET": (5, 100_000)}},
    "long-command": ILL | {"commands": {"FT.SEARCH": (5, 100_000)}},
    "eviction-cycle": ILL | {"per_second": {"evicted_keys": 5000}, "fields": {"used_memory": 99_000_000}},
    "noisy-neighbour": ILL | {"busy": 0.1, "waited": 0.4, "others": 1.8},
    "slow-network": {"waits_ms": (40.0, 41.0)},
    "unpipelined-deletes": {
        "commands": {"UNLINK": (9000, 4)},
        "per_second": {"total_reads_processed": 9100, "total_commands_processed": 9200},
    },
    "connection-limit": {"fields": {"connected_clients": 9900}},
    "connection-storm": ILL | {"per_second": {"total_connections_received": 4000}},
    "expiry-wave": ILL | {"per_second": {"expired_keys": 40_000, CAPPED: 3}},
    "hot-big-key": ILL | {"busy": 0.95, "commands": {"GET": (9000, 30)}, "per_second": {SENT: 9e8}},
    "slow-disk": ILL | {"per_second": {"aof_delayed_fsync": 1}},
    "full-sync": ILL | {"per_second": {"sync_full": 0.1}},
    "saturated": ILL | {"busy": 0.98, "commands": {"GET": (300_000, 3)}},
}  # fmt: skip


@pytest.mark.parametrize("cause", SHOWN)
def test_each_cause_is_named_first_by_its_evidence(cause: str, make: Make) -> None:
    """Only the cause is named, the sentence is about it, and all other causes are listed as refuted."""
    found = judge(make(**SHOWN[cause]))
    assert answer_of(found) == cause
    assert found.sentence.startswith(found.found[0].cause.line[0].upper() + found.found[0].cause.line[1:])
    assert len(found.refuted) == len(CAUSES) - 1


def test_every_cause_has_a_proof() -> None:
    """Every cause has a window that shows it."""
    assert set(SHOWN) == {cause.id for cause in CAUSES}


NEEDS_NO_SYMPTOM = {"slow-network", "unpipelined-deletes", "connection-limit", *ROWS, "long-command"} - {
    "scan-storm"
}
"""Causes that are slow without a wait of the probe: a state, or calls so long that others must wait for them."""


@pytest.mark.parametrize("cause", sorted(set(SHOWN) - NEEDS_NO_SYMPTOM))
def test_without_a_symptom_nothing_is_named(cause: str, make: Make) -> None:
    """The same figures name no cause if the bystander does not wait, but that a server has no time left."""
    found = judge(make(**SHOWN[cause] | {"waits_ms": (0.3,)}))
    assert answer_of(found) == ("saturated" if SHOWN[cause].get("busy", 0) >= SATURATED else "nothing")
    assert found.sentence.startswith(
        "Nothing is wrong with the server" if answer_of(found) == "nothing" else "The server has more"
    )


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6, 0.8])
def test_a_healthy_server_gets_no_cause(busy: float, make: Make) -> None:
    """A busy server gets no cause; a p99 just below what people notice is no symptom."""
    assert answer_of(judge(make(busy=busy, waits_ms=(0.3, 0.9 * LEAST_GET_MS)))) == "nothing"


def test_a_server_that_is_slow_for_a_cause_that_is_not_known_gets_none(make: Make) -> None:
    """If a bystander waits and nothing that the server tells explains it, no cause is named."""
    found = judge(make(**ILL))
    assert answer_of(found) == "unknown"
    assert found.sentence.startswith("I cannot tell: a bystander waits 60.0 ms")


def test_the_answer_points_elsewhere_where_the_server_was_free(make: Make) -> None:
    """If a bystander stands still for much longer than the main loop was held, something else stands still."""
    still = {"waits_ms": (0.3, 0.3, 0.3, 0.3, 60.0)}  # 12 % of the time
    assert (
        "was held for 2 % of it: does the network stall"
        in judge(make(**still, per_second={LOOP_US: 2e4})).sentence
    )
    for held in ({LOOP_US: 9e4}, {}):
        assert judge(make(**still, per_second=held)).sentence.endswith("has its evidence here.")


def test_a_machine_that_is_late_itself_blames_no_server(make: Make) -> None:
    """If the probe's own process was late, the diagnosis says so instead of blaming an unknown cause."""
    found = judge(make(**ILL, lag_s=0.02))
    assert answer_of(found) == "unknown"
    assert "this machine itself was late by 20.0 ms" in found.sentence
    assert answer_of(judge(make(**SHOWN["keys-command"], lag_s=0.02))) == "keys-command"


def test_two_causes_are_both_named_the_larger_first(make: Make) -> None:
    """Two causes are named in the order of the waits that they explain."""
    found = judge(make(**ILL | {"commands": {"KEYS": (2, 80_000), "EVAL": (2, 120_000)}}))
    assert answer_of(found) == "lua-script + keys-command"
    assert "Besides: KEYS walks over every key" in found.sentence


@pytest.mark.parametrize(
    ("cause", "less"),
    [
        ("scan-storm", {"commands": {"SCAN": (30, 9000)}, "busy": 0.5}),
        ("keys-command", {"commands": {"KEYS": (5, 2_000)}}),
        ("keys-command", {"commands": {"KEYS": (1, 40_000)}}),
        ("eviction-cycle", {"fields": {"used_memory": 60_000_000}}),
        ("eviction-cycle", {"per_second": {"evicted_keys": 50}}),
        ("noisy-neighbour", {"waited": 0.01}),
        ("noisy-neighbour", {"others": 0.1}),
        ("noisy-neighbour", {"waited": None, "others": None}),
        ("noisy-neighbour", {"busy": 0.9}),
        (
            "unpipelined-deletes",
            {"per_second": {"total_reads_processed": 100, "total_commands_processed": 9200}},
        ),
        ("unpipelined-deletes", {"commands": {"UNLINK": (90, 4)}}),
        ("connection-limit", {"fields": {"connected_clients": 900}}),
        ("connection-storm", {"per_second": {"total_connections_received": 4}}),
        ("expiry-wave", {"per_second": {"expired_keys": 400, CAPPED: 3}}),
        ("expiry-wave", {"per_second": {"expired_keys": 40_000, CAPPED: 0}}),
        ("expiry-wave", {"commands": {"KEYS": (5, 100_000)}}),
        ("hot-big-key", {"per_second": {SENT: 9e6}}),
        ("hot-big-key", {"busy": 0.2}),
        ("hot-big-key", {"commands": {"GET": (300_000, 2)}}),
        ("hot-big-key", {"per_second": {SENT: 9e8, "total_net_repl_output_bytes": 9e8}}),
        ("hot-big-key", {"commands": {"MGET": (5, 100_000)}}),
        ("slow-network", {"busy": 0.9}),
        ("slow-network", {"waits_ms": (1.0,)}),
    ],
)
def test_less_than_the_evidence_is_not_enough(cause: str, less: dict[str, Any], make: Make) -> None:
    """Each part of the evidence is needed."""
    found = judge(make(**SHOWN[cause] | less))
    assert cause not in answer_of(found).split(" + ")


def test_without_the_kernels_record_interrupted_commands_show_a_neighbour(make: Make) -> None:
    """On another machine one GET in a hundred that took a millisecond shows a neighbour; one in a million is chance."""
    remote = {**SHOWN["noisy-neighbour"], "waited": None, "others": None}
    assert answer_of(judge(make(**remote, lengths={"GET": {16: 9_900, 4096: 100}}))) == "noisy-neighbour"
    assert answer_of(judge(make(**remote, lengths={"GET": {16: 999_999, 4096: 1}}))) == "unknown"
    assert answer_of(judge(make(**remote, lengths={"SORT": {16: 9_900, 4096: 100}}))) == "unknown"


HELD: dict[str, Any] = ILL | {
    "busy": 0.1,
    "fields": {"aof_enabled": 1},
    "per_second": {LOOP_US: 400_000, LOOP_COMMANDS_US: 50_000},
}
"""The main loop is held 40 % of the time, computes 10 % and executes commands 5 %; so it waits 30 %."""


def test_a_loop_that_waits_outside_of_commands_shows_a_slow_disk(make: Make) -> None:
    """With appendfsync always no counter tells of the disk: the loop's time that is no work does."""
    found = judge(make(**HELD, settings={"appendonly": "yes", "appendfsync": "always"}))
    assert answer_of(found) == "slow-disk"
    text = found.found[0].evidence.text
    assert "the main loop waited 30 % of the time outside of commands; appendfsync is always" in text


@pytest.mark.parametrize(
    ("less", "said"),
    [
        ({"fields": {"aof_enabled": 0}}, "unknown"),
        ({"per_second": {LOOP_US: 190_000, LOOP_COMMANDS_US: 50_000}}, "unknown"),  # it waits 9 % of the time
        ({"busy": 0.39}, "unknown"),  # it computes
        (
            {"per_second": {LOOP_US: 400_000, LOOP_COMMANDS_US: 390_000}},
            "unknown",
        ),  # its commands wait: swapping
        ({"per_second": {}}, "unknown"),  # Redis before 7.2
        ({"waited": 0.25, "others": 0.1}, "unknown"),  # a limit of its CPU, which is no program
        ({"waited": 0.25, "others": 1.5}, "noisy-neighbour"),
        ({"lengths": {"GET": {16: 9_900, 4096: 100}}}, "noisy-neighbour"),
        ({"waits_ms": (0.3,)}, "nothing"),
        ({"commands": {"KEYS": (5, 100_000)}}, "keys-command"),
    ],
)
def test_a_loop_that_waits_for_something_else_shows_no_slow_disk(
    less: dict[str, Any], said: str, make: Make
) -> None:
    """Without the file, without waiting, or with another reason for it, the disk is not blamed."""
    assert answer_of(judge(make(**HELD | less))) == said


FAR: dict[str, Any] = {"waits_ms": (40.0, 41.0), "fields": {"aof_enabled": 1}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"settings": {"appendfsync": "everysec"}}, "slow-network"),
        ({"settings": {"appendfsync": "always"}}, "unknown"),
        ({}, "unknown"),  # CONFIG is not allowed
        ({"settings": {"appendfsync": "always"}, "per_second": {LOOP_US: 50_000}}, "slow-network"),
        ({"settings": {"appendfsync": "always"}, "per_second": {LOOP_US: 950_000}}, "slow-disk"),
        ({"fields": {"aof_enabled": 0}}, "slow-network"),
    ],
)
def test_a_server_that_is_never_idle_says_nothing_of_the_way(
    more: dict[str, Any], said: str, make: Make
) -> None:
    """Where each write waits for the disk, all round trips may wait for that: the way is blamed only if the loop is
    known to be free."""
    window = make(**FAR | more)
    assert answer_of(judge(window)) == said
    assert (window.parts_ms["round trip"] > window.parts_ms["waiting"]) is (said == "slow-network")


def test_a_disk_and_a_neighbour_are_separated_by_the_kernels_record(make: Make) -> None:
    """A loop that waits much longer than it lacks a core waits for the disk as well."""
    both = judge(make(**HELD | {"waited": 0.15, "others": 1.5}))
    assert set(answer_of(both).split(" + ")) == {"slow-disk", "noisy-neighbour"}


def copied(window: Window, seconds: range, waits: range, state: str = "wait_bgsave") -> Window:
    """Return the window with a full copy under way in these seconds, and every other request slow in those."""
    looks = [
        replace(look, fields={**look.fields, "slave0": f"ip=10.0.0.7,port=6379,state={state},offset=0,lag=0"})
        if look.read_at in seconds
        else look
        for look in window.snapshots
    ]
    probed = [
        replace(each, waited_s=0.06 if place % 2 and int(each.due_s) in waits else 0.0003)
        for place, each in enumerate(window.probed)
    ]
    return replace(window, snapshots=looks, probed=probed)


@pytest.mark.parametrize("state", ["wait_bgsave", "send_bulk"])
def test_waits_during_a_full_copy_show_it_and_waits_at_other_times_refute_it(make: Make, state: str) -> None:
    """A copy in the seconds 5 to 8 is named when bystanders wait then, and not when they wait before or always."""
    of, copy = make(), range(5, 9)
    found = judge(copied(of, copy, waits=range(5, 8), state=state))
    assert answer_of(found) == "full-sync"
    assert (
        "they were under way for 5 of 20 s, and outside of that p99 was 0.3 ms"
        in found.found[0].evidence.text
    )
    assert answer_of(judge(copied(of, copy, waits=range(12, 15), state=state))) == "unknown"
    assert answer_of(judge(copied(of, copy, waits=range(20), state=state))) == "unknown"
    assert answer_of(judge(copied(of, copy, waits=range(0), state=state))) == "nothing"


def test_a_replica_that_has_its_copy_explains_no_wait(make: Make) -> None:
    """A replica that is online, as most are, is no full copy."""
    assert answer_of(judge(copied(make(), range(21), waits=range(5, 8), state="online"))) == "unknown"


def test_copies_without_a_pause_are_named_although_there_is_no_other_time(make: Make) -> None:
    """If copies fill the window, no other time can refute them."""
    assert answer_of(judge(copied(make(), range(21), waits=range(20)))) == "full-sync"


def test_the_programs_of_a_full_copy_are_no_neighbours(make: Make) -> None:
    """The snapshot's process takes a core as a neighbour would; a neighbour who stays is named all the same."""
    crowded = make(waited=0.4, others=1.8)
    assert answer_of(judge(copied(crowded, range(5, 9), waits=range(5, 8)))) == "full-sync"
    assert answer_of(judge(copied(crowded, range(5, 9), waits=range(20)))) == "noisy-neighbour"


def test_a_replicas_question_is_its_copy_and_no_long_command(make: Make) -> None:
    """PSYNC takes as long as the fork for the copy."""
    of = make(**ILL | {"per_second": {"sync_full": 0.3}, "commands": {"PSYNC": (0.3, 500_000)}})
    assert answer_of(judge(of)) == "full-sync"


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_a_healthy_server_with_a_file_and_a_replica_gets_no_cause(busy: float, make: Make) -> None:
    """Writes that are synced and a copy for a replica name no cause while nobody waits."""
    of = make(
        busy=busy,
        fields={"aof_enabled": 1},
        per_second={LOOP_US: 1e6 * (busy + 0.15), LOOP_COMMANDS_US: 5e5 * busy, "sync_full": 0.05},
    )
    assert answer_of(judge(of)) == "nothing"
    assert answer_of(judge(copied(of, range(5, 9), waits=range(0)))) == "nothing"


def test_a_search_tells_at_how_many_keys_it_fills_the_server(make: Make) -> None:
    """KEYS takes half of the time at 200,000 keys, others a tenth: 1.8 times as many keys fill the server.

    A number below that of the keys which are there is not told: it would contradict them.
    """
    of = make(**ILL | {"busy": 0.6, "commands": {"KEYS": (5, 100_000)}})
    limit = saturates_at(of, 0.5)
    assert limit is not None
    assert abs(limit - 200_000 * 0.9 / 0.5) < 1
    assert saturates_at(of, 31.0) is None
    text = judge(of).found[0].evidence.text
    assert "a visited key costs 0.50 µs here" in text
    assert "fills the server at 360,000 keys, and there are 200,000" in text

"""Each cause is named by its evidence, and by nothing less; what is healthy or unknown gets no cause."""

from __future__ import annotations

from typing import Any

import pytest

from lab.blind.evidence import LEAST_GET_MS
from lab.diagnose.findings import CAUSES, answer_of, judge, saturates_at
from tests.lab.diagnose.conftest import Make

ILL = {"waits_ms": (0.3, 30.0, 60.0), "busy": 0.5}
SHOWN: dict[str, dict[str, Any]] = {
    "scan-storm": ILL | {"busy": 0.97, "commands": {"SCAN": (1000, 900)}},
    "keys-command": ILL | {"commands": {"KEYS": (5, 40_000)}},
    "giant-index": ILL | {"commands": {"SMEMBERS": (4, 40_000)}},
    "lua-script": ILL | {"commands": {"EVALSHA": (5, 40_000)}},
    "many-at-once": ILL | {"commands": {"MGET": (5, 40_000)}},
    "long-command": ILL | {"commands": {"FT.SEARCH": (5, 40_000)}},
    "eviction-cycle": ILL | {"per_second": {"evicted_keys": 5000}, "fields": {"used_memory": 99_000_000}},
    "noisy-neighbour": ILL | {"busy": 0.1, "waited": 0.4, "others": 1.8},
    "slow-network": {"waits_ms": (40.0, 41.0)},
    "unpipelined-deletes": {
        "commands": {"UNLINK": (9000, 4)},
        "per_second": {"total_reads_processed": 9100, "total_commands_processed": 9200},
    },
    "connection-limit": {"fields": {"connected_clients": 9900}},
    "connection-storm": ILL | {"per_second": {"total_connections_received": 4000}},
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


NEEDS_NO_SYMPTOM = {"slow-network", "unpipelined-deletes", "connection-limit"}


@pytest.mark.parametrize("cause", sorted(set(SHOWN) - NEEDS_NO_SYMPTOM))
def test_without_a_symptom_nothing_is_named(cause: str, make: Make) -> None:
    """The same figures name no cause if the bystander does not wait."""
    found = judge(make(**SHOWN[cause] | {"waits_ms": (0.3,)}))
    assert answer_of(found) == "nothing"
    assert found.sentence.startswith("Nothing is wrong with the server")


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.6, 0.8])
def test_a_healthy_server_gets_no_cause(busy: float, make: Make) -> None:
    """A busy server gets no cause; a p99 just below what people notice is no symptom."""
    assert answer_of(judge(make(busy=busy, waits_ms=(0.3, 0.9 * LEAST_GET_MS)))) == "nothing"


def test_a_server_that_is_slow_for_a_cause_that_is_not_known_gets_none(make: Make) -> None:
    """If a bystander waits and nothing that the server tells explains it, no cause is named."""
    found = judge(make(**ILL))
    assert answer_of(found) == "unknown"
    assert found.sentence.startswith("I cannot tell: a bystander waits 60.0 ms")


def test_a_machine_that_is_late_itself_blames_no_server(make: Make) -> None:
    """If the probe's own process was late, the diagnosis says so instead of blaming an unknown cause."""
    found = judge(make(**ILL, lag_s=0.02))
    assert answer_of(found) == "unknown"
    assert "this machine itself was late by 20.0 ms" in found.sentence
    assert answer_of(judge(make(**SHOWN["keys-command"], lag_s=0.02))) == "keys-command"


def test_two_causes_are_both_named_the_larger_first(make: Make) -> None:
    """Two causes are named in the order of their shares of the time."""
    found = judge(make(**ILL | {"commands": {"KEYS": (5, 40_000), "EVAL": (5, 60_000)}}))
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
    assert answer_of(judge(make(**remote, tails={"GET": (10_000, 100)}))) == "noisy-neighbour"
    assert answer_of(judge(make(**remote, tails={"GET": (1_000_000, 1)}))) == "unknown"
    assert answer_of(judge(make(**remote, tails={"SORT": (10_000, 100)}))) == "unknown"


def test_a_search_tells_at_how_many_keys_it_fills_the_server(make: Make) -> None:
    """KEYS takes a fifth of the time at 200,000 keys, others a tenth: 4.5 times as many keys fill the server."""
    of = make(**ILL | {"busy": 0.3, "commands": {"KEYS": (5, 40_000)}})
    limit = saturates_at(of, 0.2)
    assert limit is not None
    assert abs(limit - 200_000 * 0.9 / 0.2) < 1
    text = judge(of).found[0].evidence.text
    assert "a visited key costs 0.20 µs here" in text
    assert "fills the server at 900,000 keys, and there are 200,000" in text

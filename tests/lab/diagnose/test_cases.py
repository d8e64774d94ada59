"""Servers that a diagnosis once judged wrongly, each with the answer that is right."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.diagnose.diagnosis import Diagnosis
from lab.diagnose.findings import WindowJudgement, answer_of, judge
from lab.server.window import InfoSnapshot, Probed, Window
from loadtest import info

SECONDS = 20.0
REDIS = {
    "redis_version": "7.2.0", "used_cpu_user": 0.0, "used_cpu_sys": 0.0, "evicted_keys": 0.0, "expired_keys": 0.0,
    "total_connections_received": 0.0, "rejected_connections": 0.0, "total_net_output_bytes": 0.0, "sync_full": 0.0,
    "aof_enabled": 0.0, "total_forks": 0.0,
}  # fmt: skip
InfoFields = Mapping[str, object]


def window(
    per_second: InfoFields,
    commands: Mapping[str, tuple[float, float]],
    waits_ms: tuple[float, ...],
    step_s: float = 0.0,
) -> Window:
    """A window of a server whose fields rise by so much a second; words and lists stay. `commands`: calls/s, µs a call.

    The server's clock steps in the middle by `step_s`.
    """
    looks = []
    for second in range(int(SECONDS) + 1):
        fields = {
            name: f"{value * second:.6f}" if isinstance(value, float) else str(value)
            for name, value in per_second.items()
        }
        fields |= {
            f"cmdstat_{name.lower()}": f"calls={round(calls * second)},usec={round(calls * second * each)}"
            for name, (calls, each) in commands.items()
        }
        at = 1000.0 + second + (step_s if second > SECONDS / 2 else 0.0)
        looks.append(InfoSnapshot(at, fields, read_at=float(second), asked_at=second - 0.01))
    waits = [waits_ms[number % len(waits_ms)] / 1000 for number in range(200)]
    probed = [Probed(number / 10, wait) for number, wait in enumerate(waits)]
    product, version = info.product(looks[0].fields) or ("a server", "")
    return Window("redis://cache:6379", product, version, looks, probed)


def as_json(seen: Window, judgement: WindowJudgement) -> str:
    """Return the whole diagnosis as JSON."""
    return Diagnosis.from_window(seen, judgement, {}).model_dump_json()


def test_a_drowned_server_is_drowned_by_its_searches() -> None:
    """The main incident beyond the knee: even the quickest round trip took seconds, and is not the way."""
    drowned = REDIS | {"used_cpu_user": 0.99, "db0": "keys=200000"}
    of = window(drowned, {"SCAN": (13, 76_000), "GET": (90, 3)}, (3688.0, 4500.0, 5883.0))
    assert answer_of(judge(of)) == "scan-storm"
    assert of.parts_ms["round trip"] == 0


@pytest.mark.parametrize(
    ("command", "cause", "calls", "each_us", "waits_ms"),
    [
        ("SCAN", "scan-storm", 4.4, 65_000, (0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 40.0, 60.0, 120.0, 0.3)),
        ("SCAN", "scan-storm", 3.5, 231_000, (0.3, 400.0, 900.0, 1700.0)),
        ("KEYS", "keys-command", 0.33, 70_000, (*(0.3,) * 98, 30.0, 50.0)),
        ("HGETALL", "giant-index", 0.2, 300_000, (*(0.3,) * 96, 40.0, 120.0, 200.0, 280.0)),
        ("XRANGE", "long-command", 2.0, 90_000, (*(0.3,) * 8, 40.0, 80.0)),
        ("EXEC", "transaction", 2.0, 90_000, (*(0.3,) * 8, 40.0, 80.0)),
    ],
)
def test_calls_as_long_as_the_waits_are_named_however_rare(
    command: str, cause: str, calls: float, each_us: float, waits_ms: tuple[float, ...]
) -> None:
    """A command is named because its calls explain the waits, whatever its name, its rate and its share of the time."""
    busy = min(0.95, calls * each_us / 1e6 + 0.05)
    of = window(REDIS | {"used_cpu_user": busy}, {command: (calls, each_us), "GET": (5000, 3)}, waits_ms)
    assert answer_of(judge(of)) == cause
    calm = window(REDIS | {"used_cpu_user": busy}, {command: (10 * calls, each_us / 100)}, waits_ms)
    assert answer_of(judge(calm)) != cause


def test_a_giant_among_small_ones_is_seen_in_the_histogram() -> None:
    """A thousand short reads a second hide a long one from the mean, and not from the distribution."""
    waits = (*(0.3,) * 8, 60.0, 150.0)
    of = window(REDIS | {"used_cpu_user": 0.3}, {"SMEMBERS": (1000, 250)}, waits)
    assert answer_of(judge(of)) == "unknown"
    distribution = {"SMEMBERS": {64: 20_000, 262_144: 20}}
    of = Window(of.shown, of.product, of.version, of.snapshots, of.probed, lengths=distribution)
    assert answer_of(judge(of)) == "giant-index"


def test_plain_overload_is_no_health() -> None:
    """A thread without time left is never healthy, and pipelines are told."""
    piped = REDIS | {
        "used_cpu_user_main_thread": 0.98,
        "used_cpu_sys_main_thread": 0.0,
        "total_reads_processed": 10_000.0,
        "total_commands_processed": 240_000.0,
    }
    of = window(piped, {"GET": (120_000, 2.0), "SET": (120_000, 3.0)}, (2.0, 4.0, 4.5))
    found = judge(of)
    assert answer_of(found) == "saturated"
    assert "24.0 commands came with one read of a socket" in as_json(of, found)


DRAGONFLY = REDIS | {"dragonfly_version": "df-v1.40.1", "thread_count": 1, "used_cpu_user": 0.97,
                     "db0": "keys=189748"}  # fmt: skip


def test_a_clock_that_counts_waits_gives_no_impossible_figure() -> None:
    """On Dragonfly a command's time includes its waits: no share above the threads, and no victim is named."""
    slow = {"SCAN": (31.0, 1_000_000), "GET": (100.0, 90_000), "SLOWLOG": (0.5, 1_700_000)}
    of = window(DRAGONFLY, slow, (200.0, 900.0, 1700.0))
    found = judge(of)
    assert answer_of(found) == "scan-storm"
    text = found.found[0].evidence.text
    assert "of the time, 31.0 calls a second of 1,000,000 µs, waits included" in text
    assert all(command.share <= 1 for command in Diagnosis.from_window(of, found, {}).commands)


def test_threads_are_counted_as_threads() -> None:
    """Two of sixteen threads are 2.0 of 16 threads, not 200 % of the time."""
    many = DRAGONFLY | {"thread_count": 16, "used_cpu_user": 10.7}
    of = window(many, {"SET": (50_000, 40), "GET": (50_000, 20)}, (0.3,))
    assert of.share("SET") == pytest.approx(2 / 16)
    full = window(many | {"used_cpu_user": 15.9}, {"SET": (50_000, 40), "GET": (50_000, 20)}, (0.3,))
    assert "SET 2.0 of 16 threads" in as_json(full, judge(full))


GARNET = {"garnet_version": "2.2.0", "redis_version": "7.4.3", "total_connections_received": 0.01}
KVROCKS = {
    "kvrocks_version": "2.17.0", "redis_version": "7.0.0", "used_cpu_user": 2.6, "used_cpu_sys": 0.1,
    "worker_cpu_time": "[0.1,0.1,0.1,0.1,0.1]", "sync_full": 0.0, "total_net_output_bytes": 1000.0,
    "total_connections_received": 0.2, "db0": "keys=90000000",
}  # fmt: skip
PIKA = {
    "pika_version": "3.4.0",
    "used_cpu_user": 0.01,
    "used_cpu_sys": 0.05,
    "total_connections_received": 0.0,
}


@pytest.mark.parametrize(
    ("server", "name", "unseen"),
    [(GARNET, "garnet", "cmdstat and used_cpu_user"), (PIKA, "pika", "cmdstat")],
    ids=["garnet", "pika"],
)
@pytest.mark.parametrize("waits_ms", [(0.3,), (0.3, 30.0)])
def test_a_missing_field_is_not_evidence_of_health(
    server: InfoFields, name: str, unseen: str, waits_ms: tuple[float, ...]
) -> None:
    """A server without statistics of commands is not called healthy, and that refutes no cause."""
    of = window(server, {}, waits_ms)
    found = judge(of)
    assert of.product == name
    assert answer_of(found) == "unknown"
    assert f"INFO lacks {unseen}" in found.sentence
    assert "scan-storm" not in {each.cause.id for each in found.refuted}
    assert '"cmdstat":["scan-storm","keys-command"' in as_json(of, found)


def test_a_server_with_several_threads_has_its_lead() -> None:
    """Kvrocks by its own name; what holds its threads is named though round trips never find them all idle."""
    of = window(KVROCKS, {"GET": (3600, 50), "SCAN": (40, 20_000)}, (12.0, 12.5, 14.0))
    assert (of.product, of.version, of.threads) == ("kvrocks", "2.17.0", 5)
    assert answer_of(judge(of)) == "scan-storm"


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_steps_changes_no_figure(step_s: float) -> None:
    """Where the server's clock steps, times are by this machine's clock, and the step is known."""
    busy = REDIS | {"used_cpu_user": 0.6, "expired_keys": 500.0}
    steady, stepped = (
        window(busy, {"SMEMBERS": (445, 958), "GET": (3000, 2)}, (0.3, 1.5), step) for step in (0.0, step_s)
    )
    assert stepped.seconds == pytest.approx(steady.seconds)
    assert stepped.stepped_s == pytest.approx(step_s)
    assert steady.stepped_s == 0
    assert stepped.busy_by_second == pytest.approx(steady.busy_by_second)
    assert answer_of(judge(stepped)) == answer_of(judge(steady)) == "nothing"


def test_a_wait_that_the_probe_happened_to_miss_is_predicted() -> None:
    """Few requests may all fall between long calls. What the server counted says what others wait."""
    of = window(REDIS | {"used_cpu_user": 0.05}, {"SMEMBERS": (0.5, 44_000), "GET": (900, 3)}, (0.3,))
    found = judge(of)
    assert answer_of(found) == "giant-index"
    assert "by these calls alone p99 is 24 ms" in found.found[0].evidence.text
    rare = window(REDIS | {"used_cpu_user": 0.05}, {"SMEMBERS": (0.2, 44_000), "GET": (900, 3)}, (0.3,))
    assert answer_of(judge(rare)) == "nothing"


def test_threads_that_together_use_a_core_are_not_one_that_is_full() -> None:
    """Where only the time of all threads is told, a whole core is neither an overload nor health."""
    of = window(REDIS | {"used_cpu_user": 1.4}, {"GET": (90_000, 3)}, (0.3, 0.5))
    assert answer_of(judge(of)) == "unknown"
    assert "it does not report the main thread's part" in judge(of).sentence


def test_ordinary_commands_that_fill_the_server_are_no_long_command() -> None:
    """Short calls of whatever name are ordinary work, however much of the time they take."""
    full = REDIS | {"used_cpu_user_main_thread": 0.97, "used_cpu_sys_main_thread": 0.0}
    assert answer_of(judge(window(full, {"LPUSH": (300_000, 3)}, (2.0, 9.0)))) == "saturated"


def test_one_long_entry_of_the_slow_log_is_one_long_call() -> None:
    """The slow log's longest entry stands for few calls, and never for more time than the command took."""
    of = window(REDIS | {"used_cpu_user": 0.1}, {"SORT": (0.1, 70_000), "GET": (900, 3)}, (0.3,))
    of = Window(of.shown, of.product, of.version, of.snapshots, of.probed, slow={"SORT": (2, 130.0)})
    assert sum(per_s * length_s for per_s, length_s in of.calls("SORT")) == pytest.approx(of.share("SORT"))
    assert answer_of(judge(of)) == "nothing"


@pytest.mark.parametrize("threads", ["0", "many", ""])
def test_a_number_of_threads_that_is_none_is_one(threads: str) -> None:
    """A field that cannot be read gives no traceback."""
    of = window(DRAGONFLY | {"thread_count": threads}, {"SCAN": (3.0, 100_000)}, (0.3, 90.0))
    assert answer_of(judge(of)) == "scan-storm"

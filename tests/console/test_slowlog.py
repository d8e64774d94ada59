"""The slow log as counters, on a real server and on one that numbers its entries as Dragonfly does."""

import time
from collections.abc import Callable

import pytest

from console.slowlog import LENGTH, ServerWatcher, SlowlogReader
from lab.errors import StackError
from lab.server.server_stats import ServerObserver, Snapshot
from tests.app.servicekit import ServerProcess, eventually

Entry = tuple[str, float, str, int]


class Log:
    """The part of a server that the reader uses."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.alive = ("run-1", 10)
        self.configured = 0
        self.asked: list[int] = []

    def run_id_and_uptime(self) -> tuple[str, int]:
        """Run id and uptime."""
        return self.alive

    def configure_slowlog(self, _threshold: int, _length: int) -> None:
        """Count the call."""
        self.configured += 1

    def slowlog(self, newest: int) -> list[Entry]:
        """The newest entries."""
        self.asked.append(newest)
        return self.entries[:newest]

    def add(self, identity: str, command: str = "SCAN") -> None:
        """Put a new entry on top."""
        self.entries.insert(0, (identity, 0.0, command, 20_000))


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def reader(log: Log) -> SlowlogReader:
    """A reader that has read once."""
    made = SlowlogReader(log, 10_000)  # type: ignore[arg-type] # has what the reader uses
    assert made.new_entries() == []
    return made


def test_what_was_before_is_not_counted(log: Log) -> None:
    """Entries that the log holds at the first reading are not counted, later ones are."""
    log.add("1@5")
    reader = SlowlogReader(log, 10_000)  # type: ignore[arg-type] # has what the reader uses
    assert reader.new_entries() == []
    log.add("2@6")
    assert [entry[0] for entry in reader.new_entries()] == ["2@6"]


def test_each_entry_once(log: Log, reader: SlowlogReader) -> None:
    """An entry counts once, however often it is seen and although ids come in no order."""
    seen: list[str] = []
    for number in (7, 2, 12, 3, 8):  # two threads: ids are local number × threads + thread
        log.add(f"{number}@{100 + number % 2}")
        seen += [entry[0] for entry in reader.new_entries()]
        assert reader.new_entries() == []
    assert seen == ["7@101", "2@100", "12@100", "3@101", "8@100"]


def test_only_what_is_new_is_read(log: Log, reader: SlowlogReader) -> None:
    """While little is new a few entries are asked for, because each costs the server time; a burst is read whole."""
    for number in range(600):
        log.add(f"{number}@1")
    log.asked.clear()
    assert [entry[0] for entry in reader.new_entries()] == [f"{n}@1" for n in range(600 - LENGTH, 600)]
    assert log.asked == [4, 32, 256, LENGTH]
    log.asked.clear()
    log.add("600@2")
    assert [entry[0] for entry in reader.new_entries()] == ["600@2"]
    assert reader.new_entries() == [] and log.asked == [4, 4]


def test_same_id_in_a_new_life_is_new(log: Log, reader: SlowlogReader) -> None:
    """After a restart ids begin again, and their entries are counted; the log is configured once more."""
    log.add("0@100")
    assert len(reader.new_entries()) == 1
    log.entries, log.alive = [], ("", 0)
    log.add("0@200")
    assert len(reader.new_entries()) == 1
    assert (reader.starts, log.configured) == (2, 2)


def test_life_by_uptime_where_there_is_no_run_id(log: Log) -> None:
    """Without a run id (Dragonfly) a smaller uptime is a new life, a greater one is not."""
    log.alive = ("", 10)
    reader = SlowlogReader(log, 10_000)  # type: ignore[arg-type] # has what the reader uses
    for uptime, starts in ((10, 1), (11, 1), (3, 2), (4, 2)):
        log.alive = ("", uptime)
        reader.new_entries()
        assert reader.starts == starts


def test_settings_are_left_alone_when_asked(log: Log) -> None:
    """With `hands_off` the slow log is not configured; the next reading without it does so."""
    reader = SlowlogReader(log, 10_000)  # type: ignore[arg-type] # has what the reader uses
    reader.new_entries(hands_off=True)
    assert log.configured == 0
    reader.new_entries()
    assert log.configured == 1


def slow(server: ServerProcess, seconds: float = 0.03) -> None:
    """Run a slow command."""
    server.client().execute_command("DEBUG", "SLEEP", seconds)


@pytest.fixture
def debuggable() -> Callable[[], ServerProcess]:
    """Return a function that makes a server with DEBUG SLEEP."""
    return lambda: ServerProcess(ServerProcess.valkey(), "--enable-debug-command", "yes")


def test_real_server_restarted(debuggable: Callable[[], ServerProcess]) -> None:
    """On a real server each slow command is counted, before and after a restart, and `up` follows the restart."""
    server = debuggable().start()
    counted: list[tuple[str, float]] = []
    ups: list[tuple[bool, int]] = []
    counters: list[Snapshot] = []
    observer = ServerObserver(server.url, 5.0)
    watcher = ServerWatcher(
        "one",
        observer,
        10_000,
        lambda *up: ups.append(up),
        lambda *entry: counted.append(entry),
        counters.append,
        lambda: False,
    )
    try:
        watcher.start()
        eventually(lambda: (True, 1) in ups)
        slow(server)
        eventually(lambda: len(counted) == 1)
        assert counted[0][0] == "DEBUG" and 0.02 < counted[0][1] < 5
        assert counters and counters[-1].main_thread_s is not None
        ServerObserver(server.url).shutdown()
        eventually(lambda: (False, 1) in ups)
        time.sleep(0.1)
        server.start()
        eventually(lambda: (True, 2) in ups)
        slow(server)
        eventually(lambda: len(counted) == 2)
    finally:
        watcher.end()
        watcher.join(5)
        observer.close()
        server.stop()


def test_shutdown_of_a_server_that_is_gone_is_an_error(own_server: ServerProcess) -> None:
    """SHUTDOWN ends the server; for a server that is gone it raises a StackError."""
    observer = ServerObserver(own_server.url, 2.0)
    observer.shutdown()

    def gone() -> bool:
        try:
            observer.keys_everywhere()
        except StackError:
            return True
        return False

    eventually(gone)
    with pytest.raises(StackError, match="does not answer"):
        observer.shutdown()
    observer.close()

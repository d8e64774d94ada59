"""The state database: settings and outbox."""

import sqlite3
from pathlib import Path

import pytest

from app.settings import Settings, load_settings
from app.state import State, StateError


def test_claims_are_exclusive_and_released_by_name(tmp_path: Path) -> None:
    """Each event goes to one claimant; release gives back a name's own unfinished events, or everybody's."""
    one, two = State(tmp_path), State(tmp_path)
    first = one.add_event(1, "order", None)
    assert [event.id for event in one.claim("a")] == [first]
    second = two.add_event(2, "order", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    assert [event.id for event in two.claim("b")] == [second]
    assert (one.claim("a"), two.claim("b"), one.pending()) == ([], [], 2)
    assert one.release("a") == 1
    (again,) = two.claim("b")
    assert again.id == first
    two.done(first)
    assert one.pending() == 1
    assert State(tmp_path).release() == 1
    assert [event.id for event in one.claim("renamed")] == [second]


def test_ids_are_never_used_twice(tmp_path: Path) -> None:
    """An id names one event for ever, also after the event is done."""
    state = State(tmp_path)
    first = state.add_event(1, "order", None)
    state.done(first)
    assert state.add_event(1, "order", None) > first


def test_stored_strategy_wins_over_the_initial_one(tmp_path: Path) -> None:
    """The environment's strategy is an initial value only."""
    state = State(tmp_path)
    state.init_invalidation("scan", 10)
    state.set_invalidation({"strategy": "index"})
    State(tmp_path).init_invalidation("keys", 99)
    assert state.invalidation() == State(tmp_path).invalidation()
    assert (state.invalidation().strategy, state.invalidation().scan_count) == ("index", 10)


def test_changed_tells_of_others_commits(tmp_path: Path) -> None:
    """`changed` is true once after another handle committed, and false when nothing happened."""
    reader, writer = State(tmp_path), State(tmp_path)
    reader.changed()
    assert not reader.changed()
    writer.set_warming({"target_keys": 5})
    assert reader.changed()
    assert not reader.changed()
    assert reader.warming().target_keys == 5


def test_unusable_folder_is_one_error(tmp_path: Path) -> None:
    """A folder that cannot be created and a file that is no database raise StateError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot open"):
        State(tmp_path / "file" / "sub")
    (tmp_path / "state.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(StateError, match="cannot open"):
        State(tmp_path)


def test_locked_database_is_a_state_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's errors come out as StateError, never raw."""
    state = State(tmp_path)
    monkeypatch.setattr("app.state._BUSY_S", 0.01)
    blocker = sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateError, match="locked"):
        state.add_event(1, "order", None)
    blocker.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("APP_STRATEGY", "hash-tags"),
        ("APP_SCAN_COUNT", "0"),
        ("APP_STORE_URL", "http://127.0.0.1"),
        ("APP_KEY_PREFIX", "a*b"),
        ("APP_VALUE_BYTES", "many"),
    ],
)
def test_bad_environment_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    """A bad variable ends a process with code 2 and one line that names it."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        load_settings()
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert name in lines[0]
    monkeypatch.delenv(name)
    assert isinstance(load_settings(), Settings)

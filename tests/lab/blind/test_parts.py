"""Parts of blind mode without a scene: causes, evidence, orders, journal, session socket, and the seal's search."""

from __future__ import annotations

import json
import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import redis

from lab import ROOT
from lab.blind import faulty_pool, session_socket, sizing
from lab.blind.causes import CAUSES, choose, find, keys_command, scan_storm
from lab.blind.journal import HINT_COSTS, WRONG_COSTS, Journal
from lab.blind.judging import GUESS, typical, with_symptoms
from lab.blind.observer import age_s
from lab.blind.readings import RESTLESS_GET_MS, Readings, UserFigures, slow_from
from lab.blind.scene import send_line
from lab.blind.session import HEALTHY_SAMPLES, Session, healthy_figures
from lab.errors import UsageError
from lab.server.figures import LEAST_GET_MS
from lab.server.processes import Child
from tests.app.servicekit import eventually
from tests.lab.blind.conftest import MEASURED, journal_of
from tests.lab.blind.seal import leaks

BECAUSE = "a ping through the link took 40 ms"


def test_there_are_fifteen_causes_or_more_and_nothing_is_one_of_them() -> None:
    """There are at least fifteen causes, `nothing` among them, and every look-alike of a cause is itself a cause."""
    assert len(CAUSES) >= 15
    assert "nothing" in CAUSES
    for cause in CAUSES.values():
        assert cause.alike
        assert cause.id not in cause.alike
        assert set(cause.alike) <= set(CAUSES)
        assert len(cause.hints) == len(HINT_COSTS)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_story_is_shared_and_names_no_cause(cause: str) -> None:
    """The complaint at the start fits another cause, too, and has no name of any cause in it."""
    story = CAUSES[cause].story
    assert [other for other in CAUSES if other != cause and CAUSES[other].story == story]
    assert leaks({"story": story.text}) == []


@pytest.mark.parametrize("cause", CAUSES)
def test_only_the_last_hint_names_the_cause(cause: str) -> None:
    """No hint but the last holds a word of the cause's name or title; common words such as "command" do not count."""
    common = {"a", "an", "the", "of", "on", "at", "all", "command", "set", "nothing", "slow"}
    words = {word.rstrip("s") for word in f"{cause} {CAUSES[cause].title}".lower().replace("-", " ").split()}
    for hint in CAUSES[cause].hints[:-1]:
        said = {word.strip(".,:?()").rstrip("s") for word in hint.lower().replace("-", " ").split()}
        assert said & (words - common) == set(), hint


def test_a_seed_has_the_same_cause_always_and_as_many_in_a_row_as_there_are_have_all() -> None:
    """A seed decides the cause; with n causes, each block of n consecutive seeds has every cause once."""
    assert [choose(seed).id for seed in range(40)] == [choose(seed).id for seed in range(40)]
    for block in range(5):
        first = block * len(CAUSES)
        assert {choose(seed).id for seed in range(first, first + len(CAUSES))} == set(CAUSES)
    ones, others = (range(block * len(CAUSES), (block + 1) * len(CAUSES)) for block in range(2))
    assert [choose(seed) for seed in ones] != [choose(seed) for seed in others]


def test_an_unknown_cause_is_refused_with_the_nearest() -> None:
    """A misspelt cause is refused, and the nearest is named; spaces and capitals are no misspelling."""
    assert find("Slow network").id == "slow-network"
    with pytest.raises(UsageError, match="Did you mean scan-storm"):
        find("scan-strom")
    with pytest.raises(UsageError, match=r"no cause 'xyzzy'\. `bin/lab blind causes`"):
        find("xyzzy")


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "nothing"])
def test_evidence_needs_both_symptom_and_its_own_figures(cause: str, healthy: Readings) -> None:
    """A cause's evidence is found in its typical figures with a symptom, not in the figures or the symptom alone."""
    whole, evidence = typical(CAUSES[cause], healthy), CAUSES[cause].evidence
    assert evidence(whole).found
    assert not evidence(whole.with_user_figures(healthy.user_figures)).found
    assert not evidence(with_symptoms(healthy).with_user_figures(whole.user_figures)).found


@pytest.mark.parametrize("other", ["hot-big-key", "connection-storm"])
def test_programs_that_keep_the_server_busy_are_no_neighbours(other: str, healthy: Readings) -> None:
    """A program that reads big answers or connects again and again takes a core, too, and is not the reason then."""
    crowded = typical(CAUSES["noisy-neighbour"], healthy)
    assert CAUSES["noisy-neighbour"].evidence(crowded).found
    both = replace(typical(CAUSES[other], crowded), busy=0.5)
    assert not CAUSES["noisy-neighbour"].evidence(both).found and CAUSES[other].evidence(both).found


def test_nothing_is_found_only_where_no_figure_is_bad(healthy: Readings) -> None:
    """One bad figure of the three is enough to refute `nothing`."""
    assert CAUSES["nothing"].evidence(healthy).found
    for seen in (UserFigures(60.0, 1.0, 0.3), UserFigures(5.0, 30.0, 0.3), UserFigures(5.0, 1.0, 9.0)):
        assert not CAUSES["nothing"].evidence(healthy.with_user_figures(seen)).found


def test_orders_follow_what_was_measured() -> None:
    """Orders are sized to cause the same wait on fast and slow servers; only `nothing` leaves them unchanged."""
    slow = replace(MEASURED, key_us=1.0)
    for measured in (MEASURED, slow):
        order = CAUSES["scan-storm"].all_orders(measured)[sizing.SECOND]
        wait_ms = order["connections"] * order["count"] * measured.key_us / 1000
        assert scan_storm.WAIT_MS <= wait_ms <= 1.1 * scan_storm.WAIT_MS
        every_s = CAUSES["keys-command"].all_orders(measured)[sizing.SECOND]["every_s"]
        assert measured.full_scan_ms / 1000 / every_s == pytest.approx(keys_command.BUSY)
        assert measured.slow_us < 1000 * measured.full_scan_ms
        assert order["count"] * measured.key_us < measured.slow_us
    assert CAUSES["nothing"].all_orders(MEASURED) == sizing.HEALTHY_ORDERS
    assert {cause.id for cause in CAUSES.values() if cause.all_orders(MEASURED) == sizing.HEALTHY_ORDERS} == {
        "nothing"
    }


@pytest.fixture
def journal(tmp_path: Path, healthy: Readings) -> Journal:
    """A journal of a session with a slow network."""
    return journal_of(["slow-network"], tmp_path, typical(CAUSES["slow-network"], healthy))


def test_hints_and_wrong_answers_cost_and_only_the_right_one_scores(journal: Journal) -> None:
    """The score is the answer's points less those of hints and wrong answers; before the right answer it is 0."""
    journal.hint()
    assert "no, that is not it" in journal.answer("exhausted-pool", BECAUSE)
    assert journal.score == 0
    assert journal.answer("slow-network", BECAUSE).startswith("right")
    assert journal.score == GUESS - HINT_COSTS[0] - WRONG_COSTS
    with pytest.raises(UsageError, match="your answer was right already"):
        journal.answer("nothing", BECAUSE)
    with pytest.raises(UsageError, match="you have the answer"):
        journal.hint()


def test_there_is_no_hint_after_the_last(journal: Journal) -> None:
    """After the last hint another is refused, and costs nothing."""
    for _ in journal.causes[0].hints:
        journal.hint()
    points = journal.points
    with pytest.raises(UsageError, match="you have had them all"):
        journal.hint()
    assert journal.points == points == 100 - sum(HINT_COSTS)


def test_an_answer_needs_evidence(journal: Journal) -> None:
    """An answer without evidence is refused and costs nothing, right or wrong."""
    for cause in ("slow-network", "nothing"):
        for evidence in ("", "it is obvious"):
            with pytest.raises(UsageError, match="needs evidence"):
                journal.answer(cause, evidence)
    assert journal.points == 100
    assert journal.right is None


def test_notes_stay_in_a_plain_file(journal: Journal) -> None:
    """The notes file has a line, with the time, for each note, hint and answer; an empty note is refused."""
    journal.note("hypothesis:\n  the pool")
    journal.hint()
    with pytest.raises(UsageError, match="empty"):
        journal.note("  ")
    lines = journal.file.read_text().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("note        hypothesis: the pool")


def test_one_session_at_a_time_and_only_for_its_owner(tmp_path: Path) -> None:
    """While a session runs a second one is refused; its socket is the owner's alone and is removed at its end."""
    first = session_socket.SessionSocket(tmp_path, lambda words: f"heard {words['verb']}")
    try:
        assert stat.S_IMODE(session_socket.address(tmp_path).stat().st_mode) == 0o600
        assert session_socket.ask({"verb": "note"}, tmp_path) == "heard note"
        with pytest.raises(UsageError, match="runs already"):
            session_socket.SessionSocket(tmp_path, lambda _: "")
        with pytest.raises(UsageError, match="does not understand"):
            session_socket.ask({"nonsense": 1}, tmp_path)
    finally:
        first.close()
    assert not session_socket.address(tmp_path).exists()
    with pytest.raises(UsageError, match="no blind session runs"):
        session_socket.ask({"verb": "note"}, tmp_path)


def test_a_socket_left_behind_is_no_session(tmp_path: Path) -> None:
    """A socket left by a killed session counts as no session, and the next session can start."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(session_socket.address(tmp_path)))
    left.close()
    with pytest.raises(UsageError, match="no blind session runs"):
        session_socket.ask({"verb": "hint"}, tmp_path)
    session_socket.SessionSocket(tmp_path, lambda _: "").close()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    """Where the folder's path is too long for a socket's address, another private place is taken."""
    folder = tmp_path / ("long-" * 25)
    folder.mkdir()
    assert len(str(session_socket.address(folder))) <= session_socket.LONGEST_PATH
    opened = session_socket.SessionSocket(folder, lambda _: "here")
    try:
        assert session_socket.ask({"verb": "look"}, folder) == "here"
        assert stat.S_IMODE(session_socket.address(folder).parent.stat().st_mode) == 0o700
    finally:
        opened.close()
    place = session_socket.address(folder).parent
    assert not place.exists()
    place.mkdir(mode=0o755)  # as another account might, to pose as the session
    try:
        with pytest.raises(UsageError, match="open to others: remove it"):
            session_socket.ask({"verb": "look"}, folder)
    finally:
        place.rmdir()


@pytest.mark.parametrize("leak", ["APP_MODE=scan-storm", "Giant_Index", "thread slow network", "UNPIPELINED"])
def test_the_search_finds_a_name_in_any_spelling(leak: str) -> None:
    """A name of a cause that leaks anywhere is found, whatever its spelling; other text is not."""
    clean = {"arguments": "python -m lab.blind.launcher", "settings": json.dumps({"strategy": "index"})}
    assert leaks(clean) == []
    assert len(leaks(clean | {"environment": f"x {leak} y"})) == 1


def test_a_programs_orders_show_neither_in_arguments_nor_environment(tmp_path: Path) -> None:
    """A program gets its instruction, but nothing of it shows in the process's arguments or environment."""
    child = Child(
        "program", [sys.executable, "-m", "lab.blind.launcher"], tmp_path / "log", cwd=ROOT, stdin_open=True
    )
    try:
        told = {"PROBE_URL": "redis://127.0.0.1:1", "TOLD": "a-secret"}
        send_line(child, {"module": "lab.blind.tenants", "arguments": ["a-secret"], "env": told})
        send_line(child, {"kind": "rest", "note": "a-secret"})
        process = psutil.Process(child.pid)
        eventually(lambda: process.num_threads() > 1)  # a second thread awaits orders: it was told
        assert child.alive(), child.last_words()
        assert "a-secret" not in " ".join(process.cmdline())
        assert "a-secret" not in repr(process.environ())
        child.finish()
        assert child.exit_code() == 0, child.last_words()
    finally:
        child.stop()


class Line:
    """A stand-in for a connection: always connected, never a reply."""

    def __init__(self, **_options: Any) -> None:
        self.pid = None

    def connect(self) -> None:
        """Do nothing: it is connected."""

    def can_read(self, *_arguments: Any, **_options: Any) -> bool:
        """Return False: no reply is waiting."""
        return False

    def disconnect(self) -> None:
        """Do nothing: it stays connected."""

    def should_reconnect(self) -> bool:
        """Return False: it needs no new connection."""
        return False


def test_the_pool_follows_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an order the pool gives as many connections as wanted; with one it gives few, which come back late."""
    monkeypatch.setattr(faulty_pool, "Inbox", lambda on_order: None)
    pool = faulty_pool.FaultyPool(connection_class=Line)
    many = [pool.get_connection() for _ in range(5)]
    for line in many:
        pool.release(line)
    pool._follow({"size": 2, "hold_s": 0.2, "wait_s": 0.05})
    held = [pool.get_connection() for _ in range(2)]
    for line in held:
        pool.release(line)
    with pytest.raises(redis.ConnectionError, match="No connection"):
        pool.get_connection()
    pool._wait_s = 1.0
    assert pool.get_connection() is not None


def test_a_connection_taken_under_a_former_order_does_not_loosen_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection frees a place of the order under which it was taken, not one of a later order."""
    monkeypatch.setattr(faulty_pool, "Inbox", lambda on_order: None)
    pool = faulty_pool.FaultyPool(connection_class=Line)
    order = {"size": 1, "hold_s": 0.0, "wait_s": 0.05}
    pool._follow(order)
    former = pool.get_connection()
    pool._follow(order)
    pool.release(former)
    eventually(lambda: not pool._slots_by_connection)
    pool.get_connection()
    with pytest.raises(redis.ConnectionError, match="No connection"):
        pool.get_connection()


@pytest.fixture
def revealing(tmp_path: Path, healthy: Readings, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of `slow-network` without a scene, which can be revealed."""
    session = Session((CAUSES["slow-network"],), 1, 1.0, tmp_path / "blind" / "now", lambda _: None)
    session.begun_at = 1.0
    session.observer = SimpleNamespace(samples=[object()])  # type: ignore[assignment]
    session.journal = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setattr(session, "readings", lambda: healthy)
    monkeypatch.setattr(session, "timed_samples", list)
    monkeypatch.setattr("lab.blind.page.write", lambda _, path: path)
    monkeypatch.setattr("lab.blind.reveal.lines", lambda _: ["it was slow-network"])
    session.folder.mkdir(parents=True)
    return session


@pytest.mark.parametrize(
    "words",
    [
        {"verb": "answer", "cause": "slow-network", "evidence": "link.p50 = 42 ms"},
        {"verb": "cure", "words": ["leave"]},
        {"verb": "note", "text": "", "hypothesis": "slow-network"},
        {"verb": "reveal"},
    ],
)
def test_after_the_reveal_nothing_counts_any_more(revealing: Session, words: dict[str, Any]) -> None:
    """While the scene is taken down, what the reveal has told is no answer."""
    revealing.reply({"verb": "reveal"})
    with pytest.raises(UsageError, match="the session has ended"):
        revealing.reply(words)


def test_a_reveal_is_printed_in_the_first_terminal_too(revealing: Session) -> None:
    """The terminal of the scene says that it was revealed in the other one, names the cause, and that it ends."""
    said: list[str] = []
    revealing._print = said.append
    assert revealing.reply({"verb": "reveal"}).startswith("it was slow-network")
    assert said == ["Revealed in the second terminal: it was slow-network. The scene is taken down."]


@pytest.mark.parametrize(
    ("waits", "best", "samples"),
    [
        ([2.0, 1.0], 2.0, 1),
        ([40.0, 3.0, 1.0], 3.0, 2),
        ([25.0, 12.0, *[30.0] * HEALTHY_SAMPLES], 12.0, HEALTHY_SAMPLES),
    ],
)
def test_health_on_a_restless_machine_is_the_best_sample(
    waits: list[float], best: float, samples: int
) -> None:
    """Sampling stops at the first calm sample; if none is calm, the best of `HEALTHY_SAMPLES` samples counts."""
    left = iter(waits)
    assert healthy_figures(lambda: UserFigures(50.0, next(left), 0.2)).get_ms == best
    assert len(list(left)) == len(waits) - samples


def test_health_is_the_median_where_samples_differ_by_luck() -> None:
    """Of three samples the median of each figure counts, and one that the machine disturbed does not count."""
    three = iter([UserFigures(39.0, 1.7, 0.1), UserFigures(11.0, 5.3, 0.2), UserFigures(15.0, 3.0, 0.3)])
    assert healthy_figures(lambda: next(three), 3) == UserFigures(15.0, 3.0, 0.2)
    disturbed = iter(
        [UserFigures(15.0, 3.0, 0.3), UserFigures(400.0, 90.0, 0.3), UserFigures(15.0, 3.0, 0.3)]
    )
    assert healthy_figures(lambda: next(disturbed), 3) == UserFigures(15.0, 3.0, 0.3)


@pytest.mark.parametrize(
    ("healthy", "now", "slower"),
    [
        (0.5, 4.9, False),  # almost ten times as much, yet below what users feel
        (2.0, 5.9, False),
        (2.0, 6.0, True),
        (10.0, 29.9, False),
        (10.0, 30.0, True),
        (23.6, 35.0, False),  # restless machine: 1.5 times as much is enough, from 30 ms on
        (23.6, 51.6, True),
        (200.0, 299.0, False),
    ],
)
def test_what_users_call_slower(healthy: float, now: float, slower: bool) -> None:
    """Slower is three times the healthy value; less on a restless machine, whose own delay is in the healthy value."""
    assert (now >= slow_from(healthy, LEAST_GET_MS, RESTLESS_GET_MS)) is slower


@pytest.mark.parametrize(("entry", "age"), [(b"90.5", 9.5), (b"x", 0.0), (b"", 0.0), (None, 0.0)])
def test_what_is_no_time_has_no_age(entry: bytes | None, age: float) -> None:
    """Participants may put anything into the list of price changes; the observer goes on."""
    assert age_s(entry, 100.0) == age

"""How a cure is checked: users well for long enough, no event lost, nobody's work worse; what only hides the cause."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.blind import page, reveal
from lab.blind.causes import CAUSES
from lab.blind.checking import HEALTHY_FOR_S, LONGEST_S, PATIENCE_S, Baseline, CureCheck, CureOutcome
from lab.blind.journal import CURE_WORTH, MOST_POINTS, NO_CURE_COSTS, WRONG_COSTS, Journal
from lab.blind.judging import GUESS, typical
from lab.blind.levers import Levers
from lab.blind.readings import Readings, SessionSample
from lab.blind.session import Session
from lab.errors import UsageError
from lab.server.window import InfoSnapshot
from loadtest.histogram import Histogram
from tests.lab.blind.conftest import HEALTHY, MEASURED, journal_of

TICK = 5.0
SCENE = Baseline(HEALTHY, 2, pages_per_s=60.0, gets_per_s=100.0)
BAD: dict[str, Any] = {"get_ms": 60.0}


def sample(
    tick: int, get_ms: float = 1.0, popped: int | None = None, evicted: float = 0.0, **changes: Any
) -> SessionSample:
    """Return the sample of a tick; all is well in it unless the changes say otherwise.

    `popped` price changes were taken out of their list so far, and `evicted` entries evicted.
    """
    calls = 4 * tick if popped is None else popped
    told = {"evicted_keys": f"{evicted}", "cmdstat_lpop": f"calls={calls},usec=0"}
    at = TICK * tick
    gets = Histogram()
    for _ in range(500):
        gets.record(round(1000 * get_ms))
    usual = SessionSample(
        info=InfoSnapshot(at, told, at, at), waited_s=None, neighbours_s=0.0, past_cache=0.0, page_ms=5.0, oldest_s=0.3,
        memory=0.6, link_ms=0.1, direct_ms=0.1, gets=gets, pages=300, events_accepted=20, events_done=20.0 * tick,
        changes_put=4 * tick,
    )  # fmt: skip
    return replace(usual, **changes)


def checked(
    rows: list[dict[str, Any]], lever: str = "stop program-2", needed: bool = True, scene: Baseline = SCENE
) -> tuple[CureOutcome | None, int]:
    """Return the outcome of a check of these samples after the first, and how many samples it took."""
    check = CureCheck(lever, TICK * 0.5, scene, needed)
    before = sample(0, **BAD)
    for tick, row in enumerate(rows, 1):
        after = sample(tick, **row)
        if outcome := check.add(before, after):
            return outcome, tick
        before = after
    return None, len(rows)


def test_a_cure_needs_half_a_minute_of_health() -> None:
    """Users must be well for 30 s on end; the sample in which the lever was pulled does not count."""
    outcome, ticks = checked([BAD, *[{}] * 20])
    assert outcome and outcome.cured and ticks == 1 + HEALTHY_FOR_S / TICK
    assert outcome.healthy_after_s == TICK / 2
    assert "no accepted event was lost, and no other work is worse" in outcome.text
    assert checked([BAD, *[{}] * 5]) == (None, 6)


@pytest.mark.parametrize("calm", [1, 2, 5])
def test_a_lever_that_hides_the_cause_shows_by_the_symptoms_return(calm: int) -> None:
    """A symptom that goes and comes back within the check is no cure, and the outcome says so."""
    outcome, ticks = checked([BAD, *[{}] * calm, BAD, BAD])
    assert outcome and not outcome.cured and ticks == calm + 3
    assert f"the symptom returned after {TICK * calm:.0f} s: the lever hid the cause" in outcome.text


def test_a_single_bad_sample_restarts_the_half_minute() -> None:
    """The machine may cause a single bad sample: it decides nothing, but the 30 s begin again."""
    outcome, ticks = checked([BAD, *[{}] * 4, BAD, *[{}] * 20])
    assert outcome and outcome.cured and ticks == 6 + HEALTHY_FOR_S / TICK


def test_a_symptom_that_stays_is_no_cure() -> None:
    """Where no sample is good within the time of patience, the symptom is still there."""
    outcome, ticks = checked([BAD] * 30)
    assert outcome and not outcome.cured and outcome.healthy_after_s is None
    assert TICK * ticks <= PATIENCE_S + 2 * TICK and "the symptom is still there" in outcome.text


def test_a_queue_that_gets_shorter_is_waited_for() -> None:
    """Old changes alone are waited for as long as their list gets shorter, and no longer."""
    late = [{"oldest_s": 40.0, "changes_queued": 40 - tick} for tick in range(20)]
    outcome, _ = checked([*late, *[{"changes_queued": 20}] * 20])
    assert outcome and outcome.cured and (outcome.healthy_after_s or 0.0) > PATIENCE_S
    outcome, _ = checked([{"oldest_s": 40.0, "changes_queued": 40 + tick} for tick in range(20)])
    assert outcome and "still there" in outcome.text
    outcome, _ = checked([{**BAD, "changes_queued": 40 - tick} for tick in range(20)])
    assert outcome and "still there" in outcome.text


def test_a_queue_may_take_longer_than_a_scene_that_comes_and_goes() -> None:
    """A long list of changes that gets shorter all the time is waited for, however long that takes."""
    ticks = round(2 * LONGEST_S / TICK)
    late = [{"oldest_s": 40.0, "changes_queued": ticks - tick} for tick in range(ticks)]
    outcome, _ = checked([*late, *[{"changes_queued": 0}] * 20])
    assert outcome and outcome.cured and (outcome.healthy_after_s or 0.0) > LONGEST_S


@pytest.mark.parametrize("rows", [[BAD] * 30, [{}, {}, BAD, BAD], [{"pages": 200}] * 20])
def test_an_outcome_names_healthy_figures_at_the_first_level_only(rows: list[dict[str, Any]]) -> None:
    """From level 2 on an outcome names what was seen, and none of the figures of the time when all was well."""
    usual = ("1.0 →", "60 when all was well")
    outcome, _ = checked(rows)
    assert outcome and any(word in outcome.text for word in usual)
    outcome, _ = checked(rows, scene=replace(SCENE, is_shown=False))
    assert outcome and not outcome.cured
    assert not any(word in outcome.text for word in (*usual, "→"))


def test_a_scene_that_is_well_now_and_then_is_not_cured() -> None:
    """A scene that is never well for long enough is not cured, and the check ends."""
    outcome, ticks = checked([{}, *[{}, {}, BAD] * 40])
    assert outcome and not outcome.cured
    assert LONGEST_S < TICK * ticks <= LONGEST_S + 4 * TICK and "not well for 30 s on end" in outcome.text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (lambda tick: {"popped": 4 * tick - min(tick, 3)}, "3 accepted price changes are lost"),
        (
            lambda tick: {"events_done": 20.0 * tick - 3 * min(tick, 3)},
            "9 accepted events of the storefront are lost",
        ),
        (lambda tick: {"changes_refused": tick}, "the server refused 6 price changes"),
        (
            lambda tick: {"popped": 3 * tick, "changes_queued": tick},
            "the list of price changes grew from 1 to 7",
        ),
        (lambda tick: {"pages": 200}, "40 pages a second came, 60 when all was well"),
        (lambda tick: {"past_cache": 10.0 * tick}, "2 pages a second went past the cache"),
        (lambda tick: {"evicted": 5000.0 * tick}, "1,000 entries a second were evicted"),
    ],
)
def test_users_alone_do_not_make_a_cure(row: Callable[[int], dict[str, Any]], said: str) -> None:
    """A lever that makes users well at the cost of lost events or of other work is no cure."""
    outcome, _ = checked([row(tick) for tick in range(1, 20)])
    assert outcome and not outcome.cured and outcome.text == f"users are well, but {said}."


def test_fewer_gets_are_noticed() -> None:
    """A bystander whose GETs no longer come at their pace has it worse."""
    few = Histogram()
    for _ in range(100):
        few.record(1000)
    outcome, _ = checked([{"gets": few}] * 20)
    assert outcome and "20 GETs a second came, 100 when all was well" in outcome.text


def test_events_under_way_are_not_lost() -> None:
    """Events that are pending, and changes that are in their list, are not lost."""
    outcome, _ = checked([{"popped": 4 * tick - 2, "changes_queued": 2} for tick in range(1, 20)])
    assert outcome and outcome.cured
    outcome, _ = checked([{"events_done": 20.0 * tick - 40, "events_pending": 40.0} for tick in range(1, 20)])
    assert outcome and outcome.cured


def test_where_nothing_is_wrong_to_change_nothing_is_right() -> None:
    """In a scene that was well, `leave` is right, and any change cured nothing; in another, `leave` is no cure."""
    outcome, _ = checked([{}] * 20, "leave", needed=False)
    assert outcome and outcome.cured
    outcome, _ = checked([{}] * 20, "restart storefront", needed=False)
    assert outcome and not outcome.cured and "there was nothing to cure" in outcome.text
    outcome, _ = checked([{}] * 20, "leave", needed=True)
    assert outcome and not outcome.cured


def outcome_of(cured: bool, lever: str = "link standby") -> CureOutcome:
    """Return the outcome of a lever that was pulled 100 s after the epoch."""
    return CureOutcome(lever, 100.0, cured, "the figures.", 4.0)


def journal(tmp_path: Path, healthy: Readings, task: str = "cure") -> Journal:
    """Return the journal of a session with a slow network that began at the epoch's second 40."""
    here = typical(CAUSES["slow-network"], healthy)
    return journal_of(["slow-network"], tmp_path, here, clock=lambda: 200.0, began=40.0, task=task)


def test_a_cure_earns_points_and_a_lever_that_is_none_costs_some(tmp_path: Path, healthy: Readings) -> None:
    """The score counts the cure and each lever without one; the answer says by what it was cured, and when."""
    held = journal(tmp_path, healthy)
    assert held.full == MOST_POINTS + CURE_WORTH and held.score == 0
    assert f"not cured ({NO_CURE_COSTS} points)" in held.add_outcome(outcome_of(False, "pool size 50"))
    assert held.score == 0 and held.points == held.full - NO_CURE_COSTS
    assert held.add_outcome(outcome_of(True)).startswith("link standby: cured. ")
    assert held.score == CURE_WORTH - NO_CURE_COSTS, "a cure counts without the name, too"
    said = held.answer("slow-network", "I had a strong feeling about it")
    assert "Cured by link standby, pulled 60 s after the cause began; users were well 4 s later." in said
    assert held.score == GUESS + CURE_WORTH - NO_CURE_COSTS
    assert sum(points for _, points in held.account()) == held.score
    assert held.file.read_text().count("  lever ") == 2


def test_an_answer_says_that_it_is_not_cured(tmp_path: Path, healthy: Readings) -> None:
    """An answer, right or wrong, says that there is no cure yet; where none is asked for it says nothing of it."""
    held = journal(tmp_path, healthy)
    assert "Not cured." in held.answer("nothing", "all the figures are fine")
    assert "Not cured." in held.answer("slow-network", "I had a strong feeling about it")
    assert held.score == GUESS - WRONG_COSTS
    held = journal(tmp_path, healthy, task="find")
    assert "ured" not in held.answer("slow-network", "I had a strong feeling about it")
    assert held.full == MOST_POINTS and "cure" not in " ".join(what for what, _ in held.account())


@pytest.mark.parametrize("task", ["find", "cure"])
def test_the_reveal_and_the_page_name_the_cure(task: str, tmp_path: Path, healthy: Readings) -> None:
    """Where a cure was asked for, reveal and page say by what and when it was cured, and what would be a cure."""
    held = journal(tmp_path, healthy, task)
    if task == "cure":
        held.add_outcome(outcome_of(False, "pool size 50"))
        held.add_outcome(outcome_of(True))
    of = CAUSES["slow-network"]
    now = typical(of, healthy)
    samples = [(TICK * tick, sample(tick + 2)) for tick in range(-1, 4)]
    facts = page.SessionFacts((of,), True, 1, 40.0, HEALTHY, now, samples, held)
    written = page.write(facts, tmp_path / "page.html").read_text()
    for text in ("\n".join(reveal.lines(facts)), html.unescape(written)):
        for words in (
            "Cured by link standby, pulled 60 s after",
            "pool size 50",
            next(iter(of.cures.values())).split(",")[0],
            next(iter(of.tempting.values())).split(";")[0],
        ):
            assert (words in text) is (task == "cure"), words


@pytest.fixture
def session(tmp_path: Path, healthy: Readings) -> Session:
    """A session of a cure without a scene: users were well for three samples, and bad for three since it began."""
    held = Session((CAUSES["slow-network"],), 1, 1.0, tmp_path / "blind" / "now", lambda _: None, task="cure")
    held.journal = journal(tmp_path, healthy)
    held.healthy, held.measured = HEALTHY, MEASURED
    slow: dict[str, Any] = {"page_ms": 60.0, "link_ms": 50.0}
    samples = [*(sample(tick) for tick in range(3)), *(sample(tick, **slow) for tick in range(3, 6))]
    held.observer = SimpleNamespace(samples=samples)  # type: ignore[assignment]
    held._samples_before, held.begun_at = 3, 15.0
    web = SimpleNamespace(ask=lambda *_: {"strategies": {}})
    held.stack = SimpleNamespace(order=lambda *_: None, web=web)
    held._levers = Levers(held.stack, CAUSES["slow-network"].all_orders(MEASURED))
    return held


def pull(session: Session, *words: str) -> str:
    """Ask the session to pull a lever, as the second terminal does."""
    return session.reply({"verb": "cure", "words": list(words)})


def hear(session: Session, ticks: range, **changes: Any) -> None:
    """Let the session take the samples of these ticks."""
    for tick in ticks:
        session.observer.samples.append(sample(tick, **changes))
        session._run_check()


def test_a_lever_is_pulled_checked_and_reported(session: Session) -> None:
    """A pulled lever is checked by the samples that follow; the outcome comes once, and a further lever is refused."""
    said: list[str] = []
    session._print = said.append
    assert pull(session, "link", "standby") == "the storefront reaches the server over the standby route."
    assert session.reply({"verb": "checked"}) == "" and said == []
    hear(session, range(6, 13))
    assert session.reply({"verb": "checked"}).startswith("link standby: cured. ")
    assert len(said) == 1 and session.journal.cured
    with pytest.raises(UsageError, match="cured already, by link standby"):
        pull(session, "leave")


def test_another_lever_replaces_the_check(session: Session) -> None:
    """A lever that is pulled during a check restarts the check, and costs nothing."""
    pull(session, "pool", "size", "50")
    hear(session, range(6, 9), page_ms=60.0)
    pull(session, "link", "standby")
    hear(session, range(9, 16))
    assert [outcome.lever for outcome in session.journal.outcomes] == ["link standby"]


def test_the_evidence_is_that_of_before_the_first_lever(session: Session) -> None:
    """An answer after the cure is judged by the figures of before it: afterwards nothing is left to be seen."""
    pull(session, "link", "standby")
    hear(session, range(6, 13))
    assert session.readings().user_figures.page_ms == 60.0
    assert session._judge_answer(CAUSES["slow-network"], "link.p50 = 50 ms; server.p50 = 0.1 ms").shown
    [after] = session._judge_answer(CAUSES["slow-network"], "link.p50 = 0.1 ms").figures
    assert not after.true


def test_a_cure_before_the_cause_began_is_refused(session: Session) -> None:
    """Before the cause began there is nothing to cure: one line, and no lever is pulled."""
    session.begun_at = 0.0
    with pytest.raises(UsageError, match="the session is still starting"):
        pull(session, "link", "standby")
    assert session.journal.entries == [] and session._check is None


def test_a_lever_that_is_refused_loses_nothing(session: Session) -> None:
    """A refused lever costs nothing, is not noted, and leaves the check that runs as it is."""
    pull(session, "link", "standby")
    running, noted = session._check, len(session.journal.entries)
    with pytest.raises(UsageError, match="no strategy 'prayer'"):
        pull(session, "strategy", "prayer")
    assert session._check is running and len(session.journal.entries) == noted
    assert session.journal.points == session.journal.full


def test_a_session_that_asks_for_the_cause_only_has_no_levers(session: Session) -> None:
    """Without `--task cure` a lever is refused, with the command that starts such a session."""
    session._task = "find"
    with pytest.raises(UsageError, match="start --task cure"):
        pull(session, "link", "standby")
    assert session._check is None


def test_two_bad_samples_make_a_lever_needed(session: Session) -> None:
    """The machine may cause a single bad sample in a healthy scene, so it does not make a lever a cure."""
    assert session._cure_was_needed()
    samples = [sample(tick) for tick in range(8)]
    session.observer = SimpleNamespace(samples=[*samples, sample(8, **BAD)])  # type: ignore[assignment]
    assert not session._cure_was_needed()

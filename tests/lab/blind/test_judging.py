"""Answers by hand: right and wrong figures, some that separate and some that do not, judged as a teacher would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.blind import figures, journal, judging, reveal
from lab.blind.causes import CAUSES
from lab.blind.journal import Journal
from lab.blind.judging import EXCLUDED, GUESS, SHOWN, UNTRUE_COSTS, Judgement
from lab.blind.readings import Readings, Seen
from lab.errors import UsageError


def scene(cause: str, healthy: Readings) -> Readings:
    """What the lab reads in a scene of a cause."""
    usual = healthy.seen if cause == "nothing" else Seen(60.0, 60.0, 5.0)
    return replace(healthy, **{"seen": usual, **CAUSES[cause].typical})


def judged(cause: str, evidence: str, healthy: Readings) -> Judgement:
    """The judgement of a right answer in a scene of that cause."""
    here = scene(cause, healthy)
    return judging.judge(CAUSES[cause], evidence, [here], here)


GOOD = {
    "slow-network": "link.p50 = 42 ms; server.p50 = 0.1 ms; get.p99 = 1 ms; change.oldest = 0.4 s",
    "exhausted-pool": "page.p99 is 310 ms; link.p50: 0.1 ms; pages.past = 18 /s; get.p99 = 1.2 ms",
    "scan-storm": "scan.share = 88 %; scan.calls = 900 /s; server.busy = 95 %; get.p99 = 55 ms; "
    "smembers.calls = 0 /s; slowlog.keys = 0 ms; server.p50 = 20 us",
    "keys-command": "slowlog.keys = 48 ms; keys.mean = 40 ms; keys.share = 30 %; scan.calls = 0 /s; "
    "memory.evicted = 0 /s; smembers.calls = 0 /s; programs.cores = 0 cores",
    "giant-index": "unlink.mean = 40 ms; unlink.calls = 1 /s; smembers.calls = 1 /s; "
    "slowlog.unlink = 47 ms; keys.calls = 0 /s; scan.calls = 0 /s; memory.evicted = 0 /s; "
    "change.oldest = 5 s",
    "eviction-cycle": "memory.evicted = 28,000 /s; memory.used = 100 %; keys.calls = 0 /s; "
    "scan.calls = 0 /s; smembers.calls = 0 /s; programs.cores = 0 cores",
    "noisy-neighbour": "server.waited = 30 %; programs.cores = 1 core; server.busy = 11 %; "
    "scan.calls = 0 /s; keys.calls = 0 /s; link.p50 = 0.1 ms; memory.evicted = 0 /s",
    "unpipelined-deletes": "unlink.calls = 12,500 /s; unlink.mean = 1 us; change.oldest = 12 s; get.p99 = 1 ms; "
    "link.p50 = 0.1 ms; page.p99 = 5 ms",
    "nothing": "page.p99 = 5 ms; get.p99 = 1 ms; change.oldest = 0.3 s",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_good_evidence_shows_the_cause_and_leaves_no_look_alike(cause: str, healthy: Readings) -> None:
    """All points of an answer: every figure true, the cause shown, each look-alike ruled out."""
    found = judged(cause, GOOD[cause], healthy)
    assert [figure.text for figure in found.figures if not figure.true] == []
    assert found.possible == ()
    assert found.shown and found.points == GUESS + SHOWN + EXCLUDED


def test_every_cause_has_good_evidence_here() -> None:
    """A cause that nobody can prove by readings has no place in the catalogue."""
    assert set(GOOD) == set(CAUSES)


def test_words_alone_are_a_guess(healthy: Readings) -> None:
    """The name is right, and nothing was named that could be held against anything."""
    found = judged("slow-network", "the way was slow, I am sure, 40 ms or so", healthy)
    assert found.is_a_guess and found.points == GUESS
    assert set(found.possible) == set(CAUSES["slow-network"].alike)


def test_true_figures_that_separate_nothing_are_a_guess(healthy: Readings) -> None:
    """That users wait is known to everybody: it rules out nothing of what makes users wait."""
    found = judged("scan-storm", "page.p99 = 60 ms; memory.used = 60 %", healthy)
    assert not found.shown and "keys-command" in found.possible


def test_wrong_figures_cost_and_prove_nothing(healthy: Readings) -> None:
    """A figure that the lab did not see is not believed, and what it would show is not shown."""
    found = judged("slow-network", "link.p50 = 400 ms; server.p50 = 30 ms", healthy)
    assert [figure.true for figure in found.figures] == [False, False]
    assert found.is_a_guess and found.points == GUESS - 2 * UNTRUE_COSTS
    assert "not so, the lab measured 40 ms" in found.figures[0].text


def test_figures_that_show_it_and_leave_a_look_alike_say_which(healthy: Readings) -> None:
    """A part of the points, and what would have separated them."""
    found = judged("slow-network", "link.p50 = 42 ms; server.p50 = 0.1 ms", healthy)
    assert found.shown and "exhausted-pool" in found.excluded and "unpipelined-deletes" in found.possible
    assert GUESS + SHOWN < found.points < GUESS + SHOWN + EXCLUDED


def test_shares_of_one_thread_rule_each_other_out(healthy: Readings) -> None:
    """Where SCAN has nine tenths of the thread there is no room for another command that has three."""
    assert "keys-command" in judged("scan-storm", "scan.share = 90 %", healthy).excluded
    assert "keys-command" in judged("scan-storm", "scan.share = 60 %", healthy).possible


def test_what_the_machine_does_not_tell_is_believed(healthy: Readings) -> None:
    """On macOS nobody knows how long a thread waited for a core: the figure costs nothing."""
    here = replace(scene("noisy-neighbour", healthy), waited=None)
    found = judging.judge(CAUSES["noisy-neighbour"], "server.waited = 30 %", [here], here)
    assert [figure.true for figure in found.figures] == [True] and "does not tell" in found.figures[0].text


def test_a_figure_is_true_where_any_stretch_of_these_minutes_had_it(healthy: Readings) -> None:
    """Two observers look at different moments of a cause that comes in bursts."""
    calm, burst = healthy, scene("eviction-cycle", healthy)
    found = judging.judge(CAUSES["eviction-cycle"], "memory.evicted = 12,000 /s", [calm, burst], burst)
    assert found.figures[0].true
    found = judging.judge(CAUSES["eviction-cycle"], "memory.evicted = 900,000 /s", [calm, burst], burst)
    assert not found.figures[0].true


def test_nothing_needs_all_three_figures(healthy: Readings) -> None:
    """That pages are fast does not show that changes are on time."""
    assert not judged("nothing", "page.p99 = 5 ms; get.p99 = 1 ms", healthy).shown


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ("lnk.p50 = 42 ms", "Did you mean link.p50?"),
        ("weather.p99 = 42 ms", "`bin/lab blind readings`"),
        ("link.p50 = 42", r"needs a number and a unit \(ms, us, µs, s\)"),
        ("link.p50 = 42 %", "as in link.p50 = 12 ms"),
        ("link.p50 = 4 2 ms", "needs a number and a unit"),
        ("link.p50 = 1.2.3 ms", "needs a number and a unit"),
        ("scan.calls = 9 ms", r"\(/s, /min\)"),
    ],
)
def test_a_reading_or_unit_that_does_not_exist_is_refused(
    evidence: str, said: str, healthy: Readings
) -> None:
    """One line, before anything is judged or costs anything."""
    with pytest.raises(UsageError, match=said):
        judged("slow-network", evidence, healthy)


def test_words_with_dots_and_numbers_in_them_are_free_text() -> None:
    """They are kept in the notes, and name nothing."""
    for words in (
        "e.g. 40 ms slower than before",
        "127.0.0.1:6379 took 40 ms",
        "it was slow, 40 ms",
        "see lab.blind",
    ):
        assert figures.named_in(words) == []
    [named] = figures.named_in("I looked twice; link.p50 about 42 ms; server idle")
    assert named.text == "link.p50 = 42 ms"


def test_units_of_one_kind_are_one(healthy: Readings) -> None:
    """42 ms are 0.042 s; thousands may have commas."""
    values = [
        named.value
        for named in figures.named_in("link.p50 = 0.042 s; link.p50 = 42000 us; scan.calls = 1,200 /min")
    ]
    assert values == pytest.approx([42, 42, 20])


def answered(tmp_path: Path, healthy: Readings, evidence: str, *hypotheses: str) -> tuple[Journal, str]:
    """A session with a slow network, after a right answer."""
    here = scene("slow-network", healthy)
    held = Journal(
        CAUSES["slow-network"],
        tmp_path / "notes.txt",
        lambda cause, said: judging.judge(cause, said, [here], here),
    )
    for hypothesis in hypotheses:
        held.note("", hypothesis)
    return held, held.answer("slow-network", evidence)


def test_hypotheses_before_the_answer_are_worth_points(tmp_path: Path, healthy: Readings) -> None:
    """Two count; one that is said twice counts once, one after the answer not at all."""
    held, said = answered(
        tmp_path, healthy, GOOD["slow-network"], "exhausted-pool", "slow-network", "nothing"
    )
    assert held.score == journal.FULL == 100 and "hypotheses" not in said
    held, said = answered(tmp_path, healthy, GOOD["slow-network"], "slow-network", "slow-network")
    assert held.score == 95 and "1 of 2 hypotheses" in said
    held.note("after all", "exhausted-pool")
    assert held.score == 95
    assert sum(points for _, points in held.account()) == held.score


def test_time_costs_little_and_late(tmp_path: Path, healthy: Readings) -> None:
    """Nothing in the first quarter of an hour, and ten points at most."""
    held, _ = answered(tmp_path, healthy, GOOD["slow-network"], "slow-network", "nothing")
    assert held.right is not None
    for minutes, left in ((14, 100), (20, 95), (300, 90)):
        held.began = held.right.at - 60 * minutes - 1
        assert held.score == left


def test_a_guess_is_told_so(tmp_path: Path, healthy: Readings) -> None:
    """In the answer, in words; with the experiment that would have separated it."""
    held, said = answered(tmp_path, healthy, "I had a strong feeling about it")
    assert f"the {GUESS} points of a guess" in said and held.score == GUESS
    assert "Still possible is exhausted-pool: " + CAUSES["slow-network"].alike["exhausted-pool"] in said


def test_an_unknown_hypothesis_is_refused_with_the_nearest(tmp_path: Path, healthy: Readings) -> None:
    """Nothing is noted then."""
    held, _ = answered(tmp_path, healthy, GOOD["slow-network"])
    with pytest.raises(UsageError, match="Did you mean scan-storm"):
        held.note("", "scan-strom")
    assert held.hypotheses == []


def test_the_chart_has_a_bar_where_it_began() -> None:
    """Blocks before and after it, on one scale; of a long session the latest."""
    assert reveal.chart([(-10, 1.0), (-5, 1.0), (5, 100.0)]) == "▁▁│█"
    assert len(reveal.chart([(float(at), 1.0) for at in range(500)])) == reveal.WIDEST + 1

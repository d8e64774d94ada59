"""How answers are judged: figures may be true or not, and may or may not separate the cause from its look-alikes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.blind import figures, journal, judging, reveal
from lab.blind.causes import CAUSES
from lab.blind.journal import Journal
from lab.blind.judging import EXCLUDED, GUESS, SHOWN, UNTRUE_COSTS, AnswerJudgement
from lab.blind.readings import Readings
from lab.errors import UsageError
from tests.lab.blind.conftest import journal_of


def scene(cause: str, healthy: Readings) -> Readings:
    """Return the readings that the lab takes in a scene of that cause."""
    return judging.typical(CAUSES[cause], healthy)


def judged(cause: str, evidence: str, healthy: Readings) -> AnswerJudgement:
    """Return the judgement of a right answer in a scene of that cause."""
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
    "stalling-link": "link.max = 380 ms; link.p50 = 0.1 ms; server.max = 4 ms; storefront.max = 9 ms; "
    "pages.past = 0 /s; page.p99 = 340 ms",
    "stalling-storefront": "storefront.max = 410 ms; link.max = 6 ms; link.p50 = 0.1 ms; pages.past = 0 /s; "
    "page.p99 = 340 ms",
    "expiry-wave": "memory.expired = 55,000 /s; memory.evicted = 0 /s; slowlog.keys = 0 ms; keys.calls = 0 /s; "
    "smembers.calls = 0 /s; programs.cores = 0 cores",
    "hot-big-key": "server.sent = 1.1 GB/s; get.calls = 12,000 /s; server.busy = 95 %; scan.calls = 0 /s; "
    "slowlog.keys = 0 ms; keys.calls = 0 /s; memory.evicted = 0 /s",
    "lua-script": "slowlog.eval = 110 ms; eval.mean = 100 ms; eval.calls = 2 /s; keys.calls = 0 /s; "
    "smembers.calls = 0 /s; memory.evicted = 0 /s; memory.expired = 0 /s; programs.cores = 0 cores",
    "connection-storm": "server.connects = 6,000 /s; scan.calls = 0 /s; keys.calls = 0 /s; server.sent = 0.3 MB/s; "
    "programs.cores = 0.1 cores",
    "nothing": "page.p99 = 5 ms; get.p99 = 1 ms; change.oldest = 0.3 s",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_good_evidence_shows_the_cause_and_leaves_no_look_alike(cause: str, healthy: Readings) -> None:
    """An answer earns all points if every figure is true, they show the cause and rule out each look-alike."""
    found = judged(cause, GOOD[cause], healthy)
    assert [figure.text for figure in found.figures if not figure.true] == []
    assert found.possible == ()
    assert found.shown and found.points == GUESS + SHOWN + EXCLUDED


def test_words_alone_are_a_guess(healthy: Readings) -> None:
    """A right answer that names no figure is judged as a guess."""
    found = judged("slow-network", "the way was slow, I am sure, 40 ms or so", healthy)
    assert found.is_a_guess and found.points == GUESS
    assert set(found.possible) == set(CAUSES["slow-network"].alike)


def test_true_figures_that_separate_nothing_are_a_guess(healthy: Readings) -> None:
    """True figures that fit the look-alikes too do not show the cause: that users wait rules out none of them."""
    found = judged("scan-storm", "page.p99 = 60 ms; memory.used = 60 %", healthy)
    assert not found.shown and "keys-command" in found.possible


def test_wrong_figures_cost_and_prove_nothing(healthy: Readings) -> None:
    """A figure that the lab did not measure costs points and proves nothing."""
    found = judged("slow-network", "link.p50 = 400 ms; server.p50 = 30 ms", healthy)
    assert [figure.true for figure in found.figures] == [False, False]
    assert found.is_a_guess and found.points == GUESS - 2 * UNTRUE_COSTS
    assert "not true, the lab measured 40 ms" in found.figures[0].text


def test_large_figures_are_written_in_full(healthy: Readings) -> None:
    """The lab's figure is written with all its digits, as people write it, and never as a power of ten."""
    found = judged("connection-storm", "server.connects = 20 /s", healthy)
    assert found.figures[0].text.endswith("the lab measured 6,000 /s")


def test_figures_that_show_it_and_leave_a_look_alike_say_which(healthy: Readings) -> None:
    """Figures that show the cause but leave look-alikes earn part of the points, and those look-alikes are listed."""
    found = judged("slow-network", "link.p50 = 42 ms; server.p50 = 0.1 ms", healthy)
    assert found.shown and "exhausted-pool" in found.excluded and "unpipelined-deletes" in found.possible
    assert GUESS + SHOWN < found.points < GUESS + SHOWN + EXCLUDED


def test_shares_of_one_thread_rule_each_other_out(healthy: Readings) -> None:
    """If SCAN has 90% of the thread, no room is left for another command with 30%, so that cause is ruled out."""
    assert "keys-command" in judged("scan-storm", "scan.share = 90 %", healthy).excluded
    assert "keys-command" in judged("scan-storm", "scan.share = 60 %", healthy).possible


def test_a_figure_that_the_lab_cannot_measure_counts_as_true(healthy: Readings) -> None:
    """A figure that the machine does not tell, as on macOS how long a thread waited for a core, counts as true."""
    here = replace(scene("noisy-neighbour", healthy), waited=None)
    found = judging.judge(CAUSES["noisy-neighbour"], "server.waited = 30 %", [here], here)
    assert [figure.true for figure in found.figures] == [True] and "counts as true" in found.figures[0].text


def test_a_figure_is_true_where_any_stretch_of_these_minutes_had_it(healthy: Readings) -> None:
    """A figure is true if it fits any reading: participant and lab sample a cause of bursts at different moments."""
    calm, burst = healthy, scene("eviction-cycle", healthy)
    found = judging.judge(CAUSES["eviction-cycle"], "memory.evicted = 12,000 /s", [calm, burst], burst)
    assert found.figures[0].true
    found = judging.judge(CAUSES["eviction-cycle"], "memory.evicted = 900,000 /s", [calm, burst], burst)
    assert not found.figures[0].true


def test_nothing_needs_all_three_figures(healthy: Readings) -> None:
    """`nothing` needs all three figures: fast pages and GETs do not show that changes are on time."""
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
    """A reading or a unit that does not exist is refused in one line, before anything is judged or costs points."""
    with pytest.raises(UsageError, match=said):
        judged("slow-network", evidence, healthy)


def test_words_with_dots_and_numbers_in_them_are_free_text() -> None:
    """Free text may hold dots, numbers and units; only a clause of name, number and unit names a figure."""
    for words in (
        "e.g. 40 ms slower than before",
        "127.0.0.1:6379 took 40 ms",
        "it was slow, 40 ms",
        "see lab.blind",
    ):
        assert figures.figures_in(words) == []
    [named] = figures.figures_in("I looked twice; link.p50 about 42 ms; server idle")
    assert named.text == "link.p50 = 42 ms"


def test_units_of_one_kind_are_one() -> None:
    """Units of one kind are converted (0.042 s are 42 ms), whatever their case, and thousands may have commas."""
    said = "link.p50 = 0.042 s; link.p50 = 42000 us; scan.calls = 1,200 /min; server.sent = 1.2 GB/s"
    assert [named.value for named in figures.figures_in(said)] == pytest.approx([42, 42, 20, 1200])
    assert figures.figures_in("server.sent = 9 mb/s")[0].text == "server.sent = 9 MB/s"


def answered(tmp_path: Path, healthy: Readings, evidence: str, *hypotheses: str) -> tuple[Journal, str]:
    """Return the journal of a slow-network session after a right answer, and the reply to that answer."""
    held = journal_of(["slow-network"], tmp_path, scene("slow-network", healthy))
    for hypothesis in hypotheses:
        held.note("", hypothesis)
    return held, held.answer("slow-network", evidence)


def test_hypotheses_before_the_answer_are_worth_points(tmp_path: Path, healthy: Readings) -> None:
    """Two hypotheses earn points; a repeated one counts once, one noted after the answer does not count."""
    held, said = answered(
        tmp_path, healthy, GOOD["slow-network"], "exhausted-pool", "slow-network", "nothing"
    )
    assert held.score == journal.MOST_POINTS == 100 and "hypotheses" not in said
    held, said = answered(tmp_path, healthy, GOOD["slow-network"], "slow-network", "slow-network")
    assert held.score == 95 and "1 of 2 hypotheses" in said
    held.note("after all", "exhausted-pool")
    assert held.score == 95
    assert sum(points for _, points in held.account()) == held.score


def test_time_costs_little_and_late(tmp_path: Path, healthy: Readings) -> None:
    """Time costs no points in the first quarter of an hour, and ten at most."""
    held, _ = answered(tmp_path, healthy, GOOD["slow-network"], "slow-network", "nothing")
    assert held.right is not None
    for minutes, left in ((14, 100), (20, 95), (300, 90)):
        held.began = held.right.at - 60 * minutes - 1
        assert held.score == left


def test_a_guess_is_called_a_guess(tmp_path: Path, healthy: Readings) -> None:
    """The reply calls a guess a guess, and names the experiment that would have ruled out a look-alike."""
    held, said = answered(tmp_path, healthy, "I had a strong feeling about it")
    assert f"the {GUESS} points of a guess" in said and held.score == GUESS
    assert "Still possible is exhausted-pool: " + CAUSES["slow-network"].alike["exhausted-pool"] in said


def test_an_unknown_hypothesis_is_refused_with_the_nearest(tmp_path: Path, healthy: Readings) -> None:
    """An unknown hypothesis is refused with the nearest name, and is not noted."""
    held, _ = answered(tmp_path, healthy, GOOD["slow-network"])
    with pytest.raises(UsageError, match="Did you mean scan-storm"):
        held.note("", "scan-strom")
    assert held.hypotheses == []


def test_the_chart_has_a_bar_where_it_began() -> None:
    """The chart has a bar where the cause began, one scale on both sides, and only the end of a long session."""
    assert reveal.chart([(-10, 1.0), (-5, 1.0), (5, 100.0)]) == "▁▁│█"
    assert len(reveal.chart([(float(at), 1.0) for at in range(500)])) == reveal.WIDEST + 1

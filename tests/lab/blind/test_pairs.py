"""Two causes at work together: which ones can be, what an answer is worth, what a real scene shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.blind import page, reveal, sizing
from lab.blind.cause import MORE_THAN_ONE, orders_of
from lab.blind.causes import CAUSES, PAIRS, choose_two
from lab.blind.checking import CureOutcome
from lab.blind.figures import figures_in, with_figures
from lab.blind.journal import CURE_WORTH, HINT_COSTS, MOST_POINTS, NO_CURE_COSTS, WRONG_COSTS, Journal
from lab.blind.judging import EXCLUDED, GUESS, SHOWN, SYMPTOM_WAIT_MS
from lab.blind.readings import Readings
from lab.errors import UsageError
from tests.lab.blind.conftest import HEALTHY, MEASURED, journal_of
from tests.lab.blind.seal import leaks
from tests.lab.blind.test_checking import TICK, sample

PAIR = (CAUSES["slow-network"], CAUSES["unpipelined-deletes"])
BOTH = {
    "slow-network": "link.p50 = 40 ms; server.p50 = 0.1 ms; get.p99 = 1 ms",
    "unpipelined-deletes": "unlink.calls = 13,000 /s; unlink.mean = 1 us; change.oldest = 12 s; get.p99 = 1 ms; "
    "pages.past = 0 /s",
}
FOUND = [pytest.param(pair, id="+".join(pair)) for pair in PAIRS]


def readings_of(pair: tuple[str, ...], healthy: Readings) -> Readings:
    """Readings in which both causes differ from a healthy scene; of what users see the worse counts."""
    named = [figures_in(CAUSES[name].typical) for name in pair]
    both = with_figures(healthy, sorted([*named[0], *named[1]], key=lambda each: each.value))
    if all("get.p99" in CAUSES[name].typical for name in pair):
        return both
    return replace(both, get_ms=30.0, wait_ms=SYMPTOM_WAIT_MS)  # left open by what is typical of one of them


@pytest.mark.parametrize("pair", FOUND)
def test_no_program_takes_orders_of_two_causes(pair: tuple[str, str]) -> None:
    """No program gets orders of both causes, so both are at work."""
    one, other = (CAUSES[name].orders(MEASURED, 1.0) for name in pair)
    assert one and other and not set(one) & set(other)
    assert orders_of([CAUSES[name] for name in pair], MEASURED) == sizing.HEALTHY_ORDERS | one | other


@pytest.mark.parametrize("pair", FOUND)
def test_the_evidence_of_both_can_be_there(pair: tuple[str, str], healthy: Readings) -> None:
    """Readings in which both causes show have the evidence of these two, and of no other."""
    of = readings_of(pair, healthy)
    assert tuple(sorted(name for name, cause in CAUSES.items() if cause.evidence(of).found)) == pair


def test_every_block_of_seeds_has_each_pair() -> None:
    """Seeds choose as for one cause: within a block each pair occurs once, and the complaint names none of them."""
    for block in range(2):
        seeds = range(block * len(PAIRS), (block + 1) * len(PAIRS))
        assert sorted(tuple(cause.id for cause in choose_two(seed)) for seed in seeds) == sorted(PAIRS)
    assert leaks({"story": MORE_THAN_ONE.text}) == []
    assert all(pair == tuple(sorted(pair)) for pair in PAIRS)


@pytest.fixture
def journal(tmp_path: Path, healthy: Readings) -> Journal:
    """A journal of a session with a slow network and unpipelined deletes, in which both are to be cured."""
    names = tuple(cause.id for cause in PAIR)
    here = readings_of(names, healthy)
    return journal_of(names, tmp_path, here, clock=lambda: 200.0, began=40.0, task="cure")


def test_each_of_two_causes_is_worth_half(journal: Journal) -> None:
    """One right answer is half of the points, and says that another cause is there; the second one ends the search."""
    assert journal.score == 0 and journal.points == journal.full == MOST_POINTS + CURE_WORTH
    said = journal.answer("slow-network", BOTH["slow-network"])
    assert said.startswith("right, and another cause is at work, too")
    assert journal.right is None and journal.points == journal.full
    assert journal.score == (GUESS + SHOWN + EXCLUDED) // 2
    with pytest.raises(UsageError, match="slow-network was right already"):
        journal.answer("slow-network", BOTH["slow-network"])
    assert "no, that is not it" in journal.answer("exhausted-pool", BOTH["slow-network"])
    assert journal.answer("unpipelined-deletes", BOTH["unpipelined-deletes"]).startswith("right. ")
    assert journal.right is not None
    assert journal.score == GUESS + SHOWN + EXCLUDED - WRONG_COSTS
    assert sum(points for _, points in journal.account()) == journal.score


def test_a_cause_that_was_named_is_no_hypothesis(journal: Journal) -> None:
    """A hypothesis counts if it was noted before its answer, also while the other cause is still looked for."""
    journal.answer("slow-network", BOTH["slow-network"])
    before = journal.score
    journal.note("", "slow-network")
    assert journal.score == before


def test_a_guess_of_one_of_two_is_worth_little(journal: Journal) -> None:
    """Names without figures that separate them are guesses, each worth half of one."""
    journal.answer("slow-network", "I had a strong feeling about it")
    assert journal.score == GUESS // 2
    assert journal.points == journal.full - (SHOWN + EXCLUDED) // 2


def test_a_cause_that_is_there_need_not_be_ruled_out(journal: Journal) -> None:
    """The slow network is a look-alike of the deletes, and is at work, too: no true figure can rule it out."""
    assert "slow-network" in PAIR[1].alike
    journal.answer("unpipelined-deletes", BOTH["unpipelined-deletes"])
    judged = journal.judgements["unpipelined-deletes"]
    assert "slow-network" not in (*judged.excluded, *judged.possible)


def test_hints_are_for_a_cause_that_is_not_named_yet(journal: Journal) -> None:
    """Hints begin anew, and as cheap, with the second cause."""
    assert PAIR[0].hints[0] in journal.hint()
    journal.answer("slow-network", BOTH["slow-network"])
    assert PAIR[1].hints[0] in journal.hint()
    for _ in PAIR[1].hints[1:]:
        journal.hint()
    with pytest.raises(UsageError, match="there were 4 hints, and you have had them all"):
        journal.hint()
    assert journal.deducted == HINT_COSTS[0] + sum(HINT_COSTS)


def test_the_first_lever_of_two_costs_nothing(journal: Journal) -> None:
    """Each cause needs a lever of its own, so that one of them cannot cure; a second failure costs points."""
    failed = CureOutcome("link standby", 100.0, False, "the symptom is still there.", None)
    assert journal.add_outcome(failed).startswith("link standby: not cured. ")
    assert journal.deducted == 0
    assert f"not cured ({NO_CURE_COSTS} points)" in journal.add_outcome(failed)
    assert journal.deducted == NO_CURE_COSTS


def test_reveal_and_page_tell_of_both(journal: Journal, tmp_path: Path, healthy: Readings) -> None:
    """Mechanism, evidence, look-alikes and cures of both stand in the terminal and in the page."""
    journal.note("", "slow-network")
    journal.answer("slow-network", BOTH["slow-network"])
    now = readings_of(tuple(cause.id for cause in PAIR), healthy)
    samples = [(TICK * tick, sample(tick + 2)) for tick in range(-1, 4)]
    facts = page.SessionFacts(PAIR, True, 3, 40.0, HEALTHY, now, samples, journal)
    told = "\n".join(reveal.lines(facts))
    written = page.write(facts, tmp_path / "page.html").read_text()
    for cause in PAIR:
        assert f"it was {cause.id}: " in told and cause.mechanism in told
        assert f"a cure of {cause.id} is " in told
        assert cause.title in written and f"a cure of {cause.id}" in written
    assert "slow-network: it is one of the causes" in told
    assert "One of two found: slow-network." in written
    assert "--seed 3 --causes 2" in written

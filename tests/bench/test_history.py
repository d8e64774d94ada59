"""Short real histories: each planted bug is found, and what the code does without a bug is not accused."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from bench import history
from bench.history_judge import KINDS, Judgement
from bench.history_load import Indexes, Job
from bench.kit import Evidence, server
from lab.errors import CLAIM_FAILED, HOLDS, USAGE
from lab.server.processes import free_port
from tests.bench.plants import PLANTS

READS = 4000
HANDLINGS = 200
"""Events that are carried out while entries are read, before a planted bug must be found. Without this a busy machine
can carry out nearly all before the readers have started, or after they are done."""


def job(folder: Path, strategy: str, handlings: int = 0) -> Job:
    """A history of some seconds; where a bug is planted it goes on until some events are carried out."""
    # Under `switch` each strategy has its turn.
    reads = 3 * READS if handlings and strategy == history.SWITCH else READS
    url = f"redis://127.0.0.1:{free_port()}/0"
    return Job(str(folder), url, strategy, "test", reads, users=24, patience_s=20, handlings=handlings)


WHOLE = pytest.mark.whole


@pytest.mark.parametrize(
    "strategy", [pytest.param("index", marks=WHOLE), pytest.param("generation", marks=WHOLE), "switch"]
)
@pytest.mark.whole
def test_without_a_bug_nothing_is_accused(strategy: str, tmp_path: Path) -> None:
    """Everything that may be accused took place: hits, puts, events, turns, every fault, and looks at the indexes."""
    what = history.record(job(tmp_path, strategy), 1)
    assert what.found.clean, what.found.examples
    assert all(what.figures[name] > 0 for name in ("hits", "puts", "events", "turns"))
    assert what.figures["reads"] >= READS
    assert what.figures["faults"] >= len(history.FAULTS)
    assert strategy == "generation" or what.figures["looked"] > 0
    assert strategy != "generation" or what.found.raced == 0


@pytest.mark.parametrize(
    "name", [name if name == "lost-event" else pytest.param(name, marks=WHOLE) for name in PLANTS]
)
@pytest.mark.whole
def test_each_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """The accusation is the one that the bug must bring."""
    plant, program = PLANTS[name], (sys.executable, "-m", "tests.bench.plants", name)
    what = history.record(job(tmp_path, plant.under[0], HANDLINGS), 1, program)
    assert what.found.accused[plant.kind] > 0, history.line(what)


def test_every_kind_of_accusation_but_one_has_a_planted_bug() -> None:
    """No bug of the app could invent a value."""
    assert {plant.kind for plant in PLANTS.values()} == set(KINDS) - {"invented"}


def test_an_entry_that_no_index_names_is_found(tmp_path: Path) -> None:
    """One look at the server is enough."""
    with server() as url:
        written = replace(job(tmp_path, "index"), url=url)
        entry = f"{written.prefix}:user:5:page-0:r1"
        written.save()
        state = written.state()
        state.init_invalidation("index", 1000)
        state.close()
        with redis.Redis.from_url(url, protocol=2) as client:
            client.set(entry, "1", ex=60)
        indexes = Indexes(written)
        indexes.begin()
        indexes.end()
    assert indexes.error is None
    assert indexes.lost == {entry}


def test_the_command_says_what_it_found_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A history is one line; its figures are kept for the page, and what is accused stands in words below the table."""
    (tmp_path / "page.md").write_text("<!-- table: histories -->\n<!-- /table -->\n")
    tables = {"page.md": {"histories": history.accused_table}}
    monkeypatch.setattr(history, "EVIDENCE", Evidence("kept.json", tables, tmp_path))
    found = Judgement(raced=3, late=2)
    figures = dict.fromkeys((*history.COUNTED, "failed", "seconds", "ttl_s", "looked"), 7) | {
        "strategy": "index"
    }
    monkeypatch.setattr(history, "record", lambda *_: history.History(figures, found))
    words = ["--strategies", "index", "--write"]
    assert history.main(words) == HOLDS
    assert re.search(r"^index +nothing accused; 7 reads", capsys.readouterr().out, re.MULTILINE)
    found.accuse("stale read", "user 7, entry 1")
    assert history.main(words) == CLAIM_FAILED
    assert "  stale read: user 7, entry 1" in capsys.readouterr().out
    shown = (tmp_path / "page.md").read_text()
    assert "1 histories with 7 reads and 7 events; 1 accused." in shown
    assert "- `index` on embedded, stale read: user 7, entry 1" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategies", "ttl"], "there is no strategy 'ttl'"),
        (["--strategies", ","], "names no strategy"),
        (["--operations", "0"], "no whole number from 1"),
        (["--server", "mysql"], "embedded"),
    ],
)
def test_bad_arguments_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line says what is known; the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        history.main(words)
    error = capsys.readouterr().err
    assert ended.value.code == USAGE
    assert said in error
    assert error.count("\n") == 1

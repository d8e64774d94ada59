"""Short real histories: each planted bug is found, and what the code does without a bug is not accused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from bench import history
from bench.history_judge import KINDS
from bench.history_load import Indexes, Job
from bench.history_plants import PLANTS
from bench.kit import server
from lab.errors import CLAIM_FAILED, HOLDS, STACK_BROKE, USAGE

READS = 4000
HANDLINGS = 200
"""Events that are carried out while entries are read, before a planted bug must be found. Without this a busy machine
can carry out nearly all before the readers have started, or after they are done."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An embedded server for all histories of this file."""
    with server() as address:
        yield address


def job(folder: Path, url: str, strategy: str, plant: str = "") -> Job:
    """A history of some seconds. Where a bug is planted the reads go on until `HANDLINGS` events are carried out."""
    prefix, handlings = "test-" + folder.name, HANDLINGS if plant else 0
    # Under `switch` each strategy has its turn.
    reads = 3 * READS if plant and strategy == history.SWITCH else READS
    return Job(
        str(folder), url, strategy, prefix, reads, users=24, plant=plant, patience_s=20, handlings=handlings
    )


WHOLE = pytest.mark.whole


@pytest.mark.parametrize(
    "strategy", [pytest.param("index", marks=WHOLE), pytest.param("generation", marks=WHOLE), "switch"]
)
def test_without_a_bug_nothing_is_accused(strategy: str, tmp_path: Path, url: str) -> None:
    """Everything that may be accused took place: hits, puts, events, turns, and looks at the indexes."""
    what = history.record(job(tmp_path, url, strategy), 1)
    assert what.found.clean, what.found.examples
    assert all(what.figures[name] > 0 for name in ("hits", "puts", "events", "turns"))
    assert what.figures["reads"] == what.figures["hits"] + what.figures["puts"] == READS
    assert strategy == "generation" or what.figures["looked"] > 0
    assert strategy != "generation" or what.found.raced == 0


@pytest.mark.parametrize(
    "name", [name if name == "lost-event" else pytest.param(name, marks=WHOLE) for name in PLANTS]
)
def test_each_planted_bug_is_found(name: str, tmp_path: Path, url: str) -> None:
    """The accusation is the one that the bug must bring."""
    plant = PLANTS[name]
    what = history.record(job(tmp_path, url, plant.under[0], name), 1)
    assert what.found.accused[plant.kind] > 0, history.line(what)


def test_every_kind_of_accusation_but_one_has_a_planted_bug() -> None:
    """No bug of the app could invent a value."""
    assert {plant.kind for plant in PLANTS.values()} == set(KINDS) - {"invented"}


def test_an_entry_that_no_index_names_is_found(tmp_path: Path, url: str) -> None:
    """One look at the server is enough."""
    written = job(tmp_path, url, "index")
    entry = f"{written.prefix}:r1:user:5:page-0"
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
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planted bug ends with exit code 1 and an example. A clean history is kept for the page."""
    words = ["--operations", "1500", "--strategies", "index"]
    assert history.main([*words, "--server", url, "--plant", "lost-index-entry"]) == CLAIM_FAILED
    said = capsys.readouterr().out
    assert re.search(r"^index +.*\b[0-9,]+ lost index entry; 1,500 reads", said, re.MULTILINE)
    assert "no index names it" in said
    kept = tmp_path / "history.json"
    assert history.main([*words, "--write", str(kept)]) == HOLDS
    part = json.loads(kept.read_text())["embedded index"]
    assert part["accused"] == dict.fromkeys(KINDS, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategies", "ttl"], "there is no strategy 'ttl'"),
        (["--strategies", ","], "names no strategy"),
        (["--operations", "0"], "no whole number from 1"),
        (["--server", "mysql"], "give one of embedded, valkey, redis"),
        (["--server", "redis://:secret@127.0.0.1:1/0", "--write", "x"], "what anybody can repeat"),
        (["--plant", "lost-event", "--write", "x"], "leave one of the two out"),
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


def test_a_server_that_does_not_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was started."""
    assert history.main(["--server", "redis://127.0.0.1:1/0"]) == STACK_BROKE
    assert re.fullmatch(
        r"bench.history: redis://127.0.0.1:1/0 does not answer: [^\n]+\n", capsys.readouterr().err
    )

"""Every block of commands is executed, and prints what the page promises."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import fromcode
from lab import scenarios
from tests.docs import names
from tests.docs.pagekit import KINDS, NEEDS, ROOT, Page, Typed, read
from tests.docs.shell import Scenes, environment_is_made, execute, kept, missing_tools, put_run, workplace
from tests.lab.runner.test_catalogue import INCIDENTS

PAGES = read()
TYPED = [typed for page in PAGES for typed in page.typed]
CAUSES = list(dict.fromkeys(typed.cause for typed in TYPED if typed.needs == "scene"))
ELSEWHERE = (ROOT / ".ci" / "run").read_text()


def complaints(typed: Typed, place: Path, more: dict[str, str] | None = None) -> list[str]:
    """Type one block and return what is wrong with the outcome."""
    answer = execute(typed.text, place, more)
    if answer.code:
        return [f"{typed.where}: exit code {answer.code}:\n{answer.output}"]
    if typed.promised is not None and not kept(typed.promised, answer.output):
        return [f"{typed.where}: promised\n{typed.promised}\nbut it printed\n{answer.output}"]
    return []


def misplaced(page: Page) -> list[str]:
    """Blocks that no test would find, and needs that belong to no block or are incomplete or unknown."""
    found = [
        f"{page.name}:{(token.map or [0])[0] + 1}: commands are ```sh, not ```{token.info.strip()}"
        for token in page.tokens
        if token.type == "fence" and token.info.strip() in ("bash", "shell", "console", "zsh")
    ]
    used = sum(bool(typed.needs) for typed in page.typed)
    if (written := len(NEEDS.findall(page.text))) != used or page.text.count("<!-- needs:") != written:
        found.append(
            f"{page.name}: {page.text.count('<!-- needs:')} needs, but {used} blocks right below one"
        )
    for typed in page.typed:
        if typed.needs == "compose":
            found += [
                f"{typed.where}: {words}" for line in typed.commands for words in names.wrong_line(line)
            ]
        if typed.needs and typed.needs not in KINDS:
            found.append(f"{typed.where}: there is no need {typed.needs!r}; there are {', '.join(KINDS)}")
        if not typed.needs and "/tmp/" in typed.text:
            found.append(f"{typed.where}: it leaves something in /tmp, so it works only the first time")
        if typed.needs == "person" and not typed.why:
            found.append(f"{typed.where}: why can only a person do this?")
        if typed.needs == "scene" and not typed.cause:
            found.append(f"{typed.where}: a scene of which cause?")
    return found


def unexecuted(typed: Typed) -> list[str]:
    """Commands of a slow block that no other test executes, or that are wrong."""
    found = []
    for line in typed.commands:
        found += [f"{typed.where}: {words}" for words in names.wrong_line(line)]
        run = re.match(r"bin/lab run (\S+)", line)
        verb = re.match(r"(?:\w+=\S+ )*make ([a-z-]+)", line)
        if verb and verb[1] in fromcode.targets(ROOT):
            if verb[1] != "demo" and f"make {verb[1]}" not in ELSEWHERE:
                found.append(f"{typed.where}: no test does make {verb[1]}")
        elif not run and not verb:
            found.append(f"{typed.where}: only runs and verbs of make are slow, not {line}")
    return found


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    """The scenes that the pages need, one after the other."""
    opened = Scenes(CAUSES, tmp_path_factory.mktemp("scenes"))
    yield opened
    opened.close_all()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_say_what_they_need(page: Page) -> None:
    """Every block states its needs in a form that the tests understand."""
    assert misplaced(page) == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.typed], ids=lambda page: page.name)
def test_what_a_page_has_people_type_works(page: Page, tmp_path: Path) -> None:
    """The blocks of a page work one after the other in one folder; a record stands for a run that is to be made."""
    assert environment_is_made(), "make venv first"
    place = workplace(tmp_path / "lab")
    for typed in page.typed:
        if typed.needs == "slow":
            folders = [folder for line in typed.commands if (folder := put_run(line, place))]
            if typed.promised is not None and folders:
                again = Typed(
                    typed.page, typed.line, f"bin/lab report {folders[-1]}", promised=typed.promised
                )
                assert complaints(again, place) == []
        elif not typed.needs and not missing_tools(typed):
            assert complaints(typed, place) == []


@pytest.mark.whole
@pytest.mark.parametrize("cause", CAUSES)
def test_what_a_scene_has_people_type_works(cause: str, scenes: Scenes, tmp_path: Path) -> None:
    """The blocks of all pages that need the scene of one cause work beside that scene."""
    assert environment_is_made(), "make venv first"
    place = workplace(tmp_path / "lab")
    variables = scenes.variables(cause)
    found = [
        words
        for typed in TYPED
        if typed.cause == cause and not missing_tools(typed)
        for words in complaints(typed, place, variables)
    ]
    scenes.close(cause)
    assert found == []


@pytest.mark.parametrize("typed", [t for t in TYPED if t.needs == "slow"], ids=lambda typed: typed.where)
def test_what_is_slow_is_executed_elsewhere(typed: Typed) -> None:
    """A slow block's commands are right, and another test or the checks of every change execute them."""
    assert unexecuted(typed) == []


def test_every_incident_is_run_elsewhere() -> None:
    """tests/lab runs every scenario that is no control, so the tests of pages need not."""
    known = {scenario.id for scenario in scenarios.catalogue().values() if not scenario.refutes}
    assert {*INCIDENTS, scenarios.MAIN} == known


# --- each of these checks can fail


def one(text: str) -> Typed:
    """The one block of a doctored page."""
    (typed,) = Page("page.md", text).typed
    return typed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\nbin/lab lost\n```\n", "exit code 2"),
        ("```sh\nfalse | true\n```\n", "exit code 1"),
        ("```sh\nsort <(echo $nowhere)\ntrue\n```\n\n```text\nsomewhere\n```\n", "promised"),
        ("```sh\necho all 10 hold\n```\n\nIt says:\n\n```text\nall 10 holds\n```\n", "promised"),
        ("```sh\nprintf 'a\\nb\\nc\\n'\n```\n\n```text\na\n...\nb\n```\n", "promised"),
    ],
)
def test_a_page_that_promises_too_much_is_found(text: str, said: str, tmp_path: Path) -> None:
    """A command that fails and an output other than the promised one are reported."""
    (found,) = complaints(one(text), workplace(tmp_path / "lab"))
    assert said in found


@pytest.mark.parametrize(
    ("promised", "came"),
    [
        ("p99 12.5 ms, 3,000 keys", "p99  1.25 s,  12 keys"),
        ("first\n...\nlast", "first\none\ntwo\nlast"),
        ("...\nlast", "first\nlast"),
        ("report: .../report.html", "report: /home/me/runs/x/report.html"),
        ("a ──────── b", "a ─────────────── b"),
    ],
)
def test_a_promise_is_of_shapes(promised: str, came: str) -> None:
    """An output may differ from the promise in figures, lengths of rules, spaces and what `...` leaves out."""
    assert kept(promised, came)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\nls\n```\n", "commands are ```sh"),
        ("<!-- needs: luck -->\n```sh\nls\n```\n", "there is no need 'luck'"),
        ("<!-- needs: person -->\n```sh\nls\n```\n", "why can only a person"),
        ("<!-- needs: scene -->\n```sh\nls\n```\n", "of which cause"),
        ("<!-- needs: slow -->\n\nwords\n\n```sh\nls\n```\n", "1 needs, but 0 blocks"),
    ],
)
def test_a_block_that_no_test_would_find_is_found(text: str, said: str) -> None:
    """A block in another language, and a need that is unknown, incomplete or without a block, are reported."""
    assert said in misplaced(Page("page.md", text))[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bin/lab run key-grwth", "there is no scenario key-grwth"),
        ("bin/lab run all --pce quick", "bin/lab run has no option --pce"),
        ("make lock", "no test does make lock"),
        ("make tea", "there is no target make tea"),
        ("bin/lab list", "only runs and verbs of make are slow"),
    ],
)
def test_what_nothing_executes_is_found(line: str, said: str) -> None:
    """In a slow block, wrong calls and commands that no other test executes are reported."""
    found = unexecuted(one(f"<!-- needs: slow -->\n```sh\n{line}  # words\n```\n"))
    assert said in found[0]


@pytest.mark.whole
def test_a_run_is_put_where_it_would_be(tmp_path: Path) -> None:
    """A record is put where the run folder would be, and `bin/lab report` prints for it what the run would print."""
    folder = put_run("bin/lab run giant-index --pace quick --out runs/mine", tmp_path)
    assert folder == tmp_path / "runs/mine"
    shutil.copytree(folder, tmp_path / "again")
    answer = execute(f"{ROOT}/bin/lab report {tmp_path / 'again'}", tmp_path)
    assert answer.code == 0, answer.output
    assert kept("...\nreport: .../again/report.html", answer.output)

"""The command line of every load, read in this process."""

from __future__ import annotations

import pytest

from loadtest.arguments import read_plan
from loadtest.incidents import (
    bystanders,
    crowd_model,
    delay,
    deletes,
    freshness,
    giant,
    iterations,
    scanners,
    slots,
    spread,
    whereabouts,
)
from loadtest.probe import openloop
from loadtest.resp import Server

PLANS = {
    "bystanders": bystanders.Plan,
    "crowd": crowd_model.Plan,
    "delay": delay.Plan,
    "deletes": deletes.Plan,
    "freshness": freshness.Plan,
    "giant": giant.Plan,
    "iterations": iterations.Plan,
    "probe": openloop.Plan,
    "scanners": scanners.Plan,
    "slots": slots.Plan,
    "spread": spread.Plan,
    "whereabouts": whereabouts.Plan,
}
FRONT = "--storefront http://127.0.0.1:1"
USER = f"{FRONT} --first-user 1"

BAD = [
    ("bystanders", "--pipeline many", "whole number"),
    ("bystanders", "--prefix a,b", "--prefix"),
    ("crowd", "--rate 1", "--seconds"),
    ("crowd", "--rate 0 --seconds 1", "between"),
    ("crowd", "--seconds 1", "either --rate or --find-utilisation"),
    ("crowd", "--rate 1 --find-utilisation 0.5 --seconds 1", "either --rate"),
    ("crowd", "--rate 1 --seconds 1 --key-bytes 24 --prefix far-too-long", "no room"),
    ("crowd", "--rate 1 --seconds 1 --fill 1.5", "between"),
    ("delay", "--rtt-ms 1001", "--rtt-ms"),
    ("deletes", "--ways all", "no such way"),
    ("deletes", "--keys 0", "--keys"),
    ("deletes", "--chunk -1", "--chunk"),
    ("deletes", "--rounds 1.5", "whole number"),
    ("freshness", FRONT, "--first-user"),
    ("freshness", "--first-user 1", "--storefront"),
    ("freshness", "--storefront 127.0.0.1:8000 --first-user 1", "not an http://"),
    ("freshness", "--storefront http://127.0.0.1:8000/shop --first-user 1", "not an http://"),
    ("freshness", f"{FRONT} --first-user 0", "--first-user"),
    ("freshness", f"{USER} --users -1", "--users"),
    ("freshness", f"{USER} --each 2", "--each"),
    ("giant", "", "--storefront"),
    ("giant", "--storefront http://127.0.0.1:x", "not an http://"),
    ("giant", f"{FRONT} --entries 0", "--entries"),
    ("giant", f"{FRONT} --user 0", "--user"),
    ("giant", f"{FRONT} --every -1", "--every"),
    ("iterations", "--count 0", "--count"),
    ("iterations", "--concurrent 5001", "--concurrent"),
    ("iterations", "--command flushall", "--command"),
    ("iterations", "--rest-ms -1", "--rest-ms"),
    ("iterations", "--rest-between -1", "--rest-between"),
    ("probe", "--url http://127.0.0.1:1", "redis://"),
    ("probe", "--url redis://127.0.0.1:99999", "port"),
    ("probe", "--url redis://127.0.0.1/x", "database"),
    ("probe", "--url redis://:pa#ss@h", "%23"),
    ("probe", "--url redis://h?db=2", "as /2"),
    ("probe", "--rate nan", "--rate"),
    ("probe", "--rate fast", "not a number"),
    ("probe", "--connections 501", "--connections"),
    ("probe", "--reconnect-seconds -1", "--reconnect-seconds"),
    ("probe", "--duration 0", "--duration"),
    ("probe", "--name a,b", "--name"),
    ("probe", "--command set", "--command"),
    ("probe", "--unknown", "--unknown"),
    ("scanners", "", "--match"),
    ("scanners", "--match a --rate 0", "between"),
    ("scanners", "--match a --lines 101", "between"),
    ("slots", f"{FRONT} --first-user 0", "--first-user"),
    ("slots", f"{USER} --neighbour -1", "--neighbour"),
    ("slots", f"{USER} --rounds x", "--rounds"),
    ("spread", "--rate 0", "--rate"),
    ("spread", "--searches -1", "--searches"),
    ("whereabouts", "--least 0", "--least"),
]


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's address is in the environment."""
    monkeypatch.setenv("PROBE_URL", "redis://:secret@127.0.0.1:7001")


@pytest.mark.parametrize(("name", "words", "hint"), BAD)
def test_bad_arguments_are_one_line_and_exit_code_2(
    name: str, words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line begins with the load's name and says what is wrong."""
    with pytest.raises(SystemExit) as ended:
        read_plan(PLANS[name], name, __doc__, words.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith(f"{name}: ") and hint in said.err


def test_a_missing_server_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the option and the variable."""
    monkeypatch.delenv("PROBE_URL")
    with pytest.raises(SystemExit):
        read_plan(openloop.Plan, "probe", __doc__, [])
    assert capsys.readouterr().err == "probe: no server: give --url, or set PROBE_URL\n"


def test_fields_are_options() -> None:
    """Without an option the field has its default; names, types and switches are those of the fields."""
    usual = read_plan(openloop.Plan, "probe", __doc__, [])
    assert usual == openloop.Plan(server=Server("127.0.0.1", 7001, password="secret"))
    words = "--url redis://h --key-prefix a:{1} --keys 7 --read-only --arrivals jittered --seed 3"
    plan = read_plan(openloop.Plan, "probe", __doc__, words.split())
    assert plan.server == Server("h", 6379)
    assert (plan.key_prefix, plan.keys, plan.read_only, plan.jitter_seed) == ("a:{1}", 7, True, 3)
    found = read_plan(freshness.Plan, "freshness", __doc__, [*USER.split(), "--commands", "scan,del"])
    assert (found.storefront, found.commands) == (("127.0.0.1", 1), ("SCAN", "DEL"))


@pytest.mark.parametrize("name", PLANS)
def test_help_describes_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The help begins with the first line of the load's docstring; an option's default stands behind its text."""
    with pytest.raises(SystemExit) as ended:
        read_plan(PLANS[name], name, "What it does.\n\nMore.", ["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "What it does." in said and "More." not in said
    assert "--until-stdin-ends" in said and "--url" in said
    if name == "spread":
        assert "entries of a page (20)" in said and "pages a second, of both kinds (60)" in said

"""Levers without a scene: which there are, what each does, and which of them end a cause."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lab.blind import levers
from lab.blind.causes import CAUSES
from lab.blind.inbox import Order
from lab.blind.levers import RESTART_S, Levers, limited, parse
from lab.blind.prices import CHANGES, CHUNK, run_price_changes
from lab.blind.sizing import CHANGER, HEALTHY_ORDERS, LINK, READS_PER_S, REST, RESTING, SECOND, WEB, Orders
from lab.errors import StackError, UsageError
from lab.server import redis_cli
from lab.server.server_stats import ServerObserver
from loadtest import resp
from tests.lab.blind.conftest import MEASURED
from tests.loadtest.conftest import Server

BAD = {
    "no lever": ("", "there is no lever ''"),
    "unknown lever": ("kil program-2", "Did you mean kill?"),
    "a lever of no kind": ("pray", "`bin/lab blind levers`"),
    "kill nobody": ("kill", "typed as kill CLIENT"),
    "stop nobody": ("stop", "typed as stop PROGRAM..."),
    "stop somebody else's": ("stop prometheus", "no program of this session 'prometheus'"),
    "limit without a rate": ("limit program-2", "typed as limit PROGRAM... N%"),
    "limit to nothing": ("limit program-2 0%", "a number from 20% to 90%, not '0%'"),
    "limit what has no rate": ("limit program-1 50%", "no program with a rate of its own"),
    "batch elsewhere": ("batch program-2 250", "no program that removes keys, 'program-2'"),
    "batch of half a key": ("batch program-1 0.5", "a number from 1 to 100000"),
    "batch of a key and a half": ("batch program-1 1.5", "whole number"),
    "another setting": ("server appendonly yes", "no setting to change 'appendonly'"),
    "memory that there is not": ("server maxmemory 900%", "from 50% to 200%"),
    "memory in no unit": ("server maxmemory lots", "not 'lots'"),
    "another policy": ("server maxmemory-policy always", "no policy 'always'"),
    "a pool of none": ("pool size 0", "from 1 to 500"),
    "a pool of half": ("pool size 2.5", "whole number"),
    "a wait without end": ("pool wait 900", "from 0s to 10s"),
    "another way": ("link scenic", "choose standby, primary"),
    "housekeeping without a state": ("housekeeping", "typed as housekeeping off"),
    "half of the housekeeping": ("housekeeping half", "choose off, on"),
    "restart the server": ("restart server", "choose storefront, program-1"),
    "restart nobody": ("restart", "typed as restart PART..."),
    "leave something": ("leave it", "typed as leave"),
}


class Fake:
    """A scene that keeps the newest order of each part, and the functions that are due later."""

    def __init__(self, orders: Orders, url: str = "") -> None:
        self.sent = dict(orders)
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.used: list[tuple[str, int]] = []
        self.server: Any = ServerObserver(url) if url else SimpleNamespace(url="", maxmemory=lambda: 1000)
        settings = {"strategy": "index", "scan_count": 1000, "strategies": {"index": "", "generation": ""}}
        self.web: Any = SimpleNamespace(
            ask=lambda _method, _path: settings, use=lambda name, count: self.used.append((name, count))
        )
        self.levers = Levers(self, orders, lambda seconds, act: self.due.append((seconds, act)))

    def order(self, name: str, order: Order) -> None:
        """Keep an order."""
        self.sent[name] = order

    def pull(self, text: str) -> str:
        """Pull a lever as it is typed."""
        return self.levers.pull(parse(text.split()))

    def pass_time(self) -> None:
        """Do what is due later."""
        for _, act in self.due:
            act()


def harm(orders: Orders) -> set[str]:
    """Return the parts whose orders harm users, or whose work is not done."""
    web, changer = orders[WEB], orders[CHANGER]
    harmful = {name for name in (SECOND, *REST) if orders[name] != RESTING}
    if orders[LINK]["delay_s"] or orders[LINK].get("stall_s"):
        harmful.add(LINK)
    if web.get("sum_s") or (web["size"] and web["size"] < 2 * READS_PER_S * web["hold_s"]):
        harmful.add(WEB)
    if changer["kind"] != "changes" or not 100 <= changer.get("batch", CHUNK) <= 10_000:
        harmful.add(CHANGER)
    return harmful


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the levers that talk to the server find a connection of program-2, and change nothing."""
    killer = SimpleNamespace(client_kill_filter=lambda _id: 1, close=lambda: None)
    monkeypatch.setattr(Levers, "_clients", lambda _: [{"name": SECOND, "addr": "a:1", "id": "7"}])
    monkeypatch.setattr(levers, "client", lambda _url: killer)
    monkeypatch.setattr(levers, "CliConnection", lambda _url: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(levers, "carry_out", lambda _line, _words, write: "OK")


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_cure_and_a_tempting_lever_that_is_none(cause: str) -> None:
    """A cause names at least one cure and one tempting lever, each one of the levers, each with a reason."""
    of = CAUSES[cause]
    assert of.cures and of.tempting
    assert not set(of.cures) & set(of.tempting)
    for lever, why in (*of.cures.items(), *of.tempting.items()):
        assert parse(lever.split()).text == lever
        assert why.endswith(".") and len(why.split()) >= 4


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "nothing"])
@pytest.mark.usefixtures("alone")
def test_a_cure_ends_the_cause_and_a_tempting_lever_does_not(cause: str) -> None:
    """After a cure no part has a harmful order; after a tempting lever one has, once all that is due has been done."""
    orders = CAUSES[cause].all_orders(MEASURED)
    assert harm(orders) and not harm(HEALTHY_ORDERS)
    for lever in CAUSES[cause].cures:
        scene = Fake(orders)
        scene.pull(lever)
        scene.pass_time()
        assert harm(scene.sent) == set(), lever
    for lever in CAUSES[cause].tempting:
        scene = Fake(orders)
        scene.pull(lever)
        scene.pass_time()
        assert harm(scene.sent), lever


@pytest.mark.parametrize("what", BAD)
def test_a_lever_that_does_not_exist_is_refused_in_one_line(what: str) -> None:
    """An unknown lever, or one with arguments it cannot take, is refused in one line before a scene is asked."""
    typed, said = BAD[what]
    with pytest.raises(UsageError) as refused:
        parse(typed.split())
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_restarted_part_is_away_and_then_as_before() -> None:
    """A restart takes the part's order away for some seconds; a stop that comes meanwhile holds."""
    orders = CAUSES["scan-storm"].all_orders(MEASURED)
    scene = Fake(orders)
    scene.pull(f"restart {SECOND} storefront")
    assert scene.sent[SECOND] == RESTING and [seconds for seconds, _ in scene.due] == [RESTART_S]
    scene.pass_time()
    assert scene.sent == orders
    scene.pull(f"restart {SECOND}")
    scene.pull(f"stop {SECOND}")
    scene.pass_time()
    assert scene.sent[SECOND] == RESTING
    scene.pull(f"restart {SECOND}")
    scene.pass_time()
    assert scene.sent == orders, "a restart starts a stopped program, too"


def test_nothing_is_ordered_after_the_end() -> None:
    """An order that is due after the end of the session is not sent: the programs are gone."""
    scene = Fake(CAUSES["scan-storm"].all_orders(MEASURED))
    scene.pull(f"restart {SECOND}")
    scene.levers.close()
    scene.pass_time()
    assert scene.sent[SECOND] == RESTING


def test_a_restarted_pool_is_new_for_a_while_and_keeps_what_was_set() -> None:
    """The storefront comes back with the pool it had, or with the size that was set meanwhile."""
    orders = CAUSES["exhausted-pool"].all_orders(MEASURED)
    scene = Fake(orders)
    scene.pull("restart storefront")
    assert scene.sent[WEB] == HEALTHY_ORDERS[WEB]
    scene.pass_time()
    assert scene.sent[WEB] == orders[WEB]
    scene.pull("restart storefront")
    scene.pull("pool size 20")
    scene.pass_time()
    assert scene.sent[WEB] == {**orders[WEB], "size": 20}


def test_a_limit_is_of_the_first_rate_and_never_nothing() -> None:
    """A limit makes a program ask less often, compute less, or use fewer connections; two are not multiplied."""
    assert limited({"kind": "k", "every_s": 2.0, "connections": 40}, 0.5) == {
        "kind": "k",
        "every_s": 4.0,
        "connections": 40,
    }
    assert limited({"kind": "k", "connections": 40, "count": 9}, 0.1)["connections"] == 4
    assert limited({"kind": "k", "threads": 4, "share": 1.0}, 0.3) == {
        "kind": "k",
        "threads": 4,
        "share": 0.3,
    }
    assert limited(RESTING, 0.1) == RESTING
    orders = CAUSES["keys-command"].all_orders(MEASURED)
    scene = Fake(orders)
    for _ in range(2):
        scene.pull(f"limit {SECOND} program-3 50%")
    assert scene.sent[SECOND]["every_s"] == pytest.approx(2 * orders[SECOND]["every_s"])
    assert scene.sent["program-3"] == RESTING


def test_the_pool_and_the_link_can_be_set_in_any_session() -> None:
    """A pool without a limit gets the default wait; the primary route has the delay of the session's cause."""
    scene = Fake(CAUSES["slow-network"].all_orders(MEASURED))
    scene.pull("pool size 50")
    assert scene.sent[WEB] == {"size": 50, "hold_s": 0.0, "wait_s": levers.USUAL_WAIT_S}
    scene.pull("pool wait 0.5")
    assert scene.sent[WEB] == {"size": 50, "hold_s": 0.0, "wait_s": 0.5}
    delayed = scene.sent[LINK]
    scene.pull("link standby")
    assert scene.sent[LINK]["delay_s"] == 0
    scene.pull("link primary")
    assert scene.sent[LINK] == delayed
    wide = Fake(HEALTHY_ORDERS)
    wide.pull("pool wait 2s")
    assert wide.sent[WEB] == {"size": levers.MOST_CONNECTIONS, "hold_s": 0.0, "wait_s": 2.0}


def test_the_housekeeping_can_be_ended_and_begun_in_any_session() -> None:
    """Without its housekeeping the storefront keeps its pool; in other sessions the lever changes nothing."""
    first = CAUSES["stalling-storefront"].all_orders(MEASURED)
    scene = Fake(first)
    scene.pull("pool size 50")
    assert scene.sent[WEB]["sum_s"] == first[WEB]["sum_s"], "a change of the pool ends no housekeeping"
    assert scene.pull("housekeeping off") == "the storefront's housekeeping is off."
    assert scene.sent[WEB] == {"size": 50, "hold_s": 0.0, "wait_s": levers.USUAL_WAIT_S}
    scene.pull("housekeeping on")
    assert scene.sent[WEB] == {**first[WEB], "size": 50, "wait_s": levers.USUAL_WAIT_S}
    other = Fake(CAUSES["exhausted-pool"].all_orders(MEASURED))
    for state in ("off", "on"):
        other.pull(f"housekeeping {state}")
        assert other.sent == CAUSES["exhausted-pool"].all_orders(MEASURED)


def test_a_strategy_is_one_of_the_storefronts_own() -> None:
    """The storefront's strategy is switched if the storefront has it; another is refused with those it has."""
    scene = Fake(HEALTHY_ORDERS)
    assert "was index, and is generation" in scene.pull("strategy generation")
    assert scene.used == [("generation", 1000)]
    with pytest.raises(UsageError, match="no strategy 'prayer'; choose index, generation"):
        scene.pull("strategy prayer")
    assert len(scene.used) == 1


def test_only_a_programs_connections_can_be_closed(server: Server) -> None:
    """`kill` closes every connection of a program by its name; others, and names that nobody bears, are refused."""
    scene, watcher = Fake(HEALTHY_ORDERS, server.url), server.client()
    ours = [resp.connect(resp.Server.from_url(server.url)) for _ in range(2)]
    for line in ours:
        resp.ask(line, resp.command("CLIENT", "SETNAME", SECOND))
    other = redis_cli.CliConnection(server.url)
    other.ask("CLIENT", "SETNAME", "accounting")

    def names() -> list[str]:
        return [row["name"] for row in watcher.client_list()]

    with pytest.raises(UsageError, match="accounting is not closed"):
        scene.pull("kill accounting")
    with pytest.raises(UsageError, match="no connection 'program-3' now"):
        scene.pull("kill program-3")
    assert sorted(names())[-3:] == ["accounting", SECOND, SECOND]
    assert scene.levers.came_back(parse(["kill", SECOND])) == f" {SECOND} has connected again."
    assert scene.pull(f"kill {SECOND}") == f"closed 2 connections of {SECOND}."
    assert SECOND not in names() and other.ask("PING") in (b"PONG", "PONG")
    assert scene.levers.came_back(parse(["kill", SECOND])) == ""
    assert scene.levers.came_back(parse(["leave"])) == ""
    server.kill()
    with pytest.raises(StackError, match="does not answer CLIENT LIST"):
        scene.pull(f"kill {SECOND}")
    for line in ours:
        line.close()


def test_a_setting_of_the_server_is_changed(server: Server) -> None:
    """Each setting can be changed; maxmemory is a share of its first value."""
    scene, client = Fake(HEALTHY_ORDERS, server.url), server.client()
    client.config_set("maxmemory", 100_000_000)
    values = (
        "maxmemory 200%",
        "maxmemory-policy noeviction",
        "slowlog-log-slower-than 5",
        "lazyfree-lazy-user-del yes",
    )
    for value in values:
        scene.pull(f"server {value}")
    scene.pull("server maxmemory 150%")
    assert client.config_get("maxmemory")["maxmemory"] == "150000000"
    assert client.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"] == "5"


@pytest.mark.parametrize(
    ("batch", "fewest", "most"), [({}, 4, 20), ({"batch": 100_000}, 1, 1), ({"batch": 1}, 1000, 1000)]
)
def test_a_batch_is_how_many_keys_a_command_removes(
    batch: dict[str, int], fewest: int, most: int, server: Server
) -> None:
    """A change of prices removes as many keys with each UNLINK as the order says, a chunk if it says nothing."""
    client = server.client()
    client.rpush(CHANGES, "1")

    class Until:
        """An inbox whose next order comes when no change is left."""

        @property
        def news(self) -> bool:
            """True when the list of changes is empty."""
            return not client.llen(CHANGES)

    inbox: Any = Until()
    run_price_changes({"kind": "changes", "members": 1000, **batch}, inbox, resp.Server.from_url(server.url))
    assert fewest <= client.info("commandstats")["cmdstat_unlink"]["calls"] <= most

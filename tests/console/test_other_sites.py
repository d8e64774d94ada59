"""In a real browser no page of another site reads the control page or acts on it; neither does a re-pointed name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.servicekit import eventually, http
from tests.browserkit import CHROMIUM, Aim, attempts
from tests.console.conftest import Page
from tests.console.standins import StandIns
from tests.httpkit import Answer, HttpStandIn, Request

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
]
BODY = {"on": True}
ACT = "/api/servers/one/growth"


class Open(HttpStandIn):
    """A server that lets every site read it and act on it. `acts`: what it was told."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Something worth reading, with every leave that CORS knows."""
        leave = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
        if request.method == "POST":
            self.acts.append(request.headers.get("content-type", ""))
        return Answer("a secret", headers={**leave, "Content-Type": "text/html"})


@pytest.fixture
def open_server() -> Iterator[Open]:
    """An open server."""
    server = Open()
    yield server
    server.close()


@pytest.mark.parametrize("rebinds", [False, True], ids=["another site", "a re-pointed name"])
def test_nothing_is_read_and_nothing_done(
    rebinds: bool, target: Page, standins: StandIns, tmp_path: Path
) -> None:
    """The page sees no state, and no action reaches the processes; the same action from here does."""
    before = list(standins.told)
    found = attempts(Aim(target.url, "/api/state", ACT, BODY), rebinds, tmp_path)
    assert found["form"]["sent"], found
    assert not [name for name, seen in found.items() if "servers" in seen.get("text", "")], found
    assert standins.told == before, found
    if rebinds:
        assert {found[name].get("status") for name in ("read", "act")} == {421}, found
    else:
        assert "error" in found["read"] and "error" in found["act"], found
        assert found["read blindly"]["type"] == "opaque"
    assert http("POST", f"{target.url}{ACT}", BODY).status == 200
    eventually(lambda: len(standins.told) > len(before))


def test_an_open_server_is_read_and_acted_on(open_server: Open, tmp_path: Path) -> None:
    """So the attempts are real ones: where a server gives leave, each of them succeeds."""
    found = attempts(Aim(open_server.url, "/api/state", ACT, BODY), False, tmp_path)
    assert found["read"]["text"] == found["act"]["text"] == "a secret"
    kinds = [kind.partition(";")[0] for kind in open_server.acts]
    assert kinds == ["application/json", "text/plain", "text/plain"]


def test_a_re_pointed_name_reads_a_server_that_looks_at_no_name(open_server: Open, tmp_path: Path) -> None:
    """Here the frame can be read, too: to the browser it is the page's own site."""
    found = attempts(Aim(open_server.url, "/api/state", ACT, BODY), True, tmp_path)
    assert {found[name]["text"] for name in ("read", "read blindly", "act", "act as text", "frame")} == {
        "a secret"
    }

"""`bin/lab diagnose` on real servers: causes, changes, arguments, and replies that it could not read."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.diagnose import questions
from lab.diagnose.command import _ShownProgress
from lab.diagnose.diagnosis import AFTERWARDS, Diagnosis, read
from tests.app.servicekit import free_port
from tests.lab.diagnose.diagnosekit import Fake, Run, acl
from tests.loadtest.conftest import Server


@pytest.mark.alone  # next to other tests the server waits for a core, and then nothing can be told
def test_nothing_is_wrong_with_an_idle_server(server: Server, diagnose: Run, tmp_path: Path) -> None:
    """On an idle server nothing is found; a page and a file that can be read again are written all the same."""
    code, said, announced = diagnose(server.url, "--seconds", "3", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "Nothing is wrong with the server" in said or "this machine itself was late" in said
    assert "5,000 keys" in announced
    assert "Nothing is written." in announced
    kept = read(tmp_path / "out")
    assert isinstance(kept, Diagnosis)
    assert kept.found == ()
    page = html.unescape((tmp_path / "out" / "diagnosis.html").read_text())
    for words in (kept.sentence, AFTERWARDS[kept.outcome]):
        assert words in page and words in said


def test_the_commands_that_hold_a_server_are_named(
    server: Server, diagnose: Run, background_load: Any
) -> None:
    """A script that computes for 50 ms five times a second is the first finding, with the experiment to type."""
    text = "local s = 0 for i = 1, 3000000 do s = s + i % 7 end return s"
    background_load(lambda client: client.eval(text, 0), 0.15)
    code, said, complaints = diagnose(server.url, "--seconds", "5", "--json")
    assert code == 0, complaints
    told = json.loads(said)
    assert told["found"][0]["id"] == "lua-script"
    assert told["found"][0]["next"].startswith("redis-cli SLOWLOG GET")
    assert told["figures"]["parts_ms"]["waiting"] > 10
    assert told["figures"]["stalls"] >= 5


def test_arguments_are_shown_on_request_and_never_written(
    server: Server, diagnose: Run, background_load: Any, tmp_path: Path
) -> None:
    """Names of keys are written to no file, and shown on the terminal only with --show-arguments."""
    server.client().config_set("slowlog-log-slower-than", 0)
    background_load(lambda client: client.get("secret:customer:7"), 0.05)
    out = str(tmp_path / "out")
    _, plain, announced = diagnose(server.url, "--seconds", "2", "--out", out)
    _, shown, _ = diagnose(server.url, "--seconds", "2", "--out", out, "--show-arguments")
    kept = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "secret" not in plain + announced + kept
    [line] = [line for line in shown.splitlines() if line.startswith("slow: GET secret:customer:7")]
    assert re.fullmatch(r"slow: GET secret:customer:7 \(\d+ times\)", line)


def test_compare_shows_what_changed(
    server: Server, diagnose: Run, background_load: Any, tmp_path: Path
) -> None:
    """--compare tells what changed, such as commands that were not there before, with figures."""
    diagnose(server.url, "--seconds", "2", "--out", str(tmp_path))
    background_load(lambda client: client.incr("n"), 0.01)
    _, said, _ = diagnose(server.url, "--seconds", "2", "--compare", str(tmp_path))
    assert "  INCRBY, calls a second: 0 → " in said


def test_with_fewer_rights_it_says_what_it_could_not_see(server: Server, diagnose: Run) -> None:
    """Commands that the user has no right to are reported; the printed ACL lacks only the command log."""
    acl(server, "ACL SETUSER little on >pw +info +ping +select")
    url = f"redis://little:pw@127.0.0.1:{server.port}"
    code, said, _ = diagnose(url, "--seconds", "1")
    assert code == 0
    for what in ("SLOWLOG GET: no right to it", "CONFIG GET: no right to it", "CLIENT LIST: no right to it"):
        assert f"not seen: {what}" in said
    acl(server, questions.ACL.replace("PASSWORD", "pw"))
    _, said, _ = diagnose(f"redis://diagnose:pw@127.0.0.1:{server.port}", "--seconds", "1")
    assert [line for line in said.splitlines() if line.startswith("not seen: ")] == [
        "not seen: COMMANDLOG GET: no right to it"
    ]


def test_a_node_of_a_cluster_is_looked_at_alone(tmp_path: Path, diagnose: Run) -> None:
    """A cluster's node is announced as one, and what the probe leaves out is told."""
    node = Server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    node.start()
    try:
        code, said, announced = diagnose(node.url, "--seconds", "1")
    finally:
        node.kill()
    assert code == 0
    assert "one node of a cluster (only this node is looked at)" in announced
    [line] = [line for line in said.splitlines() if line.startswith("not seen: GET: ")]
    assert line.endswith("Hash slot not served, so the probe leaves it out")


def test_an_address_with_brackets_is_announced_whole() -> None:
    """Brackets are no markup: an IPv6 address is shown as it was typed."""
    shown = io.StringIO()
    _ShownProgress(Console(file=shown, soft_wrap=True), 30, 10).begins("valkey at redis://[fd00::1]:6379")
    assert shown.getvalue().startswith("valkey at redis://[fd00::1]:6379\n")


def test_a_socket_and_a_replica(tmp_path: Path, server: Server, diagnose: Run) -> None:
    """A server is reached by its socket's path, and announced as a replica."""
    replica = Server(
        tmp_path, "--unixsocket", str(tmp_path / "r.sock"), "--replicaof", f"127.0.0.1 {server.port}"
    )
    replica.start()
    try:
        code, _, announced = diagnose(f"unix://{tmp_path}/r.sock", "--seconds", "1")
    finally:
        replica.kill()
    assert code == 0
    assert f"at unix://{tmp_path}/r.sock, a replica" in announced


def test_a_product_that_is_unknown_is_a_server(diagnose: Run) -> None:
    """A server whose INFO names no product that is known is watched all the same, and called a server."""
    with Fake(product="other") as fake:
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "1", "--json")
        fake.shutdown()
    told = json.loads(said)
    assert (code, told["product"], told["version"]) == (0, "a server", "")

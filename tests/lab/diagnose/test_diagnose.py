"""`bin/lab diagnose` on real servers: what it says, what it sends, and the one line for every fault."""

from __future__ import annotations

import html
import io
import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis
from rich.console import Console

from lab import ROOT
from lab.cli import run_command
from lab.diagnose import command, questions
from lab.diagnose.command import _ShownProgress, keep_one
from lab.diagnose.diagnosis import Diagnosis, read
from lab.diagnose.findings import judge
from lab.diagnose.questions import ALLOWED, SETTINGS, NotAllowed, Questions, Refused
from lab.stacks.address import read_address
from tests.app.servicekit import free_port
from tests.lab.diagnose.conftest import Make
from tests.loadtest.conftest import Server

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, with some keys."""
    found = Server(tmp_path)
    found.start()
    found.client().mset({f"key:{number}": "x" for number in range(5_000)})
    yield found
    found.kill()


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command in this process and returns its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command(["diagnose", *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def beside(server: Server) -> Iterator[Callable[[Callable[[Any], object], float], None]]:
    """A function that repeats something on the server until the test is over."""
    ended = threading.Event()
    threads = []

    def again(do: Callable[[Any], object], every_s: float) -> None:
        client = server.client()

        def loop() -> None:
            while not ended.wait(every_s):
                do(client)

        threads.append(threading.Thread(target=loop, daemon=True))
        threads[-1].start()

    yield again
    ended.set()
    for thread in threads:
        thread.join(10)


class Tap(socketserver.ThreadingTCPServer):
    """A proxy in front of the server that records every command with its time."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), self.Way)
        self.behind = port
        self.commands: list[tuple[float, list[str]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.server_address[1]}"

    class Way(socketserver.BaseRequestHandler):
        """One connection."""

        def handle(self) -> None:
            """Pass data on both ways, and record the commands."""
            tap: Any = self.server
            with socket.create_connection(("127.0.0.1", tap.behind)) as there:
                threading.Thread(target=self._back, args=(there,), daemon=True).start()
                reader = hiredis.Reader()
                while data := self.request.recv(65536):
                    reader.feed(data)
                    while (words := reader.gets()) is not False:
                        tap.commands.append((time.monotonic(), [word.decode() for word in words]))
                    there.sendall(data)

        def _back(self, there: socket.socket) -> None:
            try:
                while data := there.recv(65536):
                    self.request.sendall(data)
            except OSError:
                pass


def test_what_is_sent_is_allowed_and_no_more_often_than_promised(server: Server, diagnose: Run) -> None:
    """On the wire and by the server's count only allowed commands are sent, within their rate; no key is changed."""
    own = server.client()
    before = own.info("keyspace"), own.info("stats")["expired_keys"]
    own.config_resetstat()
    with Tap(server.port) as tap:
        code, said, _ = diagnose(tap.url, "--seconds", "4", "--json")
        tap.shutdown()
    assert code == 0
    for _, words in tap.commands:
        assert (words[0],) in ALLOWED or tuple(words[:2]) in ALLOWED, words
        assert words[0] != "CONFIG" or words[2] in SETTINGS
    probes = [at for at, words in tap.commands if words[0] in ("GET", "PING")]
    others = [at for at, words in tap.commands if words[0] not in ("GET", "PING")]
    for moments, most in ((probes, questions.PROBES_PER_S), (others, questions.PER_SECOND)):
        assert (
            max(sum(at <= each < at + 1 for each in moments) for at in moments) <= most + 2
        )  # each command comes at a random moment of its slot
    counted = own.info("commandstats")
    names = {name.removeprefix("cmdstat_") for name in counted} - {"config|resetstat"}
    assert names <= {"info", "ping", "get", "slowlog|get", "commandlog|get", "latency|latest", "latency|histogram",
                     "config|get", "client|list"}  # fmt: skip
    told = json.loads(said)
    assert sum(told["sent"].values()) == len(tap.commands)
    assert (own.info("keyspace"), own.info("stats")["expired_keys"]) == before


NEVER: tuple[tuple[str | int, ...], ...] = (
    ("SCAN", "0"), ("KEYS", "*"), ("MONITOR",), ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "RESETSTAT"), ("SLOWLOG", "RESET"), ("GET", "somebody"), ("SET", "a", "b"), ("EVAL", "return 1", 0),
    ("CONFIG", "GET", "maxmemory", "requirepass"), ("CONFIG", "GET"),
    ("DEBUG", "SLEEP", "1"), ("CLIENT", "KILL", "x"), ("LATENCY", "RESET"), ("OBJECT", "FREQ", "a"), ("FLUSHALL",),
)  # fmt: skip


def test_nothing_else_can_be_sent(server: Server) -> None:
    """The module that sends refuses every other command before it leaves."""
    with Tap(server.port) as tap, closing(Questions(read_address(tap.url, environ={}))) as asked:
        for words in NEVER:
            with pytest.raises(NotAllowed):
                asked.ask(*words)
        asked.ask("PING")
        tap.shutdown()
    assert [words for _, words in tap.commands] == [["PING"]]


@pytest.mark.alone  # beside other tests the server waits for a core, and then nothing can be told
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
    assert kept.sentence in html.unescape((tmp_path / "out" / "diagnosis.html").read_text())


def test_the_commands_that_hold_a_server_are_named(server: Server, diagnose: Run, beside: Any) -> None:
    """A script that computes for 50 ms five times a second is the first finding, with the experiment to type."""
    text = "local s = 0 for i = 1, 3000000 do s = s + i % 7 end return s"
    beside(lambda client: client.eval(text, 0), 0.15)
    code, said, complaints = diagnose(server.url, "--seconds", "5", "--json")
    assert code == 0, complaints
    told = json.loads(said)
    assert told["found"][0]["id"] == "lua-script"
    assert told["found"][0]["next"].startswith("redis-cli SLOWLOG GET")
    assert told["figures"]["parts_ms"]["waiting"] > 10
    assert told["figures"]["stalls"] >= 5


def test_arguments_are_shown_on_request_and_never_kept(
    server: Server, diagnose: Run, beside: Any, tmp_path: Path
) -> None:
    """Names of keys are written to no file, and shown on the terminal only with --show-arguments."""
    server.client().config_set("slowlog-log-slower-than", 0)
    beside(lambda client: client.get("secret:customer:7"), 0.05)
    out = str(tmp_path / "out")
    _, plain, announced = diagnose(server.url, "--seconds", "2", "--out", out)
    _, shown, _ = diagnose(server.url, "--seconds", "2", "--out", out, "--show-arguments")
    kept = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "secret" not in plain + announced + kept
    assert "slow: GET secret:customer:7" in shown


def test_compare_shows_what_changed(server: Server, diagnose: Run, beside: Any, tmp_path: Path) -> None:
    """--compare tells what changed, such as commands that were not there before, with figures."""
    diagnose(server.url, "--seconds", "2", "--out", str(tmp_path))
    beside(lambda client: client.incr("n"), 0.01)
    _, said, _ = diagnose(server.url, "--seconds", "2", "--compare", str(tmp_path))
    assert "  INCRBY, calls a second: 0 → " in said


def acl(server: Server, line: str) -> None:
    """Carry out a printed ACL command."""
    client: Any = server.client()
    client.execute_command(*line.split())


def test_with_fewer_rights_it_says_what_it_could_not_see(server: Server, diagnose: Run) -> None:
    """What the user's rights hide is told; the user of the printed ACL lacks only the command log."""
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


def one_line(found: tuple[int, str, str], code: int, said: str) -> None:
    """Assert this exit code, and one line that says what is wrong."""
    assert found[0] == code
    assert found[1] == ""
    [line] = [line for line in found[2].splitlines() if line.startswith("lab: ")]
    assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "0"), "--seconds must be from 1 to 3600"),
        (("--rate", "100"), "--rate must be from 1 to 50"),
        (("--above", "5"), "--above needs --watch"),
        (("--watch", "--above", "-1"), "--above must be 0 or more"),
        (("--watch", "--above", "nan"), "--above must be 0 or more"),
        (
            ("--watch", "--above", "5", "--out", "/dev/null/kept"),
            "/dev/null/kept cannot be written: Not a dir",
        ),
        (("--watch", "--json"), "leave out --json"),
        (("--compare", "/nowhere.json"), "/nowhere.json cannot be read: No such file"),
        (("--ca", "/nowhere.pem"), "there is no file /nowhere.pem"),
    ],
)
def test_bad_usage_is_one_line(words: tuple[str, ...], said: str, diagnose: Run) -> None:
    """Bad usage is refused in one line before the server is asked for anything."""
    one_line(diagnose("redis://127.0.0.1:1", *words), 2, said)


def test_a_file_that_is_no_diagnosis_is_one_line(diagnose: Run, tmp_path: Path) -> None:
    """A file that is cut or of another kind is refused in one line."""
    file = tmp_path / "other.json"
    file.write_text('{"schema_version": 7}')
    one_line(
        diagnose("redis://127.0.0.1:1", "--compare", str(file)),
        2,
        "is no diagnosis of this lab: schema_version",
    )
    file.write_text('{"schema_')
    one_line(
        diagnose("redis://127.0.0.1:1", "--compare", str(file)), 2, "is no diagnosis of this lab: the file"
    )


def test_a_right_that_is_taken_away_meanwhile_is_one_line(server: Server, diagnose: Run) -> None:
    """A server that stops answering INFO in the middle is told in one line, as one that never did."""
    acl(server, questions.ACL.replace("PASSWORD", "pw"))
    threading.Timer(2.0, acl, (server, "ACL SETUSER diagnose -info")).start()
    url = f"redis://diagnose:pw@127.0.0.1:{server.port}"
    one_line(diagnose(url, "--seconds", "10"), 3, "refuses INFO (no right to it)")


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


def test_another_nodes_address_is_not_repeated() -> None:
    """The refusal of a key that another node has names no address."""
    with Other(b"-MOVED 866 10.0.0.9:7001\r\n") as other:
        address = read_address(f"redis://127.0.0.1:{other.server_address[1]}", environ={})
        with closing(Questions(address)) as asked, pytest.raises(Refused) as refused:
            asked.ask("GET", questions.ABSENT)
        other.shutdown()
    assert str(refused.value) == "another node of the cluster has that key's slot"


def test_an_address_with_brackets_is_announced_whole() -> None:
    """Brackets are no markup: an IPv6 address is shown as it was typed."""
    shown = io.StringIO()
    _ShownProgress(Console(file=shown, soft_wrap=True), 30, 10).begins("valkey at redis://[fd00::1]:6379")
    assert shown.getvalue().startswith("valkey at redis://[fd00::1]:6379\n")


def test_a_user_without_password_or_rights_gets_one_line(server: Server, diagnose: Run) -> None:
    """A wrong password, a missing password and no right to INFO are told in one line each, with exit code 3."""
    acl(server, "ACL SETUSER blind on >pw +ping")
    url = f"127.0.0.1:{server.port}"
    one_line(diagnose(f"redis://blind:no@{url}", "--seconds", "1"), 3, "refuses the login: ")
    one_line(diagnose(f"redis://blind:pw@{url}", "--seconds", "1"), 3, "refuses INFO (no right to it)")
    server.client().config_set("requirepass", "pw")
    one_line(diagnose(f"redis://{url}", "--seconds", "1"), 3, "refuses the login: ")


class Other(socketserver.ThreadingTCPServer):
    """A service that is no Redis: answers the first bytes with its own words."""

    daemon_threads = True
    words = b""

    def __init__(self, words: bytes) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1000)
                self.request.sendall(words)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Redis protocol"),
        (b"ERROR\r\n", "does not speak the Redis protocol"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "is loading its data"),
        (b"$24\r\nredis_mode:sentinel\r\nok:1\r\n", "is a Sentinel, which holds no data"),
        (b"", "closed the connection"),
    ],
)
def test_other_services_are_told_apart(words: bytes, said: str, diagnose: Run) -> None:
    """HTTP, Memcached, a loading server, a Sentinel and a port that hangs up are told apart, in one line each."""
    with Other(words) as other:
        url = f"redis://127.0.0.1:{other.server_address[1]}"
        found = diagnose(url, "--seconds", "1")
        other.shutdown()
    one_line(found, 2 if "sentinel" in words.decode() else 3, said)


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


def test_a_server_that_is_not_there_or_goes_away_is_one_line(server: Server, diagnose: Run) -> None:
    """A server that is not there, or goes away midway, is one line and exit code 3."""
    one_line(diagnose(f"redis://127.0.0.1:{free_port()}", "--seconds", "1"), 3, "no server answers at")
    threading.Timer(1.0, server.kill).start()
    one_line(diagnose(server.url, "--seconds", "10"), 3, f"127.0.0.1:{server.port}")


class Fake(socketserver.ThreadingTCPServer):
    """Speaks the protocol as far as a diagnosis needs. INFO says that each INFO took `info_s`; PING takes `ping_s`."""

    daemon_threads = True

    def __init__(self, info_s: float = 0.0, ping_s: float = 0.0, product: str = "valkey") -> None:
        fake = self
        self.infos = 0

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                reader = hiredis.Reader()
                while data := self.request.recv(65536):
                    reader.feed(data)
                    while (words := reader.gets()) is not False:
                        self.request.sendall(fake.reply(words[0].decode()))

        super().__init__(("127.0.0.1", 0), Handler)
        self.info_s, self.ping_s, self.product = info_s, ping_s, product
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reply(self, name: str) -> bytes:
        """Return the reply to a command."""
        if name == "INFO":
            self.infos += 1
            usec = round(1e6 * self.info_s * self.infos)
            text = f"{self.product}_version:9.1.2\r\nuptime_in_seconds:9\r\n"
            text += "used_cpu_user:0.1\r\nused_cpu_sys:0.0\r\n"
            text += f"cmdstat_info:calls={self.infos},usec={usec}\r\n"
            return f"${len(text)}\r\n{text}\r\n".encode()
        if name in ("PING", "GET"):
            if self.infos > 1:
                time.sleep(self.ping_s)
            return b"+PONG\r\n"
        return b"$0\r\n\r\n" if name == "CLIENT" else b"*0\r\n"


def test_a_diagnosis_that_holds_the_server_ends_by_itself(diagnose: Run) -> None:
    """If INFO takes the server two seconds, the diagnosis ends early and says why."""
    with Fake(info_s=2.0) as fake:
        began = time.monotonic()
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "60")
        fake.shutdown()
    assert code == 0
    assert time.monotonic() - began < 30
    assert "not seen: the diagnosis ended early: INFO held the server for 2.0 s" in said


def test_a_product_that_is_unknown_is_a_server(diagnose: Run) -> None:
    """A server whose INFO names no product that is known is watched all the same, and called a server."""
    with Fake(product="other") as fake:
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "1", "--json")
        fake.shutdown()
    told = json.loads(said)
    assert (code, told["product"], told["version"]) == (0, "a server", "")


def test_a_request_without_a_reply_counts_with_its_wait(diagnose: Run) -> None:
    """A request without a reply at the end counts with the time it has waited so far."""
    with Fake(ping_s=8.0) as fake:
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "3", "--json")
        fake.shutdown()
    assert code == 0
    assert json.loads(said)["figures"]["p99_ms"] > 2000


def test_tls(encrypted: tuple[int, Path], server: Server, diagnose: Run) -> None:
    """TLS works with its authority and our certificate, or with --insecure, which is announced; faults get one line."""
    port, folder = encrypted
    own = ("--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem"), "--seconds", "1")
    url = f"rediss://127.0.0.1:{port}"
    code, _, complaints = diagnose(url, *own, "--ca", str(folder / "ca.pem"))
    assert code == 0, complaints
    code, _, announced = diagnose(url, *own, "--insecure")
    assert code == 0
    assert "--insecure: the certificate is not checked" in announced
    one_line(diagnose(url, *own), 3, "this machine does not know the authority that signed the certificate")
    known = ("--ca", str(folder / "ca.pem"))
    one_line(
        diagnose(url, "--seconds", "1", *known), 3, "does it ask for a client's certificate (--cert FILE"
    )
    one_line(diagnose(f"rediss://127.0.0.2:{port}", *own, *known), 3, f"127.0.0.2:{port} is for another name")
    one_line(diagnose(f"redis://127.0.0.1:{port}", "--seconds", "1"), 3, "is it a TLS port (rediss://)")
    one_line(
        diagnose(f"rediss://127.0.0.1:{server.port}", "--seconds", "1"), 3, "is it a plain port (redis://)?"
    )


def test_an_expired_certificate_is_told_apart() -> None:
    """An expired certificate is not taken for one of an unknown authority."""
    error = redis.ConnectionError(
        "Error 1 connecting to cache:6379. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has "
        "expired (_ssl.c:1006)."
    )
    with closing(Questions(read_address("rediss://cache:6379", environ={}))) as asked:
        assert asked._why(error) == "the certificate of rediss://cache:6379 has expired."


def test_what_is_kept_is_bounded_and_touches_nothing_else(make: Make, tmp_path: Path) -> None:
    """Only the oldest diagnoses go; a folder of another content stays."""
    (tmp_path / "seen-it-all").mkdir()
    (tmp_path / "seen-0").write_text("a note")
    for begins in (3, 1, 2):
        window = make()
        first = replace(window.first, at=begins)
        window = replace(window, snapshots=[first, *window.snapshots[1:]])
        keep_one(Diagnosis.of(window, judge(window), {}), tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "seen-0", "seen-1970-01-01T000002Z", "seen-1970-01-01T000003Z", "seen-it-all",
    ]  # fmt: skip


def test_a_watch_goes_on_when_nothing_can_be_kept(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, or a full disk, is told instead of a path."""
    it = Diagnosis.of(make(), judge(make()), {})
    assert "cannot be written: Not a directory" in keep_one(it, Path("/dev/null/kept"), 2)
    (tmp_path / f"seen-{it.at.replace(':', '').replace('+0000', 'Z')}").write_text("in the way")
    assert keep_one(it, tmp_path, 2).startswith("nothing, because the diagnosis cannot be written to ")
    monkeypatch.setattr(command, "LEAST_FREE_BYTES", 1 << 62)
    assert "is nearly full" in keep_one(it, tmp_path / "new", 2)
    assert not list((tmp_path / "new").iterdir())


def test_the_watch_keeps_what_was_bad_until_ctrl_c(server: Server, beside: Any, tmp_path: Path) -> None:
    """--watch prints a line per diagnosis and keeps the newest above the bound; SIGTERM ends it with exit code 130."""
    beside(lambda client: client.execute_command("DEBUG", "SLEEP", "0.05"), 0.1)
    script = (
        "import sys\nfrom lab.diagnose import command\ncommand.WATCHED_S = 1.2\n"
        "from lab.cli import main\nsys.exit(main())"
    )
    words = [server.url, "--watch", "--above", "5", "--keep", "2", "--out", str(tmp_path / "kept")]
    process = subprocess.Popen(
        [sys.executable, "-c", script, "diagnose", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(5)]
    process.terminate()
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 130, complaints
    assert "the watch was ended" in complaints
    assert sum("kept: " in line for line in lines) >= 3
    assert 1 <= len(list((tmp_path / "kept").glob("seen-*/diagnosis.json"))) <= 2

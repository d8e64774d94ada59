"""Every fault of a diagnosis is one line, with the exit code of the contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import redis

from lab.diagnose import local, questions
from lab.diagnose.diagnosis import Diagnosis
from lab.diagnose.findings import WindowJudgement
from lab.diagnose.questions import Questions, Refused
from lab.errors import StackError
from lab.server.address import read_address
from tests.app.servicekit import free_port
from tests.lab.diagnose.diagnosekit import Fake, Other, Run, acl, one_line
from tests.loadtest.conftest import Server


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "0"), "--seconds must be from 1 to 3600"),
        (("--seconds", "3601"), "--seconds must be from 1 to 3600; with --watch it may be more"),
        (("--watch", "--seconds", "0.5"), "--seconds must be from 1"),
        (("--watch", "--seconds", "nan"), "--seconds must be from 1"),
        (("--rate", "100"), "--rate must be from 1 to 50"),
        (("--above", "5"), "--above needs --watch"),
        (("--watch", "--above", "-1"), "--above must be 0 or more"),
        (("--watch", "--above", "nan"), "--above must be 0 or more"),
        (
            ("--watch", "--above", "5", "--out", "/dev/null/kept"),
            "/dev/null/kept cannot be written: Not a dir",
        ),
        (("--out", "/dev/null/kept"), "/dev/null/kept cannot be written: Not a dir"),
        (("--watch", "--json"), "leave out --json"),
        (("--watch", "--fail-on", "finding"), "leave out --json, --compare and --fail-on"),
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


def test_another_nodes_address_is_not_repeated() -> None:
    """The refusal of a key that another node has names no address."""
    with Other(b"-MOVED 866 10.0.0.9:7001\r\n") as other:
        address = read_address(f"redis://127.0.0.1:{other.server_address[1]}", environ={})
        with closing(Questions(address)) as asked, pytest.raises(Refused) as refused:
            asked.ask("GET", questions.ABSENT)
        other.shutdown()
    assert str(refused.value) == "another node of the cluster has that key's slot"


def test_a_user_without_password_or_rights_gets_one_line(server: Server, diagnose: Run) -> None:
    """A wrong password, a missing password and no right to INFO are told in one line each, with exit code 3."""
    acl(server, "ACL SETUSER blind on >pw +ping")
    url = f"127.0.0.1:{server.port}"
    one_line(diagnose(f"redis://blind:no@{url}", "--seconds", "1"), 3, "refuses the login: ")
    one_line(diagnose(f"redis://blind:pw@{url}", "--seconds", "1"), 3, "refuses INFO (no right to it)")
    server.client().config_set("requirepass", "pw")
    one_line(diagnose(f"redis://{url}", "--seconds", "1"), 3, "refuses the login: ")


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
def test_other_services_are_recognised(words: bytes, said: str, diagnose: Run) -> None:
    """HTTP, Memcached, a loading server, a Sentinel and a port that hangs up are told apart, in one line each."""
    with Other(words) as other:
        url = f"redis://127.0.0.1:{other.server_address[1]}"
        found = diagnose(url, "--seconds", "1")
        other.shutdown()
    one_line(found, 2 if "sentinel" in words.decode() else 3, said)


def test_a_server_that_is_not_there_or_goes_away_is_one_line(server: Server, diagnose: Run) -> None:
    """A server that is not there, or goes away midway, is one line and exit code 3."""
    one_line(diagnose(f"redis://127.0.0.1:{free_port()}", "--seconds", "1"), 3, "no server answers at")
    threading.Timer(1.0, server.kill).start()
    one_line(diagnose(server.url, "--seconds", "10"), 3, f"127.0.0.1:{server.port}")


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


def test_an_expired_certificate_is_recognised() -> None:
    """An expired certificate is not taken for one of an unknown authority."""
    error = redis.ConnectionError(
        "Error 1 connecting to cache:6379. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has "
        "expired (_ssl.c:1006)."
    )
    with closing(Questions(read_address("rediss://cache:6379", environ={}))) as asked:
        assert asked._connection_error(error) == "the certificate of rediss://cache:6379 has expired."


GARBAGE = "\r\n".join(
    (
        "cmdstat_get:calls=x,usec=1", "cmdstat_set:nothing", "cmdstat_del:calls=nan,usec=1", "db0:what",
        "used_cpu_user_main_thread:often", "used_memory:inf", "allocator_frag_ratio:nan", "",
    )
)  # fmt: skip


def test_unreadable_fields_are_left_out_and_reported(diagnose: Run) -> None:
    """Garbage in INFO, in a log and in CLIENT LIST is left out; the diagnosis says so, and has finite figures."""
    odd = {"SLOWLOG": b"*1\r\n:7\r\n", "CLIENT": b"$6\r\nomem=x\r\n", "LATENCY": b"$3\r\nabc\r\n"}
    with Fake(more=GARBAGE, replies=odd) as fake:
        code, said, complaints = diagnose(fake.url, "--seconds", "1", "--json")
        fake.shutdown()
    assert code == 0, complaints
    told = json.loads(said)
    assert told["figures"]["keys"] == 0
    assert sorted(told["unseen"]) == [
        "CLIENT LIST: the reply cannot be read",
        "INFO: cmdstat_del cannot be read",
        "INFO: cmdstat_get cannot be read",
        "INFO: cmdstat_set cannot be read",
        "INFO: db0 cannot be read",
        "INFO: used_cpu cannot be read",
        "LATENCY HISTOGRAM: the reply cannot be read",
        "LATENCY LATEST: the reply cannot be read",
        "SLOWLOG GET: the reply cannot be read",
    ]


@pytest.mark.whole
def test_a_server_that_hangs_at_the_end_is_not_healthy(diagnose: Run) -> None:
    """Requests that became due while nothing was answered count with their wait, also those at the very end."""
    with Fake(stands=lambda _, infos: infos >= 7) as fake:
        code, said, _ = diagnose(fake.url, "--seconds", "8", "--rate", "20", "--json")
        fake.shutdown()
    told = json.loads(said)
    assert code == 0
    assert told["figures"]["p99_ms"] > 1000
    assert told["outcome"] != "nothing"


def test_a_database_that_is_not_there_is_one_line(server: Server, diagnose: Run) -> None:
    """A refusal while redis-py connects, such as of a database, is reported in one line."""
    found = diagnose(f"redis://127.0.0.1:{server.port}/99", "--seconds", "1")
    one_line(found, 3, "refuses the connection to database 99")


def test_a_probe_that_never_came_due_is_no_answer(diagnose: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a single request nothing can be said of a bystander, least of all that it is healthy."""
    with Fake() as fake:
        monkeypatch.setattr("lab.diagnose.watch.Prober.run", lambda _: None)
        found = diagnose(fake.url, "--seconds", "1", "--rate", "1")
        fake.shutdown()
    one_line(found, 3, "no request of the probe came due")


def test_what_was_seen_is_shown_before_it_is_written(
    server: Server, diagnose: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that becomes full meanwhile takes the files away, and not the answer."""

    def full(_: Diagnosis, folder: Path) -> Path:
        raise StackError(f"the diagnosis cannot be written to {folder}: No space left on device.")

    monkeypatch.setattr(Diagnosis, "write", full)
    code, said, complaints = diagnose(server.url, "--seconds", "1", "--out", str(tmp_path / "out"))
    assert code == 3
    assert "where the probe's p99" in said
    assert "No space left on device" in complaints


def test_another_program_with_the_same_number_is_not_the_server() -> None:
    """Containers count their processes from 1, so the number and the age may be those of another program."""
    own = psutil.Process()
    told = {
        "process_id": str(own.pid),
        "uptime_in_seconds": str(round(time.time() - own.create_time())),
        "executable": f"/usr/bin/{own.name()}",
    }
    assert local.find(told) is not None
    assert local.find(told | {"executable": "/usr/bin/redis-server"}) is None


def test_what_a_server_forks_is_no_stranger() -> None:
    """The CPU time of a server's children, also of those that have ended, counts as its own and not as others'."""
    before = local._measure(os.getpid()).own_s
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert local._measure(os.getpid()).own_s - before >= 0.4


@pytest.mark.parametrize(
    ("outcome", "codes"), [("named", (0, 1, 1)), ("unknown", (0, 0, 1)), ("nothing", (0, 0, 0))]
)
def test_a_script_can_ask_for_a_failure(
    outcome: str, codes: tuple[int, ...], server: Server, diagnose: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named cause fails under `finding`; not to know does, too, under `unknown`. The answer is shown first."""
    monkeypatch.setattr("lab.diagnose.command.judge", lambda _: WindowJudgement(outcome, "so it is", (), ()))
    for words, code in zip(((), ("--fail-on", "finding"), ("--fail-on", "unknown")), codes, strict=True):
        found = diagnose(server.url, "--seconds", "1", *words)
        assert (found[0], "so it is" in found[1]) == (code, True)

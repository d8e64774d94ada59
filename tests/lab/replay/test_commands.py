"""`bin/lab replay`, also with `--record`, as a person calls it: one line and the right exit code for every fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import errors
from lab.cli import run_command
from lab.errors import LabError, StackError, UsageError
from lab.replay import replay
from lab.replay.prometheus import Prometheus
from lab.replay.record import record
from lab.replay.recording import METRICS, TRACES, Meta, Recording, Series, pack_metrics, pack_traces, write
from lab.replay.tempo import Tempo
from lab.scene import engine
from tests.app.servicekit import free_port
from tests.lab.replay.conftest import TempoStandin
from tests.lab.replay.test_choice import OnePrometheus, T, WeakTempo

START = 1_795_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of one series and no trace."""
    made = tmp_path / "recording"
    made.mkdir()
    series = [Series({"__name__": "up", "server": "redis"}, [round(START * 1000)], [1.0])]
    meta = Meta(START, START + 60, 2.0, {}, ["redis"], {})
    write(made, meta, pack_metrics(series), pack_traces([]))
    return made


@pytest.fixture
def tempo() -> Iterator[TempoStandin]:
    """A Tempo without traces."""
    standin = TempoStandin()
    yield standin
    standin.close()


def lab(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Run a `lab` command; return its exit code and the one line of its stderr."""
    code = run_command([*map(str, words)])
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    return code, said[0]


class Told:
    """A stand-in for docker that answers from a list of (word, answer or error)."""

    def __init__(self, *answers: tuple[str, str | BaseException]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def ask(self, *words: str, seconds: float = 0.0) -> str:
        """Return the first answer whose word is in the command, or raise its error."""
        line = " ".join(words)
        self.asked.append(line)
        for part, answer in self.answers:
            if f" {part} " in f"{line} ":
                if isinstance(answer, BaseException):
                    raise answer
                return answer
        return ""


def test_recording_without_a_scene_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a scene, recording ends with exit code 3 and a line that says what to do; no folder is left."""
    monkeypatch.setenv("PROMETHEUS_PORT", str(free_port()))
    code, said = lab(capsys, "replay", "--record", tmp_path / "case")
    assert code == errors.STACK_BROKE
    assert "Prometheus does not answer" in said
    assert "make up" in said
    assert not (tmp_path / "case").exists()


def test_another_service_at_the_port_is_recognised(
    tmp_path: Path, tempo: TempoStandin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service at Prometheus's port that is not Prometheus is recognised."""
    monkeypatch.setenv("PROMETHEUS_PORT", tempo.url.rpartition(":")[2])
    code, said = lab(capsys, "replay", "--record", tmp_path / "case")
    assert code == errors.STACK_BROKE
    assert "is not Prometheus" in said


def test_a_prometheus_without_samples(
    tmp_path: Path,
    prometheus_url: str,
    tempo: TempoStandin,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A stretch of time without samples is not recorded, and no folder is left."""
    with pytest.raises(StackError, match="has no sample of the last 5 minutes"):
        record(
            tmp_path / "case", Prometheus(prometheus_url), Tempo(tempo.url), 5, 5, lambda _: None, end=START
        )
    assert not (tmp_path / "case").exists()


def interrupting(*_: object) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("moment", ["version", "names", "series", "exemplars"])
def test_an_interrupted_recording_leaves_nothing(
    there: bool,
    moment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C while samples are read leaves nothing, and ends with exit code 130 and a line that says so."""
    case = tmp_path / "case"
    if there:
        case.mkdir()
    answers = {"version": "3", "names": ["up"], "series": [Series({}, [1], [1.0])], "exemplars": {}}
    for name, answer in answers.items():
        monkeypatch.setattr(Prometheus, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(Tempo, "version", lambda _: "3")
    monkeypatch.setattr(Prometheus, moment, interrupting)
    code, said = lab(capsys, "replay", "--record", case)
    assert code == errors.INTERRUPTED
    assert said == "lab: interrupted; nothing was recorded, and nothing is left behind."
    assert list(tmp_path.iterdir()) == ([case] if there else [])
    assert not there or not any(case.iterdir())


@pytest.mark.parametrize("stopped", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_half_written_recording_is_removed(
    stopped: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If writing ends half-way, by Ctrl-C or a full disk, the files that were complete go too."""
    seen: list[str] = []

    def stop(*_: object, **__: object) -> None:
        seen.extend(path.name for path in (tmp_path / "case").iterdir())
        raise stopped

    monkeypatch.setattr(Path, "write_text", stop)
    with pytest.raises(LabError, match=r"interrupted; nothing was recorded|No space left"):
        record(tmp_path / "case", OnePrometheus(), WeakTempo(), 10, 5, lambda _: None, end=T / 1000 + 600)  # type: ignore[arg-type]
    assert set(seen) == {METRICS, TRACES}, "it was stopped before the last file"
    assert not (tmp_path / "case").exists()


def test_a_recording_overwrites_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is not empty is refused before Prometheus or Tempo is asked."""
    code, said = lab(capsys, "replay", "--record", folder)
    assert code == errors.USAGE
    assert "is not empty" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay",), "name a recording to serve, or give --down"),
        (("replay", "DIR", "--down"), "name a recording to serve, or give --down"),
        (("replay", "DIR/nowhere"), "is not a recording of `bin/lab replay --record`"),
        (("replay", "--record", "DIR/new", "--minutes", "0"), "--minutes"),
        (("replay", "--record", "DIR/new", "--max-mb", "0"), "--max-mb"),
    ],
)
def test_bad_usage(
    words: tuple[str, ...],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad usage is exit code 2 and a line that says what is wrong."""
    code, line = lab(capsys, *(word.replace("DIR", str(folder)) for word in words))
    assert code == errors.USAGE
    assert said in line


def test_a_damaged_recording_starts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged recording is refused before Docker is asked for anything."""
    (folder / METRICS).write_bytes(b"no gzip")
    monkeypatch.setenv("PATH", str(folder))
    code, said = lab(capsys, "replay", folder)
    assert code == errors.USAGE
    assert "metrics.gz is damaged" in said


def test_no_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Docker, `lab replay` ends with exit code 3 and says what to install."""
    monkeypatch.setenv("PATH", str(folder))
    for words in (("replay", folder), ("replay", "--down")):
        code, said = lab(capsys, *words)
        assert code == errors.STACK_BROKE
        assert "Install Docker" in said


def empty_recording() -> Recording:
    """Return a recording like that of `folder`."""
    series = [Series({"__name__": "up"}, [round(START * 1000)], [1.0])]
    return Recording(Meta(START, START + 60, 2.0, {}, [], {}), series, [])


BREAKING = [
    (StackError("tempo is unhealthy"), "tempo is unhealthy"),
    (KeyboardInterrupt(), "interrupted; nothing is served."),
]


@pytest.mark.parametrize(("broken", "said"), BREAKING)
def test_a_start_that_fails_is_taken_down(broken: BaseException, said: str) -> None:
    """Whatever ends the start, even Ctrl-C, the containers, volumes and the network are removed."""
    docker = Told(("up", broken))
    with pytest.raises(LabError, match=said):
        replay.replay(empty_recording(), docker, lambda _: None)  # type: ignore[arg-type]
    assert "down --volumes --remove-orphans" in docker.asked[-1]


@pytest.mark.parametrize(("broken", "said"), BREAKING)
def test_a_failure_to_take_down_is_reported(broken: BaseException, said: str) -> None:
    """If taking down fails too, both faults are told, after Ctrl-C too: something may still be there."""
    docker = Told(("up", broken), ("down", StackError("docker is away")))
    with pytest.raises(StackError, match=f"{said} And it could not be taken down: docker is away"):
        replay.replay(empty_recording(), docker, lambda _: None)  # type: ignore[arg-type]


def test_taken_ports_are_blamed_on_the_scene() -> None:
    """If ports are taken the message names the likely reason."""
    docker = Told(("up", StackError("Bind for 127.0.0.1:9090 failed: port is already allocated")))
    with pytest.raises(StackError, match="make down"):
        replay.replay(empty_recording(), docker, lambda _: None)  # type: ignore[arg-type]


def test_one_replay_at_a_time() -> None:
    """A second replay is refused, and the first goes on."""
    docker = Told(("ps", '{"Name": "replay-tempo-1", "State": "running"}'))
    with pytest.raises(UsageError, match="--down"):
        replay.replay(empty_recording(), docker, lambda _: None)  # type: ignore[arg-type]
    assert not [line for line in docker.asked if " down " in line]


def test_what_the_engine_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman without root refuses limits and an option of the network: the replay starts without them."""
    podman = engine.Engine("Podman", "5.6", rootless=True, cpus=2, cpu_limits=False)
    monkeypatch.setattr(engine, "detect", lambda: podman)
    config = '{"services": {"tempo": {"cpus": 1.0, "dns": ["127.0.0.1"]}}}'
    docker = Reading(("config", config), ("up", StackError("that was all")))
    with pytest.raises(StackError, match="that was all"):
        replay.replay(empty_recording(), docker, lambda _: None)  # type: ignore[arg-type]
    assert "tempo: {cpus: !reset null, dns: !reset null}" in docker.read
    assert "driver_opts: !reset null" in docker.read


class Reading(Told):
    """A stand-in for docker that reads the last of the files it is given for `up`."""

    read = ""

    def ask(self, *words: str, seconds: float = 0.0) -> str:
        """Keep the text of the last file, then answer."""
        if "up" in words:
            self.read = Path(words[len(words) - 1 - words[::-1].index("--file") + 1]).read_text()
        return super().ask(*words, seconds=seconds)


def test_addresses_hold_the_time_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dashboard is linked with the time at which the case is served, on the port that .env says."""
    monkeypatch.setenv("GRAFANA_PORT", "13000")
    links = dict(replay.dashboards(replay.Served(1000.0, 1900.0, 1, 1, 1, [])))
    assert len(links) >= 6
    assert all(link.startswith("http://127.0.0.1:13000/d/") for link in links.values())
    assert all("from=990000&to=1900000" in link for link in links.values())

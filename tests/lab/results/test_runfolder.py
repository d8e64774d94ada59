"""The run folder: written whole or not at all, read back as it was, and refused in one line if it is damaged."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.claims.verdict import write_result
from lab.errors import StackError, UsageError
from lab.results import folder as results_folder
from lab.results.folder import Run, RunWriter, make_folder, write_json
from lab.runner.judging import reach
from tests.lab.doctored import build_run
from tests.lab.synthetic import encode

ROOT = Path(__file__).resolve().parents[3]


def full_disk(path: Path, text: str, *_args: Any, **_options: Any) -> int:
    """Write half of the text, then raise the error of a full disk."""
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def interrupt(path: Path, text: str, *_args: Any, **_options: Any) -> int:
    """Write half of the text, then raise KeyboardInterrupt, as Ctrl-C does."""
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
    raise KeyboardInterrupt


def test_json_is_written_whole(tmp_path: Path) -> None:
    """The file holds what was written last, and nothing is left beside it."""
    write_json(tmp_path / "result.json", {"holds": True})
    write_json(tmp_path / "result.json", {"holds": False})
    assert json.loads((tmp_path / "result.json").read_text()) == {"holds": False}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_reader_of_the_old_file_reads_all_of_it(tmp_path: Path) -> None:
    """A new file replaces the old one, so a reader that has the old one open never sees a mixture."""
    path = tmp_path / "result.json"
    write_json(path, {"old": "x" * 100})
    with path.open() as reader:
        write_json(path, {"new": True})
        assert json.load(reader) == {"old": "x" * 100}


@pytest.mark.parametrize("failure", [full_disk, interrupt])
def test_failing_write_leaves_the_old_file(
    failure: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that breaks off halfway leaves the old file as it was, and no part of the new one."""
    path = tmp_path / "result.json"
    write_json(path, {"holds": True})
    monkeypatch.setattr(Path, "write_text", failure)
    with pytest.raises((StackError, KeyboardInterrupt)):
        write_json(path, {"holds": False, "more": "x" * 1000})
    monkeypatch.undo()
    assert json.loads(path.read_text()) == {"holds": True}
    assert [found.name for found in tmp_path.iterdir()] == ["result.json"]


def test_first_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there was no file there is none afterwards, and the error says where, why and what to do."""
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(StackError, match=rf"{tmp_path}: No space left on device\. .*--out"):
        write_json(tmp_path / "result.json", {"holds": True})
    assert list(tmp_path.iterdir()) == []


def test_file_size_limit_is_one_error_and_no_half_file(tmp_path: Path) -> None:
    """A write beyond the kernel's limit of 4 KiB a file is one error, and no file is left."""
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom lab.errors import StackError\n"
        "from lab.results.folder import write_json\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    write_json(Path(sys.argv[1]) / 'result.json', 'x' * 10000)\n"
        "except StackError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_json_leaves_the_old_file(tmp_path: Path) -> None:
    """Content that cannot be encoded raises `TypeError` and leaves the old file as it was."""
    write_json(tmp_path / "result.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "result.json", {1, 2})
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_writer_on_a_full_disk_raises_one_line(folder: Path) -> None:
    """Samples, histograms and slow log that cannot be written raise `StackError`, not `OSError`."""
    folder.mkdir()
    writer = RunWriter(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(StackError, match=r"cannot write to .*File too large") as caught:
            for t in range(200):
                writer.slow(float(t), "SCAN", 12_345)
        assert "\n" not in str(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.close()
    writer.close()


def test_run_reads_back_what_was_written(folder: Path) -> None:
    """Facts, phases, latencies, samples and slow log come back as they were."""
    run = build_run(folder, slowlog=["GET"])
    again = Run(folder)
    assert asdict(again.facts) == asdict(run.facts)
    assert [phase.id for phase in again.phases] == [phase.id for phase in run.phases]
    assert again.phase("grow-7") == again.arm("grow")[-1]
    assert again.phase("nothing") is None
    assert [row["duration_us"] for row in again.slowlog if row["command"] == "GET"] == ["12345"]
    assert set(again.samples[0]) >= {"t", "phase", "strategy", "keys", "probe_p99_ms", "utilisation"}
    assert again.result() is None


def test_an_entry_of_the_slow_log_lies_in_the_middle_of_its_second(folder: Path) -> None:
    """The log rounds times down: a phase takes the seconds whose greater part it has."""
    run = build_run(folder)
    run.slowlog = [{"command": "GET", "t": t} for t in ("99", "100", "104", "105")]
    assert run.slow_commands([replace(run.phases[0], t0=100.2, t1=105.3)]) == {"GET": 2}
    assert run.slow_commands([replace(run.phases[0], t0=99.7, t1=105.7)]) == {"GET": 3}


def test_the_slow_log_is_counted_by_command_and_phase(folder: Path) -> None:
    """Entries count in the phase in which they lie; a command in small letters is the same command."""
    run = build_run(folder, slowlog=["GET", "get", "keys"])
    *earlier, last = run.phases
    assert run.slow_commands([last]) == {"GET": 2, "KEYS": 1}
    assert run.slow_commands(earlier).keys().isdisjoint({"GET", "KEYS", "get", "keys"})
    assert run.slow_commands(run.phases) == run.slow_commands(earlier) + run.slow_commands([last])
    assert {row["command"] for row in run.slowlog} == set(run.slow_commands(run.phases))


def test_a_command_that_came_late_has_columns_that_are_empty_before(folder: Path) -> None:
    """A command that came late has empty cells before; a column that is no command's is refused."""
    build_run(folder)
    path = folder / "samples.csv"
    head, *rows = path.read_text().splitlines()

    def write(*names: str) -> None:
        more = [
            ",".join(["", *("7.5" for _ in names)]) if i > 3 else "," * len(names) for i in range(len(rows))
        ]
        lines = (row + cells for row, cells in zip(rows, more, strict=True))
        path.write_text("\n".join([",".join((head, *names)), *lines]) + "\n")

    write("hgetall_per_s", "hgetall_exec_us")
    samples = Run(folder).samples
    assert [row["hgetall_per_s"] for row in samples[3:5]] == ["", "7.5"]
    for names in (("hgetall_per_s",), ("hgetall_per_s", "mget_exec_us"), ("cpu_of_somebody",)):
        write(*names)
        with pytest.raises(UsageError, match=f"column '{names[0]}' is unknown"):
            Run(folder).samples  # noqa: B018 (read when asked for)


def test_latencies_are_of_the_phase_alone(folder: Path) -> None:
    """An interval counts for the phase in which most of it lies, and by its own probe and kind."""
    run = build_run(folder)
    phase = run.phases[0]
    before = [len(part) for part in run.latencies(phase)]
    writer_line = "Tag=main-intended,{:.3f},0.250,1.0," + encode([99_000_000] * 500) + "\n"
    with (folder / "probe.hlog").open("a") as log:
        log.write(writer_line.format(phase.t0 - 0.2))
        log.write(writer_line.format(phase.t1 - 0.1))
        log.write(writer_line.replace("main-intended", "main-service").format(phase.t0))
        log.write(writer_line.replace("main-", "other-").format(phase.t0))
    again = Run(folder)
    assert [len(part) for part in again.latencies(phase)] == before
    p99 = again.p99_ms(phase, kind="service")
    assert p99 is not None
    assert p99 > 10_000
    assert again.p99_ms(phase, "nobody") is None


@pytest.mark.parametrize("cut", [1, 10, 40, -5, -60])
def test_cut_last_line_of_the_histogram_log_is_left_out(cut: int, folder: Path) -> None:
    """A run killed in the middle of a line loses that line, and nothing else."""
    run = build_run(folder)
    first, last = run.phases[0], run.phases[-1]
    p99, whole = run.p99_ms(first), run.latencies(last, kind="service")
    log = folder / "probe.hlog"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]) + lines[-1].rstrip("\n")[:cut])
    again = Run(folder)
    rest = again.latencies(last, kind="service")
    assert again.p99_ms(first) == p99
    assert len(rest) == len(whole) - 1
    assert all(np.array_equal(a, b) for a, b in zip(whole, rest, strict=False))


def test_an_interval_of_no_length_is_no_broken_line(folder: Path) -> None:
    """A probe that ends right after an interval writes one of no length, in whole milliseconds; no line is lost."""
    run = build_run(folder)
    first = run.phases[0]
    p99 = run.p99_ms(first)
    with (folder / "probe.hlog").open("a") as log:
        log.write(f"Tag=main-intended,{first.t1:.3f},0.000,0.000,{encode([])}\n")
    again = Run(folder)
    assert again.unreadable == 0
    assert again.p99_ms(first) == p99
    with (folder / "probe.hlog").open("a") as log:
        log.write(f"Tag=main-intended,{first.t1:.3f},-0.250,0.000,{encode([])}\n")
    assert Run(folder).unreadable == 1


def test_lines_of_more_latencies_than_a_run_has_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of some bytes may hold millions of equal latencies, and a file many such lines."""
    read = build_run(folder).latencies(build_run(folder).phases[0])
    assert Run(folder).unreadable == 0
    monkeypatch.setattr(results_folder, "MOST", 2 * len(read[0]))
    assert Run(folder).unreadable > 0


def test_partial_run_can_be_read(folder: Path) -> None:
    """A folder whose run was interrupted after a few phases is read like any other, and is not valid."""

    def doctor(facts: Any) -> None:
        facts.interrupted = True
        del facts.phases[3:]

    run = build_run(folder, doctor=doctor)
    assert len(run.phases) == 3
    assert reach(run).exit_code == 4


def holds(folder: Path, content: bytes) -> None:
    """Make `folder` with a run.json of this content."""
    folder.mkdir()
    (folder / "run.json").write_bytes(content)


def bad_folders(folder: Path) -> dict[str, Callable[[], object]]:
    """Return ways to make something that is no run folder."""
    run = folder / "run.json"
    return {
        "missing": lambda: None,
        "empty": folder.mkdir,
        "a file": lambda: folder.write_text("hello"),
        "half": lambda: holds(folder, b'{"scenario": "key-g'),
        "a list": lambda: holds(folder, b"[1, 2]"),
        "other JSON": lambda: holds(folder, b'{"phases": [], "colour": "red"}'),
        "phases of another kind": lambda: holds(folder, b'{"phases": [{"id": 1}]}'),
        "binary": lambda: holds(folder, bytes(range(256))),
        "run.json is a folder": lambda: run.mkdir(parents=True),
    }


@pytest.mark.parametrize("how", bad_folders(Path()))
def test_what_is_no_run_folder_is_refused_in_one_line(how: str, folder: Path) -> None:
    """Anything that is not a run folder raises a `UsageError` of one line that names the folder."""
    bad_folders(folder)[how]()
    with pytest.raises(UsageError) as caught:
        Run(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("probe.hlog", lambda run: run.p99_ms(run.phases[0])),
        ("samples.csv", lambda run: run.samples),
        ("slowlog.csv", lambda run: run.slowlog),
    ],
)
def test_folder_that_lacks_a_part_is_refused(name: str, look: Callable[[Run], object], folder: Path) -> None:
    """A run folder without one of its files raises a `UsageError` that names the file."""
    run = build_run(folder)
    (folder / name).unlink()
    with pytest.raises(UsageError, match=name):
        look(Run(run.folder))


def test_result_has_the_fields_of_the_contract(folder: Path) -> None:
    """result.json holds what tools may rely on, for every phase, claim and check."""
    run = build_run(folder)
    result = write_result(run, reach(run))
    assert run.result() == json.loads(json.dumps(result))
    assert set(result) >= {
        "scenario", "server", "server_version", "pace", "seed", "started", "host", "calibration", "phases",
        "claims", "validity", "holds",
    }  # fmt: skip
    for claim in result["claims"]:
        assert set(claim) >= {"id", "statement", "measured", "bound", "holds"}
    for check in result["validity"]:
        assert set(check) == {"check", "ok", "detail"}
    for phase in result["phases"]:
        assert phase["p99_ms"]["main_intended"] == run.p99_ms(run.phase(phase["id"]))  # type: ignore[arg-type]
        assert phase["demand"] is not None


def test_broken_result_is_refused(folder: Path) -> None:
    """A result.json that is no JSON raises a `UsageError`, and does not pass for a partial run."""
    run = build_run(folder)
    (folder / "result.json").write_text("{")
    with pytest.raises(UsageError, match=r"result\.json"):
        run.result()


def test_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    """A run folder is made with its missing parents; the trial write leaves nothing in it."""
    made = make_folder(tmp_path / "a" / "b")
    assert made.is_dir()
    assert list(made.iterdir()) == []


def test_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """A run never writes into a folder that holds anything."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        make_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """A path that cannot become a folder is refused with the system's reason."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot be written"):
            make_folder(path)

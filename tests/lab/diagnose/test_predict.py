"""`bin/lab predict`: bad input in one line, a run and a diagnosis as its basis, JSON and picture."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from lab.cli import run_command
from lab.diagnose.diagnosis import FILE, Diagnosis
from lab.diagnose.findings import judge
from lab.diagnose.predict import of_diagnosis
from lab.results.basis import DRIFT, GROWTH
from tests.lab.diagnose.conftest import Make
from tests.lab.labkit import ROOT

RUN = str(ROOT / "docs" / "runs" / "key-growth")
BAD = {
    "no shard": (["--shards", "0"], "--shards must be from 1 to 16384, not 0."),
    "half a shard": (["--shards", "1.5"], "--shards must be a whole number, not 1.5."),
    "more shards than slots": (["--shards", "1e6"], "--shards must be from 1 to 16384"),
    "infinite shards": (["--shards", "inf"], "--shards must be from 1 to 16384, not inf."),
    "negative keys": (["--keys", "-5"], "--keys must be from 1 to 1e+15, not -5."),
    "infinite keys": (["--keys", "inf"], "--keys must be from 1 to 1e+15, not inf."),
    "keys that are no number": (["--keys", "nan"], "--keys must be from 1 to 1e+15, not nan."),
    "keys in words": (["--keys", "many"], "--keys"),
    "no events": (["--events", "0"], "--events must be from 1e-06 to 1e+09, not 0."),
    "infinite events": (["--events", "inf"], "--events must be"),
    "half a key a call": (["--count", "0.5"], "--count must be from 1"),
    "infinite count": (["--count", "inf"], "--count must be from 1"),
    "unknown strategy": (
        ["--strategy", "hash"],
        "--strategy must be one of scan, keys, exact, index, not 'hash'.",
    ),
    "a picture of another kind": (["--plot", "p.svg"], "name a file that ends in .png, not p.svg."),
    "a picture nowhere": (["--plot", "nowhere/p.png"], "--plot: there is no folder nowhere."),
    "the COUNT of a run": (
        ["--count-now", "10"],
        "--count-now is for a diagnosis: a run folder knows its COUNT.",
    ),
}


def lab(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Type `bin/lab predict`: exit code, stdout, stderr."""
    code = run_command(["predict", *words])
    told = capfd.readouterr()
    return code, told.out, told.err


def one_line(answer: tuple[int, str, str], said: str) -> None:
    """Fail unless it is one line on stderr with these words, and the exit code of bad usage."""
    assert answer[0] == 2
    assert len(answer[2].splitlines()) == 1
    assert said in answer[2]
    assert "Traceback" not in answer[2]


@pytest.mark.parametrize("what", BAD)
def test_bad_sizes_are_one_line(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each is refused before anything is printed on stdout."""
    words, said = BAD[what]
    answer = lab(capfd, RUN, *words)
    one_line(answer, said)
    assert answer[1] == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no "),
        ("", "is neither a run folder nor a diagnosis.json"),
        ("{}", "is neither a run folder nor a diagnosis.json"),
        ("[1, 2]", "is neither a run folder nor a diagnosis.json"),
    ],
)
def test_a_file_that_is_neither_is_one_line(
    content: str | None, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file that is not there, is empty, or is some other JSON."""
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    one_line(lab(capfd, str(path)), said)


def test_a_folder_that_is_neither_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An empty folder, and a folder whose run.json is some other file."""
    one_line(lab(capfd, str(tmp_path)), "is no run folder and has no diagnosis.json")
    (tmp_path / "run.json").write_text("{}")
    one_line(lab(capfd, str(tmp_path)), "is missing")


def test_a_run_of_another_scenario_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A run that no event searched in says which scenarios would do."""
    one_line(
        lab(capfd, str(ROOT / "docs/runs/giant-index")),
        "is a run of giant-index, which has no events that search",
    )


def test_a_run_is_predicted_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    """Numbers may be written as 1e9; the text has the figures, the note on memory and the assumptions."""
    code, out, _ = lab(capfd, RUN, "--keys", "1e9", "--events", "2000", "--shards", "2")
    assert code == 0
    for words in (
        "scan, 1,000,000,000 keys on 2 shards (500,000,000 on each), 2,000 events a second",
        "knee: keys",
        "without limit",
        "more keys than memory: 500,000,000 on each shard",
        "Assumed:",
        "keys are spread evenly over the shards",
        "(key-growth on valkey",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 120


def test_the_file_in_a_run_folder_is_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    """run.json stands for its folder."""
    assert lab(capfd, f"{RUN}/run.json", "--json")[1] == lab(capfd, RUN, "--json")[1]


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With --json and --plot, stdout is one document, and the picture is a PNG of some size."""
    picture = tmp_path / "p.png"
    code, out, err = lab(capfd, RUN, "--strategy", "index", "--json", "--plot", str(picture))
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["knee_keys"] is None
    assert told["utilisation"]["low"] <= told["utilisation"]["likely"] < 0.1
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", head[16:24])) > 300


# --- a diagnosis


def write_diagnosis(
    make: Make, folder: Path, busy: float, product: str = "valkey", **commands: tuple[float, float]
) -> Path:
    """Write the diagnosis of a server with 200,000 keys that did these commands: (calls a second, µs a call)."""
    window = make(busy=busy, commands=dict(commands))
    found = Diagnosis.from_window(window, judge(window), {})
    found.model_copy(update={"product": product}).write(folder)
    return folder


def test_a_diagnosis_of_keys_is_enough(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """KEYS at 5 a second of 40 ms among 200,000: 0.2 µs a key, and 1 core at (1 - rest) × 1,000,000 keys."""
    folder = write_diagnosis(make, tmp_path, 0.3, KEYS=(5.0, 40_000.0))
    code, out, _ = lab(capfd, str(folder / FILE), "--json")
    assert code == 0
    told = json.loads(out)
    assert told["cost_us"]["likely"] == pytest.approx(0.2, rel=0.01)
    assert told["utilisation"]["likely"] == pytest.approx(0.3, abs=0.02)
    assert told["knee_keys"]["likely"] == pytest.approx(0.9 * 1_000_000, rel=0.05)
    assert told["question"]["strategy"] == "keys"
    assert any("more than" in said or "an event of its own" in said for said in told["assumptions"])


def test_a_diagnosis_of_scan_needs_its_count(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """1,000 SCANs a second of 200 µs: with COUNT 1,000 five walks a second, 0.2 µs a key. Without a COUNT: one line."""
    folder = write_diagnosis(make, tmp_path, 0.3, SCAN=(1000.0, 200.0))
    one_line(lab(capfd, str(folder)), "add --count-now N")
    told: dict[str, Any] = json.loads(lab(capfd, str(folder), "--count-now", "1000", "--json")[1])
    assert told["question"]["events"] == pytest.approx(5.0)
    assert told["cost_us"]["likely"] == pytest.approx(0.2)
    larger = json.loads(lab(capfd, str(folder), "--count-now", "1000", "--count", "1e5", "--json")[1])
    assert larger["even_ms"]["likely"] > 10 * told["even_ms"]["likely"]
    assert larger["utilisation"]["likely"] < told["utilisation"]["likely"]


def test_a_diagnosis_without_searches_is_one_line(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing in it grows with the keys."""
    one_line(lab(capfd, str(write_diagnosis(make, tmp_path, 0.1))), "saw neither SCAN nor KEYS at work")


def test_a_diagnosis_of_another_kind_of_server_is_one_line(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Dragonfly serves others in the middle of a search, and KeyDB does not count the walk."""
    for product, why in (
        ("dragonfly", "serves others in the middle"),
        ("keydb", "leaves most of a search out"),
    ):
        folder = write_diagnosis(make, tmp_path, 0.3, product=product, KEYS=(5.0, 40_000.0))
        one_line(lab(capfd, str(folder)), f"is of a {product}, which {why}")


def test_the_one_size_of_a_diagnosis_does_not_make_the_range_narrow(make: Make) -> None:
    """Among a hundred times the keys a key may cost twice as much and more, beside the usual third."""
    window = make(busy=0.3, commands={"KEYS": (5.0, 40_000.0)})
    costs = of_diagnosis(Diagnosis.from_window(window, judge(window), {})).cost("keys")
    found = costs.at(100 * costs.largest)
    assert found.likely == costs.at(costs.largest).likely
    assert found.high == pytest.approx(found.likely * (1 + 2 * GROWTH) * DRIFT)


def test_a_second_search_counts_as_everything_else(make: Make) -> None:
    """With KEYS and SCAN at work the larger one is predicted, and the other one is named."""
    window = make(busy=0.5, commands={"KEYS": (5.0, 40_000.0), "SCAN": (100.0, 200.0)})
    basis = of_diagnosis(Diagnosis.from_window(window, judge(window), {}), 1000)
    assert basis.strategy == "keys"
    assert basis.base == pytest.approx(0.3, abs=0.02)
    assert any(note.startswith("SCAN (2 % of the time) is part of everything else") for note in basis.notes)
    assert basis.room_keys == pytest.approx(400_000)

"""The curves have axes with values. These tests need a browser, but no driver for it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.console.scenekit import ControlledScene

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
]
KEYS = 20_000
UNITS = 90
"""The height of a curve in its own units."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledScene]:
    """A scene without a story; all keys are there and stay."""
    with ControlledScene(
        tmp_path_factory.mktemp("alone"), CONTROL_STORY="off", CONTROL_KEYS=str(KEYS), CONTROL_GROW_SECONDS="20",
    ) as made:  # fmt: skip
        made.until(lambda state: state["free"])
        made.act("growth", on=True)
        made.until(lambda state: state["all_keys"] and state["p99_ms"], seconds=60)
        yield made


def shown(scene: ControlledScene, profile: Path) -> tuple[str, str]:
    """The page's DOM in a browser after some seconds, and the messages of the browser's console."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--virtual-time-budget=5000",
            "--enable-logging=stderr", "--dump-dom", f"{scene.base}/",
        ],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    drawn = done.stdout.split("<template", 1)[0]
    return drawn, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def figure(page: str, curve: str) -> str:
    """The part of the page with one curve."""
    (found,) = [
        part
        for part in re.split(r'<div class="figure">', page)[1:]
        if f"{curve}-spark" in part.split("<dl>")[0]
    ]
    return found.split("<dl>")[0]


def labels(part: str, kind: str) -> list[tuple[str, float]]:
    """The labels beside an axis, each with its position in per cent."""
    axis = part.split(f'class="{kind}"', 1)[1].split("</div>", 1)[0]
    return [
        (text, float(place))
        for place, text in re.findall(r'style="(?:top|left): ([\d.]+)%;?">([^<]*)</span>', axis)
    ]


def test_the_scale_tells_the_value(scene: ControlledScene, tmp_path: Path) -> None:
    """The last point of the curve of keys lies at their number on the scale, and a grid line goes through each tick."""
    page, complaints = shown(scene, tmp_path)
    assert complaints == ""
    part = figure(page, "keys")
    ticks = labels(part, "y-axis")
    assert [text for text, _ in ticks] == ["0", "5K", "10K", "15K", "20K"]
    (_, zero), (_, top) = ticks[0], ticks[-1]
    line = re.search(r'<path class="line" d="[^"]* ([\d.]+)"', part)
    assert line
    keys = re.search(r'<span class="keys">([\d,]+)</span>', part)
    assert keys
    value = KEYS * (zero - 100 * float(line[1]) / UNITS) / (zero - top)
    assert value == pytest.approx(int(keys[1].replace(",", "")), rel=0.02)
    grid = re.search(r'<path class="grid" d="([^"]*)"', part)
    assert grid
    heights = [100 * float(y) / UNITS for y in re.findall(r"M0 ([\d.]+)H", grid[1])]
    assert heights == pytest.approx([place for _, place in ticks], abs=0.1)


def test_the_time_below_is_that_of_the_curve(scene: ControlledScene, tmp_path: Path) -> None:
    """The time axis has minutes at even distances; the axis of p99 is logarithmic and has a unit."""
    part = figure(shown(scene, tmp_path)[0], "p99")
    times = labels(part, "time-axis")
    assert [text for text, _ in times] == ["5 min ago", "4", "3", "2", "1", "now"]
    assert [place for _, place in times] == [0, 20, 40, 60, 80, 100]
    waits = labels(part, "y-axis")
    assert [text for text, _ in waits] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]
    steps = [lower - upper for (_, lower), (_, upper) in pairwise(waits)]
    assert steps == pytest.approx([steps[0]] * 4, rel=0.02), "each power of ten is as high as the one before"

"""Types the commands of a page in a folder of its own, and compares the output with what the page promises."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from docs.pages.records import FOLDER, USUAL_PACE
from tests.app.servicekit import free_port
from tests.docs.pagekit import ROOT, Typed

LONGEST_S = 180
OWN = {"docs", "runs", ".git"}
"""Not shared with the tree: commands write there."""
FASTER = ((r"--(duration|seconds) \d+", r"--\1 1"), (r"\bsleep \d+", "sleep 0.2"))
"""Durations are shortened: a page does not promise them, and a test has less time than a reader."""
TOOLS = ("redis-cli", "curl", "py-spy", "tcpdump", "redis-benchmark")
"""Third-party tools; a machine may lack them."""
STARTS_S = 120.0
HEALTHY = "healthy"
"""Stands in place of a cause for a scene that has none."""


@dataclass(frozen=True)
class Answer:
    """The exit code and output of a block."""

    code: int
    output: str


def workplace(folder: Path) -> Path:
    """Make a folder that looks like the tree and in which commands may leave files."""
    folder.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in OWN:
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", folder / "docs")
    return folder


def environment_is_made() -> bool:
    """True if bin/lab would use the environment as it is. Otherwise it would make it anew, even through a link."""
    with (ROOT / "requirements" / "lab.lock").open() as lock:
        wanted = subprocess.run(
            ["cksum"], stdin=lock, capture_output=True, text=True, check=True
        ).stdout.strip()
    stamp = ROOT / ".venv" / ".made-from"
    return stamp.is_file() and stamp.read_text().strip() == wanted


def missing_tools(typed: Typed) -> list[str]:
    """Third-party tools that a block calls and this machine lacks."""
    called = {word for line in typed.commands for word in re.findall(r"[\w-]+", line)}
    return [tool for tool in TOOLS if tool in called and shutil.which(tool) is None]


def execute(text: str, place: Path, more: dict[str, str] | None = None) -> Answer:
    """Run a block in bash, with shortened durations; it ends at the first command that fails.

    A block that takes longer than `LONGEST_S` is killed and has exit code 124.
    """
    for pattern, instead in FASTER:
        text = re.sub(pattern, instead, text)
    env = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"} | (more or {})
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        output, _ = shell.communicate()
        return Answer(124, f"{output}\nnot done after {LONGEST_S} s")
    return Answer(shell.returncode, output)


# --- promises

_NUMBER = r"[-+−]?\d[\d,.]*(?:e[-+]\d+)?"
_TIME = rf"{_NUMBER}(?: ?(?:µs|us|ms|s)\b)?"


def kept(promised: str, output: str) -> bool:
    """True if an output has the promised form: any number for a number, any lines for `...`, any spaces for spaces."""
    wanted = [line.strip() for line in promised.strip().splitlines()]
    came = [line.strip() for line in output.strip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line in ("...", "…") else _shape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(line + "\n" for line in came)) is not None


def _shape(line: str) -> str:
    """A line as a pattern: a time may come in another unit, a rule may be longer, `...` stands for any words."""
    parts = re.split(rf"(\.\.\.|…|{_TIME}|\s+|[─━-]{{4,}})", line)
    return "".join(
        r".*?"
        if part in ("...", "…")
        else _TIME
        if re.fullmatch(_TIME, part)
        else r"[─━-]{4,}"
        if re.fullmatch(r"[─━-]{4,}", part)
        else r"\s+"
        if part.isspace()
        else re.escape(part)
        for part in parts
        if part
    )


# --- runs that are made elsewhere


def put_run(line: str, place: Path) -> Path | None:
    """If the line is `bin/lab run ID` or `make demo`, put the record of that run where its run folder would be.

    Return the folder; None if the line makes no run or several.
    """
    words = line.split()
    if line.startswith("make demo"):
        words = ["bin/lab", "run", "key-growth"]
    if words[:2] != ["bin/lab", "run"] or len(words) < 3:
        return None
    scenario = words[2]
    pace = words[words.index("--pace") + 1] if "--pace" in words else "standard"
    target = place / (
        words[words.index("--out") + 1] if "--out" in words else f"runs/20260101-000000-{scenario}"
    )
    names = (
        [path.name for path in (ROOT / FOLDER).iterdir()] if scenario == "all" else [_record(scenario, pace)]
    )
    for name in names:
        if (ROOT / FOLDER / name / "run.json").is_file():
            shutil.copytree(
                ROOT / FOLDER / name, target / name if scenario == "all" else target, dirs_exist_ok=True
            )
    return target if (target / "run.json").is_file() else None


def _record(scenario: str, pace: str) -> str:
    named = f"{scenario}-{pace}"
    return named if pace != USUAL_PACE and (ROOT / FOLDER / named).is_dir() else scenario


# --- scenes


class Scenes:
    """Scenes with a known cause, as a reader opens them in another terminal. While one is used, the next one starts."""

    def __init__(self, causes: list[str], folder: Path) -> None:
        self._causes = causes
        self._folder = folder
        self._opened: dict[str, subprocess.Popen[bytes]] = {}

    def variables(self, cause: str) -> dict[str, str]:
        """Open the scene of a cause, wait until it is ready, and return the variables by which commands find it.

        Raises AssertionError if the scene does not start.
        """
        self._open(cause)
        following = self._causes[self._causes.index(cause) + 1 :][:1]
        for name in following:
            self._open(name)
        log = self._log(cause)
        end = time.monotonic() + STARTS_S
        while "Ctrl-C here ends" not in log.read_text():
            if self._opened[cause].poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the scene {cause} did not start: {log.read_text()}")
            time.sleep(0.2)
        return {"LAB_BLIND_HOME": str(self._home(cause))}

    def close(self, cause: str) -> None:
        """End a scene as Ctrl-C does."""
        process = self._opened.pop(cause, None)
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close_all(self) -> None:
        """End all scenes that are still open."""
        for cause in list(self._opened):
            self.close(cause)

    def _open(self, cause: str) -> None:
        if cause in self._opened:
            return
        self._home(cause).mkdir(parents=True, exist_ok=True)
        with self._log(cause).open("wb") as log:
            words = ["blind", "open", cause, "--minutes", "10"]
            if cause == HEALTHY:
                words = ["scene", "--healthy", "--port", str(free_port())]
            self._opened[cause] = subprocess.Popen(
                [str(ROOT / "bin" / "lab"), *words],
                env=os.environ | {"LAB_BLIND_HOME": str(self._home(cause)), "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _home(self, cause: str) -> Path:
        return self._folder / cause

    def _log(self, cause: str) -> Path:
        return self._folder / f"{cause}.log"

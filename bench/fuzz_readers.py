"""What reads files and lines from elsewhere, and right content for each, made wrong: the inputs of `bench.fuzz_files`.

Each reader is a context manager: it is given a folder of its own, and yields a `Reader`.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bench.kit import ROOT
from lab import scenarios
from lab.blind.session_socket import address
from lab.claims import judge
from lab.errors import LabError, StackError, UsageError
from lab.replay import recording
from lab.results.folder import Run
from lab.results.histograms import values_of
from lab.results.probe_line import read_probe_line
from lab.runner.judging import validate
from lab.stacks import bystander, preflight
from lab.stacks.processes import Child
from loadtest.probe.record import Interval

HANG_S = 10.0
JUDGED_EVERY = 10
"""Of so many run folders that were read one is also judged, which takes ten times as long."""
RUN = ROOT / "docs" / "runs" / "keys-command"
DEEP = "[" * 100_000
LOAD = '{"phase": "exact", "attempt": 1, "load": "x", "rate": 2.5, "t": 1.5}'
Read = Callable[[str, bytes], None]

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        (10**30, -1, 1e308, float("inf"), float("nan"), "", "0", [], {}, [[]], "\x00", "x" * 5000)
    ),
    st.floats(),
    st.text(max_size=20),
)
PUT = st.one_of(
    st.binary(max_size=12), st.sampled_from((DEEP.encode(), b"9" * 5000, b"\xff\xfe", b"\n", b","))
)
PLACE = st.floats(0, 1, exclude_max=True)
EDITS = st.lists(
    st.tuples(st.sampled_from(("put", "change", "drop", "repeat", "end")), PLACE, PLACE, PUT),
    min_size=1,
    max_size=3,
)
VALUES = st.lists(st.tuples(PLACE, st.one_of(ODD, st.just(...))), min_size=1, max_size=3)


def with_bytes_wrong(content: bytes, edits: list[tuple[str, float, float, bytes]]) -> bytes:
    """The content after edits: what is done, at which part of it, up to which of the next 200 bytes, with what."""
    for what, place, length, put in edits:
        at = int(place * len(content))
        to = at + int(length * 200)
        if what in ("put", "change"):
            content = content[:at] + put + content[at + (len(put) if what == "change" else 0) :]
        elif what == "drop":
            content = content[:at] + content[to:]
        elif what == "repeat":
            content = content[:to] + content[at:]
        else:
            content = content[:at]
    return content


def with_values_wrong(text: str, changes: list[tuple[float, Any]]) -> str:
    """A JSON text after changes: which of its values, and what stands there instead; nothing for an ellipsis."""
    content = [json.loads(text)]
    for which, value in changes:
        places = list(_places(content))
        holder, key = places[int(which * len(places))]
        if value is ... and holder is not content:
            del holder[key]
        else:
            holder[key] = None if value is ... else deepcopy(value)  # the same list twice would hold itself
    return json.dumps(content[0])


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _places(node[key])


@dataclass
class Reader:
    """What is fuzzed. `right`: content by name that is right. `lines`: names whose content is JSON, a text a line.

    `read` is given a name and content; `close` returns faults that show at the end only.
    """

    right: dict[str, bytes]
    lines: frozenset[str]
    read: Read
    close: Callable[[], list[str]] = list

    def inputs(self) -> st.SearchStrategy[tuple[str, bytes]]:
        """Inputs, each with its name."""
        return st.sampled_from(sorted(self.right)).flatmap(
            lambda name: (
                st.one_of(self._bytes(name), self._values(name)) if name in self.lines else self._bytes(name)
            )
        )

    def _bytes(self, name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        return EDITS.map(lambda edits: (name, with_bytes_wrong(self.right[name], edits)))

    def _values(self, name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        texts = (
            self.right[name].decode().splitlines() if name.endswith("lines") else [self.right[name].decode()]
        )

        def made(which: float, changes: list[tuple[float, Any]]) -> tuple[str, bytes]:
            at = int(which * len(texts))
            changed = [*texts[:at], with_values_wrong(texts[at], changes), *texts[at + 1 :]]
            return name, "\n".join(changed).encode()

        return st.builds(made, PLACE, VALUES)


# -- the readers -------------------------------------------------------------------------------------------------------


@contextmanager
def run_folder(folder: Path) -> Iterator[Reader]:
    """A recorded run with the first second of each phase only: read, judged and looked at for validity."""
    facts = json.loads((RUN / "run.json").read_text())
    starts = [phase["t0"] for phase in facts["phases"]]

    def early(moment: float) -> bool:
        return any(start <= moment < start + 1 for start in starts)

    head, *samples = (RUN / "samples.csv").read_text().splitlines()
    log = (RUN / "probe.hlog").read_text().splitlines()
    right = {
        "run.json": json.dumps(facts),
        "samples.csv": "\n".join([head, *(row for row in samples if early(float(row.partition(",")[0])))]),
        "slowlog.csv": "\n".join((RUN / "slowlog.csv").read_text().splitlines()[:5]),
        "probe.hlog": "\n".join([*log[:3], *(line for line in log[3:] if early(float(line.split(",")[1])))]),
        "loads.lines": "\n".join([LOAD] * 3),
        "result.json": '{"scenario": "keys-command", "claims": [{"claim": "exact-cures", "holds": true}]}',
    }
    for name, text in right.items():
        (folder / _file(name)).write_text(text)

    turn = count()

    def read(name: str, content: bytes) -> None:
        path = folder / _file(name)
        path.write_bytes(content)
        try:
            run = Run(folder)
            for part in (run.unreadable, run.samples, run.loads, run.slow_commands(run.phases), run.result()):
                assert part is not None
            if next(turn) % JUDGED_EVERY == 0:
                judge(run, scenarios.find(run.facts.scenario).claims)
                validate(run)
        finally:
            path.write_text(right[name])

    yield Reader(
        {name: text.encode() for name, text in right.items()},
        frozenset({"run.json", "loads.lines", "result.json"}),
        read,
    )


def _file(name: str) -> str:
    return name.replace(".lines", ".jsonl")


@contextmanager
def recorded(folder: Path) -> Iterator[Reader]:
    """A recording of two series and two traces, damaged before or after it was packed. At last it is far too large."""
    times = [1_795_000_000_000 + 1000 * n for n in range(5)]
    exemplar = recording.Exemplar(times[1], 0.5, {"trace_id": "ab" * 16})
    metrics = recording.pack_metrics(
        [
            recording.Series({"__name__": "up", "job": "x"}, times, [1, 1, 0, 1, 1], [exemplar]),
            recording.Series({"__name__": "seconds"}, times, [0.5, 0.25, 1.5, float("nan"), 2]),
        ]
    )
    traces = recording.pack_traces([b"one trace", b"another"])
    meta = recording.Meta(
        times[0] / 1000, times[-1] / 1000, 1.0, {"prometheus": "3"}, ["redis"], {"series": 2}
    )
    recording.write(folder, meta, metrics, traces)
    packed = {
        name: (folder / name).read_bytes() for name in (recording.META, recording.METRICS, recording.TRACES)
    }
    right = {
        **packed,
        "metrics.lines": gzip.decompress(metrics),
        "traces.unpacked": gzip.decompress(traces),
    }

    def read(name: str, content: bytes) -> None:
        file = {"metrics.lines": recording.METRICS, "traces.unpacked": recording.TRACES}.get(name, name)
        (folder / file).write_bytes(content if file == name else gzip.compress(content, 1))
        try:
            recording.read(folder)
        finally:
            (folder / file).write_bytes(packed[file])

    def bombs() -> list[str]:
        """Both files as ones that unpack to more than is allowed, which must be refused."""
        bomb = gzip.compress(bytes(recording.MOST_BYTES + 1), 1)
        taken = []
        for name in (recording.METRICS, recording.TRACES):
            try:
                (folder / name).write_bytes(bomb)
                recording.read(folder)
                taken.append(f"{name} with {recording.MOST_BYTES} bytes was taken")
            except LabError:
                pass
            finally:
                (folder / name).write_bytes(packed[name])
        return taken

    yield Reader(right, frozenset({recording.META, "metrics.lines"}), read, bombs)


@contextmanager
def env_file(folder: Path) -> Iterator[Reader]:
    """The .env of the project, as `make up` reads it."""
    text, file, ours = (ROOT / ".env").read_bytes(), folder / ".env", set(range(65536))
    ports = b"\n".join(line for line in text.splitlines() if b"_PORT=" in line)

    def read(_name: str, content: bytes) -> None:
        file.write_bytes(content)
        found = preflight.read_env_file(file)
        if found is not None:
            # Whether ports are free is not asked of the machine a hundred thousand times.
            for finding in preflight.settings_findings(found, ours):
                if not finding.ok:
                    raise UsageError(finding.detail)

    # Most of the file is comments and names of images, in which nothing can be wrong: the ports alone, too.
    yield Reader({".env": text, "ports": ports}, frozenset(), read)


@contextmanager
def probe_lines(_folder: Path) -> Iterator[Reader]:
    """A line of the open-loop probe, as a run and as `bin/lab probe` read it."""
    began = time.perf_counter_ns()
    interval = Interval(began)
    for wait in (90_000, 250_000, 70_000_000):
        interval.request_was_due(1000)
        interval.reply_came(wait, wait)
    interval.end(began + 250_000_000, 1, began, last_error=None)
    right = interval.line("main").encode()

    def read(_name: str, content: bytes) -> None:
        for raw in content.split(b"\n"):
            if (line := read_probe_line(raw)) is not None:
                bystander.read(line, bystander.Counted())
                values_of(line["lag"])

    yield Reader({"line": right}, frozenset({"line"}), read)


@contextmanager
def session_socket(folder: Path) -> Iterator[Reader]:
    """The socket of a real blind session. What would take seconds, or end the session, is not asked."""
    log, place = folder / "session.log", folder / "blind"
    words = [sys.executable, "-m", "lab", "blind", "start", "--seed", "1"]
    child = Child("session", words, log, {"LAB_BLIND_HOME": str(place)}, ROOT)
    asked: list[dict[str, Any]] = [
        {"verb": "look", "what": "nothing", "name": "x"},
        {"verb": "note", "text": "memory", "hypothesis": ""},
        {"verb": "answer", "cause": "nobody", "evidence": "none"},
        {"verb": "cure", "words": ["limit", "nobody", "10%"]},
        {"verb": "checked"},
    ]
    right = {str(each["verb"]): json.dumps(each).encode() for each in asked}

    def read(name: str, content: bytes) -> None:
        for line in content.split(b"\n"):
            if b"reveal" in line or b"hint" in line:
                continue
            answer = exchange(line + b"\n")
            said = json.loads(answer)
            if set(said) != {"text", "code"}:
                raise ValueError(f"the session answers {answer[:80]!r}")
            if said["code"] and content != right[name]:
                raise UsageError(said["text"])

    def exchange(line: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HANG_S)
            connection.connect(str(address(place)))
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def end() -> list[str]:
        ill = [] if child.alive() else [f"the session has ended: {child.last_words()}"]
        _, torn, found = log.read_text(errors="replace").partition("Traceback (most recent call last)")
        return [*ill, *([f"traceback: {' '.join(found.split())}"] if torn else [])]

    try:
        deadline = time.monotonic() + 120
        said = b""
        while b'"code": 0' not in said:
            with suppress(OSError):
                said = exchange(b'{"verb": "checked"}\n')
            if not child.alive() or time.monotonic() > deadline:
                raise StackError(f"no session begins: {child.last_words()}")
            time.sleep(0.5)
        yield Reader(right, frozenset(right), read, end)
    finally:
        child.stop()


READERS = {
    "run-folder": run_folder,
    "recording": recorded,
    "env-file": env_file,
    "probe-lines": probe_lines,
    "session-socket": session_socket,
}

"""Child processes: started in groups of their own, watched, and ended however the lab ends."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil

from lab.errors import StackError

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_heard = threading.Event()
"""Set by each interruption, cleared if Python dropped it: see `interruptions_raise`."""
_dropping = [False]  # True while Python's hook for dropped exceptions runs

LISTENING, TRIES = (12_000, 28_000), 200
"""The range of listening ports, and the number of attempts to find a free one."""
NEEDED_CORES = 2
"""Cores that a run needs: one for the server, one for all other processes. Other programs may use any further core."""
Waits = dict[int, float]
"""Thread → seconds in which it was ready to run without a core."""

# Environment variables (by prefix) that would silently change what a run measures.
_NOT_INHERITED = (
    "APP_",
    "LOADTEST_",
    "LOCUST_",
    "OTEL_",
    "GUNICORN_",
    "PROBE_",
    "PROMETHEUS_",
    "WEB_CONCURRENCY",
)


def interruptions_raise() -> None:
    """Install handlers: the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones are ignored.

    Python drops an exception that is raised in a finaliser or in the callback of a weak reference. Then a thread
    repeats the interruption, every 10 ms, until it is raised elsewhere. Main thread only.
    """
    sys.unraisablehook = _repeat_dropped
    for number in INTERRUPTIONS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup has SIGHUP ignored: keep that
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if _dropping[0]:  # an exception raised there is dropped, too; `_repeat` sends the signal again
        return
    _heard.set()
    ignore_interruptions()  # a second Ctrl-C must not break off the shutdown
    raise KeyboardInterrupt


def _repeat_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """Replace Python's hook, which prints a dropped exception and goes on."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    _dropping[0] = True
    _heard.clear()
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_repeat, daemon=True).start()
    _dropping[0] = False  # the last statement: no call follows in which a signal could be handled


def _repeat() -> None:
    while not _heard.wait(0.01):
        os.kill(os.getpid(), signal.SIGINT)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt once more if it was raised before. For loops that wait.

    A library's C code may clear every error, also one that is raised while it calls Python. So a loop may go on
    after an interruption.
    """
    if _heard.is_set():
        raise KeyboardInterrupt


def ignore_interruptions() -> None:
    """Ignore SIGINT, SIGTERM and SIGHUP from now on, here and in every process that is started afterwards."""
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP during the block, so that clean-up completes; then restore the handlers.

    Main thread only: Python lets no other thread change a signal's handler.
    """
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    ignore_interruptions()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _interruptions_wait() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP to the end of the block, so that a process that just began is recorded."""
    came: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():  # handlers run in no other thread
        for number in INTERRUPTIONS:
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class _Keeper:
    """A shell that ends the lab's children when the lab is killed by SIGKILL.

    It reads from a pipe which process groups have started and ended. When the pipe ends, because the lab has
    ended, it sends SIGTERM to the remaining groups.
    """

    PROGRAM = """while read -r verb group; do
    left=; for each in $groups; do [ "$each" = "$group" ] || left="$left $each"; done; groups=$left
    [ "$verb" = ended ] || groups="$groups $group"
done
for each in $groups; do kill -s TERM -- "-$each"; done"""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def note(self, verb: str, group: int) -> None:
        """Record that a group has `started` or `ended`."""
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", self.PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        with contextlib.suppress(OSError):  # the shell was killed
            assert self._shell.stdin
            self._shell.stdin.write(f"{verb} {group}\n".encode())


_keeper = _Keeper()


def _clean_environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return {**inherited, "HOST": "127.0.0.1"}


class Child:
    """A process of the stack. Its output goes to a log file, whose last line is quoted in error messages."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        pipe: bool = False,
        stdin_open: bool = False,
    ) -> None:
        """`pipe`: `lines()` yields its stdout. `stdin_open`: it ends when its stdin is closed."""
        self.name = name
        self.log = log
        self._start = (command, log, env, cwd, pipe, stdin_open)
        self._spent: float | None = None
        self._sigterm_sent = self._stopped = False
        try:
            with log.open("ab") as sink, _interruptions_wait():
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if stdin_open else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if pipe else sink,
                    stderr=sink,
                    env={**_clean_environment(), **(env or {})},
                    cwd=cwd,
                    start_new_session=True,  # Ctrl-C reaches the lab alone, which ends its children in order
                )
                _keeper.note("started", self.process.pid)
        except OSError as error:
            raise StackError(f"{name} could not be started ({command[0]}): {error.strerror}.") from error
        except KeyboardInterrupt:
            if "process" in vars(self):
                self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def alive(self) -> bool:
        """Return True while it runs."""
        return self.process.poll() is None

    def lines(self) -> Iterator[bytes]:
        """Yield its stdout line by line, until it ends. Only with `pipe`."""
        assert self.process.stdout is not None
        yield from self.process.stdout

    def exit_code(self) -> int:
        """Wait for its end. Returns the exit code."""
        if self.process.returncode is None:
            before = _reaped_seconds()
            self.process.wait()
            self._spent = _reaped_seconds() - before
        return int(self.process.returncode)

    def cpu_seconds(self) -> float:
        """Return CPU seconds of it and its children so far; the total, once `exit_code` has waited for its end."""
        return tree_seconds(self.pid) if self._spent is None else self._spent

    def terminate(self) -> None:
        """Send SIGTERM to it and its children, once: a second one would kill Python during its clean-up."""
        if self.alive() and not self._sigterm_sent:
            self._sigterm_sent = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)

    def finish(self, timeout_s: float = 10.0) -> None:
        """End it: close its stdin, else SIGTERM; wait; then SIGKILL. Its output can still be read."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        else:
            self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """Return the last line of its log, for an error message."""
        try:
            lines = [
                line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()
            ]
        except OSError:
            return ""
        return lines[-1][-300:] if lines else ""

    def end_message(self) -> str:
        """Return the sentence that it ended unexpectedly, with its exit code and the last line of its log."""
        last_line = self.last_words()
        sentence = f"{self.name} ended unexpectedly (exit code {self.process.returncode})"
        return sentence + (f": {last_line}" if last_line else ".")

    def check(self) -> None:
        """Raise `StackError` if it has ended."""
        if not self.alive():
            raise StackError(self.end_message())

    def start_again(self) -> Child:
        """Start the same command again, and append to the same log. Raises `StackError` when it cannot be started."""
        return Child(self.name, *self._start)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it and its children: close its stdin, then SIGTERM, then SIGKILL. Safe to call twice."""
        if self._stopped:  # its number may belong to another program's group by now
            return
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        if self.alive():
            self.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self._stopped = True
        _keeper.note("ended", self.pid)
        if self.process.stdout:
            self.process.stdout.close()


def stop_all(children: list[Child]) -> None:
    """Send SIGTERM to all at once, then wait for each."""
    for child in children:
        child.terminate()
    for child in children:
        child.stop()


def free_port() -> int:
    """Return a free port of 127.0.0.1 outside the range of clients, so that none takes it while a server restarts.

    The kernel gives clients ports from 32768 up on Linux, from 49152 up elsewhere.
    """
    for _ in range(TRIES):
        port = random.randrange(*LISTENING)
        if not port_taken(port):
            return port
    raise StackError(f"{TRIES} ports from {LISTENING[0]} to {LISTENING[1]} are taken: end some programs.")


def ports_after(port: int) -> Iterator[int]:
    """Yield the free ports above `port`; when those are used up, any free ports.

    See `free_port` on ports that stay free while their server restarts.
    """
    yield from (following for following in range(port + 1, 65536) if not port_taken(following))
    while True:
        yield free_port()


def port_taken(port: int) -> bool:
    """Return True if a socket on 127.0.0.1 has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class CpuMeter:
    """A meter of CPU time of the scene's parts and of the machine, in shares of one core since the last sample."""

    def __init__(self) -> None:
        self._seen: dict[str, float] | None = None
        self._waits: dict[str, Waits] = {}
        self._machine = _machine_seconds()
        self._at = time.monotonic()

    def shares(
        self,
        counted: dict[str, float],
        elsewhere: dict[str, float] | None = None,
        waits: dict[str, Waits] | None = None,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return shares by part, and of the machine: `busy`, `steal`, `others` (see `beyond_spare`), `waited_PART`.

        `counted` holds the CPU seconds of all parts so far; the lab's own are added as `lab`. A part that is new
        since the last sample counts from 0. `elsewhere` holds those of parts on other machines, which use no CPU of
        this one. `waits` holds the waits of threads by part: a part's share is that of the thread that waited most.
        """
        now, machine = time.monotonic(), _machine_seconds()
        elapsed = max(now - self._at, 1e-6)
        elsewhere = elsewhere or {}
        counted = {**counted, **elsewhere, "lab": tree_seconds(os.getpid())}
        before = counted if self._seen is None else self._seen
        shares = {
            name: max(0.0, seconds - before.get(name, 0.0)) / elapsed for name, seconds in counted.items()
        }
        self._seen = counted
        busy, steal = ((machine[i] - self._machine[i]) / elapsed for i in (0, 1))
        self._machine, self._at = machine, now
        used = sum(share for name, share in shares.items() if name not in elsewhere)
        found = {"busy": busy, "steal": steal, "others": beyond_spare(busy - used, cores())}
        waits, past = waits or {}, self._waits
        self._waits = waits
        for part in [part for part in waits if waits[part] and part in past]:
            rises = [seconds - past[part].get(thread, 0.0) for thread, seconds in waits[part].items()]
            found[f"waited_{part}"] = max(0.0, *rises) / elapsed
        return shares, found


def cores() -> int:
    """Return the number of this machine's cores."""
    return psutil.cpu_count() or 1


def beyond_spare(others: float, cores: float) -> float:
    """Return the cores that other programs took from the run, which needs `NEEDED_CORES` of them."""
    return max(0.0, others - max(0.0, cores - NEEDED_CORES))


def waits(pid: int) -> Waits:
    """Return thread → seconds in which it was ready to run without a core. Linux only; empty elsewhere."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            # proc(5): time on a core, time waiting for one (both ns), and times it was put on one. Threads may end.
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def _machine_seconds() -> tuple[float, float]:
    """Return seconds since a fixed moment in which the cores were busy, and seconds that the hypervisor took.

    Busy is all time that was not idle. Linux measures idle time, and only samples busy time at its clock's ticks. A
    throttled process ends its turns at ticks, and so is sampled too often (0.88 in place of 0.60 of a core was
    observed).
    """
    times = psutil.cpu_times()
    steal = float(getattr(times, "steal", 0.0))
    not_busy = times.idle + getattr(times, "iowait", 0.0) + steal
    return time.monotonic() * (psutil.cpu_count() or 1) - not_busy, steal


def _members(pid: int) -> list[psutil.Process]:
    """Return the process and its children; for the lab itself no children: they are parts of their own."""
    process = psutil.Process(pid)
    return [process] if pid == os.getpid() else [process, *process.children(recursive=True)]


def tree_seconds(pid: int) -> float:
    """Return CPU seconds of a process and its children, also ended ones; for the lab itself without children."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for member in _members(pid):
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system
                if pid != os.getpid():
                    total += times.children_user + times.children_system
    return total


def _reaped_seconds() -> float:
    """Return CPU seconds of all ended children that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_mb(pid: int) -> float:
    """Return resident memory of a process and its children in MB; for the lab itself without children."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for member in _members(pid):
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total / 1e6

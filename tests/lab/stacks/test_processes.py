"""Child processes: their last words, their end, and that nothing outlives the lab."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.errors import StackError
from lab.server.processes import (
    INTERRUPTIONS,
    Child,
    CpuMeter,
    free_port,
    memory_mb,
    port_taken,
    stop_all,
    uninterrupted,
)
from tests.app.servicekit import eventually

ROOT = Path(__file__).resolve().parents[3]
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "leaf" not in sys.argv:
    subprocess.Popen([sys.executable, *sys.argv, "leaf"])
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[list[Child]]:
    """Children made by a test; whatever is left of them is killed afterwards."""
    made: list[Child] = []
    yield made
    for child in made:
        for process in family(child.pid):
            process.kill()


def python(tmp_path: Path, name: str, code: str, *arguments: str, **options: object) -> Child:
    """Start a child that runs Python code."""
    script = tmp_path / f"{name}.py"
    script.write_text(code)
    return Child(
        name,
        [sys.executable, str(script), *arguments],
        tmp_path / f"{name}.log",
        **options,  # type: ignore[arg-type]
    )


def family(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants, those that are alive."""
    try:
        process = psutil.Process(pid)
        return [p for p in [process, *process.children(recursive=True)] if runs(p.pid)]
    except psutil.NoSuchProcess:
        return []


def runs(pid: int) -> bool:
    """True if a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_death_is_told_with_the_last_words(tmp_path: Path, children: list[Child]) -> None:
    """A child that dies raises one line with its name, exit code and the last line it wrote."""
    child = python(tmp_path, "server", "import sys\nprint('hello')\nprint()\nsys.exit('no memory left')")
    children.append(child)
    child.process.wait(10)
    with pytest.raises(StackError) as caught:
        child.check()
    assert str(caught.value) == "server ended unexpectedly (exit code 1): no memory left"


@pytest.mark.parametrize("words", ["", "\n \n", "x" * 5000])
def test_last_words_may_be_missing_or_endless(words: str, tmp_path: Path, children: list[Child]) -> None:
    """A child that says nothing, or far too much, still dies with one short line."""
    child = python(tmp_path, "mute", f"print({words!r}, end='')")
    children.append(child)
    child.process.wait(10)
    child_line = ""
    with pytest.raises(StackError) as caught:
        child.check()
    child_line = str(caught.value)
    assert child_line.startswith("mute ended unexpectedly (exit code 0)")
    assert len(child_line) < 400
    assert "\n" not in child_line


def test_living_child_is_no_error(tmp_path: Path, children: list[Child]) -> None:
    """As long as a child runs, nothing is raised."""
    children.append(python(tmp_path, "sleeper", "import time; time.sleep(600)"))
    children[0].check()
    assert children[0].alive()


def test_missing_program_is_one_line(tmp_path: Path) -> None:
    """A program that does not exist raises a `StackError` that names it."""
    with pytest.raises(StackError, match=r"ghost could not be started \(/no/such/program\): No such file"):
        Child("ghost", ["/no/such/program"], tmp_path / "log")


def test_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A log file in a folder that does not exist raises a `StackError`."""
    with pytest.raises(StackError, match="could not be started"):
        Child("late", [sys.executable, "-c", ""], tmp_path / "gone" / "log")


def test_polite_child_ends_by_sigterm(tmp_path: Path, children: list[Child]) -> None:
    """`stop` sends SIGTERM first, which is enough for a child that handles it; a second `stop` does nothing."""
    code = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\ntime.sleep(600)"
    )
    child = python(tmp_path, "polite", code)
    children.append(child)
    eventually(lambda: child.last_words() == "up")
    child.stop()
    child.stop()
    assert child.process.returncode == 7


def test_stop_kills_a_stubborn_child_and_its_children(tmp_path: Path, children: list[Child]) -> None:
    """A child that ignores SIGTERM is killed, and so is its own child."""
    child = python(tmp_path, "stubborn", STUBBORN)
    children.append(child)
    eventually(lambda: child.log.read_text().count("up") == 2)
    members = [process.pid for process in family(child.pid)]
    assert len(members) == 2
    child.stop(timeout_s=0.2)
    assert child.process.returncode == -signal.SIGKILL
    eventually(lambda: not any(runs(pid) for pid in members))


def test_stop_ends_what_a_dead_child_left_behind(tmp_path: Path, children: list[Child]) -> None:
    """`stop` ends the process that a dead child left behind."""
    child = python(tmp_path, "stubborn", STUBBORN)
    eventually(lambda: child.log.read_text().count("up") == 2)
    leaf = next(process.pid for process in family(child.pid) if process.pid != child.pid)
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not child.alive())
    assert runs(leaf)
    child.stop()
    eventually(lambda: not runs(leaf))


def test_stop_all_asks_everybody_first(tmp_path: Path, children: list[Child]) -> None:
    """`stop_all` asks all children to end before it waits for any, so a slow one does not delay the others."""
    code = (
        "import os, signal, sys, time\n"  # os.write: SIGTERM cannot cut the line
        "def end(*_):\n    print(time.monotonic(), flush=True)\n    time.sleep(0.5)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nos.write(1, b'up\\n')\ntime.sleep(600)"
    )
    children += [python(tmp_path, f"slow-{i}", code) for i in range(3)]
    eventually(lambda: all(child.last_words() == "up" for child in children))
    stop_all(children)
    asked = [float(child.last_words()) for child in children]
    assert max(asked) - min(asked) < 0.5
    assert [child.process.returncode for child in children] == [0, 0, 0]


def test_a_child_is_asked_once(tmp_path: Path, children: list[Child]) -> None:
    """A child gets SIGTERM once, even if `ask` is called twice and `stop` after it."""
    code = (
        "import os, signal, sys, time\n"  # os.write: SIGTERM cannot cut the line
        "def end(*_):\n    print('asked', flush=True)\n"
        "signal.signal(signal.SIGTERM, end)\nos.write(1, b'up\\n')\n"
        "for _ in range(600):\n    time.sleep(0.1)"
    )
    child = python(tmp_path, "counting", code)
    children.append(child)
    eventually(lambda: child.last_words() == "up")
    child.terminate()
    eventually(lambda: child.last_words() == "asked")
    child.terminate()
    child.stop(timeout_s=0.3)
    assert child.log.read_text().split() == ["up", "asked"]


def test_killed_lab_takes_its_children_along(tmp_path: Path) -> None:
    """After kill -9 of the lab its children end, although it could not end them itself."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom lab.server.processes import Child\n"
        "folder = Path(sys.argv[1])\n"
        "made = [Child(f'c{i}', [sys.executable, '-c', 'import time; time.sleep(600)'], folder / f'{i}.log')\n"
        "        for i in range(2)]\n"
        "print(*(c.pid for c in made), flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    try:
        assert len(pids) == 2
        assert all(runs(pid) for pid in pids)
        parent.kill()
        parent.wait()
        eventually(lambda: not any(runs(pid) for pid in pids))
    finally:
        parent.stdout.close()
        for pid in pids:
            if runs(pid):
                os.kill(pid, signal.SIGKILL)


def test_nothing_interrupts_what_must_be_seen_through() -> None:
    """Within `uninterrupted` signals have no effect; afterwards they are handled as before, also after an error."""
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda one, _frame: heard.append(one)) for number in INTERRUPTIONS
    }
    try:
        with pytest.raises(StackError), uninterrupted():
            for number in INTERRUPTIONS:
                signal.raise_signal(number)
            raise StackError("a child did not end.")
        assert heard == []
        for number in INTERRUPTIONS:
            signal.raise_signal(number)
        assert heard == list(INTERRUPTIONS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_children_do_not_get_the_terminals_ctrl_c(tmp_path: Path, children: list[Child]) -> None:
    """Every child has a session of its own, so that Ctrl-C reaches the lab alone."""
    child = python(tmp_path, "sleeper", "import time; time.sleep(600)")
    children.append(child)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_free_port_is_free_and_a_held_one_taken() -> None:
    """A free port is not taken; a port with a listener is, until the listener is closed."""
    assert not port_taken(free_port())
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert port_taken(port)
    assert not port_taken(port)


def test_the_kernel_gives_no_client_a_free_port() -> None:
    """A port for something that listens lies below those of clients: else one of them could take it meanwhile."""
    clients = Path("/proc/sys/net/ipv4/ip_local_port_range")
    least = int(clients.read_text().split()[0]) if clients.exists() else 32_768
    assert all(1024 < free_port() < least for _ in range(50))


def test_where_every_port_is_taken_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends."""
    monkeypatch.setattr("lab.server.processes.port_taken", lambda _: True)
    with pytest.raises(StackError, match="are taken: end some programs"):
        free_port()


def test_meter_tells_the_busy_from_the_idle(tmp_path: Path, children: list[Child]) -> None:
    """A process that computes has many times the share of one that sleeps; the work of a child counts as its own."""
    busy = python(
        tmp_path,
        "busy",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1, flush=True)\\nwhile True: pass'])",
    )
    idle = python(tmp_path, "idle", "import time; print(1, flush=True); time.sleep(600)")
    children += [busy, idle]
    eventually(lambda: busy.last_words() == idle.last_words() == "1")
    meter = CpuMeter()
    first, _ = meter.shares({"busy": busy.cpu_seconds(), "idle": idle.cpu_seconds()})
    assert first["busy"] == first["idle"] == 0.0  # nothing to compare with yet
    time.sleep(0.6)
    shares, machine = meter.shares({"busy": busy.cpu_seconds(), "idle": idle.cpu_seconds()})
    assert shares["busy"] > 10 * shares["idle"]
    assert set(machine) == {"busy", "steal", "others"}
    assert machine["busy"] >= 0.5 * shares["busy"]


def test_meter_bears_a_process_that_is_gone(tmp_path: Path, children: list[Child]) -> None:
    """A process that ended between two samples has the share 0, and raises no error."""
    child = python(tmp_path, "brief", "")
    children.append(child)
    meter = CpuMeter()
    meter.shares({"brief": child.cpu_seconds()})
    child.process.wait(10)
    assert meter.shares({"brief": child.cpu_seconds()})[0]["brief"] == 0.0
    assert memory_mb(child.pid) == 0.0


def test_what_began_and_ended_between_two_looks_is_counted(tmp_path: Path, children: list[Child]) -> None:
    """A child between two samples counts with its own child's CPU time; the next of its name starts from zero."""
    work = "import time\nwhile time.process_time() < 0.2: pass"
    meter = CpuMeter()
    for _ in range(2):
        meter.shares({})
        began = time.monotonic()
        child = python(
            tmp_path,
            "brief",
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {work!r}])\n{work}",
        )
        children.append(child)
        assert child.exit_code() == child.exit_code() == 0
        assert child.cpu_seconds() >= 0.4
        share = meter.shares({"brief": child.cpu_seconds()})[0]["brief"]
        assert share * (time.monotonic() - began) >= 0.35


def test_memory_is_that_of_the_whole_tree(tmp_path: Path, children: list[Child]) -> None:
    """Memory is that of a child and its descendants: two processes hold more than either of them."""
    child = python(tmp_path, "stubborn", STUBBORN)
    children.append(child)
    eventually(lambda: child.log.read_text().count("up") == 2)
    alone = [process.memory_info().rss / 1e6 for process in family(child.pid)]
    assert memory_mb(child.pid) > 1.5 * max(alone)


CTRL_C_IN_A_FORK = """
import os, pathlib, signal, subprocess, sys, time
from lab.server.processes import Child

start = subprocess.Popen._execute_child
def interrupted(*words):
    start(*words)
    os.kill(os.getpid(), signal.SIGINT)
subprocess.Popen._execute_child = interrupted
log = pathlib.Path(sys.argv[1])
try:
    Child("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], log)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_in_the_middle_of_a_fork_is_heard(tmp_path: Path) -> None:
    """Ctrl-C while a process is being started is raised right after it, and the new process is ended."""
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_IN_A_FORK, str(tmp_path / "log")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


DROPPED = """
import os, signal, sys, time, weakref
from lab.server.processes import interruptions_raise, uninterrupted

class Thing: pass

thing = Thing()
def at_its_end(_):
    for number in sys.argv[1:]:
        os.kill(os.getpid(), int(number))
    time.sleep(0.001)

interruptions_raise()
watch = weakref.ref(thing, at_its_end)
try:
    del thing
    with uninterrupted():
        time.sleep(0.05)
        print("taken down", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("heard; ignored from now on:", [signal.getsignal(number) == signal.SIG_IGN for number in (2, 15, 1)])
    sys.stdout.flush()
    time.sleep(0.1)  # once is enough
    print("ended in order")
"""


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_ctrl_c_in_the_callback_of_a_weak_reference_is_heard(numbers: list[signal.Signals]) -> None:
    """Python drops what is raised there: the interruption comes again, and never into what must be seen through."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED, *(str(int(number)) for number in numbers)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "taken down",
        "heard; ignored from now on: [True, True, True]",
        "ended in order",
    ]
    assert not done.stderr


SWALLOWED = """
import os, signal
from lab.server.processes import interruptions_raise, raise_if_interrupted

interruptions_raise()
raise_if_interrupted()  # nothing came yet
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    pass  # as C code does that clears every error
try:
    raise_if_interrupted()
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interruption_that_somebody_swallowed_reaches_who_waits() -> None:
    """A loop that waits raises what came before and reached nobody."""
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_starting_leaves_the_handlers(tmp_path: Path, children: list[Child]) -> None:
    """Starting a child leaves the handlers of interruptions as they were, also when it fails."""
    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    children.append(python(tmp_path, "quick", "pass"))
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
    with pytest.raises(StackError):
        Child("nothing", ["/no/such/program"], tmp_path / "log")
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before

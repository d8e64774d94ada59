"""bin/lab before its virtual environment is made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ROOT
from lab.scene.bundle import pythons_with_wheels
from tests.app.servicekit import eventually


def test_an_environment_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    """A .venv that links to another lock file's environment is not emptied: one line says what to do, exit code 3."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    other.mkdir()
    (other / ".made-from").write_text("another lock file\n")
    (tree / ".venv").symlink_to(other)

    done = subprocess.run(
        [str(tree / "bin" / "lab"), "list"], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 3
    assert done.stderr.startswith(f"lab: {tree / '.venv'} is a link")
    assert done.stderr.count("\n") == 1
    assert (other / ".made-from").read_text() == "another lock file\n"


def test_tools_are_added_to_the_environment_that_is_there(tmp_path: Path) -> None:
    """The packages of the checks are added to the lab's environment once, and again when their lock file changes."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    lock, checks, pip = (
        tree / "requirements" / "lab.lock",
        tree / "requirements" / "checks.lock",
        tree / ".venv" / "asked",
    )
    lock.write_text("the lab's\n")
    checks.write_text("the tools'\n")
    (tree / ".venv" / "bin").mkdir(parents=True)
    stamp = subprocess.run(["cksum"], stdin=lock.open(), capture_output=True, text=True, check=True).stdout
    (tree / ".venv" / ".made-from").write_text(stamp)
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || echo "$@" >>{pip}\n')
    python.chmod(0o755)

    def bootstrap() -> int:
        command = [str(tree / "bin" / "lab"), "--bootstrap", "checks"]
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode

    assert [bootstrap(), bootstrap()] == [0, 0]
    (asked,) = pip.read_text().splitlines()
    assert asked.endswith(f"--require-hashes --requirement {checks}")
    checks.write_text("other tools\n")
    assert bootstrap() == 0
    assert len(pip.read_text().splitlines()) == 2
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    checks.write_text("what nobody has\n")
    assert bootstrap() == 3


@pytest.mark.parametrize(("kept", "code"), [("true", 0), ("false", 3)])
def test_packages_go_into_the_environment_whatever_pip_is_told(tmp_path: Path, kept: str, code: int) -> None:
    """Where a person's pip puts packages does not count; if the lab then does not start, there is no stamp."""
    tree, tools = tmp_path / "tree", tmp_path / "tools"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    (tools / "python3").write_text(
        '#!/bin/sh\ncase "$1 $2" in\n"-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;\n'
        f'"-m pip") env | grep ^PIP_ >{tmp_path}/told ;;\n"-P -c") {kept} ;;\nesac\n'
    )
    (tools / "python3").chmod(0o755)
    placed = {f"PIP_{name}": str(tmp_path) for name in ("TARGET", "PREFIX", "ROOT")}
    done = subprocess.run(
        [str(tree / "bin" / "lab"), "--bootstrap"],
        env={"PATH": f"{tools}:/usr/bin:/bin", "PIP_USER": "1", "PIP_NO_INDEX": "1", **placed},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (tmp_path / "told").read_text().split() == ["PIP_NO_INDEX=1", "PIP_USER=0"]
    assert done.returncode == code, done.stderr
    assert (tree / ".venv" / ".made-from").exists() is (code == 0)
    assert ("put packages elsewhere? (pip config list)" in done.stderr) is (code != 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_lab_has_begun_is_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    """While bin/lab looks at its environment a signal ends it with one line and exit code 130."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    (tree / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    stamp = subprocess.run(["cksum"], input="nothing\n", capture_output=True, text=True, check=True).stdout
    (tree / ".venv" / ".made-from").write_text(stamp)
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\ntouch {tree}/looked\nsleep 1\n")
    python.chmod(0o755)
    process = subprocess.Popen(
        [str(tree / "bin" / "lab"), "list"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    eventually((tree / "looked").exists)
    process.send_signal(number)
    assert process.communicate(timeout=30)[1] == "lab: interrupted; nothing was started.\n"
    assert process.returncode == 130


def test_the_dots_end_where_their_end_cannot_be_signalled(tmp_path: Path) -> None:
    """Where SIGTERM is ignored, or lost by a shell that has only just begun, the dots end by themselves.

    Otherwise they would go on for ever, and whoever waits for the end of stderr, too.
    """
    tree, tools = tmp_path / "tree", tmp_path / "tools"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    (tools / "python3").write_text(
        '#!/bin/sh\ncase "$1 $2" in "-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;; esac\n'
    )
    (tools / "python3").chmod(0o755)
    done = subprocess.run(
        [str(tree / "bin" / "lab"), "--bootstrap"],
        env={"PATH": f"{tools}:/usr/bin:/bin", "PYTHON": "python3"},
        capture_output=True, text=True, timeout=20, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("mkdir", "exit 1", 3, "cannot be written"),
        # The other call ends between the two looks: what it made stays as it is.
        (
            "python3",
            "mkdir -p {venv}/bin; cp /bin/true {venv}/bin/python; cksum <{lock} >{venv}/.made-from",
            0,
            "",
        ),
    ],
)
def test_the_folder_and_the_other_call_are_looked_at_again(
    tmp_path: Path, name: str, text: str, code: int, said: str
) -> None:
    """A tree that cannot be written is not called busy, and an environment that was just made is not made again."""
    tree, tools = tmp_path / "tree", tmp_path / "tools"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    lock, venv, asked = tree / "requirements" / "lab.lock", tree / ".venv", tmp_path / "asked"
    lock.write_text("nothing\n")
    (tools / "python3").write_text("#!/bin/sh\n")
    (tools / name).write_text(f'#!/bin/sh\necho "$1 $2" >>{asked}\n{text.format(venv=venv, lock=lock)}\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    done = subprocess.run(
        [str(tree / "bin" / "lab"), "--bootstrap"],
        env={"PATH": f"{tools}:/usr/bin:/bin", "PYTHON": "python3"},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "-m venv" not in asked.read_text()
    assert not (tree / ".venv-in-the-making").exists()


@pytest.mark.parametrize("uv", ["exit 0", "exit 2", None])
@pytest.mark.parametrize("index", ["", "named"])
def test_uv_installs_where_it_is_there_and_can(tmp_path: Path, uv: str | None, index: str) -> None:
    """uv installs by the same hashes; pip does where uv fails or is missing, or where pip was given an index."""
    tree, tools, asked = tmp_path / "tree", tmp_path / "tools", tmp_path / "asked"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    (tools / "python3").write_text(
        f"""#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
"-m pip") echo "$@" >>{asked} ;;
esac
"""
    )
    if uv:
        (tools / "uv").write_text(f'#!/bin/sh\necho uv "$@" >>{asked}\n{uv}\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    path = os.pathsep.join([str(tools), "/usr/bin", "/bin"])
    done = subprocess.run(
        [str(tree / "bin" / "lab"), "--bootstrap"],
        env={"PATH": path, "PYTHON": "python3", "PIP_INDEX_URL": index},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    by = [line.split()[0] for line in asked.read_text().splitlines()]
    assert by == (["-m"] if index or not uv else ["uv"] if uv == "exit 0" else ["uv", "-m"])
    for line in asked.read_text().splitlines():
        assert line.endswith(
            f"--only-binary :all: --require-hashes --requirement {tree / 'requirements' / 'lab.lock'}"
        )


@pytest.mark.parametrize(("system", "bundle"), [("Linux", "linux-x86_64"), ("Darwin", "macos-arm64")])
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_a_python_that_has_not_every_package_is_refused_before_anything_is_fetched(
    tmp_path: Path, system: str, bundle: str, python: str
) -> None:
    """bin/lab accepts exactly the Pythons for which a bundle is made."""
    served = python in pythons_with_wheels(bundle)
    tree, tools = tmp_path / "tree", tmp_path / "tools"
    (tree / "bin").mkdir(parents=True)
    (tree / "requirements").mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements" / "lab.lock").write_text("nothing\n")
    version = tuple(map(int, python.split(".")))
    (tools / "python3").write_text(
        f"""#!/bin/sh
case "$1 $2" in
"--version ") echo Python {python}.1 ;;
"-c import sys; "*) exec {sys.executable} -c "import sys; sys.version_info = {version}; exec(sys.argv[1])" "$2" ;;
"-c import ensurepip"*) echo asked on >&2; exit 1 ;;
*) echo "called with $*" >&2; exit 9 ;;
esac
"""
    )
    (tools / "uname").write_text(f"#!/bin/sh\necho {system}\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    done = subprocess.run(
        [str(tree / "bin" / "lab"), "list"],
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHON": "python3"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    if served:
        assert "cannot make environments" in done.stderr
    else:
        assert done.stderr.startswith(f"lab: Python {python}.1 cannot be served")
        assert done.stderr.count("\n") == 1
    assert not (tree / ".venv").exists()


ELSEWHERE = {
    "PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere", "PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "error",
    "PYTHONSTARTUP": "/nowhere", "PIP_USER": "1", "PIP_TARGET": "/nowhere", "PIP_PREFIX": "/nowhere",
    "PIP_ROOT": "/nowhere", "PIP_NO_INDEX": "1", "COMPOSE_FILE": "/nowhere", "DOCKER_HOST": "tcp://127.0.0.1:1",
    "LC_ALL": "de_DE.iso88591", "LANG": "C", "PYTHONIOENCODING": "ascii",
}  # fmt: skip
"""Variables of docs/platforms.md whose values lead elsewhere."""


def test_variables_that_lead_elsewhere_change_nothing() -> None:
    """With all of them set `bin/lab` starts from its own environment, and says the same but for some characters."""
    page = (ROOT / "docs" / "platforms.md").read_text()
    assert not [name for name in ELSEWHERE if f"`{name}`" not in page]
    plain, elsewhere = (
        subprocess.run(
            [ROOT / "bin" / "lab", "list"], env={**os.environ, **more}, capture_output=True, check=False
        )
        for more in ({}, ELSEWHERE)
    )
    assert (elsewhere.returncode, elsewhere.stderr) == (0, b"")
    plain_text = plain.stdout.decode().encode("ascii", "replace")
    assert elsewhere.stdout.count(b"\n") == plain_text.count(b"\n") > 10
    assert elsewhere.stdout.split()[:20] == plain_text.split()[:20]

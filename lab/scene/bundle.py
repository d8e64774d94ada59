"""`make bundle`: everything that a workshop without a network needs, in one archive for each system.

    python -m lab.scene.bundle --system macos-arm64 --python 3.13 --no-images

An archive `redis-latency-lab-VERSION-SYSTEM.tar` holds one folder: the repository as it is committed, a wheel of every
package for that system and its Pythons, the images of the scene, the checksums of these files, and `install.sh`, which
verifies the checksums, checks the machine, and installs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from lab import ROOT, __version__
from lab.errors import LabError, StackError, UsageError
from lab.server.checks import ask

NAME = "redis-latency-lab"
FOLDER = ROOT / "runs" / "bundle"
LOCK = "requirements/lab.lock"
INSTALLER = Path(__file__).with_name("install.sh")
OLDEST_GLIBC, NEWEST_GLIBC = 5, 28
"""Minor versions of glibc 2 that a wheel for Linux may require; 2.28 is from 2018."""


@dataclass(frozen=True)
class System:
    """A kind of machine: names of wheels, Docker's processor, and Pythons (3.x)."""

    tags: tuple[str, ...]
    architecture: str
    pythons: range = range(11, 15)


def _linux(processor: str, architecture: str) -> System:
    named = [f"manylinux_2_{minor}_{processor}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
    return System((*named, f"manylinux2014_{processor}", f"manylinux1_{processor}"), architecture)


SYSTEMS = {
    "linux-x86_64": _linux("x86_64", "amd64"),
    "linux-aarch64": _linux("aarch64", "arm64"),
    "macos-arm64": System(("macosx_14_0_arm64",), "arm64", range(12, 15)),
    "macos-x86_64": System(("macosx_14_0_x86_64",), "amd64", range(12, 15)),
}
"""Systems by name: `uname -s` and `uname -m`, joined as in install.sh."""


def this_system() -> str:
    """Return the name of this machine's system. Raises `UsageError` if there is no bundle for it."""
    kernel = {"Linux": "linux", "Darwin": "macos"}.get(platform.system(), platform.system())
    name = f"{kernel}-{platform.machine()}"
    if name not in SYSTEMS:
        raise UsageError(f"there is no bundle for {name}, only for {', '.join(SYSTEMS)}.")
    return name


def pythons_with_wheels(system: str) -> list[str]:
    """Return the Python versions for which every package has a wheel on a system, as docs/platforms.md says."""
    return [f"3.{minor}" for minor in SYSTEMS[system].pythons]


def requirements(lock: str, system: str, python: str) -> str:
    """Return the entries of a lock file that apply to a system and a Python version, without their conditions.

    `pip download` would evaluate the conditions for the machine it runs on, not for the one it downloads for.
    """
    kernel, _, machine = system.partition("-")
    is_mac = kernel == "macos"
    there = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Darwin" if is_mac else "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "darwin" if is_mac else "linux",
    }
    entries = []
    for entry in re.split(r"(?m)^(?=\S)", lock):
        head, continued, hashes = entry.partition(" \\\n")
        pin, _, condition = head.partition(" ; ")
        if not condition or Marker(condition).evaluate(there):
            entries.append(pin + continued + hashes)
    return "".join(entries)


def download(system: str, python: str, wheels: Path) -> None:
    """Fetch the wheels for a system and a Python version, by their hashes. Raises `StackError` with pip's last line."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(requirements((ROOT / LOCK).read_text(), system, python))
        platforms = [word for tag in SYSTEMS[system].tags for word in ("--platform", tag)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--python-version", python]
        done = subprocess.run(
            [*command, *platforms, "--dest", str(wheels), "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip printed nothing"]
        raise StackError(f"the wheels for {system}, Python {python} could not be fetched: {lines[-1]}")


def save_images(system: str, place: Path) -> None:
    """Write the images of the scene to a file, gzipped. Raises `StackError` if this engine has none for the system."""
    code, architecture = ask("docker", "version", "--format", "{{.Server.Arch}}")
    if code:
        raise StackError("no container engine answers: start it, or leave the images out (IMAGES=no).")
    if architecture != SYSTEMS[system].architecture:
        raise StackError(
            f"this engine has images for {architecture}, and {system} needs {SYSTEMS[system].architecture}: "
            "make its bundle on such a machine, or leave the images out (IMAGES=no)."
        )
    project = ("docker", "compose", "--project-directory", str(ROOT))
    code, output = ask(*project, "config", "--images", seconds=60)
    if code:
        raise StackError(f"docker compose config: {output.splitlines()[-1] if output else 'failed'}")
    names = sorted(set(output.split()))
    if any("@" in name for name in names):
        raise StackError(
            "the images are pinned by digest, and docker save keeps no digests: remove @sha256:... in "
            ".env, then make up, make down, and try again."
        )
    missing = [name for name in names if ask("docker", "image", "inspect", name)[0]]
    if missing:
        raise StackError(
            f"these images are not on this machine: {', '.join(missing)}. Run make up and make down, then try again."
        )
    with tempfile.TemporaryFile() as said_last, gzip.open(place, "wb", compresslevel=1) as packed:
        with subprocess.Popen(["docker", "save", *names], stdout=subprocess.PIPE, stderr=said_last) as saving:
            assert saving.stdout
            shutil.copyfileobj(saving.stdout, packed, 1 << 20)
        if saving.returncode:
            said_last.seek(0)
            words = said_last.read().decode(errors="replace").split()
            raise StackError(f"the images could not be saved: {' '.join(words)[-300:]}")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(folder: Path) -> str:
    """Return a line for each file below a folder: its SHA-256 and its name, as `sha256sum` writes and reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(f"{sha256(path)}  {path.relative_to(folder)}\n" for path in files)


def bundle(system: str, pythons: Sequence[str], out: Path, with_images: bool) -> Path:
    """Write the archive for a system into the folder `out`. Returns its path. On `StackError` no archive is left."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{NAME}-{__version__}-{system}"
    with tempfile.TemporaryDirectory(dir=out) as place:
        folder = Path(place) / name
        wheels = folder / "wheels"
        wheels.mkdir(parents=True)
        committed = folder / "lab.tar.gz"
        code, output = ask(
            "git", "-C", str(ROOT), "archive", "--format=tar.gz", f"--output={committed}", "HEAD"
        )
        if code:
            raise StackError(f"git archive: {output.splitlines()[-1] if output else 'failed'}")
        for python in pythons:
            download(system, python, wheels)
        if with_images:
            save_images(system, folder / "images.tar.gz")
        (folder / "system").write_text(f"{system}\n")
        (folder / "pythons").write_text("".join(f"{python}\n" for python in pythons))
        sums = checksums(folder)
        shutil.copy(INSTALLER, folder / "install.sh")
        (folder / "SHA256SUMS").write_text(sums)
        half = Path(place) / "half.tar"
        with tarfile.open(half, "w") as archive:
            # The files that verify the rest come first, so that a truncated archive still has them.
            first = [folder / "install.sh", folder / "SHA256SUMS"]
            rest = sorted(path for path in folder.rglob("*") if path.is_file() and path not in first)
            for path in first + rest:
                archive.add(path, path.relative_to(place))
        return half.replace(out / f"{name}.tar")


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the arguments. Bad arguments end the process with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="lab.scene.bundle", description="Pack everything that a workshop without a network needs."
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the archives (runs/bundle)")
    parser.add_argument(
        "--system",
        action="append",
        choices=SYSTEMS,
        help="system to pack for; may be repeated (this machine's)",
    )
    parser.add_argument(
        "--python",
        action="append",
        help="Python version to pack for; may be repeated (all that have every wheel)",
    )
    parser.add_argument("--no-images", action="store_true", help="leave out the images of the scene")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Make the requested archives. Returns the exit code; an error is one line on stderr."""
    options = read_arguments(arguments)
    try:
        for system in options.system or [this_system()]:
            known = pythons_with_wheels(system)
            pythons = options.python or known
            if unknown := [python for python in pythons if python not in known]:
                raise UsageError(
                    f"not every package is made for Python {unknown[0]} on {system}, only for {', '.join(known)}."
                )
            print(
                f"{system}: wheels for Python {', '.join(pythons)}{'' if options.no_images else ', and images'} ...",
                flush=True,
            )
            made = bundle(system, pythons, options.out, not options.no_images)
            print(f"{made} ({made.stat().st_size / 1e6:.0f} MB)")
            # Participants type this line: the archive that they downloaded may have been replaced.
            print(f'echo "{sha256(made)}  {made.name}" | sha256sum -c')
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"lab: the archive could not be written: {error.strerror}", file=sys.stderr)
        return StackError.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Which machines have a wheel of every package: `python -m docs.pages.wheels` asks the package index.

It writes docs/wheels.json, needs `uv` and a network, installs nothing, and takes half a minute. `make lock` runs it, so
that the table in docs/platforms.md is about the lock files that stand beside it; a test compares their checksums.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.errors import USAGE

ROOT = Path(__file__).resolve().parents[2]
FILE = Path("docs/wheels.json")
LOCKS = ("requirements.lock", "requirements-stack.lock")
MACHINES = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux arm64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "macOS Intel": "x86_64-apple-darwin",
}
"""Machine → uv's name for it."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
NO_WHEEL = re.compile(r"Because (\S+)==\S+ has no usable wheels")


def checksums(root: Path) -> dict[str, str]:
    """SHA-256 of each lock file."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in LOCKS}


def without(lock: str, package: str) -> str:
    """The text of a lock file without one package."""
    return re.sub(rf"(?m)^{re.escape(package)}==.*\n(?: +.*\n)*", "", lock)


def missing(lock: str, machine: str, python: str) -> list[str]:
    """The packages of a lock file that have no wheel for a machine and a Python. Raises `OSError` with uv's reason."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "asked.lock"
        while True:
            file.write_text(lock)
            command = ["uv", "pip", "install", "--dry-run", "--target", folder, "--python-platform", machine]
            command += ["--python-version", python, "--only-binary", ":all:", "--no-deps", "--require-hashes"]
            done = subprocess.run([*command, "-r", str(file)], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return found
            lacking = NO_WHEEL.search(" ".join(done.stderr.split()))
            if not lacking or lacking[1] in found:
                raise OSError(done.stderr.strip().splitlines()[-1])
            found.append(lacking[1])
            lock = without(lock, lacking[1])


def main(root: Path = ROOT) -> int:
    """Ask for every machine and Python, and write the file. Returns 0, or 2 with one line on stderr."""
    try:
        lacking = {
            name: {
                machine: {python: missing((root / name).read_text(), of_uv, python) for python in PYTHONS}
                for machine, of_uv in MACHINES.items()
            }
            for name in LOCKS
        }
    except OSError as error:
        print(f"docs: the package index could not be asked for its wheels: {error}", file=sys.stderr)
        return USAGE
    text = json.dumps({"locks": checksums(root), "missing": lacking}, indent=1)
    (root / FILE).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

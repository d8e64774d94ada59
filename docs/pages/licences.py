"""Licences of the packages and of the images: `python -m docs.pages.licences` renews those of the packages.

It writes docs/licences.json from the metadata that the packages bring. Those that are not in this environment are put
into a temporary folder first, by `uv`. `make lock` runs it. The images' licences are in docs/pages/licences.toml, read
by a person from what each maker publishes. A test compares both with the lock files, with .env, and with `ALLOWED`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version

from docs.pages.fromruns import table
from lab.errors import USAGE

ROOT = Path(__file__).resolve().parents[2]
FILE = Path("docs/licences.json")
IMAGES = Path("docs/pages/licences.toml")
USES = {
    "requirements-stack": "the containers",
    "requirements": "the lab",
    "requirements-checks": "checks and tests",
    "requirements-mutate": "`make mutate`",
    "requirements-audit": "`make sbom`, `make audit`",
}
"""Lock file → what its packages are for. A package belongs to the first file that has it."""
ALLOWED = {
    *(
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
    ),
    *("PSF-2.0", "ZPL-2.1", "Zlib"),
}
"""Licences under which a package may be used, changed and passed on, for money and for teaching too."""
ALLOWED_IMAGES = ALLOWED | {"AGPL-3.0-only", "BUSL-1.1"}
"""Also those under which a program may be run unchanged, as the lab runs images, and taught with."""
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages write → SPDX's name for it."""
ELSEWHERE = (
    ("x86_64-pc-windows-msvc", "3.11"),
    ("x86_64-manylinux_2_28", "3.13"),
    ("x86_64-manylinux_2_28", "3.11"),
)
"""Machines and Pythons for which packages are tried that this environment has not: uv's names."""


def locked(root: Path) -> dict[str, tuple[str, str]]:
    """Package → (version, what it is for)."""
    found: dict[str, tuple[str, str]] = {}
    for name, use in USES.items():
        for line in re.finditer(r"(?m)^([a-z0-9.-]+)==([^\s;]+)", (root / f"{name}.lock").read_text()):
            found.setdefault(line[1], (version_of(line[2]), use))
    return found


def licence(said: Message | Any) -> str:
    """The licence that a package's metadata name, in SPDX's words where they are known; '' if they name none."""
    field = (said.get("License") or "").strip()
    classifiers = [
        one.rpartition(" :: ")[2] for one in said.get_all("Classifier") or [] if one.startswith("License ::")
    ]
    names = [said.get("License-Expression") or "", field if len(field) < 40 else "", *classifiers]
    found = [SPDX.get(name, name) for name in names]
    return next((name for name in found if allowed(name)), next(filter(None, found), ""))


def allowed(expression: str, among: Iterable[str] = frozenset(ALLOWED)) -> bool:
    """True if every part of an SPDX expression that is joined by AND has an alternative that is allowed."""
    parts = re.split(r"\s+AND\s+", expression.replace("(", "").replace(")", ""))
    return all(any(name in among for name in re.split(r"\s+OR\s+", part)) for part in parts)


def named(folder: Path | None = None) -> dict[str, tuple[str, str]]:
    """Package → (version, licence), of the packages in a folder, or in this environment."""
    places = metadata.distributions(path=[str(folder)]) if folder else metadata.distributions()
    return {
        canonicalize_name(one.metadata["Name"]): (version_of(one.version), licence(one.metadata))
        for one in places
    }


def version_of(text: str) -> str:
    """A version in its plain form: v1.0 and 1.0.0 are the same."""
    return str(canonicalize_version(text))


def fetched(wanted: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The same of packages `NAME==VERSION`, put into a temporary folder: those that can be had."""
    found: dict[str, tuple[str, str]] = {}
    for package in wanted:
        for machine, python in ELSEWHERE:
            with tempfile.TemporaryDirectory() as folder:
                command = [
                    "uv",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "--target",
                    folder,
                ]
                command += ["--python-platform", machine, "--python-version", python, package]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    found |= named(Path(folder))
                    break
    return found


def main(root: Path = ROOT) -> int:
    """Write the file. Returns 0, or 2 with one line on stderr."""
    wanted, here = {name: version for name, (version, _) in locked(root).items()}, named()
    lacking = [
        f"{name}=={version}" for name, version in wanted.items() if here.get(name, ("",))[0] != version
    ]
    try:
        here |= fetched(lacking)
    except OSError as error:
        print(
            f"docs: {len(lacking)} packages are not installed here, and uv is not there: {error}",
            file=sys.stderr,
        )
        return USAGE
    unknown = [name for name, version in wanted.items() if here.get(name, ("",))[0] != version]
    if unknown:
        print(
            f"docs: packages that could not be had, to look up their licence: {', '.join(unknown)}",
            file=sys.stderr,
        )
        return USAGE
    rows = {name: {"version": wanted[name], "licence": here[name][1]} for name in sorted(wanted)}
    (root / FILE).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def package_list(root: Path) -> str:
    """Every package, its licence, and what it is for."""
    rows, uses = json.loads((root / FILE).read_text()), locked(root)
    return table(
        ["package", "licence", "for"],
        [[name, row["licence"], uses[name][1]] for name, row in rows.items() if name in uses],
    )


def images(root: Path) -> dict[str, str]:
    """Repository → tag, of every image that .env names and that is not built here."""
    found = re.findall(r"(?m)^\w+_IMAGE=([^:\s]+/[^:\s]+):([^@\s]+)", (root / ".env").read_text())
    return dict(found)


def image_licences(root: Path) -> dict[str, dict[str, str]]:
    """Repository → what is known of it by hand."""
    found: dict[str, dict[str, str]] = tomllib.loads((root / IMAGES).read_text(encoding="utf-8"))
    return found


def image_list(root: Path) -> str:
    """Every image, the licence of its program, and what that means here."""
    known = image_licences(root)
    rows = [
        [f"`{name}`", known[name]["licence"], known[name]["note"]] for name in images(root) if name in known
    ]
    return table(["image", "licence of the program", "what it means here"], rows)


if __name__ == "__main__":
    sys.exit(main())

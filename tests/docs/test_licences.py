"""Every package and every image has a licence that somebody has looked at, and is in the bill of materials."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from email.message import Message
from pathlib import Path

import pytest

from docs.pages import licences
from docs.pages.licences import (
    ALLOWED,
    ALLOWED_IMAGES,
    FILE,
    allowed,
    image_licences,
    images,
    licence,
    locked,
)
from tests.docs.pagekit import ROOT

KEPT = json.loads((ROOT / FILE).read_text())


def test_every_package_has_an_allowed_licence() -> None:
    """docs/licences.json has exactly the locked packages, in their versions, each with an allowed licence."""
    wanted = {name: version for name, (version, _) in locked(ROOT).items()}
    assert {name: row["version"] for name, row in KEPT.items()} == wanted, "run make lock"
    assert {name: row for name, row in KEPT.items() if not allowed(row["licence"])} == {}


def test_every_lock_file_is_looked_at() -> None:
    """No lock file is forgotten."""
    assert {f"{name}.lock" for name in licences.USES} == {path.name for path in ROOT.glob("*.lock")}


def test_licences_are_those_of_the_installed_packages() -> None:
    """What is kept is what the packages of this environment say of themselves."""
    here = licences.named()
    both = {name for name, row in KEPT.items() if name in here and here[name][0] == row["version"]}
    assert {"flask", "numpy", "redis", "pytest"} <= both
    assert {name: here[name][1] for name in both} == {name: KEPT[name]["licence"] for name in both}


def test_every_image_has_an_allowed_licence() -> None:
    """Each image of .env is of a line of versions whose licence was read, and may be taught with."""
    known = image_licences(ROOT)
    found = images(ROOT)
    assert set(found) == set(known)
    assert {name: tag for name, tag in found.items() if not tag.startswith(known[name]["tags"])} == {}
    assert {name: row for name, row in known.items() if not allowed(row["licence"], ALLOWED_IMAGES)} == {}


@pytest.mark.parametrize(
    ("expression", "may"),
    [
        ("MIT", True),
        ("MIT AND Zlib", True),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR SSPL-1.0", False),
        ("", False),
    ],
)
def test_one_alternative_of_each_part_must_be_allowed(expression: str, may: bool) -> None:
    """Of alternatives one must be allowed, of parts each; no licence is not allowed."""
    assert allowed(expression, ALLOWED) == may


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"License-Expression": "MPL-2.0"}, "MPL-2.0"),
        ({"License": "3-Clause BSD License"}, "BSD-3-Clause"),
        ({"License": "Copyright (c) 2001 Somebody, with all the words of a licence", "Classifier": "X"}, ""),
        ({"License": "see LICENSE", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"License": "Commercial"}, "Commercial"),
        ({}, ""),
    ],
)
def test_a_licence_is_read_from_metadata(fields: dict[str, str], found: str) -> None:
    """The expression, the field, or a classifier: the first that is allowed, else the first that is there."""
    said = Message()
    for name, value in fields.items():
        said[name] = value
    assert licence(said) == found


def test_a_package_that_cannot_be_had_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the metadata of a package nothing is written; the line names the package."""
    for name in licences.USES:
        (tmp_path / f"{name}.lock").write_text("flask==0.0.1 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(licences, "fetched", lambda _: {})
    assert licences.main(tmp_path) == 2
    assert (
        capsys.readouterr().err == "docs: packages that could not be had, to look up their licence: flask\n"
    )
    (tmp_path / "docs").mkdir()
    for name in licences.USES:
        version = importlib.metadata.version("flask")
        (tmp_path / f"{name}.lock").write_text(f"flask=={version} \\\n    --hash=sha256:00\n")
    assert licences.main(tmp_path) == 0
    assert json.loads((tmp_path / FILE).read_text())["flask"]["licence"] == "BSD-3-Clause"


@pytest.mark.whole
def test_the_bill_of_materials_has_every_package() -> None:
    """`make sbom` writes every package of both lock files, in its version, with a checksum of the lock file."""
    subprocess.run(["make", "sbom"], cwd=ROOT, check=True, capture_output=True, timeout=300)
    for name in ("requirements", "requirements-stack"):
        lock = (ROOT / f"{name}.lock").read_text()
        wanted = set(re.findall(r"(?m)^([a-z0-9.-]+)==([^\s;]+)", lock))
        bill = json.loads((ROOT / "build" / f"{name}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert {(one["name"], one["version"]) for one in bill["components"]} == wanted
        for one in bill["components"]:
            checksums = {
                made["content"] for place in one["externalReferences"] for made in place.get("hashes", ())
            }
            assert checksums and all(checksum in lock for checksum in checksums), one["name"]

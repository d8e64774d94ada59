"""Every image has a licence that somebody has read, and every package is in the bill of materials."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from lab.scene.preflight import read_env_file
from tests.docs.pagekit import ROOT

ROW = re.compile(r"^\| `(\S+)` \| `(\S+)` \| \S", re.MULTILINE)


def test_every_image_has_a_row_on_the_page() -> None:
    """docs/licences.md has each image of .env that is not built here, for the line of versions that .env names."""
    rows = dict(ROW.findall((ROOT / "docs" / "licences.md").read_text(encoding="utf-8")))
    named = {
        name: value for name, value in (read_env_file(ROOT / ".env") or {}).items() if name.endswith("_IMAGE")
    }
    found = dict(value.partition("@")[0].rsplit(":", 1) for value in named.values() if "/" in value)
    assert set(found) == set(rows)
    assert {image: tag for image, tag in found.items() if not tag.startswith(rows[image])} == {}


@pytest.mark.whole
def test_the_bill_of_materials_has_every_package() -> None:
    """`make sbom` writes every package of both lock files, in its version, with a checksum of the lock file."""
    subprocess.run(["make", "sbom"], cwd=ROOT, check=True, capture_output=True, timeout=300)
    for name in ("lab", "stack"):
        lock = (ROOT / "requirements" / f"{name}.lock").read_text()
        wanted = set(re.findall(r"(?m)^([a-z0-9.-]+)==([^\s;]+)", lock))
        bill = json.loads((ROOT / "build" / f"{name}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert {(one["name"], one["version"]) for one in bill["components"]} == wanted
        for one in bill["components"]:
            checksums = {
                made["content"] for place in one["externalReferences"] for made in place.get("hashes", ())
            }
            assert checksums and all(checksum in lock for checksum in checksums), one["name"]

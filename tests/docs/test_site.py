"""`make site`: the pages as static HTML."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from docs.pages.pages import pages
from tests.docs.pagekit import ROOT

pytestmark = pytest.mark.whole

LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]* src="([^"]*)"|<link rel="(?:stylesheet|icon)[^>]* href="([^"]*)"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site. A link, an anchor or a picture that leads nowhere fails here, with its line."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["make", "site", f"SITE={folder}"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    """Each page is in the site and in its table of contents, and the first address leads to the README."""
    for page in pages(ROOT):
        assert (site / page.relative_to(ROOT).with_suffix(".html")).is_file()
    assert "README.html" in (site / "index.html").read_text()


def test_a_page_needs_no_network_and_shows_no_marks(site: Path) -> None:
    """No page loads anything from another machine, and none shows the marks of figures and blocks."""
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = [script or link for script, link in LOADED.findall(html)]
        assert loaded or page.name == "index.html"
        assert [address for address in loaded if "//" in address] == [], page
        assert "&lt;!--" not in re.sub(r"<(pre|code)\b.*?</\1>", "", html, flags=re.DOTALL), page

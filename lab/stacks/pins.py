"""`make pins`: write into .env, beside each image's tag, the digest that the registry gives for the tag now.

A tag may be pushed again, whereas a digest always names the same image. (Where the tag stands for a list of images by
architecture, the digest is the list's, and so holds on every architecture.) Needs only the standard library and a
network. If a registry gives no digest, the image's line stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from lab import ROOT

OWN = "LAB_IMAGE"
LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""What a tag may stand for: a list of images by architecture, or one image."""
IMAGE = re.compile(r"(?P<host>[^/]+)/(?P<name>[^:@]+):(?P<tag>[^@]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
SECONDS = 20


class NotResolved(Exception):
    """A registry gives no digest for a tag; the message says why."""


def digest(image: str) -> str:
    """The digest that an image's tag stands for now. Raises `NotResolved`."""
    found = IMAGE.fullmatch(image)
    if not found:
        raise NotResolved("it is not HOST/NAME:TAG")
    # Docker Hub's API has its own host name. A registry on this machine has no certificate, so it is asked over HTTP.
    host = "registry-1.docker.io" if found["host"] == "docker.io" else found["host"]
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", host) else "https"
    request = urllib.request.Request(
        f"{scheme}://{host}/v2/{found['name']}/manifests/{found['tag']}",
        headers={"Accept": ", ".join(LISTS)},
        method="HEAD",
    )
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=SECONDS)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            request.add_header("Authorization", f"Bearer {_token(error.headers['WWW-Authenticate'] or '')}")
            answer = urllib.request.urlopen(request, timeout=SECONDS)
        with answer:
            said = answer.headers["Docker-Content-Digest"] or ""
    except (OSError, ValueError, KeyError) as error:
        raise NotResolved(" ".join(str(error).split())) from error
    if not DIGEST.fullmatch(said):
        raise NotResolved("the registry gives no digest")
    return said


def _token(challenge: str) -> str:
    """An anonymous token to read an image, from the service that the registry's challenge (WWW-Authenticate) names."""
    told = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({name: told[name] for name in ("service", "scope") if name in told})
    with urllib.request.urlopen(f"{told['realm']}?{query}", timeout=SECONDS) as answer:
        found = json.load(answer)
    return str(found.get("token") or found["access_token"])


def renew(file: Path) -> list[str]:
    """Write the digests into a file of NAME_IMAGE=... lines.

    Returns a line of text for each image that changed, or whose registry gave no digest.
    """
    lines, said = [], []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        name, is_setting, image = line.rstrip("\n").partition("=")
        if is_setting and name.endswith("_IMAGE") and name != OWN:
            tag = image.partition("@")[0]
            try:
                image = f"{tag}@{digest(tag)}"
            except NotResolved as error:
                said.append(f"{name} stays as it is: {tag}: {error}")
            else:
                if f"{name}={image}\n" != line:
                    said.append(f"{name}={image}")
                line = f"{name}={image}\n"
        lines.append(line)
    file.write_text("".join(lines), encoding="utf-8")
    return said


def main(file: Path = ROOT / ".env") -> int:
    """Renew .env. Returns exit code 0, or 3 if a registry gave no digest."""
    said = renew(file)
    print("\n".join(said) or "nothing is new")
    return 3 if any(" stays as it is: " in line for line in said) else 0


if __name__ == "__main__":
    sys.exit(main())

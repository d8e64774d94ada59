"""What sessions leave in the folder that all of them share: a folder for each, and which causes were revealed last."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

LAST_REVEALED, REMEMBERED = "last-revealed", 2
"""File beside the session folders: the causes of the sealed sessions that were revealed last, a line for each of so
many sessions, the latest first."""


def revealed(home: Path) -> list[str]:
    """What the sealed sessions in this folder had that were revealed last, the latest first; causes joined by +."""
    file = home / LAST_REVEALED
    return file.read_text(errors="replace").split() if file.is_file() else []


def remember(home: Path, names: str) -> None:
    """Keep what was revealed now, and what was before it."""
    (home / LAST_REVEALED).write_text("\n".join([names, *revealed(home)][:REMEMBERED]) + "\n")


def new_folder(home: Path) -> Path:
    """A path, not in use yet, for the folder of a session that begins now."""
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, attempt = home / name, 1
    while folder.exists():
        attempt += 1
        folder = home / f"{name}-{attempt}"
    return folder

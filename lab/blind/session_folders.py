"""The folder that all sessions share: a folder for each session, and a file with the causes that were revealed last."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

LAST_REVEALED, REMEMBERED = "last-revealed", 2
"""File next to the session folders, and its number of lines: a line has the causes of a sealed session that was
revealed, the latest first."""


def revealed(home: Path) -> list[str]:
    """Return the causes of the sealed sessions that were revealed last, the latest first; two causes joined by +."""
    file = home / LAST_REVEALED
    return file.read_text(errors="replace").split() if file.is_file() else []


def remember(home: Path, names: str) -> None:
    """Add the causes that are revealed now to the file, and drop the oldest."""
    (home / LAST_REVEALED).write_text("\n".join([names, *revealed(home)][:REMEMBERED]) + "\n")


def new_folder(home: Path) -> Path:
    """Return an unused path for the folder of a session that begins now."""
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, attempt = home / name, 1
    while folder.exists():
        attempt += 1
        folder = home / f"{name}-{attempt}"
    return folder

"""The experiment: scenarios, stacks, running, recording, claims, report, command line."""

from pathlib import Path

__version__ = "0.2.0"
"""Version of the whole lab. CHANGELOG.md lists what each version changed."""

ROOT = Path(__file__).resolve().parents[1]
"""The folder of the whole lab: that of compose.yaml and .env."""

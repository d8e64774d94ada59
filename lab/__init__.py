"""The experiment: scenarios, stacks, running, recording, claims, report, command line."""

__version__ = "0.2.0"
"""Version of the whole lab. CHANGELOG.md lists what each version changed."""

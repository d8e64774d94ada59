"""The experiment: scenarios, stacks, running, recording, claims, report, command line."""

__version__ = "0.2.0"
"""Of the lab as a whole; CHANGELOG.md says what each version brought."""

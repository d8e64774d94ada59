"""The cold case: what Prometheus and Tempo hold of an incident, taken home in a folder and served again later."""

from lab.errors import StackError


class NoAnswer(StackError):
    """Prometheus or Tempo does not answer, or somebody else does at its address."""

"""Recordings: the data of an incident in Prometheus and Tempo, saved to a folder and served again later."""

from lab.errors import StackError


class NoAnswer(StackError):
    """Prometheus or Tempo does not answer, or another service answers at its address."""

"""Loads of single incidents: `python -m loadtest.incidents.NAME`."""

"""The open-loop probe: `python -m loadtest.probe`."""

"""Runs a scenario: calibration, phases, loads, recording, judging, and series of runs."""

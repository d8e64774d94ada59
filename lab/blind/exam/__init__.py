"""The examination: sealed scenes in a row, the same for a person, for `bin/lab diagnose` and for any program.

Each scene is a blind session with the rules and points of one. A person works in a second terminal, with the commands
of `bin/lab blind`. A program is started for each scene and asks the same things over its stdin and stdout
(`lab.blind.exam.candidates`).
"""

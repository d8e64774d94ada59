"""Blind mode: starts one of several causes behind the same complaint of users, and keeps it secret until the reveal.

The cause is kept in the memory of the process `lab blind start`. Under every cause the scene's programs have the same
names, arguments, environment and files; they get their orders over stdin (`lab.blind.launcher`).
"""

"""Blind mode: starts one of several causes behind a complaint of users, and keeps it secret until the reveal.

The cause is kept in the memory of the process `lab blind start`. Under every cause the scene's programs have the same
names, arguments, environment and files, so nothing that a participant can see reveals the cause: it is sealed.
`BlindStack._start_sealed` in `lab.blind.scene` starts such a program, which gets its orders over stdin;
`lab.blind.launcher` runs it.
"""

"""Blind mode: one of several causes is started under the same visible symptom, and sealed until the reveal.

The cause lives in the memory of the process `lab blind start`. All programs of the scene are the same for every
cause - names, arguments, environment, files - and are told what to do over their stdin (`lab.blind.launcher`).
"""

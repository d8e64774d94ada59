"""Stacks: the scene as processes of this machine, on a server that already runs, or in containers."""

"""Stacks: the parts of a run as processes, on a server of their own, of a running scene, of --url, or on a cluster."""

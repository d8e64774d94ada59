"""Ways to bring up the scene: real processes on this machine, or on a server that already runs."""

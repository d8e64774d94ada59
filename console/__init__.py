"""The control page: a page and an HTTP interface that show and steer every server of the running scene.

`python -m console`. For each server an *autopilot* tells the default story by itself (calibrate, empty the
server, let keys grow), keeps the backlog bounded, and carries out what people ask for. It knows the scene only by
addresses: HTTP of the storefront, the invalidator, the load generator and the probe, and the server's own protocol. It
needs no Docker socket.
"""

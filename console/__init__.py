"""The control page: a page and an HTTP interface that show every server of the running scene, and its levers.

`python -m console`. For each server a thread runs the default story (time a search, plan the load, empty the server,
let customers come) and carries out people's actions. No observation steers anything. The page knows the
scene only by addresses: HTTP of the storefront, the invalidator, the load generator and the probe, and the server's
own protocol. It needs no Docker socket.
"""

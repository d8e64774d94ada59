"""A cluster as its clients see it: the slot of a key, and the node that has it."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import replace

from loadtest.resp import LoadFailed, Server, ask, command, connect

SLOTS = 16_384


def slot_of(key: str) -> int:
    """A key's slot: CRC16 (XMODEM) modulo 16,384 of its hash tag, if it has one (cluster specification)."""
    _, _, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if tag and closed else key).encode(), 0) % SLOTS


def tag_in(first: int, last: int) -> str:
    """The first number that, as a hash tag, has its slot in that range."""
    return next(str(number) for number in range(SLOTS * 100) if first <= slot_of(str(number)) <= last)


class Nodes:
    """The nodes that have slots, in the order of their slots. Raises `LoadFailed` for a server that is no cluster."""

    def __init__(self, known: Server) -> None:
        with connect(known) as line:
            (reply,) = ask(line, command("CLUSTER", "SLOTS"))
        if not isinstance(reply, list) or not reply:
            raise LoadFailed(f"{known} is no node of a cluster with slots: {reply}")
        self._ends: list[tuple[int, int]] = []
        self.servers: list[Server] = []
        for _, last, node, *_ in sorted(reply, key=lambda part: int(part[0])):
            server = replace(known, host=_text(node[0]) or known.host, port=int(node[1]))
            if server not in self.servers:
                self.servers.append(server)
            self._ends.append((int(last), self.servers.index(server)))

    def node_of(self, key: str) -> int:
        """The number of the node that has a key's slot. Raises `LoadFailed` if no node has it."""
        slot = slot_of(key)
        for last, number in self._ends:
            if slot <= last:
                return number
        raise LoadFailed(f"no node has slot {slot}")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")

"""Where processes are: addresses, and sockets that listen on them.

Sockets are bound before anything else starts. So a port that is taken is found out while there is nothing to clean
up yet, and a system on free ports knows its address book before its first member runs.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from isthmus.runtime.problems import AddressInUse, AddressUnusable

LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


AddressBook: TypeAlias = Mapping[int, Address]
"""Where the process in each slot of the topology listens."""


def listen(address: Address) -> socket.socket:
    """A socket that listens on `address`, or the problem that says why there is none. Port 0: any free one."""
    host, port = address
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise AddressUnusable(host, port, getattr(error, "strerror", None) or str(error)) from None
    try:
        # Without it, a restart within a minute finds the port occupied by the connections of its former life.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        # Only now is the port ours for certain: two sockets may be bound to one port, but not listen on it.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(host, port) from None
        raise AddressUnusable(host, port, error.strerror or str(error)) from None
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> Address:
    """Where a listening socket can be reached."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)

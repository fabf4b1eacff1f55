"""Takes the calls on a listening socket, many in one turn of the event loop.

uvloop's own server takes one a turn, and turns are long where many members share a loop: when 126 of 128 acknowledged
the first batch of the 127th at the same moment, the last of their calls was taken after five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Calls that are taken in one turn. A caller has said who it is two turns later, and 64 may be there that have not
(`peer.py`)."""

PAUSE = 1.0
"""Seconds before it tries again, where the operating system gives us no more connections."""


class Acceptor:
    """Makes a protocol by `make` for each connection that comes in on `listener`, from `open` to `close`."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._taking: set[asyncio.Task[Any]] = set()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True
        self._loop.add_reader(self._listener, self._take)

    def close(self) -> None:
        """Take no more calls. The socket stays the caller's."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listener)

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot take a call: %s", error)
                self.close()
                self._loop.call_later(PAUSE, self._reopen)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._make, connection))
            self._taking.add(task)
            task.add_done_callback(self._taken)

    def _reopen(self) -> None:
        if self._listener.fileno() >= 0:
            self.open()

    def _taken(self, task: asyncio.Task[Any]) -> None:
        self._taking.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("a caller was gone at once: %s", task.exception())

"""A hub: the one-channel medium (1C), over TCP, and the stand-in where a machine has no multicast.

It takes whole parcels from everybody and writes each to everybody, its sender included, in the one order in which they
came in. It neither looks into them nor loses any; whoever does not read is cut off, since a gap of its own making would
be one in its own PDUs too. Who loses the hub has lost the medium, and ends as if it had crashed: the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Container
from typing import Any, Self

from isthmus.core.codec import FrameError
from isthmus.core.ids import ProcessId, slot_of
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.transport.address import Address, address_of
from isthmus.runtime.transport.hello import SIZE, Hello, HelloError, decode_hello, encode_hello
from isthmus.runtime.transport.medium import Medium
from isthmus.runtime.transport.parcel import ParcelReader, sources
from isthmus.runtime.transport.peer import DEFAULT_LIMITS, Connection, Limits, Me, tune
from isthmus.runtime.transport.reception import Caller, Reception

log = logging.getLogger(__name__)

HUB_BUFFER = 64 << 20
"""Bytes that may wait for one entity. The flow condition keeps it to a few windows; a process that stands still is left
out by the others long before."""
DIAL_EVERY = 0.05


class HubUnreachable(RuntimeProblem):
    def __init__(self, process: str, where: Address, seconds: float, reason: str) -> None:
        super().__init__(
            f"{process} waited {seconds:g} s for the hub at {where}: {reason}. "
            f"Start it with `isthmus run FILE --site SYSTEM --hub`, or correct the address of the system."
        )


class Hub(Reception):
    """The medium of one system; `listener` is where its entities find it, `slots` are theirs."""

    def __init__(
        self,
        listener: socket.socket,
        slots: Container[int],
        *,
        group: int,
        label: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(Me(Hello(group, 0), f"the hub of {label}"), limits)
        self.address = address_of(listener)
        self.carried = 0
        """Bytes."""
        self._listener = listener
        self._slots = slots
        self._server: asyncio.Server | None = None

    async def open(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self.make_caller, sock=self._listener)
        return self

    def expects(self, process: ProcessId) -> bool:
        return slot_of(process) in self._slots

    def make_caller(self) -> Caller:
        return _Plug(self)

    def broadcast(self, parcels: bytes) -> None:
        self.carried += len(parcels)
        for caller in list(self._callers.values()):
            if caller.transport.get_write_buffer_size() > HUB_BUFFER:
                self.refuse(caller, f"process {caller.process} does not read")
            else:
                caller.transport.write(parcels)

    def close(self) -> None:
        self._closed = True
        if self._server is not None:
            self._server.close()
        self._listener.close()
        for connection in list(self.connections):
            connection.transport.close()


class _Plug(Caller):
    """Where one entity is connected to the hub."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._hub = hub
        self._reader = ParcelReader()

    def heard(self, data: bytes) -> None:
        parcels = self._reader.feed(data)
        if parcels:
            if sources(parcels) != {self.process}:
                raise FrameError(f"process {self.process} speaks for others")
            self._hub.broadcast(parcels)

    @property
    def unread(self) -> int:
        return self._reader.pending


class HubMedium(Medium):
    """One entity's end of the line to a hub."""

    def __init__(self, process: ProcessId, hub: Address, *arguments: Any, within: float = 30.0, **options: Any) -> None:
        super().__init__(process, *arguments, **options)
        self._hub = hub
        self._within = within
        self._line: _Line | None = None

    @property
    def where(self) -> str:
        return f"hub {self._hub}"

    async def open(self) -> None:
        """Call the hub until it answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._within
        while True:
            line = _Line(self)
            try:
                async with asyncio.timeout_at(deadline):
                    await loop.create_connection(lambda line=line: line, *self._hub)  # type: ignore[misc]
                    if (await line.answer).group != self.me.hello.group:
                        raise HelloError("a hub of another run or system listens there")
            except (OSError, HelloError, TimeoutError) as error:
                line.abort()
                if loop.time() + DIAL_EVERY >= deadline:
                    reason = str(error) or "nobody answers"
                    raise HubUnreachable(self.me.label, self._hub, self._within, reason) from None
                await asyncio.sleep(DIAL_EVERY)
            except BaseException:
                line.abort()
                raise
            else:
                self._line = line
                return

    def _carry(self, parcels: list[bytes]) -> None:
        assert self._line is not None
        transport = self._line.transport
        if transport.get_write_buffer_size() > HUB_BUFFER:
            self.gone("the hub does not take what is sent")
        elif not transport.is_closing():
            transport.writelines(parcels)

    def arrived(self, parcels: bytes) -> None:
        self._take(parcels)

    def gone(self, why: str) -> None:
        if not self._closed:
            log.warning("%s has lost its medium, the hub at %s: %s", self.me.label, self._hub, why)
            self.abort()
            self.on_lost(f"it lost the hub: {why}")

    async def close(self, timeout: float = 1.0) -> None:
        await super().close(timeout)
        if self._line is not None:
            self._line.transport.close()
            await asyncio.wait((self._line.gone,), timeout=timeout)
        self.abort()

    def abort(self) -> None:
        super().abort()
        if self._line is not None:
            self._line.abort()


class _Line(Connection):
    """The connection to a hub: one hello each way, then parcels each way."""

    def __init__(self, medium: HubMedium) -> None:
        super().__init__()
        self._medium = medium
        self._reader = ParcelReader()
        self._received = b""
        self.answer: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        tune(self.transport, DEFAULT_LIMITS.silence)
        self.transport.write(encode_hello(self._medium.me.hello))

    def data_received(self, data: bytes) -> None:
        try:
            if not self.answer.done():
                self._received += data
                if len(self._received) < SIZE:
                    return
                data = self._received[SIZE:]
                self.answer.set_result(decode_hello(self._received[:SIZE]))
            parcels = self._reader.feed(data)
            if parcels:
                self._medium.arrived(parcels)
        except HelloError as error:
            self.answer.set_exception(error)
            self.abort()
        except FrameError as error:
            self._medium.gone(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if not self.answer.done():
            self.answer.set_exception(HelloError("it hung up"))
            self.answer.exception()  # Nobody waits for it when dialling was cancelled: that is no error.
        elif self.answer.exception() is None:
            self._medium.gone(str(error) if error else "it hung up")

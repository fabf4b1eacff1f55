"""UDP multicast: the medium with a channel per sender (MC).

Datagrams of one sender keep their order on one machine; between senders there is none. The kernel loses what does not
fit a receiver's buffer, which is what the protocol is for. Only loopback: nothing leaves the machine.

    8 bytes   group tag
    8 bytes   process id of the sender
    4 bytes   which bundle of the sender this is
    2 bytes   which part of it, from 0
    2 bytes   how many parts it has
    n bytes   parcels, or a part of them

A bundle is what one iteration of the event loop sends, as far as it fits a datagram; only a parcel that is larger than
that comes in parts. Of each sender one unfinished bundle is kept.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from typing import Any

from isthmus.core.codec import FrameError
from isthmus.core.ids import ProcessId
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.transport.address import LOOPBACK, Address
from isthmus.runtime.transport.medium import Medium
from isthmus.runtime.transport.parcel import MAX_PARCEL

_HEADER = struct.Struct(">QQIHH")
PART = 32_000
"""Bytes of a datagram behind its header: half of what UDP takes, so that a full buffer loses less at a time."""
MAX_PARTS = MAX_PARCEL // PART + 1
RECEIVE_BUFFER = 4 << 20
READ_AT_ONCE = 64
"""Datagrams taken in one go before others have their turn."""
_LARGEST = 1 << 16


class NoMulticast(RuntimeProblem):
    def __init__(self, where: Address, reason: str) -> None:
        super().__init__(
            f"Multicast is not possible at {where}: {reason}. Use the hub instead (`--medium hub`), "
            f"or allow multicast on the loopback interface."
        )


def group_address(tag: int, port: int) -> Address:
    """Where the entities of a group meet: in the range that is for use inside an organisation."""
    return Address(f"239.255.{tag >> 8 & 255}.{tag & 255}", port)


def receiver(where: Address) -> socket.socket:
    """A socket that hears everything that is sent to a group. Port 0: any free one."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.bind(where)
        membership = socket.inet_aton(where.host) + socket.inet_aton(LOOPBACK)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        sock.close()
        raise NoMulticast(where, error.strerror or str(error)) from None
    sock.setblocking(False)
    return sock


def transmitter(where: Address) -> socket.socket:
    """A socket that sends to groups on this machine, and no further."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError as error:
        sock.close()
        raise NoMulticast(where, error.strerror or str(error)) from None
    sock.setblocking(False)
    return sock


def try_out(where: Address, patience: float = 0.5) -> Address:
    """Send a word to a group and hear it. Returns the group, with a port that was free; raises `NoMulticast`."""
    with receiver(where) as hearing, transmitter(where) as speaking:
        found = Address(where.host, hearing.getsockname()[1])
        try:
            speaking.sendto(b"", found)
        except OSError as error:
            raise NoMulticast(found, error.strerror or str(error)) from None
        if not select.select([hearing], [], [], patience)[0]:
            raise NoMulticast(found, "nothing that is sent comes back")
    return found


class MulticastMedium(Medium):
    """One entity in a multicast group."""

    def __init__(self, process: ProcessId, where: Address, *arguments: Any, **options: Any) -> None:
        super().__init__(process, *arguments, **options)
        self._group = where
        self._hearing: socket.socket | None = None
        self._speaking: socket.socket | None = None
        self._bundles = 0
        self._unfinished: dict[ProcessId, tuple[int, list[bytes]]] = {}
        self.overrun = 0
        """Datagrams that the kernel would not take."""

    @property
    def where(self) -> str:
        return f"multicast {self._group}"

    async def open(self) -> None:
        self._speaking = transmitter(self._group)
        self._hearing = receiver(self._group)
        asyncio.get_running_loop().add_reader(self._hearing, self._read)

    # Sending.

    def _carry(self, parcels: list[bytes]) -> None:
        bundle: list[bytes] = []
        size = 0
        for parcel in parcels:
            if bundle and size + len(parcel) > PART:
                self._send_bundle(b"".join(bundle))
                bundle, size = [], 0
            bundle.append(parcel)
            size += len(parcel)
        self._send_bundle(b"".join(bundle))

    def _send_bundle(self, bundle: bytes) -> None:
        assert self._speaking is not None
        self._bundles = (self._bundles + 1) & 0xFFFFFFFF
        group, process = self.me.hello
        parts = -(-len(bundle) // PART)
        for part in range(parts):
            header = _HEADER.pack(group, process, self._bundles, part, parts)
            try:
                self._speaking.sendto(header + bundle[part * PART : (part + 1) * PART], self._group)
            except OSError:
                # Lost, as anything may be on a medium.
                self.overrun += 1

    # Receiving.

    def _read(self) -> None:
        for _ in range(READ_AT_ONCE):
            if self._hearing is None:
                return
            try:
                data = self._hearing.recv(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            self.heard(data)

    def heard(self, data: bytes) -> None:
        """Take one datagram, whoever sent it."""
        try:
            self._datagram(data)
        except FrameError as error:
            self._refuse(error)

    def _datagram(self, data: bytes) -> None:
        if len(data) <= _HEADER.size:
            return
        group, source, number, part, parts = _HEADER.unpack_from(data)
        if group != self.me.hello.group or (source == self._process and not self._returns_own):
            return
        if not 0 <= part < parts <= MAX_PARTS:
            raise FrameError(f"part {part} of {parts}")
        body = data[_HEADER.size :]
        if parts > 1:
            whole = self._put_together(source, number, part, parts, body)
            if whole is None:
                return
            body = whole
        self._take(body)

    def _put_together(self, source: ProcessId, number: int, part: int, parts: int, body: bytes) -> bytes | None:
        """The whole bundle, if this was its last part and nothing is missing."""
        bundle, pieces = self._unfinished.pop(source, (number, []))
        if part == 0:
            bundle, pieces = number, []
        if bundle != number or len(pieces) != part:
            return None
        pieces.append(body)
        if len(pieces) == parts:
            return b"".join(pieces)
        if len(self._unfinished) < len(self._names.slots):
            self._unfinished[source] = (number, pieces)
        return None

    # The end.

    def _shut(self) -> None:
        super()._shut()
        if self._hearing is not None:
            asyncio.get_running_loop().remove_reader(self._hearing)
            self._hearing.close()
            self._hearing = None
        if self._speaking is not None:
            self._speaking.close()

"""A WAN in user space: a TCP relay whose bytes take as long as on a long, narrow line, which can be cut.

Whoever calls the relay's port is connected to the target; `runtime/wan/relay.py` carries the bytes of one connection,
and `runtime/wan/line.py` says when they arrive. Here is what the connections of a line have in common: the port, the
conditions, the cuts. No byte is ever dropped, repeated or reordered, unless its connection is reset. What this
promises, assumes and costs is in docs/design/wan.md.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from isthmus.core.ids import Nanos
from isthmus.runtime.problems import AddressInUse
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of
from isthmus.runtime.transport.address import listen as listen_on
from isthmus.runtime.wan.line import Conditions, Line, Trunk, check_rate
from isthmus.runtime.wan.relay import READ, ConnectionStatistics, Relay, tune

log = logging.getLogger(__name__)

_BACKLOG = 1024
_BREATHER = 0.1
"""Seconds without accepting when the machine has no more sockets."""
_REMEMBERED = 1000
"""Ended connections whose statistics are kept."""

Value = TypeVar("Value")
Times: TypeAlias = Nanos | tuple[Nanos, Nanos]
"""For both directions, or (there, back): there is from the caller to the target."""
Rates: TypeAlias = int | tuple[int | None, int | None] | None


class CutKind(StrEnum):
    """What becomes of the connections over a line that is cut."""

    SILENT = "silent"
    """Nothing passes and nobody is told, as when a cable is pulled. New callers are not carried to the target."""
    RESET = "reset"
    """All are reset, and new ones are refused."""


class Unchanged:
    """What `Wan.set` leaves as it is. None would not do: it means unlimited."""


UNCHANGED: Final = Unchanged()


class Way(NamedTuple):
    """One direction of all connections: what it is like for each, and what they share."""

    conditions: Conditions
    trunk: Trunk


class Wan:
    """One emulated line: an address to call instead of the target's. Made by `Wan.start`; closed by `async with`."""

    def __init__(self, target: Address, listener: socket.socket, ways: tuple[Way, Way], seed: int) -> None:
        self.target = target
        self.address = address_of(listener)
        self.ways = ways
        self.accepted = 0
        self._seed = seed
        self._listener = listener
        self._relays: set[Relay] = set()
        self._ended: deque[ConnectionStatistics] = deque(maxlen=_REMEMBERED)
        self._arrived_before = (0, 0)
        self._cut: CutKind | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        # What is read is copied out of it before the next one reads, so all connections can share it.
        self._read_buffer = memoryview(bytearray(READ))

    @classmethod
    async def start(
        cls,
        target: tuple[str, int],
        *,
        delay: Times = 0,
        jitter: Times = 0,
        rate: Rates = None,
        total: Rates = None,
        queue: int | None = None,
        listen: tuple[str, int] = (LOOPBACK, 0),
        seed: int = 0,
    ) -> Wan:
        """Listen, and carry whoever calls to `target`.

        `delay` is one way, in nanoseconds; each segment takes up to `jitter` more, evenly distributed. `rate` limits
        each connection and `total` all of them together, in bits of payload per second and direction. At most `queue`
        bytes of a connection wait for their turn; what is under way comes on top.
        """
        delays, jitters, rates = _both(delay), _both(jitter), _both(rate)
        totals = [check_rate(each) for each in _both(total)]
        there, back = (
            Way(Conditions(delays[way], jitters[way], rates[way], queue).check(), Trunk(totals[way])) for way in (0, 1)
        )
        listener = listen_on(Address(*listen))
        tune(listener)  # What it accepts inherits it.
        wan = cls(Address(*target), listener, (there, back), seed)
        wan._resume_accepting()
        return wan

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port to call instead of the target's."""
        return self.address.port

    @property
    def is_cut(self) -> CutKind | None:
        return self._cut

    def set(
        self,
        *,
        delay: Times | Unchanged = UNCHANGED,
        jitter: Times | Unchanged = UNCHANGED,
        rate: Rates | Unchanged = UNCHANGED,
        total: Rates | Unchanged = UNCHANGED,
    ) -> None:
        """Change the line in service. It applies to what has not been sent yet; what is under way arrives as before."""
        ways = []
        for index, way in enumerate(self.ways):
            conditions = way.conditions
            if not isinstance(delay, Unchanged):
                conditions = conditions._replace(delay=_both(delay)[index])
            if not isinstance(jitter, Unchanged):
                conditions = conditions._replace(jitter=_both(jitter)[index])
            if not isinstance(rate, Unchanged):
                conditions = conditions._replace(rate=_both(rate)[index])
            ways.append(Way(conditions.check(), way.trunk))
        if not isinstance(total, Unchanged):
            totals = [check_rate(each) for each in _both(total)]
            for way, shared in zip(ways, totals, strict=True):
                way.trunk.set(shared, time.monotonic_ns())
        self.ways = (ways[0], ways[1])
        for relay in self._relays:
            for direction, way in zip(relay.directions, self.ways, strict=True):
                direction.set(way.conditions)

    def cut(self, mode: CutKind = CutKind.SILENT) -> None:
        """Let nothing pass until `mend`."""
        if self._cut is not None:
            self.mend()
        self._cut = mode
        self._stop_accepting()
        if mode is CutKind.RESET:
            # Bound but not listening, the port refuses everybody, and the kernel gives it to nobody else by chance.
            self._listener.close()
            self._listener = _reserve(self.address)
            self._reset_all()
        else:
            for relay in self._relays:
                for direction in relay.directions:
                    direction.cut()

    def mend(self) -> None:
        """Undo a cut. What was on a silent line sets out again, and those who called meanwhile are carried."""
        if self._cut is None:
            return
        if self._cut is CutKind.RESET:
            try:
                self._listener.listen(_BACKLOG)
            except OSError:
                raise AddressInUse(*self.address) from None
        self._cut = None
        self._resume_accepting()
        for relay in self._relays:
            for direction in relay.directions:
                direction.mend()

    async def close(self) -> None:
        """Take the line away: all connections are reset, and what was on it is lost."""
        self._closed = True
        self._stop_accepting()
        self._listener.close()
        self._reset_all()
        while self._relays:
            await asyncio.wait([relay.gone for relay in self._relays])

    def statistics(self) -> list[ConnectionStatistics]:
        """Statistics of the latest connections that have ended, and of all that are open."""
        return [*self._ended, *(relay.statistics() for relay in self._relays)]

    def arrived(self) -> tuple[int, int]:
        """Bytes that all connections have carried since the start: (there, back)."""
        there, back = self._arrived_before
        for relay in self._relays:
            each = relay.statistics()
            there += each.there.arrived
            back += each.back.arrived
        return there, back

    # Connections.

    def _resume_accepting(self) -> None:
        if self._cut is None and not self._closed:
            self._loop.add_reader(self._listener, self._accept)

    def _stop_accepting(self) -> None:
        if not self._listener_is_closed():
            self._loop.remove_reader(self._listener)

    def _listener_is_closed(self) -> bool:
        return self._listener.fileno() < 0

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                accepted, where = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("%s cannot accept a connection: %s", self.address, error.strerror or str(error))
                self._stop_accepting()
                self._loop.call_later(_BREATHER, self._resume_accepting)
                return
            accepted.setblocking(False)
            self.accepted += 1
            lines = (self._line(0), self._line(1))
            relay = Relay(accepted, Address(*where[:2]), self.target, lines, self._read_buffer, self._relay_gone)
            self._relays.add(relay)

    def _line(self, way: int) -> Line:
        return Line(*self.ways[way], Random(f"{self._seed}/{self.accepted}/{way}"))

    def _reset_all(self) -> None:
        for relay in list(self._relays):
            relay.reset()

    def _relay_gone(self, relay: Relay) -> None:
        statistics = relay.statistics()
        there, back = self._arrived_before
        self._arrived_before = (there + statistics.there.arrived, back + statistics.back.arrived)
        self._ended.append(statistics)
        self._relays.discard(relay)


def _both(value: Value | tuple[Value, Value]) -> tuple[Value, Value]:
    return value if isinstance(value, tuple) else (value, value)


def _reserve(address: Address) -> socket.socket:
    """A socket that has the port, but does not listen."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setblocking(False)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tune(reserved)
    try:
        reserved.bind(address)
    except OSError:
        reserved.close()
        raise AddressInUse(*address) from None
    return reserved

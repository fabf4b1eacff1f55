"""Runs one process for an application that sends, to everybody or to some: credit, waiting, refusal, batching.

`send` waits while the endpoint has no credit, and is refused once the process stops. Sends of one iteration of the
event loop go out in one step: under load that is what makes it fast, and an idle process waits for nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from isthmus.core.endpoint import Destinations, Endpoint, View
from isthmus.core.ids import Nanos
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.runtime.driver.endpoint import Driver, Ended
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.transport.carrier import Carrier

STEP_MESSAGES = 4096
STEP_BYTES = 1 << 20
"""What is accepted in one iteration of the event loop before `send` waits for the next."""


_BYTES = {bytes}


class Sender(Endpoint, Protocol):
    """An endpoint that takes messages of its application, as many as it has credit for."""

    def credit(self) -> int: ...


class ProcessDriver(Driver, ABC):
    """A driver that accepts messages. `refusal` says why it takes no more; it is empty while it does.

    `view` is what was last said of who is there, where that is ever said. `last_busy` is when something was last seen
    to keep it from being at rest, by the clock of the event loop.
    """

    leaves_last = False
    """Whether other processes of the same host need this one to see their messages through."""

    def __init__(self, endpoint: Sender, mesh: Carrier, recorder: LiveRecorder | None = None) -> None:
        super().__init__(endpoint, mesh, recorder)
        self.accepted = 0
        self.refusal = ""
        self.view: View | None = None
        self.last_busy = 0.0
        self._credit = endpoint.credit
        self._to_send: list[tuple[Destinations | None, list[bytes]]] = []
        self._messages_to_send = 0
        self._bytes_to_send = 0
        self._step_scheduled = False
        self._turn = asyncio.Lock()
        self._credit_waiter: asyncio.Future[None] | None = None

    @abstractmethod
    def _put(self, destinations: Destinations | None, payloads: Sequence[bytes], now: Nanos) -> int:
        """Give messages to the endpoint. Returns the sequence number that it has stamped on the first."""

    async def _send(self, payloads: Sequence[bytes], destinations: Destinations | None = None) -> int:
        """Send `payloads`, in this order, as soon as there is credit. Returns the first one's sequence number.

        When it returns, all of them are accepted. A call that is cancelled or refused midway has accepted some.
        """
        accepted = self.send_now(payloads, destinations)
        if accepted is not None:
            return accepted
        async with self._turn:
            first = self.accepted + 1
            while len(payloads) > (room := self._room()):
                if room > 0:
                    self._accept(payloads[:room], destinations, first)
                    payloads = payloads[room:]
                elif not self.refusal:
                    self._credit_waiter = self._loop.create_future()
                    await self._credit_waiter
                else:
                    break
            self._accept(payloads, destinations, first)
            return first

    def send_now(self, payloads: Sequence[bytes], destinations: Destinations | None = None) -> int | None:
        """Send without waiting, if all of them fit now. Returns the first one's sequence number, or None.

        It spares a coroutine, where nearly always there is nothing to wait for.
        """
        if set(map(type, payloads)) - _BYTES:
            wrong = next(each for each in payloads if type(each) is not bytes)
            raise TypeError(f"a payload is bytes, not {type(wrong).__name__}")
        if payloads and (largest := max(map(len, payloads))) > MAX_PAYLOAD:
            raise ValueError(f"a payload of {largest} bytes is larger than {MAX_PAYLOAD}: send it in pieces")
        if not self._turn.locked() and len(payloads) <= self._room():
            return self._accept(payloads, destinations)
        return None

    def _room(self) -> int:
        """How many more messages may be accepted now.

        One step takes a bounded number, so that a caller that never pauses does not keep others waiting.
        """
        if self._messages_to_send >= STEP_MESSAGES or self._bytes_to_send >= STEP_BYTES:
            return 0
        return self._credit() - self._messages_to_send

    def _accept(self, payloads: Sequence[bytes], destinations: Destinations | None, first: int | None = None) -> int:
        """Promise to send. The sequence numbers follow from the count, since nobody else sends here."""
        begin = self.accepted + 1
        if self.refusal:
            raise NotAccepting(self.refusal, begin - first if first else 0)
        if payloads:
            self._soon()
            if self._to_send and self._to_send[-1][0] == destinations:
                self._to_send[-1][1].extend(payloads)
            else:
                self._to_send.append((destinations, list(payloads)))
            self._messages_to_send += len(payloads)
            self._bytes_to_send += sum(map(len, payloads))
            self.accepted += len(payloads)
        return begin

    def _soon(self) -> None:
        if not self._step_scheduled:
            self._step_scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """One step for everything that the application wanted in this iteration of the event loop."""
        self._step_scheduled = False
        if self.ended is None:
            try:
                self._take_in(self._now())
                self._carry_out()
            except Exception as error:
                self._broken(error)

    def _take_in(self, now: Nanos) -> None:
        """Give the endpoint what was accepted for it."""
        accepted, self._to_send = self._to_send, []
        next_seq = self.accepted - self._messages_to_send + 1
        self._messages_to_send = self._bytes_to_send = 0
        for destinations, payloads in accepted:
            first = self._put(destinations, payloads, now)
            assert first == next_seq, "sequence numbers are not those promised by send"
            next_seq += len(payloads)
            if self.recorder is not None:
                self.recorder.sent(first, payloads, destinations)

    def _step_done(self) -> None:
        super()._step_done()
        if self._credit_waiter is not None and self._room() > 0:
            wake(self._credit_waiter)
            self._credit_waiter = None

    def stop_accepting(self, why: str) -> None:
        """Refuse new messages from here on. Who waits in `send` is refused as well."""
        self.refusal = self.refusal or why
        if self._credit_waiter is not None:
            wake(self._credit_waiter)

    async def see_through(self) -> None:
        """Wait until what was accepted is stable, where this process comes to know that."""

    async def stop(self, timeout: float = 10.0) -> object:
        """Leave the system in good order; who cannot leave ends with it."""
        await self.close()
        return None

    @abstractmethod
    def unfinished(self) -> str:
        """Of a process that has ended: what became of it that should not have, in words; else nothing."""

    def _end(self, ended: Ended) -> None:
        super()._end(ended)
        self.stop_accepting(f"it has ended ({ended.why})")


def wake(waiter: asyncio.Future[None]) -> None:
    """Let whoever waits for this future go on, if it still waits."""
    if not waiter.done():
        waiter.set_result(None)

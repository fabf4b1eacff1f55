"""Runs one process of a broadcast system, for an application: `send`, deliveries, `stable`, `stop`.

Back-pressure goes from end to end. `send` waits while the member has no credit; credit comes back as messages become
stable; a message becomes stable when the application of every member has finished with it. So one slow
application slows all senders down to its pace, and nothing piles up anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

from isthmus.core.endpoint import Destinations, Member, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.runtime.driver.endpoint import Ended
from isthmus.runtime.driver.handover import HandOver
from isthmus.runtime.driver.process import ProcessDriver, wake
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.problems import NotStable
from isthmus.runtime.transport.carrier import Carrier

Confirms: TypeAlias = Literal["driver", "member"]
"""Who says that the application has finished with a batch; see `MemberDriver`."""

CONSUMER_PATIENCE = 1.0
"""Seconds for which a process that stops waits for its application to ask for the next delivery."""


class Stopped(NamedTuple):
    """How a member has ended, and which of the messages that it accepted are not known to be stable."""

    ended: Ended
    unstable: range

    def __str__(self) -> str:
        if not self.unstable:
            return f"{self.ended.why}; everything accepted is stable"
        first, last = self.unstable[0], self.unstable[-1]
        which = f"message {first}" if first == last else f"messages {first} to {last}"
        return f"{self.ended.why}; not known to be stable: {which}"


class MemberDriver(ProcessDriver):
    """A driver of a process that broadcasts, with its application on top.

    Deliveries go to `on_batch`, called synchronously, where one is given: the fast way. Otherwise they wait in
    `deliveries` to be iterated over. `confirms` says who finishes with a batch: the `driver`, after the call or when
    the next one is taken; or the `member` by itself, as soon as it hands it out. `on_view` hears of every view.
    """

    def __init__(
        self,
        member: Member,
        mesh: Carrier,
        recorder: LiveRecorder | None = None,
        *,
        on_batch: Callable[[Batch], None] | None = None,
        confirms: Confirms = "driver",
    ) -> None:
        super().__init__(member, mesh, recorder)
        self.member = member
        self.deliveries = HandOver(self._finished_with)
        self.stable_through = 0
        self.on_view: Callable[[View], None] | None = None
        self._on_batch = on_batch
        self._driver_confirms = confirms == "driver"
        self._nobody_consumes = False
        self._to_confirm: dict[ProcessId, int] = {}
        self._stability_waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    # From the application into the system.

    async def send(self, payloads: Sequence[bytes]) -> int:
        """Broadcast `payloads`, in this order, as soon as there is credit. Returns the first one's sequence number.

        When it returns, all of them are accepted: `stop` will see them through. A call that is cancelled or
        refused midway has accepted the first few.
        """
        return await self._send(payloads)

    def _put(self, destinations: Destinations | None, payloads: Sequence[bytes], now: Nanos) -> int:
        return self.member.broadcast(payloads, now, self._out)

    def confirm(self, sender: ProcessId, number: int) -> None:
        """The application has finished with `sender`'s batches up to `number`."""
        self._to_confirm[sender] = number
        self._soon()

    def _take_in(self, now: Nanos) -> None:
        if self._to_confirm:
            for sender, number in self._to_confirm.items():
                self.member.confirm(sender, number, now, self._out)
            self._to_confirm.clear()
        super()._take_in(now)

    # Out of the system to the application.

    def _deliver(self, deliveries: list[Batch | View]) -> None:
        on_batch = self._on_batch
        for item in deliveries:
            if isinstance(item, View):
                self.view = item
                if self.on_view is not None:
                    self.on_view(item)
                if on_batch is None:
                    self.deliveries.put(item)
                continue
            if on_batch is not None:
                on_batch(item)
                if self._driver_confirms:
                    self.confirm(item.sender, item.number)
            elif self._nobody_consumes:
                self._finished_with(item)
            else:
                self.deliveries.put(item)

    def _finished_with(self, batch: Batch) -> None:
        if self._driver_confirms:
            self.confirm(batch.sender, batch.number)

    # Knowing what has arrived everywhere.

    async def stable(self, seq: int) -> None:
        """Wait until this process's messages up to `seq` were finished with by every live destination."""
        if seq > self.stable_through:
            if self.ended is not None:
                raise NotStable(seq, self.ended.why)
            waiter = self._loop.create_future()
            heappush(self._stability_waiters, (seq, id(waiter), waiter))
            await waiter

    async def see_through(self) -> None:
        await self.stable(self.accepted)

    def _have_become_stable(self, batches: list[Batch]) -> None:
        me = self.member.id
        for batch in batches:
            self.stable_through = batch.segment.marks.get(me, self.stable_through)
        waiters = self._stability_waiters
        while waiters and waiters[0][0] <= self.stable_through:
            wake(heappop(waiters)[2])

    # Stopping.

    def stop_accepting(self, why: str, patience: float = CONSUMER_PATIENCE) -> None:
        """Refuse new messages from here on. Who waits in `send` is refused as well.

        An application that does not ask for its next delivery for `patience` seconds is from here on taken for gone.
        """
        if not self.refusal:
            super().stop_accepting(why)
            if self.ended is None and self._on_batch is None:
                self._look_after_consumer(patience, asked=0)

    def _look_after_consumer(self, patience: float, asked: int) -> None:
        """Nothing becomes stable while deliveries wait for an application that will never take them.

        It is gone if it waits for nothing and has not asked since it had asked `asked` times: never, or for a while.
        """
        if self.ended is None:
            if self.deliveries.asked == asked and not self.deliveries.idle:
                self._nobody_consumes = True
                self.deliveries.finish_all()
            else:
                self._loop.call_later(patience, self._look_after_consumer, patience, self.deliveries.asked)

    async def stop(self, timeout: float = 10.0, patience: float = CONSUMER_PATIENCE) -> Stopped:
        """Leave the system: see everything accepted through to stability, then go; after `timeout` seconds, just go."""
        self.stop_accepting("it is stopping", patience)
        if self.ended is None and not self._leaving:
            self._step()
            self._leave()
        await asyncio.wait((self._end_of_it,), timeout=timeout)
        self._end(Ended("crash", f"could not leave within {timeout:g} s"))
        await self.mesh.close()
        return self.stopped

    def _leave(self) -> None:
        if self.ended is None:
            self._leaving = True
            try:
                self.member.leave(self._now(), self._out)
                self._carry_out()
            except Exception as error:
                self._broken(error)

    def _has_left(self) -> bool:
        return self._leaving and self.stable_through == self.accepted

    @property
    def stopped(self) -> Stopped:
        assert self.ended is not None, "the member has not ended yet"
        return Stopped(self.ended, range(self.stable_through + 1, self.accepted + 1))

    def unfinished(self) -> str:
        stopped = self.stopped
        return str(stopped) if stopped.ended.how == "crash" or stopped.unstable else ""

    def _end(self, ended: Ended) -> None:
        super()._end(ended)
        self.deliveries.end()
        while self._stability_waiters:
            seq, _, waiter = heappop(self._stability_waiters)
            if not waiter.done():
                waiter.set_exception(NotStable(seq, ended.why))

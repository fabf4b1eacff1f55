"""Runs one endpoint in an asyncio event loop: its clock, its network, its timer.

A step is: one input method of the endpoint, then its outbox recorded and carried out in the order that the contract
gives (`core/endpoint.py`). Steps never nest. What a step sends is encoded once per multicast and leaves with everything
else of this iteration of the event loop (`mesh.py`).

The endpoint's clock stands still while this OS process does not run (it was stopped, swapped out, or busy with
something else for long). To a failure detector such a gap looks as if everybody else had fallen silent; the
others, whose clocks went on, decide whether we were away for too long.

An endpoint that raises has a bug and is in no defined state: the driver cuts it off as a crash would, and the group's
own protocol deals with that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic_ns
from typing import NamedTuple

from isthmus.core.endpoint import AddressedDelivery, Endpoint, Outbox, View
from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.join import LinkPdu
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.transport.carrier import Carrier
from isthmus.trace.recorder import Ending

log = logging.getLogger(__name__)

_NEVER: Nanos = 1 << 63
_ROUNDING = 0.0005
"""Seconds added to every timer. uvloop rounds to milliseconds, and a timer that fires early fires in vain."""
_LATENESS: Nanos = 50 * MILLISECOND
"""By how much a timer may be late before the rest counts as time in which we did not run."""


class Ended(NamedTuple):
    """How and why a driver has ended."""

    how: Ending
    why: str


class Driver:
    """Runs `endpoint` over `mesh`. `MemberDriver` adds what an application sees of it."""

    def __init__(self, endpoint: Endpoint, mesh: Carrier, recorder: LiveRecorder | None = None) -> None:
        self.endpoint = endpoint
        self.mesh = mesh
        self.recorder = recorder
        self.ended: Ended | None = None
        self._loop = asyncio.get_running_loop()
        self._end_of_it: asyncio.Future[Ended] = self._loop.create_future()
        self._error: BaseException | None = None
        self._leaving = False
        self._out = Outbox()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = _NEVER
        self._skipped: Nanos = 0

    def start(self) -> None:
        """Let the endpoint run over an open mesh."""
        self.mesh.receive = self._received
        self._arm()

    async def wait_ended(self) -> Ended:
        """Wait until the endpoint takes no further part, for whatever reason. Raises what broke it."""
        ended = await asyncio.shield(self._end_of_it)
        if self._error is not None:
            raise self._error
        return ended

    # The ways into a step.

    def _received(self, peer: ProcessId, pdus: Sequence[Pdu]) -> None:
        if self.ended is None:
            try:
                self.endpoint.receive(peer, pdus, self._now(), self._out)
                self._carry_out()
            except Exception as error:
                self._broken(error)

    def _time_has_passed(self) -> None:
        if self.ended is None:
            try:
                now = self._now()
                self._timer = None
                self._timer_due = _NEVER
                deadline = self.endpoint.deadline()
                if deadline is not None and deadline <= now:
                    self.endpoint.wake(now, self._out)
                    self._carry_out()
                else:
                    self._arm()
            except Exception as error:
                self._broken(error)

    def _now(self) -> Nanos:
        """The endpoint's time. It never runs ahead of the timer: see the top of this file."""
        now = monotonic_ns() - self._skipped
        ahead = now - self._timer_due - _LATENESS
        if ahead > 0:
            self._skipped += ahead
            now -= ahead
        return now

    def _arm(self) -> None:
        """Make sure that the timer fires by the endpoint's deadline.

        One that fires earlier is left alone and looks again: cheaper than to cancel and set a timer in every step. One
        that is overdue as it is stays too: under steady load it would be put off for ever.
        """
        deadline = self.endpoint.deadline()
        if deadline is not None and deadline < self._timer_due:
            now = self._now()
            due = max(deadline, now)
            if due >= self._timer_due:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_later((self._timer_due - now) / SECOND + _ROUNDING, self._time_has_passed)

    # The one way out of it.

    def _carry_out(self) -> None:
        """Do what the endpoint wants done, in the order of the outbox's fields, and leave the outbox empty."""
        out = self._out
        if out.stored:
            self._store(out.stored)
        if self.recorder is not None:
            self.recorder.step(out)
        if out.deliveries:
            self._deliver(out.deliveries)
        if out.addressed:
            self._deliver_addressed(out.addressed)
        if out.stable:
            self._have_become_stable(out.stable)
        if out.settled:
            self._have_settled(out.settled)
        if out.sends:
            send = self.mesh.send
            for destinations, pdu in out.sends:
                send(destinations, pdu)
        if out.links:
            self._onto_links(out.links)
        if out.stopped:
            self._end(Ended("leave" if self._has_left() else "crash", out.stopped))
        out.clear()
        self._step_done()

    def _store(self, batches: list[Batch]) -> None:
        """Write down what this process holds from now on. Nothing to do here: only gateways keep a journal."""

    def _deliver(self, deliveries: list[Batch | View]) -> None:
        """Give batches and changes of view to the application."""

    def _deliver_addressed(self, deliveries: list[AddressedDelivery]) -> None:
        """Give messages that are for some processes only to the application."""

    def _have_become_stable(self, batches: list[Batch]) -> None:
        """Own batches have become stable: every live destination has finished with them."""

    def _have_settled(self, settled: list[tuple[ProcessId, int]]) -> None:
        """Batches of anybody are settled: every live member of this system is known to have finished with them."""

    def _onto_links(self, links: list[tuple[LinkId, LinkPdu]]) -> None:
        raise TypeError(f"{self.mesh.me.label} has no links: only a gateway is run with some")

    def _has_left(self) -> bool:
        """Whether an endpoint that stops was asked to, and owes nothing. Otherwise the others went on without it."""
        return self._leaving

    def _step_done(self) -> None:
        if self.ended is None:
            self._arm()

    # The end.

    def _broken(self, error: BaseException) -> None:
        """A bug, here or in the application's callback. Nothing of this endpoint can be trusted any more."""
        log.error("%s stops: it failed with %s", self.mesh.me.label, type(error).__name__, exc_info=error)
        self._error = error
        self.kill(f"it failed with {type(error).__name__}")

    def kill(self, why: str = "killed") -> None:
        """End at once, without a word to anybody: for the others this process has crashed."""
        self._end(Ended("crash", why))
        self.mesh.abort()

    async def close(self) -> None:
        """End without leaving: for when the whole system ends."""
        self._end(Ended("end", "closed"))
        await self.mesh.close()

    def _end(self, ended: Ended) -> None:
        """The first end counts. Connections stay open here: the last frames are still to be written."""
        if self.ended is None:
            self.ended = ended
            if self._timer is not None:
                self._timer.cancel()
            if self.recorder is not None:
                self.recorder.ended(*ended)
            self._end_of_it.set_result(ended)

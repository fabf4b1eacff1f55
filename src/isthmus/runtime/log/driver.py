"""Runs the gateway of a log for as long as it holds the claim: reading, appending, links, in one event loop.

The protocol is pure (`join/logged.py`); this calls it with what was read, with appends that are done and with what
links bring, and does what its outbox says. docs/design/brokers.md, "The driver".
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from time import monotonic_ns
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import SECOND, LinkId, Nanos, ProcessId
from isthmus.core.wire.join import Line, LinkPdu
from isthmus.join.logged import LogGateway
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.link.link import LinkCallbacks
from isthmus.runtime.link.links import Links
from isthmus.runtime.log.appending import Appending
from isthmus.runtime.log.history import LogHistory
from isthmus.runtime.log.interface import (
    BEGINNING,
    Log,
    LogProblem,
    Recreated,
    Slice,
    State,
    Superseded,
    Trimmed,
    Unavailable,
)
from isthmus.runtime.log.ledger import Checkpoint, Record, decode, encode, numbered
from isthmus.runtime.log.place import LogPlace
from isthmus.runtime.log.reading import Reading, Stretch
from isthmus.topology.kinds.log import LogTable

log = logging.getLogger(__name__)

SLICE_MESSAGES, SLICE_BYTES = 2048, 1 << 20
"""What is asked for in one read."""
MOST_UNCONFIRMED, MOST_BYTES_UNCONFIRMED = 1_000_000, 64 << 20
"""What may have been read and not be durable, or not confirmed by every join, before reading waits: the broker is the
spool."""
NOTE_EVERY = 1.0
"""Seconds between two checkpoints: a take-over reads again what was confirmed since."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts while the broker is away."""
DRAIN_WITHIN, CONFIRM_WITHIN = 5.0, 0.5
"""Seconds that appends under way have when we stop; and that the far sides have to confirm what was read."""

_ROUNDING = 0.0005
"""Seconds added to every timer: one that fires early fires in vain."""

_Result = TypeVar("_Result")
Task: TypeAlias = asyncio.Future[Any]


class Options(Struct, frozen=True, kw_only=True):
    """How a gateway of a log runs. `lease` is in seconds; `start` is where the first one that ever ran begins.

    With `trace_open` the trace of the log does not end when the gateway stops, for whoever follows it while it grows.
    """

    lease: float = 1.5
    start: str = "start"
    accept_loss: bool = False
    trace_open: bool = False


class Patience:
    """Calls the broker until it answers. One line when it begins not to, one when it is over.

    There is one for each thing that is asked of it: a broker that is full can still be read.
    """

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what
        self._away = False

    async def __call__(self, call: Callable[..., Awaitable[_Result]], *arguments: Any) -> _Result:
        pause = FIRST_PAUSE
        while True:
            try:
                result = await call(*arguments)
            except Unavailable as reason:
                if not self._away:
                    self._away = True
                    log.warning("%s cannot be %s: %s. It is tried again and again.", self._name, self._what, reason)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if self._away:
                    self._away = False
                    log.warning("%s can be %s again", self._name, self._what)
                return result


class LogDriver:
    """Runs `gateway`, which holds the claim that `state` came with."""

    def __init__(
        self,
        gateway: LogGateway,
        place: LogPlace,
        broker: Log,
        state: State,
        options: Options,
        make_links: Callable[[LinkCallbacks], Links],
        recorder: LiveRecorder | None = None,
    ) -> None:
        self.gateway = gateway
        self.place = place
        self.recorder = recorder
        self._log = broker
        self._options = options
        self.history: LogHistory | None = None
        self._patiently = Patience(place.system.name, "written")
        self._reads_patiently = Patience(place.system.name, "read")
        self._settles_patiently = Patience(place.system.name, "made durable")
        self._loop = asyncio.get_running_loop()
        table = place.system.own(LogTable)
        self._appending = Appending(place, broker, state, table.on_refusal, self._patiently)
        where = place.system.name
        checkpoint = decode(state.checkpoint, Checkpoint, where) if state.checkpoint else None
        appending = self._appending
        begin = checkpoint or Checkpoint(position=BEGINNING)
        self.reading = Reading(place, begin, appending.is_in, appending.skips, appending.retried)
        # What the checkpoint has of them need not go with every append.
        appending.retried -= self.reading.retried
        self._is_new = checkpoint is None
        self._token = state.token
        self._out = Outbox()
        self._unconfirmed: deque[Stretch] = deque()
        self._messages_unconfirmed = self._bytes_unconfirmed = 0
        self._noted: Stretch | None = None
        self._confirmed: Stretch | None = None
        self._room = asyncio.Event()
        self._to_do = asyncio.Event()
        self._turn = asyncio.Lock()
        self._unsettled = asyncio.Event()
        self._settled: dict[ProcessId, int] = {}
        self._ahead: deque[tuple[int, Slice]] = deque()
        self.messages_ahead = self._bytes_ahead = 0
        self._read_to = self.reading.position
        self._carries_at_once = table.carry == "at-once"
        self._broken: Task = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: Nanos = 0
        self._stopping = False
        self._confirmed_by = inf
        self.delivered = self.read = 0
        self.links = make_links(LinkCallbacks(self._arrived, self._up, self._down, self._ready))

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`, or until something ends it: `Superseded`, or a `LogProblem`."""
        reading = self.reading
        if self._is_new:
            reading.position = await self._reads_patiently(self._log.find, self._options.start)
            await self._note(reading.checkpoint(reading.position, (), ()))
        for origin, seq in self._appending.missing:
            if seq > reading.marks.get(origin):
                reading.put_aside(origin, seq, self.place.nothing_of(origin))
        record, begin = dict(self._appending.marks.counted()), dict(reading.marks.counted())
        self._unsettled.set()
        self._step(self.gateway.claimed, self._token, record, begin, monotonic_ns())
        for link in self.links:
            self._down(link.id)
        self.links.open()
        stopped: Task = asyncio.ensure_future(stop.wait())
        work: list[Task] = [asyncio.ensure_future(each) for each in (self._read(), self._write(), self._settle())]
        try:
            await asyncio.wait((stopped, self._broken, *work), return_when=asyncio.FIRST_COMPLETED)
            for each in (self._broken, *work):
                if each.done():
                    each.result()
            await self._drain(*work)
        finally:
            self._stopping = True
            stopped.cancel()
            await _cancelled(work)
            self._end()

    async def _drain(self, reading: Task, writing: Task, settling: Task) -> None:
        """Stop reading, see appends through, write down how far everything is confirmed."""
        await _cancelled([reading])
        self._confirmed_by = self._loop.time() + CONFIRM_WITHIN
        self._to_do.set()
        done, _ = await asyncio.wait((writing,), timeout=DRAIN_WITHIN)
        if done:
            writing.result()
        else:
            name = self.place.system.name
            log.warning("%s: some messages were not appended in time; they are brought in the next time", name)
        await self.links.close()

    @property
    def _is_draining(self) -> bool:
        return self._confirmed_by < inf

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._broken.done():
            self._broken.cancel()
        self.links.abort()

    # Out of the log

    async def _read(self) -> None:
        """Read ahead of what is durable, as far as there is room."""
        self._read_to = self.reading.position
        while True:
            await self._room_for_more()
            number, after, lives = self.reading.begin(), self._read_to, self.reading.lives
            try:
                got: Slice = await self._reads_patiently(self._log.read, after, SLICE_MESSAGES, SLICE_BYTES)
                await self._look_who_wrote(got)
                if self.reading.lives > lives:
                    continue
                self._read_to = got.position
                if self._carries_at_once:
                    await self._carry(number, got)
                elif got.entries or got.position != after or self.reading.aside or self.reading.again:
                    self._ahead.append((number, got))
                    self._bytes_ahead += sum([len(entry.content.body) for entry in got.entries])
                    self.messages_ahead += len(got.entries)
                    self._unsettled.set()
            except (Trimmed, Recreated) as loss:
                while self._ahead and isinstance(loss, Trimmed):
                    self._room.clear()
                    await self._room.wait()
                await self._begin_anew(loss)

    async def _look_who_wrote(self, got: Slice) -> None:
        """A message that was brought in, but not by us, shows that somebody else holds the claim by now."""
        if self.reading.is_puzzled_by(got):
            async with self._turn:
                await self._check_state()

    async def _check_state(self) -> State:
        state = await self._patiently(self._log.state)
        if state.token != self._token:
            raise Superseded
        return state

    async def _carry(self, number: int, got: Slice) -> None:
        """These entries stay: carry them to the other systems."""
        before = self.reading.position
        segments, stretch = self.reading.take(got, number)
        await self._put_oversized_aside()
        if not segments:
            if stretch.position != before and not self._unconfirmed:
                # What was passed there is nothing that anybody reads, and may be removed.
                self._confirmed = stretch
            return
        self.read += stretch.messages
        self._unconfirmed.append(stretch)
        self._messages_unconfirmed += stretch.messages
        self._bytes_unconfirmed += stretch.size
        for segment in segments:
            if self.history is not None:
                self.history.read(segment)
            self._step(self.gateway.read, segment, monotonic_ns())

    async def _begin_anew(self, loss: LogProblem) -> None:
        """Go on with what is there, if somebody has said that the rest may be lost."""
        name = self.place.system.name
        if not self._options.accept_loss:
            raise LogProblem(
                f"{name}: {loss}. Nothing more is carried out of this log. With --accept-loss it goes on with what is "
                "there; what was read shortly before may then come twice."
            ) from loss
        log.warning("%s: %s; this loss has been accepted: going on with what is there", name, loss)
        behind = loss.after if isinstance(loss, Trimmed) else None
        self.reading.begin_anew(await self._reads_patiently(self._log.find, "start") if behind is None else behind)
        self._confirmed = None
        self._ahead.clear()
        self.messages_ahead = self._bytes_ahead = 0
        self._unconfirmed.clear()
        self._messages_unconfirmed = self._bytes_unconfirmed = 0
        reading = self.reading
        self._read_to = reading.position
        await self._note(reading.checkpoint(reading.position, reading.marks.counted(), reading.retried))

    async def _room_for_more(self) -> None:
        while (
            self.messages_ahead + self._messages_unconfirmed >= MOST_UNCONFIRMED
            or self._bytes_ahead + self._bytes_unconfirmed >= MOST_BYTES_UNCONFIRMED
        ):
            self._room.clear()
            await self._room.wait()

    async def _put_oversized_aside(self) -> None:
        for oversized in self.reading.oversized:
            problem = f"{self.place.system.name}: {oversized.reason}; it cannot be carried to other systems"
            if self.place.system.own(LogTable).on_refusal == "stop":
                name = self.place.system.name
                raise LogProblem(f'{problem}. Remove it, or write on-refusal = "park" in systems.{name}.')
            log.warning("%s, and is left out", problem)
        self.reading.oversized.clear()

    def _look_at_confirmed(self) -> None:
        """What every join has confirmed need not be read again."""
        confirmed = self.gateway.confirmed
        waiting = self._unconfirmed
        while waiting and all(confirmed.get(origin) >= seq for origin, seq in waiting[0].marks):
            self._confirmed = stretch = waiting.popleft()
            self._messages_unconfirmed -= stretch.messages
            self._bytes_unconfirmed -= stretch.size
            self._room.set()
        if self._is_draining:
            self._to_do.set()

    # Into the log

    async def _write(self) -> None:
        """Everything that needs the claim, one after the other: renew it, append, note the checkpoint."""
        lease = self._options.lease
        renew_at = self._loop.time() + lease / 4
        note_at = self._loop.time() + NOTE_EVERY
        while True:
            now = self._loop.time()
            if now >= renew_at:
                async with self._turn:
                    await self._patiently(self._log.renew, lease)
                renew_at = now + lease / 4
            if now >= note_at:
                await self._note_confirmed()
                note_at = now + NOTE_EVERY
            if self._appending:
                await self._append()
                continue
            if now >= self._confirmed_by or (self._is_draining and not self._unconfirmed and not self._ahead):
                await self._note_confirmed()
                return
            self._to_do.clear()
            try:
                async with asyncio.timeout(min(renew_at, note_at, self._confirmed_by) - now):
                    await self._to_do.wait()
            except TimeoutError:
                """Time for the next renewal or checkpoint."""

    async def _append(self) -> None:
        async with self._turn:
            segment, aside = await self._appending.append()
        for origin, seq, payload in aside:
            parked = (origin, seq) in self._appending.missing
            self.reading.put_aside(origin, seq, payload if parked else self.place.nothing_of(origin))
        self.delivered += segment.messages - len(aside)
        self._step(self.gateway.appended, segment)
        self._unsettled.set()

    async def _settle(self) -> None:
        """See to it that things are durable, and then say so of what was appended, and carry what was read.

        It runs beside appends and reads: what is done meanwhile is part of the next round.
        """
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            marks, count = dict(self._appending.marks.items()), len(self._ahead)
            await self._settles_patiently(self._log.durable)
            if marks != self._settled:
                await self._look_for_losses(marks)
                self._settled = marks
                self._step(self.gateway.durable, marks)
            try:
                for _ in range(min(count, len(self._ahead))):
                    await self._carry(*self._ahead[0])
                    _, got = self._ahead.popleft()
                    self._bytes_ahead -= sum([len(entry.content.body) for entry in got.entries])
                    self.messages_ahead -= len(got.entries)
            except Trimmed as loss:
                await self._begin_anew(loss)
            self._room.set()
            self._to_do.set()

    async def _look_for_losses(self, marks: dict[ProcessId, int]) -> None:
        """A broker that died meanwhile is durable without what it has lost, and says so by its record."""
        async with self._turn:
            state = await self._check_state()
        name, names = self.place.system.name, self.place.names
        there = numbered(decode(state.record, Record, name).marks, names)
        if any(seq > there.get(origin) for origin, seq in marks.items()):
            raise Superseded

    async def _note_confirmed(self) -> None:
        stretch = self._confirmed
        if stretch is not None and stretch is not self._noted:
            if self.history is not None:
                self.history.flush()  # what lies behind a checkpoint is never read again
            await self._note(self.reading.checkpoint(stretch.position, stretch.there, stretch.retried))
            self._noted = stretch
            behind = dict(stretch.there)
            missing = self._appending.missing
            missing.difference_update([each for each in missing if each[1] <= behind.get(each[0], 0)])

    async def _note(self, checkpoint: Checkpoint) -> None:
        async with self._turn:
            await self._patiently(self._log.note, encode(checkpoint), checkpoint.position)

    # Links

    def _arrived(self, link: LinkId, pdus: Sequence[LinkPdu]) -> None:
        self._step(self.gateway.from_link, link, pdus, monotonic_ns())

    def _up(self, link: LinkId, peer: ProcessId) -> None:
        self._step(self.gateway.link_up, link, peer, monotonic_ns())

    def _down(self, link: LinkId) -> None:
        self._step(self.gateway.link_down, link, monotonic_ns())

    def _ready(self, link: LinkId, line: Line) -> None:
        self._step(partial(self.gateway.link_ready, line=line), link, monotonic_ns())

    # Steps

    def _step(self, happens: Callable[..., None], *arguments: Any) -> None:
        if self._stopping or self._broken.done():
            return
        try:
            happens(*arguments, self._out)
            self._carry_out()
        except Exception as error:
            # A bug, or entries that are missing: nothing that this gateway says from here on could be trusted.
            self._broken.set_exception(error)

    def _carry_out(self) -> None:
        out = self._out
        if self.recorder is not None:
            self.recorder.step(out)
        for segment in out.relays:
            self._appending.add(segment)
            self._to_do.set()
        for link, pdu in out.links:
            self.links.send(link, pdu)
        out.clear()
        self._look_at_confirmed()
        self._arm()

    def _arm(self) -> None:
        """Make sure that the timer fires by the gateway's deadline. One that fires earlier looks again."""
        deadline = self.gateway.deadline()
        if deadline is not None and (self._timer is None or deadline < self._timer_due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = deadline
            seconds = max(0, deadline - monotonic_ns()) / SECOND + _ROUNDING
            self._timer = self._loop.call_later(seconds, self._time_has_passed)

    def _time_has_passed(self) -> None:
        self._timer = None
        self._step(self.gateway.wake, monotonic_ns())


async def _cancelled(tasks: Sequence[Task]) -> None:
    """End all of these, whatever it takes: a cancellation that meets an answer may be lost in `asyncio.wait_for`."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=FIRST_PAUSE)
    await asyncio.gather(*tasks, return_exceptions=True)

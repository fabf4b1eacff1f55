"""What a driver tells about its endpoint, and how that becomes a trace, off the hot path.

The driver calls once per batch, with references to what it has anyway; the log makes rows of them when it is flushed.
It flushes itself when much has gathered, and `TraceRecorder` sees to it that a quiet process's last rows do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import time_ns
from typing import Literal, Protocol, TypeAlias

from isthmus.core.codec import body_of
from isthmus.core.endpoint import Carried, Delivered, Hold, Staged, View
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.message import Addressed, Batch, Message
from isthmus.trace.schema import EventName, TraceError
from isthmus.trace.writer import ProcessLog

log = logging.getLogger(__name__)

Ending: TypeAlias = Literal["leave", "crash", "end"]
"""The last event of a process that got to say it."""

FLUSH_AFTER = 0.5
"""Seconds that a row may wait to be written."""
PART_AFTER = 5.0
"""The same where each flush makes a file of its own, as Parquet does: two a second would soon be thousands."""


class Recorder(Protocol):
    """Hears of everything that happens at one process, in its order."""

    def sent(self, first: int, payloads: Sequence[bytes]) -> None:
        """This process broadcast messages of its own, with sequence numbers from `first` on."""

    def sent_to(self, destinations: tuple[ProcessId, ...], first: int, payloads: Sequence[bytes]) -> None:
        """The same, of messages to these processes only."""

    def delivered(self, batch: Batch) -> None: ...

    def addressed(self, deliveries: Sequence[Delivered]) -> None:
        """Messages that are for some processes only were delivered. The list is the driver's."""

    def view(self, view: View) -> None: ...

    def stable(self, batch: Batch) -> None: ...

    def held(self, holds: Sequence[Hold]) -> None:
        """Why batches that arrived are not delivered yet. The list is the driver's; keep its items, not it."""

    def staged(self, stages: Sequence[Staged]) -> None:
        """Batches have come one stage further on their way to being acknowledged. The list is the driver's."""

    def carried(self, carried: Sequence[Carried]) -> None:
        """A gateway put messages on a link, took them off one, or had them numbered. The list is the driver's."""

    def ended(self, how: Ending, why: str) -> None:
        """Nothing will follow."""


class _NoRecorder:
    """Records nothing."""

    def sent(self, first: int, payloads: Sequence[bytes]) -> None: ...
    def sent_to(self, destinations: tuple[ProcessId, ...], first: int, payloads: Sequence[bytes]) -> None: ...
    def delivered(self, batch: Batch) -> None: ...
    def addressed(self, deliveries: Sequence[Delivered]) -> None: ...
    def view(self, view: View) -> None: ...
    def stable(self, batch: Batch) -> None: ...
    def held(self, holds: Sequence[Hold]) -> None: ...
    def staged(self, stages: Sequence[Staged]) -> None: ...
    def carried(self, carried: Sequence[Carried]) -> None: ...
    def ended(self, how: Ending, why: str) -> None: ...


NO_RECORDER: Recorder = _NoRecorder()


class TraceRecorder:
    """Writes the history of one process to its log, from its first row to its last.

    A log that cannot be written any more (a full disk) is given up, with one line to say so: the reader of the trace
    will find it incomplete, and the process goes on. With `sync` every row is written before the step that it is about
    sends anything, so that not even `kill -9` loses what others have seen of this process.
    """

    def __init__(
        self,
        process: ProcessId,
        process_log: ProcessLog,
        names: Directory,
        *,
        joining: bool,
        sync: bool = False,
        flush_after: float = FLUSH_AFTER,
    ) -> None:
        self._process = process
        self._log = process_log
        self._names = names
        self._loop = asyncio.get_running_loop()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._lost = False
        self._sync = sync
        self._flush_after = flush_after
        process_log.event("join" if joining else "start", time_ns())

    def sent(self, first: int, payloads: Sequence[bytes]) -> None:
        self._messages("send", [Message(self._process, seq, payload) for seq, payload in enumerate(payloads, first)])

    def sent_to(self, destinations: tuple[ProcessId, ...], first: int, payloads: Sequence[bytes]) -> None:
        messages = [Addressed(self._process, seq, payload, destinations) for seq, payload in enumerate(payloads, first)]
        self._messages("send", messages, destinations=self._all(destinations))

    def addressed(self, deliveries: Sequence[Delivered]) -> None:
        for message, hop in deliveries:
            if isinstance(hop, Batch):
                ordering = _ordering(hop)
            else:
                ordering = 0 if hop is None else len(body_of(hop)) - len(message.payload)
            self._messages("deliver", [message], ordering, destinations=self._all(message.destinations))

    def delivered(self, batch: Batch) -> None:
        if batch.messages:
            self._messages("deliver", batch.messages, _ordering(batch))

    def view(self, view: View) -> None:
        try:
            self._log.event("view", time_ns(), peer=str(view.number), destinations=self._all(view.members))
        except TraceError as error:
            self._give_up(error)

    def stable(self, batch: Batch) -> None:
        self._messages("stable", batch.messages)

    def held(self, holds: Sequence[Hold]) -> None:
        for batch, reason, awaited, number, unit in holds:
            name = str(self._names.name(awaited))
            note = f"waits until {unit} {number} of {name} is {reason}"
            self._messages("hold", batch.messages, peer=name, note=note)

    def staged(self, stages: Sequence[Staged]) -> None:
        for stage, batch in stages:
            self._messages(stage, batch.messages, _ordering(batch))

    def carried(self, carried: Sequence[Carried]) -> None:
        for event, link, messages, peer in carried:
            self._messages(event, messages, peer=f"link {link}" if peer is None else str(self._names.name(peer)))

    def ended(self, how: Ending, why: str) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        try:
            self._log.event(how, time_ns(), note=why)
            self._log.close()
        except TraceError as error:
            self._give_up(error)

    def _messages(
        self,
        event: EventName,
        messages: Sequence[Message],
        control_bytes: int = 0,
        peer: str | None = None,
        note: str | None = None,
        destinations: tuple[str, ...] | None = None,
    ) -> None:
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._flush_after, self._flush)
        try:
            self._log.messages(event, time_ns(), messages, control_bytes, peer, note, destinations)
            if self._sync:
                self._log.flush()
        except TraceError as error:
            self._give_up(error)

    def _all(self, processes: Sequence[ProcessId]) -> tuple[str, ...]:
        return tuple([str(self._names.name(each)) for each in processes])

    def _flush(self) -> None:
        self._flush_timer = None
        try:
            self._log.flush()
        except TraceError as error:
            self._give_up(error)

    def _give_up(self, error: TraceError) -> None:
        if not self._lost:
            log.warning("the trace of %s is incomplete from here on: %s", self._names.name(self._process), error)
        self._lost = True


def _ordering(batch: Batch) -> int:
    """The share of one message in everything that its batch carried besides payloads."""
    payloads = sum([len(message.payload) for message in batch.messages])
    return (len(body_of(batch)) - payloads) // len(batch.messages)

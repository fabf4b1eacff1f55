"""Records one process: what its application sends, and what every step of its endpoint leads to, as rows of its trace.

Simulator and runtime call it alike, with each outbox before they carry it out: so nobody, in the process or outside of
it, has seen anything of a step before its rows are in the log. It has no clock of its own: time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import structs

from isthmus.core.codec import body_of
from isthmus.core.endpoint import AddressedDelivery, Destinations, Outbox, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY, segments_of
from isthmus.trace.writer import ProcessLog

Beginning: TypeAlias = Literal["start", "join"]
"""The first event of a process: it was there when its system began, or came later."""
Ending: TypeAlias = Literal["leave", "crash", "end"]
"""The last event of a process that got to say it."""


class Recorder:
    """Writes the history of `process` into its log."""

    __slots__ = ("_log", "_process")

    def __init__(self, process: ProcessId, log: ProcessLog) -> None:
        self._process = process
        self._log = log

    def began(self, how: Beginning, view: View | None, now: Nanos) -> None:
        """The process is there, in this view if it is in one."""
        self._log.event(how, now)
        if view is not None:
            self._view(view, now)

    def sent(self, first: int, payloads: Sequence[bytes], destinations: Destinations | None, now: Nanos) -> None:
        """The process sent messages of its own, numbered from `first` on: to these processes, or to everybody.

        To be called before the step that sends them is recorded, so that they stand before all that they cause.
        """
        named = None if destinations is None else self._named(destinations)
        for segment in segments_of(self._process, first, payloads):
            self._log.messages("send", now, segment, 0, destinations=named)

    def step(self, out: Outbox, now: Nanos) -> None:
        """A step wants this done. The rows are in the order of the outbox's fields."""
        log = self._log
        for stage, batch in out.stages:
            log.messages(stage, now, batch.segment, _ordering_bytes(batch))
        for item in out.deliveries:
            if isinstance(item, View):
                self._view(item, now)
            else:
                log.messages("deliver", now, item.segment, _ordering_bytes(item))
        for delivered in out.addressed:
            self._delivered(delivered, now)
        for batch in out.stable:
            log.messages("stable", now, batch.segment, 0)
        for batch, reason, awaited, number, unit in out.holds:
            name = str(log.names.name(awaited))
            note = f"waits until {unit} {number} of {name} is {reason}"
            log.messages("hold", now, batch.segment, 0, peer=name, note=note)
        for event, link, segment, peer in out.carried:
            log.messages(event, now, segment, 0, peer=f"link {link}" if peer is None else str(log.names.name(peer)))

    def ended(self, how: Ending, why: str, now: Nanos) -> None:
        """The process is gone; nothing will follow."""
        self._log.event(how, now, note=why or None)

    def _view(self, view: View, now: Nanos) -> None:
        self._log.event("view", now, peer=str(view.number), destinations=self._named(view.members))

    def _delivered(self, delivered: AddressedDelivery, now: Nanos) -> None:
        run, hop = delivered
        if isinstance(hop, Batch):
            ordering = _ordering_bytes(hop)
        else:
            ordering = 0 if hop is None else len(body_of(hop)) - run.segment.payload_bytes
        share = ordering // run.segment.messages
        self._log.messages("deliver", now, run.segment, share, destinations=self._named(run.destinations))

    def _named(self, processes: Sequence[ProcessId]) -> tuple[str, ...]:
        return tuple([str(self._log.names.name(each)) for each in processes])


def _ordering_bytes(batch: Batch) -> int:
    """The share of one message in everything that its batch carried besides payloads."""
    segment = batch.segment
    ordering = len(body_of(structs.replace(batch, segment=EMPTY))) - EMPTY.column_bytes + segment.column_bytes
    return ordering // max(1, segment.messages)

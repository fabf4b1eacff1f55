"""A local group of a daisy in which messages go to their recipients only (daisy, Sect. 3.4, the second optimisation).

A message goes to those who are to have it, to the server if it is for somebody outside, and to as many witnesses as it
takes that k + 1 members hold it (`hierarchy/daisy/parcels.py`). Who is in the group a group member says, as in every
local group; its streams carry nothing else, except when a view begins:

The **flush**. Every member multicasts what it holds or keeps, and then that this is all. When everybody's word is there
the view is *in force*: all have the same lists, and so the same messages, which they deliver in the order of the clocks
as far as they have not had them. By virtual synchrony a view is in force for all who go on to the next one, or for none
of them; then the next one's flush tells all of it again. Only a view in force has a server, so nobody takes a seat in
the group above before it knows what all members kept for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from isthmus.core.endpoint import Hold, View
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import MAX_MEMBERS, Batch, Clocked, Content, Number
from isthmus.core.segment import Opened, Segment, pack_all
from isthmus.core.wire.daisy import PointPdu
from isthmus.core.wire.group import GroupPdu
from isthmus.hierarchy.daisy.flush import by_clock
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup, NewView
from isthmus.hierarchy.daisy.parcels import Parcels
from isthmus.hierarchy.daisy.record import pack, unpack
from isthmus.hierarchy.daisy.tree import DaisyGroup, DaisyTree
from isthmus.ordering.group.window import GroupSettings


class FlushEntry(NamedTuple):
    """A message that a member lists in a flush: in which parcel of whom (0 if that is done), and whether it is kept."""

    sender: ProcessId
    number: int
    kept: bool
    run: Clocked


class Flush:
    """The lists of all members of a view. `done` is how many parcels of each sender were done, by anybody's word."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.entries: dict[ProcessId, list[FlushEntry]] = {member: [] for member in view.members}
        self.done: dict[ProcessId, int] = {}
        self.ends: dict[ProcessId, int] = {}
        """Of each that has told everything, the number of the batch with its last word."""

    def take(self, batch: Batch) -> None:
        """Words of one member. What it told for an earlier view, and could not send then, is all told again."""
        entries = self.entries[batch.sender]
        for packed in batch.segment:
            if packed[1]:
                found = unpack_entry(packed)
                if found is not None:
                    entries.append(found)
                continue
            end = unpack_end(packed)
            if end is None or end[0] != self.view.number:
                entries.clear()
                continue
            self.ends[batch.sender] = batch.number
            for sender, done in end[1]:
                self.done[sender] = max(done, self.done.get(sender, 0))

    @property
    def is_complete(self) -> bool:
        return len(self.ends) == len(self.view.members)

    def everything(self) -> list[FlushEntry]:
        return [each for member in self.view.members for each in self.entries[member]]

    def agreed(self) -> list[Clocked]:
        """What the view begins with, causes before effects: what is kept, and the parcels that are not done.

        Of each sender those up to the first that nobody has: no later one was safe, so nobody has delivered it.
        """
        found: dict[MessageId, Clocked] = {}
        parcels: dict[ProcessId, dict[int, list[Clocked]]] = {}
        for sender, number, kept, run in self.everything():
            if kept:
                found[run.id] = run
            if number:
                parcels.setdefault(sender, {}).setdefault(number, []).append(run)
        for sender, numbered in parcels.items():
            number = self.done.get(sender, 0) + 1
            while number in numbered:
                found.update((run.id, run) for run in numbered[number])
                number += 1
        return sorted(found.values(), key=by_clock)


class PointGroup(LocalGroup):
    """One member. `parcels` are of the view in force, and `flush` is there while a later one is not in force yet."""

    def __init__(
        self, owner: ProcessId, tree: DaisyTree, group: DaisyGroup, settings: GroupSettings, now: Nanos
    ) -> None:
        super().__init__(owner, tree, group, settings, now)
        self.settings = settings
        self.parcels = self._begin(self.member.view, now)
        self.flush: Flush | None = None
        self.pending: deque[Clocked] = deque()
        self.agreed: set[MessageId] = set()
        """What the view began with, until all are known to have it: when the `_ends` of its flush are settled."""
        self._ends: dict[ProcessId, int] = {}
        self._settled: dict[ProcessId, int] = {}
        self._news: list[Arrival | NewView] = []
        self._confirmed: list[MessageId] = []
        self._next_tick = now
        self.most_gone = 0
        """Members that were in a view in force and not in the next: more than the resilience is beyond the model."""

    def _begin(self, view: View, now: Nanos) -> Parcels:
        return Parcels(self.id, view, self.tree.options.resilience, self.settings.retry_after, now)

    # What the levels above ask

    @property
    def view(self) -> View:
        """The view that is in force, or was last."""
        return self.parcels.view

    @property
    def server(self) -> ProcessId | None:
        return min(self.view.members) if self.flush is None else None

    @property
    def is_quiet(self) -> bool:
        return self.flush is None and not self.pending and not self.agreed and self.parcels.is_quiet

    def receivers(self, run: Clocked) -> frozenset[ProcessId]:
        """To whom a message goes from here: its recipients, who sees to it beyond the group, and witnesses."""
        members = self.view.members
        wanted = {member for member in members if member in run.destinations}
        if self.tree.is_below(self.number, run.origin) and self.goes_beyond(run):
            wanted.add(min(members))
        return frozenset((*wanted, *self.parcels.witnesses(wanted)))

    def send(self, runs: Sequence[Clocked], now: Nanos) -> None:
        for run in runs:
            self._offered[run.origin] = run.last
        self.pending.extend(runs)
        self._send_pending(now)

    def _send_pending(self, now: Nanos) -> None:
        if self.flush is not None or self.member.stopped:
            return
        waiting = [run for run in self.pending if not self.record.has(run.id)]
        self.pending.clear()
        for receivers, together in groupby(waiting, self.receivers):
            for portion in self._portions(together):
                self.parcels.send(Segment.pack([*map(pack, portion)]), receivers, now)

    def _portions(self, runs: Iterable[Clocked]) -> Iterator[list[Clocked]]:
        """Messages to the same members, as they go together into parcels."""
        portion: list[Clocked] = []
        size = 0
        for run in runs:
            length = run.segment.payload_bytes
            if portion and (len(portion) == self.settings.batch_messages or size + length > self.settings.batch_bytes):
                yield portion
                portion, size = [], 0
            portion.append(run)
            size += length
        yield portion

    # Network and time

    def on_word(self, source: ProcessId, word: PointPdu, now: Nanos) -> None:
        if self.flush is None and not self.member.stopped:
            self.parcels.receive(source, word, now)

    def receive(self, source: ProcessId, pdu: GroupPdu, now: Nanos) -> None:
        super().receive(source, pdu, now)
        self._look(now)

    def wake(self, now: Nanos) -> None:
        super().wake(now)
        self._look(now)
        if now >= self._next_tick and self.flush is None:
            self._next_tick = now + self.settings.heartbeat
            self.parcels.tick(now)

    def end_step(self) -> None:
        parcels = self.parcels
        self.inner.holds.clear()  # of the flush: what the member holds are no messages that somebody waits for
        if self.flush is None:
            parcels.end_step()
            self.words += parcels.sends
            self.inner.holds += parcels.holds
        parcels.sends.clear()
        parcels.holds.clear()

    # Deliveries

    def news(self) -> Iterator[Arrival | NewView]:
        self._deliver()
        news, self._news = self._news, []
        return iter(news)

    def _deliver(self) -> None:
        for batch in self.parcels.take():
            for run in unpack(batch.segment):
                if not self.tree.knows((run.origin, *run.destinations)):
                    continue
                self._under_way.add(run.id)
                if self.record.add(run, self.goes_beyond(run)):
                    self._news.append(Arrival(run, batch))

    def confirmed(self) -> list[MessageId]:
        for batch in self.parcels.finished:
            self._confirmed += [MessageId(origin, seq) for origin, seq in batch.segment.ids()]
        self.parcels.finished.clear()
        self._settled.update(self.inner.settled)
        self.inner.settled.clear()
        if self.agreed and all(self._settled.get(sender, 0) >= number for sender, number in self._ends.items()):
            self._confirmed += sorted(self.agreed)
            self.agreed.clear()
        news, self._confirmed = self._confirmed, []
        self._under_way.difference_update(news)
        return news

    # Views

    def _look(self, now: Nanos) -> None:
        """Look at what the member has delivered: views, and the lists that members send when one begins."""
        while self.inner.deliveries:
            item = self.inner.deliveries.pop(0)
            if isinstance(item, View):
                self._deliver()
                self._begin_flush(item, now)
            elif self.flush is not None:
                self.flush.take(item)
                if self.flush.is_complete:
                    self._enforce(self.flush, now)

    def _begin_flush(self, view: View, now: Nanos) -> None:
        """Tell all that we have: parcels that are not done, what is kept, and what was told in a flush that failed."""
        heard = [] if self.flush is None else self.flush.everything()
        done = self.parcels.done if self.flush is None else _latest(self.parcels.done, self.flush.done)
        self.flush = Flush(view)
        entries = {(*each[:3], each.run.id): each for each in (*self._tell(), *heard)}
        told = [*map(pack_entry, entries.values()), pack_end(self.id, view, done)]
        self.member.relay(pack_all(told), now, self.inner)

    def _tell(self) -> Iterator[FlushEntry]:
        kept = dict(self.record.kept)
        for sender, batches in self.parcels.held.items():
            for number, batch in batches.items():
                for run in unpack(batch.segment):
                    yield FlushEntry(sender, number, kept.pop(run.id, None) is not None, run)
        yield from (FlushEntry(0, 0, True, run) for run in kept.values())

    def _enforce(self, flush: Flush, now: Nanos) -> None:
        """The lists of all members are here: put the view in force, beginning with what they have."""
        self.flush = None
        gone = set(self.view.members).difference(flush.view.members)
        self.most_gone = max(self.most_gone, len(gone))
        self.parcels = self._begin(flush.view, now)
        self._ends = flush.ends
        agreed = [each for each in flush.agreed() if self.tree.knows((each.origin, *each.destinations))]
        before = self._under_way | self.agreed
        self.agreed = {run.id for run in agreed}
        self._confirmed += sorted(before - self.agreed)
        self._under_way = set(self.agreed)
        self._news.append(NewView(flush.view.number))
        for run in agreed:
            keep = self.goes_beyond(run)
            if self.record.add(run, keep):
                self._news.append(Arrival(run, None))
            elif keep:
                # It went past us, or is settled, which we then hear again.
                self.record.kept.setdefault(run.id, run)
        self._send_pending(now)

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        return self.parcels.order.waiting() if self.flush is None else iter(())

    def invariants(self) -> None:
        super().invariants()
        self.parcels.invariants()
        assert self.agreed <= self._under_way, "a flush has told what nobody waits for"


def _latest(one: dict[ProcessId, int], other: dict[ProcessId, int]) -> dict[ProcessId, int]:
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in (*one, *other)}


# What members tell travels as messages of their group: each of them in the envelope, and an end that is number 0 of its
# sender, which no message of a process is.

_Envelope = tuple[Number, Number, bool, Number, Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)], Content]
_End = tuple[Number, Annotated[list[tuple[Number, Number]], Meta(max_length=MAX_MEMBERS)]]
_encoder = msgspec.msgpack.Encoder()
_entry_decoder: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)
_end_decoder: msgspec.msgpack.Decoder[_End] = msgspec.msgpack.Decoder(_End)


def pack_entry(entry: FlushEntry) -> Opened:
    run = entry.run
    envelope = (entry.sender, entry.number, entry.kept, run.clock, run.destinations, run.content)
    return run.origin, run.last, _encoder.encode(envelope)


def unpack_entry(packed: Opened) -> FlushEntry | None:
    """The entry in a message of the flush; None where the payload makes no sense."""
    origin, last, enveloped = packed
    try:
        sender, number, kept, clock, destinations, content = _entry_decoder.decode(enveloped)
        return FlushEntry(sender, number, kept, Clocked(origin, last, content, destinations, clock))
    except (ValueError, RecursionError):
        return None


def pack_end(owner: ProcessId, view: View, done: dict[ProcessId, int]) -> Opened:
    return owner, 0, _encoder.encode((view.number, sorted(done.items())))


def unpack_end(packed: Opened) -> _End | None:
    try:
        return _end_decoder.decode(packed[2])
    except (msgspec.DecodeError, RecursionError):
        return None

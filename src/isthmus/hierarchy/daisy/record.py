"""What a process knows of the messages of one group: which it has had, and which are not stable beyond the group.

This is the memory of the daisy's failure handling (daisy, Sect. 3.1.2). `seen` is the vector that suppresses
duplicates: one number per origin, because causal order contains FIFO order; it is kept and never sent. `kept` are the
messages that a new server would have to see through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from isthmus.core.endpoint import Hold
from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import MAX_MEMBERS, Clocked, Content, Number, Vector
from isthmus.core.segment import Opened, Segment, pack_all


class GroupRecord:
    """Which runs have been here. Each of them is kept, or it is settled: nobody needs it any more."""

    __slots__ = ("kept", "seen")

    def __init__(self) -> None:
        self.seen: dict[ProcessId, int] = {}
        self.kept: dict[MessageId, Clocked] = {}

    def add(self, run: Clocked, keep: bool = True) -> bool:
        """Note a run. False for one that was here before."""
        if run.last <= self.seen.get(run.origin, 0):
            return False
        self.seen[run.origin] = run.last
        if keep:
            self.kept[run.id] = run
        return True

    def has(self, run: MessageId) -> bool:
        return run.seq <= self.seen.get(run.origin, 0)

    def is_settled(self, run: MessageId) -> bool:
        """Whether this run has been here and nobody will ever need it again."""
        return self.has(run) and run not in self.kept

    def settle(self, runs: Iterable[MessageId]) -> list[MessageId]:
        """Note runs that are stable beyond the group. Returns those that were not known to be."""
        return [each for each in runs if self.kept.pop(each, None) is not None]

    def begin(self, agreed: Sequence[Clocked], rest: Iterable[Clocked]) -> list[Clocked]:
        """A flush has agreed on these, and that the rest is settled. Returns those that were not here before."""
        known, self.kept = self.kept, {}
        fresh = []
        for run in agreed:
            if run.id in known:
                self.kept[run.id] = run
            elif self.add(run):
                fresh.append(run)
        for run in rest:
            self.add(run, keep=False)
        return fresh

    def tell(self, concerns: Callable[[Clocked], bool]) -> list[Clocked]:
        """The runs that are kept and concern the listener."""
        return [run for run in self.kept.values() if concerns(run)]

    def invariants(self) -> None:
        for run in self.kept:
            assert self.has(run), f"{run} is kept and was never here"


# A run is one message of the groups that it goes through, under its id, in an envelope with its destinations and its
# clock: one number, whatever the size of the daisy. Where runs are forwarded on receipt they tell of their way
# (docs/design/daisy-on-receipt.md):


class Causes(Struct, frozen=True, gc=False, array_like=True, tag="c", forbid_unknown_fields=True):
    """How a message on its way up is stamped: what its origin had when it sent the message.

    `group` is, of each member of its local group, the number of its last message beyond the group. `servers` counts, of
    each seat, the batches that had come down from the servers' group, in view `view` of it.
    """

    group: Vector
    view: Number
    servers: Vector


class Place(Struct, frozen=True, gc=False, array_like=True, tag="p", forbid_unknown_fields=True):
    """How a message on its way down is stamped: which batch of which seat brought it, in which view, at which stage."""

    stage: Number
    view: Number
    seat: Number
    number: Number


Way: TypeAlias = Causes | Place

WHOLE, AHEAD, NAMED = range(3)
"""Stages of what comes down: in its turn; before its turn; in its turn, by name, after it has been ahead."""


class _Envelope(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    clock: Number
    destinations: Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)]
    content: Content
    way: Way | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)


def pack(run: Clocked, way: Way | None = None) -> Opened:
    envelope = (run.clock, run.destinations, run.content)
    return run.origin, run.last, _encoder.encode(envelope if way is None else (*envelope, way))


def pack_runs(runs: Iterable[Clocked]) -> list[Segment]:
    return pack_all([pack(run) for run in runs])


def unpack(segment: Segment) -> Iterator[Clocked]:
    """The runs in the envelopes of a segment, without those that make no sense."""
    return (run for run, _ in unpack_with(segment))


def opened(holds: Iterable[Hold]) -> Iterator[Hold]:
    """What is held in a group, for a trace: the runs in its envelopes."""
    for hold in holds:
        for run in unpack(hold.batch.segment):
            yield hold._replace(batch=structs.replace(hold.batch, segment=run.segment))


def unpack_with(segment: Segment) -> Iterator[tuple[Clocked, Way | None]]:
    """The same, each with the stamp of its way."""
    for origin, last, enveloped in segment:
        try:
            envelope = _decoder.decode(enveloped)
            run = Clocked(origin, last, envelope.content, envelope.destinations, envelope.clock)
        except (ValueError, RecursionError):
            continue
        yield run, envelope.way

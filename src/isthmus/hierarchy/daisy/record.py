"""What a process knows of the messages of one group: which it has had, and which are not stable beyond the group.

This is the memory of the daisy's failure handling (daisy, Sect. 3.1.2). `seen` is the vector that suppresses
duplicates: one number per origin, because causal order contains FIFO order; it is kept and never sent. `kept` are the
messages that a new server would have to see through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import MAX_MEMBERS, Clocked, Number, Vector
from isthmus.core.segment import Opened, Segment


class GroupRecord:
    """Which messages have been here. Each of them is kept, or it is settled: nobody needs it any more."""

    __slots__ = ("kept", "seen")

    def __init__(self) -> None:
        self.seen: dict[ProcessId, int] = {}
        self.kept: dict[MessageId, Clocked] = {}

    def add(self, message: Clocked, keep: bool = True) -> bool:
        """Note a message. False for one that was here before."""
        if message.seq <= self.seen.get(message.origin, 0):
            return False
        self.seen[message.origin] = message.seq
        if keep:
            self.kept[id_of(message)] = message
        return True

    def has(self, message: MessageId) -> bool:
        return message.seq <= self.seen.get(message.origin, 0)

    def is_settled(self, message: MessageId) -> bool:
        """Whether this message has been here and nobody will ever need it again."""
        return self.has(message) and message not in self.kept

    def settle(self, messages: Iterable[MessageId]) -> list[MessageId]:
        """Note messages that are stable beyond the group. Returns those that were not known to be."""
        return [each for each in messages if self.kept.pop(each, None) is not None]

    def begin(self, agreed: Sequence[Clocked], rest: Iterable[Clocked]) -> list[Clocked]:
        """A flush has agreed on these, and that the rest is settled. Returns those that were not here before."""
        known, self.kept = self.kept, {}
        fresh = []
        for message in agreed:
            if id_of(message) in known:
                self.kept[id_of(message)] = message
            elif self.add(message):
                fresh.append(message)
        for message in rest:
            self.add(message, keep=False)
        return fresh

    def tell(self, concerns: Callable[[Clocked], bool]) -> list[Clocked]:
        """The messages that are kept and concern the listener."""
        return [message for message in self.kept.values() if concerns(message)]

    def invariants(self) -> None:
        for message in self.kept:
            assert self.has(message), f"{message} is kept and was never here"


def segment_of(message: Clocked) -> Segment:
    """One message as it was sent, for a trace or an application."""
    return Segment.of(message.origin, message.seq, (message.payload,))


def id_of(message: Clocked) -> MessageId:
    return MessageId(message.origin, message.seq)


# Groups carry plain messages. Whom one is for travels in its payload, and the clock of its origin: one number, whatever
# the size of the daisy. Where they are forwarded on receipt (docs/design/daisy-on-receipt.md) they tell of their way:


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
    payload: bytes
    way: Way | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)


def pack(messages: Iterable[Clocked]) -> list[Opened]:
    return [
        (each.origin, each.seq, _encoder.encode((each.clock, each.destinations, each.payload))) for each in messages
    ]


def pack_with(message: Clocked, way: Way) -> Opened:
    envelope = (message.clock, message.destinations, message.payload, way)
    return message.origin, message.seq, _encoder.encode(envelope)


def unpack(packed: Opened) -> Clocked | None:
    """The message with its destinations; None where the payload makes no sense."""
    return unpack_with(packed)[0]


def unpack_with(packed: Opened) -> tuple[Clocked | None, Way | None]:
    """The message with its destinations, and the stamp of its way."""
    origin, seq, enveloped = packed
    try:
        envelope = _decoder.decode(enveloped)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    return Clocked(origin, seq, envelope.payload, envelope.destinations, envelope.clock), envelope.way

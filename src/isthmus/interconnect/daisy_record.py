"""What a process knows of the messages of one group: which it has had, and which are not stable beyond the group.

This is the memory of the daisy's failure handling (daisy, Sect. 3.1.2). `seen` is the vector that suppresses
duplicates: one number per origin, because causal order contains FIFO order; it is kept and never sent. `kept` are the
messages, in the order of their delivery here, that a new server would have to see through.

Whatever follows a kept message is kept as well, even if it is settled itself: `kept` is what a flush knows of
causality, and a chain of causes must not lose a link in the middle (docs/design/daisy.md, "The flush").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from isthmus.core.ids import MessageId, ProcessId
from isthmus.core.message import MAX_PAYLOAD, Addressed, Message

Causes: TypeAlias = dict[ProcessId, int]
"""Of each origin, all messages up to this one: causes are closed, and causal order contains FIFO order."""


class Told(NamedTuple):
    """A message, and what may be causes of it, as far as whoever tells it is to be believed."""

    message: Addressed
    causes: Causes


class Record:
    """`causes` has, for each kept message, what it followed when it came into the group.

    Invariant: `settled` is part of `kept`, and does not contain its first.
    """

    __slots__ = ("causes", "kept", "seen", "settled")

    def __init__(self) -> None:
        self.seen: dict[ProcessId, int] = {}
        self.kept: dict[MessageId, Addressed] = {}
        self.causes: dict[MessageId, Causes] = {}
        self.settled: set[MessageId] = set()

    def add(self, message: Addressed, causes: Causes | None) -> bool:
        """Note a message, and keep it unless `causes` is None. False for one that was here before."""
        if message.seq <= self.seen.get(message.origin, 0):
            return False
        if causes is not None:
            self._keep(message, causes)
        self.seen[message.origin] = message.seq
        return True

    def _keep(self, message: Addressed, causes: Causes) -> None:
        """A cause that has never been here is settled, or it would have been here first; so it does not matter."""
        self.kept[id_of(message)] = message
        self.causes[id_of(message)] = {
            origin: min(seq, self.seen[origin]) for origin, seq in causes.items() if origin in self.seen
        }

    def closure(self, messages: Iterable[MessageId]) -> Causes:
        """These and their causes, as far as they are kept. The causes of what is settled are settled."""
        closure: Causes = {}
        for message in messages:
            if message in self.kept:
                for origin, seq in (*self.causes[message].items(), message):
                    if seq > closure.get(origin, 0):
                        closure[origin] = seq
        return closure

    def has(self, message: MessageId) -> bool:
        return message.seq <= self.seen.get(message.origin, 0)

    def is_settled(self, message: MessageId) -> bool:
        """Whether it has been here and nobody will ever need it again."""
        return self.has(message) and (message not in self.kept or message in self.settled)

    def settle(self, messages: Iterable[MessageId]) -> list[MessageId]:
        """These are stable beyond the group. Returns those that were not known to be."""
        news = [each for each in messages if each in self.kept and each not in self.settled]
        self.settled.update(news)
        while self.kept and (first := next(iter(self.kept))) in self.settled:
            self.settled.discard(first)
            del self.kept[first]
            del self.causes[first]
        return news

    def begin(self, agreed: Sequence[Told], rest: Iterable[Addressed]) -> list[Addressed]:
        """A flush has agreed on these, and that the rest is settled. Returns those that were not here before."""
        known, settled = self.kept, self.settled
        self.kept, self.causes, self.settled = {}, {}, set()
        fresh = []
        for message, causes in agreed:
            each = id_of(message)
            if each in known:
                self._keep(message, causes)
            elif self.add(message, causes):
                fresh.append(message)
        self.settle(settled)
        for message in rest:
            self.add(message, None)
        return fresh

    def tell(self, concerns: Callable[[Addressed], bool]) -> list[Told]:
        """What is kept and concerns the listener."""
        return [Told(message, self.causes[each]) for each, message in self.kept.items() if concerns(message)]

    def invariants(self) -> None:
        assert self.settled <= self.kept.keys() == self.causes.keys(), "settled and forgotten"
        assert not self.kept or next(iter(self.kept)) not in self.settled, "kept for nothing"
        for message in self.kept:
            assert self.has(message), f"{message} is kept and was never here"


def id_of(message: Message) -> MessageId:
    return MessageId(message.origin, message.seq)


# Groups carry plain messages. Whom one is for travels in its payload: an address, and no ordering information.

_Envelope = tuple[tuple[int, ...], bytes]
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)

MAX_ENVELOPED = MAX_PAYLOAD - (64 << 10)
"""Bytes of a payload in a daisy: what is left beside the addresses of all processes that a system may have."""


def pack(messages: Sequence[Addressed]) -> list[Message]:
    return [Message(each.origin, each.seq, _encoder.encode((each.destinations, each.payload))) for each in messages]


def unpack(message: Message) -> Addressed | None:
    """The message with its destinations; None where the payload makes no sense."""
    try:
        destinations, payload = _decoder.decode(message.payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Addressed(message.origin, message.seq, payload, destinations)

"""Messages and batches.

A **message** is what an application sends; its id is stamped once by the process where it was born and is kept
by every re-broadcast. A **batch** is the unit in which one system moves messages: the messages that a process
broadcast back to back, under one number of that process's stream and one ordering stamp. One stamp per batch
instead of one per message, and one segment (`core/segment.py`) instead of an object per message, is what lets a Python
process deliver millions of messages a second: everything that the ordering decides, it decides once per batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Self, TypeAlias

from msgspec import Meta, Struct

from isthmus.core.ids import MessageId
from isthmus.core.segment import MAX_ENVELOPE, MAX_PAYLOAD, MAX_SEGMENT_MESSAGES, Segment, portions, segments_of

MAX_MEMBERS = 4096

Number = Annotated[int, Meta(ge=0, le=(1 << 62))]
Payload = Annotated[bytes, Meta(max_length=MAX_PAYLOAD + MAX_ENVELOPE)]
Vector = Annotated[list[Number], Meta(max_length=2 * MAX_MEMBERS)]


MAX_RUN_BYTES = 256 << 10
"""Of the payloads of one run, unless one of them alone has more."""


_Count = Annotated[int, Meta(ge=2, le=MAX_SEGMENT_MESSAGES)]
_Lengths = Annotated[bytes, Meta(max_length=4 * MAX_SEGMENT_MESSAGES)]


class Several(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The payloads of several messages, back to back. `sizes` is how many there are, if all are of one length; else it
    is a column of their lengths, as in a segment."""

    sizes: _Count | _Lengths
    data: bytes


Content: TypeAlias = Payload | Several
"""What is in a run: the payload of its one message, as it is, or those of several."""


class Addressed(Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """A run of messages that are for some processes only: what one process sent them back to back.

    It is made where it is sent, carries the list of its destinations once, and is never cut or opened on its way; so
    `origin` and `last`, the number of its last message, are its id. This is `segment`, without the count and
    the sizes that one message does not need: it takes as much as the message.
    """

    origin: Number
    last: Number
    content: Content
    destinations: Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)]

    def __post_init__(self) -> None:
        """Refuse what is no run, as segments do. One message always is, and few of those who have it open it."""
        if isinstance(self.content, Several):
            self.segment  # noqa: B018 - made here, so that it is checked where it comes in

    @cached_property
    def segment(self) -> Segment:
        """The messages, for an application or a trace to open."""
        content = self.content
        if not isinstance(content, Several):
            return Segment.run(self.origin, self.last, 1, b"", content)
        sizes, data = content.sizes, content.data
        if isinstance(sizes, int):
            return Segment.run(self.origin, self.last, sizes, b"", data)
        return Segment.run(self.origin, self.last, len(sizes) // 4, sizes, data)

    @property
    def id(self) -> MessageId:
        """That of its last message. Runs are not cut, so who has had this one has had all of it."""
        return MessageId(self.origin, self.last)

    # It never changes, so a copy is itself

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Clocked(Addressed, frozen=True):
    """A run with a logical clock, later than the clocks of all that its origin had before.

    One for all its messages: nothing came to its origin between them, so they have the causes of the first, and each
    other.
    """

    clock: Number


def runs_of(first: int, payloads: Sequence[bytes]) -> Iterator[tuple[int, Content]]:
    """Messages numbered from `first` on, in as few runs as will do: of each the number of its last, and its content."""
    last = first - 1
    for segment in portions(segments_of(0, first, payloads), MAX_RUN_BYTES):
        last += segment.messages
        single = segment.messages == 1
        yield last, segment.data if single else Several(segment.lengths or segment.messages, segment.data)


class Batch(Struct, frozen=True, gc=False, array_like=True, tag="batch", forbid_unknown_fields=True):
    """Messages broadcast back to back by one member of a system, in one view.

    `number` counts the sender's batches over its whole life, from 1. `stamp` is the ordering's own: empty for FIFO,
    a vector for causal order, order decisions for total order. `safe` is how many of its own batches the
    sender knew to be held by a quorum when it sent this one.
    """

    view: Number
    sender: Number
    number: Number
    stamp: Vector
    safe: Number
    segment: Segment

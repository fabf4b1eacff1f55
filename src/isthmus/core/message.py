"""Messages and batches.

A **message** is what an application sends; its id is stamped once by the process where it was born and is kept
by every re-broadcast. A **batch** is the unit in which one system moves messages: the messages that a process
broadcast back to back, under one number of that process's stream and one ordering stamp. One stamp per batch
instead of one per message, and one segment (`core/segment.py`) instead of an object per message, is what lets a Python
process deliver millions of messages a second: everything that the ordering decides, it decides once per batch.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from isthmus.core.segment import MAX_ENVELOPE, MAX_PAYLOAD, Segment

MAX_MEMBERS = 4096

Number = Annotated[int, Meta(ge=0, le=(1 << 62))]
Payload = Annotated[bytes, Meta(max_length=MAX_PAYLOAD + MAX_ENVELOPE)]
Vector = Annotated[list[Number], Meta(max_length=2 * MAX_MEMBERS)]


class Addressed(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A message that is for some processes only; it carries the list of them. `origin` and `seq` are its id."""

    origin: Number
    seq: Number
    payload: Payload
    destinations: Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)]


class Clocked(Addressed, frozen=True, gc=False):
    """An addressed message with a logical clock, later than the clocks of all messages that its origin had before."""

    clock: Number


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

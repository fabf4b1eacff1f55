"""What protocols say to each other: the PDU union that the wire codec knows.

Every PDU is a frozen struct, encoded as a tagged array. All members of a system speak the PDUs of `Group`;
data travels as `Batch`. A PDU of a view that its receiver is not in is ignored unless the membership
protocol says otherwise.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from isthmus.core.message import MAX_MEMBERS, Batch, Number, Vector

Members = Annotated[list[Number], Meta(max_length=MAX_MEMBERS)]
Counts = Annotated[list[tuple[Number, Number]], Meta(max_length=MAX_MEMBERS)]


class _Pdu(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    pass


class Ack(_Pdu, frozen=True, tag="ack"):
    """To a sender: I hold your batches up to `received` without a gap, and have seen number `seen`."""

    view: Number
    received: Number
    seen: Number


class Safe(_Pdu, frozen=True, tag="safe"):
    """From a sender with nothing else to say: a quorum holds my batches up to `safe`."""

    view: Number
    safe: Number


class Status(_Pdu, frozen=True, tag="status"):
    """Heartbeat and gossip. `confirmed[r]` counts what the sender of this has finished with of the member of rank r.

    `departed` says the same of senders that are no longer in the view; `sent` is how many batches this process
    has sent, so that the loss of the last one shows; `suspects` are the members it has not heard of for too long;
    `ballot` is the highest that it knows of, not 0 once a view change has begun.
    """

    view: Number
    sent: Number
    safe: Number
    confirmed: Vector
    departed: Counts
    suspects: Members
    ballot: Number


class Join(_Pdu, frozen=True, tag="join"):
    """From a process outside: let me in."""

    process: Number


class Leave(_Pdu, frozen=True, tag="leave"):
    """From a member that has nothing unfinished: let me go."""

    view: Number


class Proposal(_Pdu, frozen=True, tag="proposal"):
    """The value that one view change decides: who goes on, and after which batch of each old member.

    `cut` is by rank in the old view. It is all that a joining process needs to know of the past.
    """

    members: Members
    senders: Members
    cut: Vector


class Prepare(_Pdu, frozen=True, tag="prepare"):
    """First phase, from a coordinator: stop view `view`, promise me `ballot`, tell me what you hold."""

    view: Number
    ballot: Number


class Promise(_Pdu, frozen=True, tag="promise"):
    """Answer to `Prepare`. From here on its sender takes no new batch in this view."""

    view: Number
    ballot: Number
    received: Vector
    accepted_ballot: Number
    accepted: Proposal | None


class Fetch(_Pdu, frozen=True, tag="fetch"):
    """Send me the batches `first`..`last` of `sender`; I need them to finish the view."""

    view: Number
    sender: Number
    first: Number
    last: Number


class Propose(_Pdu, frozen=True, tag="propose"):
    """Second phase: accept this. A member that lacks a batch below the cut fetches it before it accepts."""

    view: Number
    ballot: Number
    proposal: Proposal


class Accept(_Pdu, frozen=True, tag="accept"):
    view: Number
    ballot: Number


class Busy(_Pdu, frozen=True, tag="busy"):
    """To a coordinator: I have promised a higher ballot than yours."""

    view: Number
    ballot: Number


class Install(_Pdu, frozen=True, tag="install"):
    """The decision: view `view` ends with this proposal, view `view + 1` begins."""

    view: Number
    proposal: Proposal


class Excluded(_Pdu, frozen=True, tag="excluded"):
    """To a process that is in no view any more: stop."""

    view: Number


Pdu: TypeAlias = (
    Batch
    | Ack
    | Safe
    | Status
    | Join
    | Leave
    | Prepare
    | Promise
    | Fetch
    | Propose
    | Accept
    | Busy
    | Install
    | Excluded
)

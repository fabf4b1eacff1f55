"""What members of one system say to each other: data as `Batch`, the rest about delivery and views.

A PDU of a view that its receiver is not in is ignored unless the membership protocol says otherwise.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from isthmus.core.message import MAX_MEMBERS, Batch, Number, Vector

Members = Annotated[list[Number], Meta(max_length=MAX_MEMBERS)]
Counts = Annotated[list[tuple[Number, Number]], Meta(max_length=MAX_MEMBERS)]


class WirePdu(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The form of every PDU."""


class Ack(WirePdu, frozen=True, tag="ack"):
    """To a sender: I hold your batches up to `received` without a gap, and have seen number `seen`.

    If it answers a heartbeat, `answers` is the round that this named; else 0.
    """

    view: Number
    received: Number
    seen: Number
    answers: Number = 0


class Safe(WirePdu, frozen=True, tag="safe"):
    """From a sender with nothing else to say: a quorum holds my batches up to `safe`."""

    view: Number
    safe: Number


class Status(WirePdu, frozen=True, tag="status"):
    """Heartbeat and gossip. `confirmed[r]` counts what the sender of this has finished with of the member of rank r.

    `departed` says the same of senders that are no longer in the view; `sent` is how many batches this process
    has sent, so that the loss of the last one shows; `suspects` are the members it has not heard of for too long;
    `ballot` is the highest that it knows of, not 0 once a view change has begun. In a group where not everybody hears
    everybody the counts are for the collector only, and `confirmed` and `departed` are empty for the others. `rounds`
    is how often this process has sent something large again.
    """

    view: Number
    sent: Number
    safe: Number
    confirmed: Vector
    departed: Counts
    suspects: Members
    ballot: Number
    rounds: Number = 0


class Ask(WirePdu, frozen=True, tag="ask"):
    """Let me hear of you: whoever gets this answers with its `Status`, and if I want them with its counts."""

    view: Number
    counts: bool


class Stable(WirePdu, frozen=True, tag="stable"):
    """From the collector: everybody has confirmed so many batches, by rank and of senders that are gone."""

    view: Number
    confirmed: Vector
    departed: Counts


class Present(WirePdu, frozen=True, tag="present"):
    """From a founder that waits for others: these have come. Whoever knows of more answers."""

    view: Number
    founders: Members


class JoinRequest(WirePdu, frozen=True, tag="join"):
    """From a process that is in no view: take me into the next one."""

    process: Number


class LeaveRequest(WirePdu, frozen=True, tag="leave"):
    """From a member that has nothing unfinished: leave me out of the next view."""

    view: Number


class Proposal(WirePdu, frozen=True, tag="proposal"):
    """The value that one view change decides: who goes on, and after which batch of each old member.

    `cut` is by rank in the old view. It is all that a joining process needs to know of the past. `order` is a log that
    all agree on, where the order of the view is not in the batches themselves (docs/design/to-po.md).
    """

    members: Members
    senders: Members
    cut: Vector
    order: Vector = []


class Prepare(WirePdu, frozen=True, tag="prepare"):
    """First phase, from a coordinator: stop view `view`, promise me `ballot`, tell me what you hold."""

    view: Number
    ballot: Number


class Promise(WirePdu, frozen=True, tag="promise"):
    """Answer to `Prepare`. From here on its sender takes no new batch in this view. `log` is as in `Proposal.order`."""

    view: Number
    ballot: Number
    received: Vector
    accepted_ballot: Number
    accepted: Proposal | None
    log: Vector = []


class Fetch(WirePdu, frozen=True, tag="fetch"):
    """Send me the batches `first`..`last` of `sender`; I need them to finish the view.

    `answers` is as in `AskPast`. Without it they are sent again whenever they are asked for.
    """

    view: Number
    sender: Number
    first: Number
    last: Number
    answers: Number | None = None


class Seek(WirePdu, frozen=True, tag="seek"):
    """Whose PDUs are in the log of this view from place `first` on? I lack number `number` of `sender`.

    `sent` is as in `Status`: who hears this knows what its sender had sent by then.
    """

    view: Number
    first: Number
    sender: Number
    number: Number
    sent: Number


class Places(WirePdu, frozen=True, tag="places"):
    """Answer to `Seek`: from place `first` on PDUs of members of these ranks, as the medium carried them."""

    view: Number
    first: Number
    ranks: Vector


class Propose(WirePdu, frozen=True, tag="propose"):
    """Second phase: accept this. A member that lacks a batch below the cut fetches it before it accepts."""

    view: Number
    ballot: Number
    proposal: Proposal


class Accept(WirePdu, frozen=True, tag="accept"):
    view: Number
    ballot: Number


class Busy(WirePdu, frozen=True, tag="busy"):
    """To a coordinator: I have promised a higher ballot than yours."""

    view: Number
    ballot: Number


class Install(WirePdu, frozen=True, tag="install"):
    """The decision: view `view` ends with this proposal, view `view + 1` begins."""

    view: Number
    proposal: Proposal


class Excluded(WirePdu, frozen=True, tag="excluded"):
    """To a process that is in no view any more: stop."""

    view: Number


class Crossed(WirePdu, frozen=True, tag="crossed"):
    """From a gateway: over this join of our system (the n-th that it has) these have crossed, per origin up to here."""

    view: Number
    join: Number
    marks: Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]


class AskPast(WirePdu, frozen=True, tag="ask-past"):
    """From one that has come to a joined system: what was held when this view began, from this place on?

    `answers` is the latest round that its sender has heard of in a `Status` of who is asked. `whole`: it lacks only
    what former lives of the system were done with.
    """

    view: Number
    place: Number
    answers: Number = 0
    whole: bool = False


class PastPart(WirePdu, frozen=True, tag="past"):
    """Answer to `AskPast`: batches in the order of their delivery, of `total` in all; with the first, all marks.

    `whole`: the marks count former lives of the system. Else they are of this life alone, origin by origin.
    """

    view: Number
    place: Number
    total: Number
    marks: Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
    batches: Annotated[list[Batch], Meta(max_length=1 << 16)]
    whole: bool = True


GroupPdu: TypeAlias = (
    Batch
    | Ack
    | Safe
    | Status
    | Ask
    | Stable
    | Present
    | JoinRequest
    | LeaveRequest
    | Prepare
    | Promise
    | Fetch
    | Seek
    | Places
    | Propose
    | Accept
    | Busy
    | Install
    | Excluded
    | Crossed
    | AskPast
    | PastPart
)

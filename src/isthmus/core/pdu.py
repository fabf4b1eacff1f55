"""What protocols say to each other: the PDU union that the wire codec knows.

Every PDU is a frozen struct, encoded as a tagged array. All members of a system speak the PDUs of `Group`;
data travels as `Batch`. A PDU of a view that its receiver is not in is ignored unless the membership
protocol says otherwise.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from isthmus.core.message import MAX_BATCH_MESSAGES, MAX_MEMBERS, Addressed, Batch, Clocked, Message, Number, Vector

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

    `cut` is by rank in the old view. It is all that a joining process needs to know of the past. `order` is a log that
    all agree on, where the order of the view is not in the batches themselves (docs/design/to-po.md).
    """

    members: Members
    senders: Members
    cut: Vector
    order: Vector = []


class Prepare(_Pdu, frozen=True, tag="prepare"):
    """First phase, from a coordinator: stop view `view`, promise me `ballot`, tell me what you hold."""

    view: Number
    ballot: Number


class Promise(_Pdu, frozen=True, tag="promise"):
    """Answer to `Prepare`. From here on its sender takes no new batch in this view. `log` is as in `Proposal.order`."""

    view: Number
    ballot: Number
    received: Vector
    accepted_ballot: Number
    accepted: Proposal | None
    log: Vector = []


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


# Between gateways of different systems, over a link. One link carries both directions of its join.

Marks = Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
"""(origin process, sequence number): of each origin everything up to there."""

Runs = Annotated[list[tuple[Number, Number, Number]], Meta(max_length=MAX_BATCH_MESSAGES)]
"""(origin process, first sequence number, how many)."""


class Block(_Pdu, frozen=True, tag="block"):
    """Messages with the numbers `first`, `first + 1`, … of this epoch; 0 where the join does not number.

    `after` are messages of the receiving side that were delivered at the sending side first, so that one of these may
    be an answer to one of those: those that no earlier block of this link has named.
    """

    epoch: Number
    first: Number
    messages: Annotated[list[Message], Meta(max_length=MAX_BATCH_MESSAGES)]
    after: Marks = []


class Progress(_Pdu, frozen=True, tag="progress"):
    """From the receiving side: numbers up to `received` have been delivered here."""

    epoch: Number
    received: Number


class Confirm(_Pdu, frozen=True, tag="confirm"):
    """From the receiving side: stable here, and in every system behind."""

    marks: Marks


class Open(_Pdu, frozen=True, tag="open"):
    """From the sending side: end all epochs before this one, and say how far they got."""

    epoch: Number


class Resume(_Pdu, frozen=True, tag="resume"):
    """Answer to `Open`: `final` was broadcast here, and nothing else ever will be of an older epoch."""

    epoch: Number
    final: Marks


class Broken(_Pdu, frozen=True, tag="broken"):
    """From the receiving side: what this epoch sent to a gateway of ours is lost; open a new one."""

    epoch: Number


class Farewell(_Pdu, frozen=True, tag="farewell"):
    """From a gateway that is about to leave its system: put nothing more on this link."""


LinkPdu: TypeAlias = Block | Progress | Confirm | Open | Resume | Broken | Farewell


# Between gateways of one system. `join` is the number of the join in the topology.


class SiteOpen(_Pdu, frozen=True, tag="site-open"):
    """From the leader of the sending side: a new epoch; pass the word on over your links."""

    join: Number
    epoch: Number


class SiteResume(_Pdu, frozen=True, tag="site-resume"):
    """The epoch may begin: what the far side has, and over which links messages go from now on."""

    join: Number
    epoch: Number
    final: Marks
    links: Members


class SiteLink(_Pdu, frozen=True, tag="site-link"):
    """A link of mine has changed."""

    join: Number
    link: Number
    up: bool


class SiteBroken(_Pdu, frozen=True, tag="site-broken"):
    """To the leader of the sending side: this epoch cannot go on."""

    join: Number
    epoch: Number


class SiteFree(_Pdu, frozen=True, tag="site-free"):
    """To the sequencer: my link can take a block."""

    join: Number
    epoch: Number
    link: Number


class SiteAssign(_Pdu, frozen=True, tag="site-assign"):
    """From the sequencer: the numbers from `first` on are these messages, and go over your link."""

    join: Number
    epoch: Number
    first: Number
    link: Number
    runs: Runs


class SiteProgress(_Pdu, frozen=True, tag="site-progress"):
    """To the sequencer: what a link of mine told me of the far side."""

    join: Number
    epoch: Number
    received: Number


class SiteConfirm(_Pdu, frozen=True, tag="site-confirm"):
    """To all fellows: what a link of mine told me is stable at the far side."""

    join: Number
    marks: Marks


class SiteFreeze(_Pdu, frozen=True, tag="site-freeze"):
    """From the leader of the receiving side: broadcast nothing of an epoch before this one any more; report."""

    join: Number
    epoch: Number


class SiteFrozen(_Pdu, frozen=True, tag="site-frozen"):
    """Answer: the latest epoch that has begun here, behind what it began, and all that I ever broadcast."""

    join: Number
    epoch: Number
    begun: Number
    final: Marks
    base: Number
    handed: Marks


class SiteBegin(_Pdu, frozen=True, tag="site-begin"):
    """From the leader of the receiving side: the epoch begins behind `final`, which is `base` messages in all."""

    join: Number
    epoch: Number
    final: Marks
    base: Number


class SiteState(_Pdu, frozen=True, tag="site-state"):
    """To a fellow that has just come: one join as it stood when its first view began. `last` ends the sequence.

    `unfinished` are the local batches that this join has to confirm: (sender, number, origin, sequence number).
    """

    join: Number
    view: Number
    export_epoch: Number
    confirmed: Marks
    delivered: Marks
    outstanding: Annotated[list[Message], Meta(max_length=MAX_BATCH_MESSAGES)]
    import_epoch: Number
    final: Marks
    base: Number
    total: Number
    imported: Marks
    stable: Marks
    unfinished: Annotated[list[tuple[Number, Number, Number, Number]], Meta(max_length=1 << 20)]
    last: bool


class SiteCaughtUp(_Pdu, frozen=True, tag="site-caught-up"):
    """From a fellow that has come: I know now all that you know of this join."""

    join: Number


SitePdu: TypeAlias = (
    SiteOpen
    | SiteResume
    | SiteLink
    | SiteBroken
    | SiteFree
    | SiteAssign
    | SiteProgress
    | SiteConfirm
    | SiteFreeze
    | SiteFrozen
    | SiteBegin
    | SiteState
    | SiteCaughtUp
)


class SiteFrame(_Pdu, frozen=True, tag="site-frame"):
    """Words to a fellow, numbered, because the network inside a site loses and reorders like any other."""

    number: Number
    pdus: Annotated[list[SitePdu], Meta(max_length=1 << 16)]


class SiteAck(_Pdu, frozen=True, tag="site-ack"):
    """Frames up to `received` have arrived without a gap, and number `seen` has been seen."""

    received: Number
    seen: Number


# Between members of a cluster, where messages go from one process to one other (docs/design/clusters.md).

Row = Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)]
Matrix = Annotated[tuple[Row, ...], Meta(max_length=MAX_MEMBERS)]


class Hop(_Pdu, frozen=True):
    """A message within one cluster, for the member of rank `target`. `rows` is all its ordering information."""

    cluster: Number
    target: Number
    rows: Matrix
    message: Addressed


class HopFrame(_Pdu, frozen=True, tag="hops"):
    """Hops to one peer, numbered, because the network between members loses and reorders."""

    number: Number
    hops: Annotated[list[Hop], Meta(max_length=MAX_BATCH_MESSAGES)]


class HopAck(_Pdu, frozen=True, tag="hops-ack"):
    """Frames up to `received` have arrived without a gap, and number `seen` has been seen."""

    received: Number
    seen: Number


GroupPdu: TypeAlias = (
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


# Inside a daisy, where a process may be in several groups at once (docs/design/daisy.md).

Ids = Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
"""(origin process, sequence number): these messages."""


Entries = Annotated[list[Clocked], Meta(max_length=1 << 16)]


class SeatState(_Pdu, frozen=True, tag="seat-state"):
    """The flush of a servers' group: who holds its seats, as (epoch, process), and what is unsettled at the sender's.

    `above` is for the server of the group to say: what is unsettled in the group above, and for somebody below this
    one; None as long as it does not know. Without `told` it is only an announcement of who holds which seat. `asks`
    says that the sender lacks something that the receiver has to tell.
    """

    holders: Counts
    told: bool
    entries: Entries
    above: Entries | None
    asks: bool


class SeatReport(_Pdu, frozen=True, tag="seat-report"):
    """Heartbeat within a servers' group: of each seat's stream, and last of the flush, so much has everybody below."""

    view: Number
    reported: Vector


class Unsettled(_Pdu, frozen=True, tag="unsettled"):
    """To the server of a group: are these stable beyond the group?"""

    ids: Ids


class Settled(_Pdu, frozen=True, tag="settled"):
    """Answer: these are."""

    ids: Ids


class Offered(_Pdu, frozen=True, tag="offered"):
    """To the server of a local group that is a star: the sender's own messages that the group has not had, in order."""

    messages: Annotated[list[Message], Meta(max_length=MAX_BATCH_MESSAGES)]


class Parcel(_Pdu, frozen=True, tag="parcel"):
    """To some members of a local group: the next batch of its sender, stamped with a matrix (`ordering/matrix.py`).

    Its number counts the batches of its sender, to whomever they went. `done` is as in `Standing`.
    """

    batch: Batch
    done: Number


class Receipt(_Pdu, frozen=True, tag="receipt"):
    """Answer: of your parcels to me I hold `received` without a gap, have seen number `seen`, delivered `delivered`.

    `done` is what I know of your standing.
    """

    view: Number
    received: Number
    seen: Number
    delivered: Number
    done: Number


class Standing(_Pdu, frozen=True, tag="standing"):
    """From a sender of parcels: enough hold the first `safe`, and all receivers have delivered the first `done`."""

    view: Number
    safe: Number
    done: Number


PointPdu: TypeAlias = Parcel | Receipt | Standing


# Between generations of a daisy's tree (docs/design/daisy-changes.md).

Partners = Annotated[list[tuple[Number, Number]], Meta(max_length=16)]
Person = tuple[Number, Number, Partners]
"""A process, the number of the last message that it has sent, and whom it writes to most, with how many messages."""


class Census(_Pdu, frozen=True, tag="census"):
    """To the server of a group, in this view of it: who is below me. `ready`: in this view all of us are done sending.

    `newcomers` are processes that want to be let in.
    """

    view: Number
    halted: bool
    ready: bool
    people: Annotated[list[Person], Meta(max_length=MAX_MEMBERS)]
    newcomers: Members


class Halt(_Pdu, frozen=True, tag="halt"):
    """From the server of a group: send nothing more in this generation."""


class Over(_Pdu, frozen=True, tag="over"):
    """Answer to a word of a generation that everybody has left."""


class Knock(_Pdu, frozen=True, tag="knock"):
    """From a process that is in no tree yet: let me in."""


class Welcome(_Pdu, frozen=True, tag="welcome"):
    """Answer: you are in this generation, which began with this message."""

    last: bytes


ChangePdu: TypeAlias = Census | Halt | Over | Knock | Welcome


class DaisyFrame(_Pdu, frozen=True, tag="daisy"):
    """A word within one group of several: the one with this number, as it was formed in this generation."""

    group: Number
    generation: Number
    pdu: GroupPdu | SeatState | SeatReport | Unsettled | Settled | Offered | PointPdu | ChangePdu


Pdu: TypeAlias = GroupPdu | LinkPdu | SiteFrame | SiteAck | HopFrame | HopAck | DaisyFrame

"""What processes of a daisy say to each other (docs/design/daisy.md), in frames that name the group they are about."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from isthmus.core.message import MAX_MEMBERS, Batch, Clocked, Number, Vector
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Counts, GroupPdu, Members, WirePdu

Ids = Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
"""(origin process, sequence number): these messages."""


Entries = Annotated[list[Clocked], Meta(max_length=1 << 16)]


class SeatState(WirePdu, frozen=True, tag="seat-state"):
    """The flush of a servers' group: who holds its seats, as (epoch, process), and what is unsettled at the sender's.

    `above` is for the server of the group to say: what is unsettled in the group above, and for somebody below this
    one; None as long as it does not know. Without `complete` it is only an announcement of who holds which seat. `asks`
    says that the sender lacks something that the receiver has to tell: piece number `wants` of its state. A state comes
    in `pieces`, of which this is number `piece`, from 0 on: so many of them with entries, then those with what is
    `above`, which are counted too in their own `pieces`.
    """

    holders: Counts
    complete: bool
    entries: Entries
    above: Entries | None
    asks: bool
    piece: Number = 0
    pieces: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    wants: Number = 0


class SeatReport(WirePdu, frozen=True, tag="seat-report"):
    """Heartbeat within a servers' group: how much of each seat's stream, and last of the flush, everybody below has."""

    view: Number
    reported: Vector


class Vouch(WirePdu, frozen=True, tag="vouch"):
    """From the server of a group to its members: am I still your server? Repeated unchanged until it is answered."""

    view: Number
    number: Number


class Vouched(WirePdu, frozen=True, tag="vouched"):
    """Answer to `Vouch`: in this view you are our server."""

    view: Number
    number: Number


class Unsettled(WirePdu, frozen=True, tag="unsettled"):
    """To the server of a group: are these stable beyond the group?"""

    ids: Ids


class Settled(WirePdu, frozen=True, tag="settled"):
    """From the server of a group, in answer to `Unsettled`: these messages are stable beyond the group."""

    ids: Ids


class Offered(WirePdu, frozen=True, tag="offered"):
    """To the server of a local group that is a star: the sender's messages that were not multicast yet, in order.

    They follow on the one with number `after`, with none left out, though numbers may be: of messages for the dead.
    """

    after: Number
    segment: Segment


class Parcel(WirePdu, frozen=True, tag="parcel"):
    """To some members of a local group: its sender's next batch, stamped with a matrix (`ordering/orders/matrix.py`).

    Its number counts the batches of its sender, to whomever they went. `done` is as in `Standing`.
    """

    batch: Batch
    done: Number


class Receipt(WirePdu, frozen=True, tag="receipt"):
    """Answer: of your parcels to me I hold `received` without a gap, have seen number `seen`, delivered `delivered`.

    `done` is what I know of your standing.
    """

    view: Number
    received: Number
    seen: Number
    delivered: Number
    done: Number


class Standing(WirePdu, frozen=True, tag="standing"):
    """From a sender of parcels: enough hold the first `safe`, and all receivers have delivered the first `done`."""

    view: Number
    safe: Number
    done: Number


PointPdu: TypeAlias = Parcel | Receipt | Standing


# Beyond a daisy that is joined to other systems (docs/design/daisy-joins.md).


class HowFar(WirePdu, frozen=True, tag="how-far"):
    """To the gateways: how far have you finished with my messages?"""


class Finished(WirePdu, frozen=True, tag="finished"):
    """Answer to `HowFar`: up to this number; and in this view of our group these gateways are left."""

    view: Number
    gateways: Members
    number: Number


# Between generations of a daisy's tree (docs/design/daisy-changes.md).

Partners = Annotated[list[tuple[Number, Number]], Meta(max_length=16)]
Person = tuple[Number, Number, Partners]
"""A process, the number of the last message that it has sent, and whom it writes to most, with how many messages."""


class Census(WirePdu, frozen=True, tag="census"):
    """To the server of a group, in this view of it: who is below me. `ready`: in this view all of us are done sending.

    `newcomers` are processes that want to be let in.
    """

    view: Number
    halted: bool
    ready: bool
    people: Annotated[list[Person], Meta(max_length=MAX_MEMBERS)]
    newcomers: Members


class Halt(WirePdu, frozen=True, tag="halt"):
    """From the server of a group: send nothing more in this generation."""


class Over(WirePdu, frozen=True, tag="over"):
    """Answer to any PDU of an old generation of the tree: everybody has left that generation."""


class Knock(WirePdu, frozen=True, tag="knock"):
    """From a process that is in no tree yet: let me in."""


class Welcome(WirePdu, frozen=True, tag="welcome"):
    """Answer to `Knock`: you are in this generation; `last` is the message that it began with."""

    last: bytes


ChangePdu: TypeAlias = Census | Halt | Over | Knock | Welcome


class DaisyFrame(WirePdu, frozen=True, tag="daisy"):
    """A PDU of one group of the daisy: the group with this number in this generation of the tree."""

    group: Number
    generation: Number
    pdu: GroupPdu | SeatState | SeatReport | Vouch | Vouched | Unsettled | Settled | Offered | PointPdu | ChangePdu

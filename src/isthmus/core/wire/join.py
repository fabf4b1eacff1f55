"""What gateways say to each other (docs/design/joins.md): over links to the far side, and among those of one system."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta, field

from isthmus.core.message import Number
from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Segment
from isthmus.core.wire.group import Members, WirePdu

BLOCK_BYTES = 48 << 10
"""Payload of a block for a link that does not say otherwise."""


class Line(NamedTuple):
    """What a link says of its line when it is ready for a block, for whoever has to choose between links.

    `room` is how many bytes of payload the block should have at most, `wait` how long the line will be busy with what
    it was given before, `delay` how long the way is, `rate` how many bytes go through in a second; 0 where unknown.
    """

    room: Annotated[int, Meta(ge=1, le=1 << 62)] = BLOCK_BYTES
    wait: Number = 0
    delay: Number = 0
    rate: Number = 0


# Between gateways of different systems, over a link. One link carries both directions of its join.

Marks = Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
"""(origin process, sequence number): of each origin everything up to there."""

Runs = Annotated[list[tuple[Number, Number, Number]], Meta(max_length=MAX_SEGMENT_MESSAGES)]
"""(origin process, first sequence number, how many)."""


def term_of(life: int, view: int) -> int:
    """A number for each view of a system that rises through all its lives: each life counts its views from 1."""
    return life << 40 | view


class Epoch(NamedTuple):
    """A stretch of one direction of a join, by one numbering. Later ones are greater.

    `term` is the view of the sending side in which its `leader` opened it, `number` counts on from the epoch before. So
    no two leaders open the same one, and a gateway that its system has left out, and that does not know it, can never
    outbid its successor. `answer` is the view of the receiving side in which it began there, 0 before that: what was
    begun by one that has been left out is another epoch than what its successor begins.
    """

    term: Number
    number: Number
    leader: Number
    answer: Number = 0

    @property
    def opened(self) -> Epoch:
        """The epoch as it was opened, before anybody answered."""
        return self._replace(answer=0)


def first_epoch(life: int = 0) -> Epoch:
    """The epoch that a sending site begins with; nobody has opened it."""
    return Epoch(term_of(life, 0), 1, 0)


NO_EPOCH = Epoch(0, 0, 0)
"""Before all: what a gateway is in that does not know which epoch it is."""


class Block(WirePdu, frozen=True, tag="block"):
    """Messages with the numbers `first`, `first + 1`, … of this epoch; 0 where the join does not number.

    `home` is the slot of the gateway that is to broadcast them, whichever gateway gets them; none: whoever relays this
    epoch. `after` are messages of the receiving side that were delivered at the sending side first, so that one of
    these may be an answer to one of those: those that no block with a lower number has named.
    """

    epoch: Epoch
    first: Number
    segment: Segment
    home: Number | None = None
    after: Marks = field(default_factory=list)


class Progress(WirePdu, frozen=True, tag="progress"):
    """From the receiving side: numbers up to `received` have been delivered here."""

    epoch: Epoch
    received: Number


class Confirm(WirePdu, frozen=True, tag="confirm"):
    """From the receiving side: stable here, and in every system behind."""

    marks: Marks


class Open(WirePdu, frozen=True, tag="open"):
    """From the sending side: end all epochs before this one, and say how far they got."""

    epoch: Epoch


class Resume(WirePdu, frozen=True, tag="resume"):
    """Answer to `Open`: `final` was broadcast here, and nothing else ever will be of an older epoch.

    Whoever carries messages of an older epoch learns from it that they are void.
    """

    epoch: Epoch
    final: Marks


class Broken(WirePdu, frozen=True, tag="broken"):
    """From the receiving side: what this epoch sent to a gateway of ours is lost; open a new one."""

    epoch: Epoch


class Behind(WirePdu, frozen=True, tag="behind"):
    """Answer to a late `Open`: this later epoch is being opened here, or has begun. That one is as good as before."""

    epoch: Epoch


class LinkFarewell(WirePdu, frozen=True, tag="farewell"):
    """From a gateway that is about to leave its system: put nothing more on this link."""


LinkPdu: TypeAlias = Block | Progress | Confirm | Open | Resume | Broken | Behind | LinkFarewell


# Between gateways of one system. `join` is the number of the join in the topology.


class FellowOpen(WirePdu, frozen=True, tag="site-open"):
    """From the leader of the sending side: a new epoch; pass the word on over your links."""

    join: Number
    epoch: Epoch


class FellowResume(WirePdu, frozen=True, tag="site-resume"):
    """To the leader of the sending side: the far side has answered. From it: the epoch begins, or has begun."""

    join: Number
    epoch: Epoch
    final: Marks


class FellowLink(WirePdu, frozen=True, tag="site-link"):
    """To all fellows: a link of mine went up or down."""

    join: Number
    link: Number
    up: bool


class FellowBroken(WirePdu, frozen=True, tag="site-broken"):
    """To the leader of the sending side: this epoch cannot go on."""

    join: Number
    epoch: Epoch


class FellowBehind(WirePdu, frozen=True, tag="site-behind"):
    """To the leader of the sending side: the far side is at this later epoch."""

    join: Number
    epoch: Epoch


class FellowFree(WirePdu, frozen=True, tag="site-free"):
    """To the sequencer: my link is ready for a block."""

    join: Number
    epoch: Epoch
    link: Number
    line: Line = Line()


class FellowAssign(WirePdu, frozen=True, tag="site-assign"):
    """From the sequencer: the numbers from `first` on are these messages, and go over your link."""

    join: Number
    epoch: Epoch
    first: Number
    link: Number
    runs: Runs
    home: Number | None = None
    after: Marks = field(default_factory=list)


class FellowProgress(WirePdu, frozen=True, tag="site-progress"):
    """To the sequencer: what a link of mine told me of the far side."""

    join: Number
    epoch: Epoch
    received: Number


class FellowConfirm(WirePdu, frozen=True, tag="site-confirm"):
    """To all fellows: what a link of mine told me is stable at the far side."""

    join: Number
    marks: Marks


class FellowFreeze(WirePdu, frozen=True, tag="site-freeze"):
    """From the leader of the receiving side: broadcast nothing of an epoch before this one any more; report."""

    join: Number
    epoch: Epoch


class FellowFrozen(WirePdu, frozen=True, tag="site-frozen"):
    """Answer to `FellowFreeze`: I broadcast nothing more, and these are all that I ever broadcast.

    Who is `leaving` is not to be counted on in the next epoch.
    """

    join: Number
    epoch: Epoch
    handed: Marks
    leaving: bool = False


class FellowBegin(WirePdu, frozen=True, tag="site-begin"):
    """From the leader of the receiving side: the epoch begins behind `final`; to one that has come: it has begun.

    `company` are the gateways that broadcast what it brings; the first of them relays.
    """

    join: Number
    epoch: Epoch
    final: Marks
    company: Members


class FellowCaughtUp(WirePdu, frozen=True, tag="site-caught-up"):
    """From a gateway that has come, to all others: I know now what our system holds. What do you know of this join?"""

    join: Number


class FellowPass(WirePdu, frozen=True, tag="site-pass"):
    """A block that came over a link of mine, and that you are to broadcast."""

    join: Number
    block: Block


FellowPdu: TypeAlias = (
    FellowOpen
    | FellowResume
    | FellowLink
    | FellowBroken
    | FellowBehind
    | FellowFree
    | FellowAssign
    | FellowProgress
    | FellowConfirm
    | FellowFreeze
    | FellowFrozen
    | FellowBegin
    | FellowCaughtUp
    | FellowPass
)


class FellowFrame(WirePdu, frozen=True, tag="site-frame"):
    """PDUs to a fellow gateway, numbered, because the network inside a site loses and reorders like any other."""

    number: Number
    pdus: Annotated[list[FellowPdu], Meta(max_length=1 << 16)]


class FellowAck(WirePdu, frozen=True, tag="site-ack"):
    """Frames up to `received` have arrived without a gap, and number `seen` has been seen."""

    received: Number
    seen: Number


class PassFrame(WirePdu, frozen=True, tag="site-pass-frame"):
    """Blocks for a fellow gateway, numbered, in a stream of their own: words do not wait behind them."""

    number: Number
    pdus: Annotated[list[FellowPass], Meta(max_length=1 << 16)]


class PassAck(WirePdu, frozen=True, tag="site-pass-ack"):
    """The same as `FellowAck`, of `PassFrame`s."""

    received: Number
    seen: Number

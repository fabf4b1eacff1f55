"""A gateway on an embedded system: a member of a group or of a daisy with join protocols on top, as one Endpoint.

What the group delivers goes to the joins; what the joins want broadcast goes to the group; words to fellow gateways
travel over the group's own network, made reliable by `PeerChannels`. Neither half knows the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Protocol, Self

from msgspec import structs

from isthmus.core.endpoint import Member, Outbox, View
from isthmus.core.freeze import freeze
from isthmus.core.gateway import UNKNOWN_LINE
from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Segment
from isthmus.core.wire.join import FellowAck, FellowFrame, FellowPass, FellowPdu, Line, LinkPdu, PassAck, PassFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.join.grouped import GroupGateway
from isthmus.join.plan import JoinPlan
from isthmus.ordering.channels import Framing, PeerChannels
from isthmus.ordering.group.past import Past
from isthmus.ordering.group.window import GroupSettings, Seat

WORDS: Framing[FellowPdu, FellowFrame] = Framing(
    FellowFrame, lambda frame: frame.pdus, FellowAck, lambda words: (words,)
)
"""What gateways of one site say to each other: all that one step has for a fellow goes as one frame."""

BLOCKS: Framing[FellowPass, PassFrame] = Framing(
    PassFrame, lambda frame: frame.pdus, PassAck, lambda blocks: [[block] for block in blocks]
)
"""What they pass on to each other, apart from words, which would wait behind it: each block is a frame."""


def seats_of(plans: Sequence[JoinPlan]) -> tuple[Seat, ...]:
    """What every member of a system has to know of its joins."""
    return tuple(Seat(frozenset(plan.fellows), plan.exported) for plan in plans)


def gateway_settings(settings: GroupSettings) -> GroupSettings:
    """The settings of a gateway in a group that has these.

    The joins say when a batch is finished with. And a gateway has no window of its own: what it relays becomes stable
    only when systems further on confirm it, so two neighbours whose windows are full of each other's messages would
    wait for each other for ever. Every message counts against the window of its origin until it is stable everywhere,
    so all that is ever under way is bounded by the windows of the origins.
    """
    return structs.replace(settings, auto_confirm=False, unlimited=True)


class Newcomers(Protocol):
    """What a system does for gateways that come when it runs already.

    `past` is what it holds for them. `cut` is what lies before the present view, of each sender; `all_have_arrived`
    says that everybody has had all that.
    """

    @property
    def past(self) -> Past | None: ...

    @property
    def cut(self) -> Mapping[ProcessId, int]: ...

    @property
    def all_have_arrived(self) -> bool: ...

    def tell_crossed(self, join: int, confirmed: SlotMarks, out: Outbox) -> None: ...


class Group(Member, Protocol):
    """What a gateway has to know of the system that it is in: a group, or a daisy that broadcasts."""

    @property
    def settings(self) -> GroupSettings: ...

    @property
    def view(self) -> View: ...

    @property
    def stopped(self) -> str: ...

    @property
    def newcomers(self) -> Newcomers | None:
        """None where no gateway ever comes later."""

    def unfinished(self) -> int: ...


class GatewayMember:
    """One gateway as an Endpoint: a member of its system with the join protocols on top.

    `group` is to be made with `gateway_settings`. `_complete` is the last view that everybody was known to be in.
    """

    def __init__(self, group: Group, gateway: GroupGateway) -> None:
        self.group = group
        self.gateway = gateway
        self.fellow_channels = PeerChannels(WORDS, group.settings.retry_after)
        self.block_channels = PeerChannels(BLOCKS, group.settings.retry_after)
        self._complete = 0
        if group.newcomers is not None:
            self._tell_of_former_lives(group.newcomers)

    @property
    def id(self) -> ProcessId:
        return self.group.id

    # As a member. A gateway makes no messages of its own, so it is never asked to broadcast any.

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        others: list[Pdu] = []
        for pdu in pdus:
            if isinstance(pdu, FellowFrame):
                self.gateway.from_fellow(source, self.fellow_channels.accept(source, pdu), now, out)
            elif isinstance(pdu, PassFrame):
                self.gateway.from_fellow(source, self.block_channels.accept(source, pdu), now, out)
            elif isinstance(pdu, FellowAck):
                self.fellow_channels.acknowledge(source, pdu, now, out)
            elif isinstance(pdu, PassAck):
                self.block_channels.acknowledge(source, pdu, now, out)
            else:
                others.append(pdu)
        if others:
            self.group.receive(source, others, now, out)
        self._pump(now, out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.group.wake(now, out)
        if self.group.newcomers is not None:
            for place, confirmed in self.gateway.confirmed_in_the_lead():
                self.group.newcomers.tell_crossed(place, confirmed, out)
        self.gateway.wake(now, out)
        self.fellow_channels.wake(now, out)
        self.block_channels.wake(now, out)
        self._pump(now, out)

    def deadline(self) -> Nanos | None:
        if self.group.stopped:
            return None
        of_group, of_joins = self.group.deadline(), self.gateway.deadline()
        if of_group is None or of_joins is None:
            return of_joins if of_group is None else of_group
        return min(of_group, of_joins)

    def leave(self, now: Nanos, out: Outbox) -> None:
        self.gateway.leave(now, out)
        self.group.leave(now, out)
        self._pump(now, out)

    def broadcast(self, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        raise TypeError("a gateway makes no messages of its own")

    def relay(self, segments: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        self.group.relay(segments, now, out)
        self._pump(now, out)

    def credit(self) -> int:
        return 0

    def confirm(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        """Nothing to do: at a gateway the joins say what is finished with, not whoever runs it."""

    # As the end of links

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: Outbox) -> None:
        self._step(self.gateway.from_link, link, pdus, now=now, out=out)

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        self._step(self.gateway.link_up, link, peer, now=now, out=out)

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        self._step(self.gateway.link_down, link, now=now, out=out)

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox, line: Line = UNKNOWN_LINE) -> None:
        self._step(partial(self.gateway.link_ready, line=line), link, now=now, out=out)

    def _step(self, action: Callable[..., None], *arguments: Any, now: Nanos, out: Outbox) -> None:
        if not self.group.stopped:
            action(*arguments, now, out)
            self._pump(now, out)

    # Between the halves

    def _pump(self, now: Nanos, out: Outbox) -> None:
        """Hand over in both directions until neither half has anything for the other."""
        if self.group.newcomers is not None:
            self._look_after_newcomers(self.group.newcomers, now, out)
        seen = settled = 0
        while seen < len(out.deliveries) or settled < len(out.settled) or out.relays or out.confirms:
            while seen < len(out.deliveries):
                item = out.deliveries[seen]
                seen += 1
                if isinstance(item, View):
                    self._begin_view(item, now, out)
                else:
                    self.gateway.delivered_batch(item, now, out)
            while settled < len(out.settled):
                self.gateway.settled_batches(*out.settled[settled], now, out)
                settled += 1
            if out.relays:
                relays, out.relays = out.relays, []
                self.group.relay(relays, now, out)
            if out.confirms:
                confirms, out.confirms = out.confirms, []
                for sender, number in confirms:
                    self.group.confirm(sender, number, now, out)
        self._tell_fellows(now, out)

    def _tell_fellows(self, now: Nanos, out: Outbox) -> None:
        words: list[tuple[ProcessId, FellowPdu]] = []
        blocks: list[tuple[ProcessId, FellowPass]] = []
        for fellows, pdu in out.to_fellows:
            for fellow in fellows:
                if isinstance(pdu, FellowPass):
                    blocks.append((fellow, pdu))
                else:
                    words.append((fellow, pdu))
        out.to_fellows.clear()
        self.fellow_channels.send(words, now, out)
        self.block_channels.send(blocks, now, out)

    def _begin_view(self, view: View, now: Nanos, out: Outbox) -> None:
        self.fellow_channels.keep_only(view.members)
        self.block_channels.keep_only(view.members)
        if self.group.newcomers is not None:
            self.gateway.begin_behind(self.group.newcomers.cut)
        self.gateway.view(view, now, out)

    def _look_after_newcomers(self, newcomers: Newcomers, now: Nanos, out: Outbox) -> None:
        """Take over once this gateway is in, and knows what its system holds, if that is joined to any other."""
        gateway, past = self.gateway, newcomers.past
        if not gateway.is_caught_up and past is None and gateway.has_come:
            gateway.take_over_batches({}, (), now, out)
        elif not gateway.is_caught_up and past is not None and past.complete:
            gateway.take_over_batches(dict(past.counted_before(gateway.done_before)), past.inherited, now, out)
        self._tell_of_former_lives(newcomers)
        view = self.group.view.number
        if view > self._complete and newcomers.all_have_arrived and gateway.is_caught_up:
            self._complete = view
            gateway.all_have_arrived(now, out)

    def _tell_of_former_lives(self, newcomers: Newcomers) -> None:
        """From now on everybody may know what former lives were done with, and go on from there."""
        past = newcomers.past
        if past is not None and past.awaits_former and past.complete and self.gateway.former_are_over:
            past.former_are_over(self.gateway.done_before)

    # The cold path

    def unfinished(self) -> int:
        return self.group.unfinished() + self.gateway.unfinished()

    def invariants(self) -> None:
        self.group.invariants()
        self.gateway.invariants()
        self.fellow_channels.invariants()
        self.block_channels.invariants()

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze((self.group, self.gateway))

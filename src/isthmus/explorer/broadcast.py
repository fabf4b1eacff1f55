"""One broadcast system as its definition says, and nothing else (message-passing Sect. 2, parallel Sect. 2).

A join treats a system as a black box, so the explorer puts the definition in its place: a set of batches, and for every
member the rule which of them it may deliver next. There is no network and no protocol; whatever any implementation of
this order can do, this one can.

State is immutable. Batches are known by sender and place in the sender's stream, never by when they were broadcast,
so that equal situations are equal states whatever led to them. Members are ranks: processes first, then gateways.

Membership follows virtual synchrony (docs/design/group.md): an agreed view ends the old one behind a **cut**, the
length of every stream; everybody delivers what is before the cut, then the view, then the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from typing import NamedTuple, TypeVar

from isthmus.core.endpoint import OrderName
from isthmus.core.segment import Opened
from isthmus.explorer.scenario import Ledger

Item = TypeVar("Item")


class SentBatch(NamedTuple):
    """A batch. `past` (causal order only) is how many batches of each member its sender had delivered before."""

    messages: tuple[Opened, ...]
    past: tuple[int, ...]
    view: int


class ViewEnd(NamedTuple):
    """How a view ended, and who is in the next one."""

    ends: tuple[int, ...]
    members: tuple[int, ...]


class SystemState(NamedTuple):
    """Everything by rank. `seen` and `given` are the sets of messages that a member delivered and broadcast.

    `sequence` (total order only) holds the senders of the batches in their agreed order. `views` counts the changes of
    view that a gateway was told; processes need not be told. `histories` is kept for promises of total order only.
    """

    streams: tuple[tuple[SentBatch, ...], ...]
    delivered: tuple[tuple[int, ...], ...]
    seen: tuple[int, ...]
    given: tuple[int, ...]
    sequence: tuple[int, ...]
    cuts: tuple[ViewEnd, ...]
    views: tuple[int, ...]
    crashed: tuple[int, ...]
    histories: tuple[tuple[int, ...], ...]


class OrderedBroadcast:
    """The rules of one system. Who is `absent` is on standby, and never comes: it has a rank, and nothing to do.

    `processes` are the others, and so are the members of the first view.
    """

    def __init__(
        self, order: OrderName, processes: int, gateways: int, ledger: Ledger, absent: Collection[int] = ()
    ) -> None:
        self.order = order
        self.width = processes + gateways
        self.processes = tuple(rank for rank in range(processes) if rank not in absent)
        self.gateways = range(processes, self.width)
        self.founders = tuple(rank for rank in range(self.width) if rank not in absent)
        self._ledger = ledger
        self._keeps_histories = ledger.promise == "total"

    def start(self) -> SystemState:
        none = (0,) * self.width
        return SystemState(
            streams=((),) * self.width,
            delivered=(none,) * self.width,
            seen=none,
            given=none,
            sequence=(),
            cuts=(),
            views=none,
            crashed=(),
            histories=((),) * self.gateways.start if self._keeps_histories else (),
        )

    # Broadcast and delivery

    def broadcast(self, state: SystemState, member: int, messages: tuple[Opened, ...]) -> SystemState:
        past = state.delivered[member] if self.order == "causal" else ()
        stream = (*state.streams[member], SentBatch(messages, past, len(state.cuts)))
        return state._replace(
            streams=put(state.streams, member, stream),
            given=put(state.given, member, state.given[member] | self._ledger.mask(messages)),
        )

    def before(self, state: SystemState, member: int) -> int:
        """The messages that everybody delivers before whatever this member broadcasts next."""
        mask = state.given[member]
        if self.order == "causal":
            mask |= state.seen[member]
        if self.order == "total":
            counts = [0] * self.width
            for sender in state.sequence:
                mask |= self._ledger.mask(state.streams[sender][counts[sender]].messages)
                counts[sender] += 1
        if state.cuts:
            for stream, end in zip(state.streams, state.cuts[-1].ends, strict=True):
                for sent in stream[:end]:
                    mask |= self._ledger.mask(sent.messages)
        return mask

    def deliverable(self, state: SystemState, member: int) -> Iterator[int]:
        """The senders whose next batch this member may deliver now."""
        delivered = state.delivered[member]
        if self.order == "total" and (position := sum(delivered)) < len(state.sequence):
            candidates = iter((state.sequence[position],))
        else:
            candidates = iter(range(self.width))
        for sender in candidates:
            stream, place = state.streams[sender], delivered[sender]
            if place == len(stream):
                continue
            sent = stream[place]
            if sent.past and any(map(int.__gt__, sent.past, delivered)):
                continue
            if sent.view and not self._is_in_view(state, member, sent.view):
                continue
            yield sender

    def _is_in_view(self, state: SystemState, member: int, view: int) -> bool:
        """A gateway is where it was told to be. A process moves on by itself when it is through with the old view."""
        if member in self.gateways:
            return state.views[member] >= view
        return self._is_behind(state, member, view - 1)

    def _is_behind(self, state: SystemState, member: int, view: int) -> bool:
        return all(map(int.__ge__, state.delivered[member], state.cuts[view].ends))

    def deliver(self, state: SystemState, member: int, sender: int) -> SystemState:
        """One batch of a sender that `deliverable` has named."""
        delivered = state.delivered[member]
        place = delivered[sender]
        messages = state.streams[sender][place].messages
        sequence = state.sequence
        if self.order == "total" and sum(delivered) == len(sequence):
            sequence = (*sequence, sender)
        histories = state.histories
        if histories and member in self.processes:
            own = histories[member] + tuple(self._ledger.bit(message) for message in messages)
            histories = put(histories, member, own)
        return state._replace(
            delivered=put(state.delivered, member, put(delivered, sender, place + 1)),
            seen=put(state.seen, member, state.seen[member] | self._ledger.mask(messages)),
            sequence=sequence,
            histories=histories,
        )

    def way_to(self, state: SystemState, member: int, sender: int, count: int) -> list[int]:
        """What a process has to deliver, in order, so that it has `count` batches of `sender`, and nothing else."""
        way: list[int] = []

        def need(rank: int, number: int) -> None:
            nonlocal state
            while state.delivered[member][rank] < number:
                delivered = state.delivered[member]
                sent = state.streams[rank][delivered[rank]]
                if sent.view:
                    for other, end in enumerate(state.cuts[sent.view - 1].ends):
                        need(other, end)
                for other, earlier in enumerate(sent.past):
                    need(other, earlier)
                delivered = state.delivered[member]
                following = rank
                if self.order == "total" and sum(delivered) < len(state.sequence):
                    following = state.sequence[sum(delivered)]
                way.append(following)
                state = self.deliver(state, member, following)

        need(sender, count)
        return way

    # Membership

    def members(self, state: SystemState) -> tuple[int, ...]:
        """Who is in the latest view that was agreed on."""
        return state.cuts[-1].members if state.cuts else self.founders

    def crash(self, state: SystemState, member: int) -> SystemState:
        """Of what a crashed member knew, only what it delivered of other gateways counts: none of that may be lost."""
        first = self.gateways.start
        delivered = (*(0,) * first, *state.delivered[member][first:])
        return state._replace(
            crashed=tuple(sorted((*state.crashed, member))),
            delivered=put(state.delivered, member, delivered),
            seen=put(state.seen, member, 0),
            views=put(state.views, member, 0),
        )

    def agreements(self, state: SystemState) -> Iterator[tuple[SystemState, int]]:
        """Every view that can be agreed on now, with the number of batches that are lost by it.

        What anybody has delivered stays, and what an earlier view ended with; of what a crashed member broadcast beyond
        that, any end may be lost. What it delivered itself is of no account from here on.
        """
        members = self.members(state)
        gone = [member for member in state.crashed if member in members]
        if not gone:
            return
        remaining = tuple(member for member in members if member not in gone)
        agreed = state.cuts[-1].ends if state.cuts else (0,) * self.width
        held = [max(agreed[member], *(delivered[member] for delivered in state.delivered)) for member in gone]
        delivered = state.delivered
        for member in gone:
            delivered = put(delivered, member, (0,) * self.width)
        choices = [range(held[index], len(state.streams[member]) + 1) for index, member in enumerate(gone)]
        for ends in product(*choices):
            streams, given = state.streams, state.given
            lost = 0
            for member, end in zip(gone, ends, strict=True):
                lost += len(streams[member]) - end
                streams = put(streams, member, streams[member][:end])
                kept = (self._ledger.mask(sent.messages) for sent in streams[member])
                given = put(given, member, _union(kept))
            cut = ViewEnd(tuple(map(len, streams)), remaining)
            following = state._replace(streams=streams, delivered=delivered, given=given, cuts=(*state.cuts, cut))
            yield following, lost

    def can_enter(self, state: SystemState, gateway: int) -> bool:
        """A gateway hears of the next view when it has delivered all that belongs to its own."""
        view = state.views[gateway]
        return view < len(state.cuts) and self._is_behind(state, gateway, view)

    def enter(self, state: SystemState, gateway: int) -> SystemState:
        return state._replace(views=put(state.views, gateway, state.views[gateway] + 1))

    # What has come of it

    def everything(self, state: SystemState) -> int:
        """All messages that were broadcast here and not lost."""
        return _union(iter(state.given))

    def floor(self, state: SystemState) -> int:
        """What every process has delivered."""
        mask = self._ledger.everything
        for process in self.processes:
            mask &= state.seen[process]
        return mask


def put(values: tuple[Item, ...], place: int, value: Item) -> tuple[Item, ...]:
    """The tuple with one value changed."""
    return (*values[:place], value, *values[place + 1 :])


def _union(masks: Iterator[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found

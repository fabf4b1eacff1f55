"""Gateways of a few lines, right and wrong, and topologies of a few lines: the explorer must tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from typing import Any, Self

from isthmus.core.endpoint import Outbox, View
from isthmus.core.freeze import freeze
from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Opened, Segment
from isthmus.core.wire.join import Block, Confirm, FellowPdu, LinkPdu, first_epoch
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.topology.wiring import all_links, forwardings


class Forwarder:
    """message-passing Fig. 3 and parallel Fig. 2: what comes from a process of mine goes out, what comes in is relayed.

    It is right for FIFO joins, and for causal joins over a single link. It keeps nothing for a crash.
    """

    def __init__(self, owner: ProcessId, links: dict[ProcessId, list[LinkId]], own: Sequence[ProcessId]) -> None:
        self.id = owner
        self.links = links
        self.own = list(own)
        self.waiting: dict[tuple[ProcessId, int], list[tuple[ProcessId, int]]] = {}
        self.relayed: list[tuple[int, ProcessId, int]] = []
        self.batches = 0

    def delivered_batch(self, batch: Batch, now: Nanos, out: Outbox) -> None:
        needed = [(origin, seq) for origin, seq in batch.segment.ids() if self.links.get(origin)]
        for message in batch.segment:
            for link in self.links.get(message[0], ()):
                self.forward(link, message, out)
        self.waiting[batch.sender, batch.number] = needed
        self.finish(out)

    def forward(self, link: LinkId, message: Opened, out: Outbox) -> None:
        out.links.append((link, Block(first_epoch(), 0, Segment.pack([message]))))

    def relay(self, link: LinkId, messages: Sequence[Opened], out: Outbox) -> None:
        out.relays.append(Segment.pack(messages))
        self.batches += 1
        self.relayed += [(self.batches, origin, seq) for origin, seq, _ in messages]

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: Outbox) -> None:
        for pdu in pdus:
            if isinstance(pdu, Block):
                self.relay(link, list(pdu.segment), out)
            elif isinstance(pdu, Confirm):
                for needed in self.waiting.values():
                    needed[:] = [each for each in needed if tuple(each) not in {tuple(mark) for mark in pdu.marks}]
                self.finish(out)

    def finish(self, out: Outbox) -> None:
        """Batches are finished with in the order of their sender, and a number stands for all before it."""
        for sender in sorted({sender for sender, _ in self.waiting}):
            for number in sorted(number for each, number in self.waiting if each == sender):
                if self.waiting[sender, number]:
                    break
                del self.waiting[sender, number]
                out.confirms.append((sender, number))

    def settled_batches(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        """Confirm what I relayed, over the link of its origin: the same that it came by."""
        if sender == self.id:
            done = [(origin, seq) for batch, origin, seq in self.relayed if batch <= number]
            self.relayed = [each for each in self.relayed if each[0] > number]
            for link in sorted({link for links in self.links.values() for link in links} | set(self.incoming)):
                if done:
                    out.links.append((link, Confirm(done)))

    incoming: tuple[LinkId, ...] = ()

    def from_fellow(self, source: ProcessId, pdus: Sequence[FellowPdu], now: Nanos, out: Outbox) -> None: ...

    def view(self, view: View, now: Nanos, out: Outbox) -> None: ...

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        self.incoming = (*self.incoming, link)

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None: ...

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox) -> None: ...

    def wake(self, now: Nanos, out: Outbox) -> None: ...

    def deadline(self) -> Nanos | None:
        return None

    def invariants(self) -> None: ...

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze(self)


class Swapper(Forwarder):
    """Keeps the first message back until the second has gone out."""

    kept: Opened | None = None
    swapped = False

    def forward(self, link: LinkId, message: Opened, out: Outbox) -> None:
        if not self.swapped and self.kept is None:
            self.kept = message
            return
        super().forward(link, message, out)
        if self.kept is not None:
            super().forward(link, self.kept, out)
            self.kept, self.swapped = None, True


class Doubler(Forwarder):
    """Broadcasts everything twice."""

    def relay(self, link: LinkId, messages: Sequence[Opened], out: Outbox) -> None:
        super().relay(link, [*messages, *messages], out)


class Loser(Forwarder):
    """Loses the second message of everybody."""

    def relay(self, link: LinkId, messages: Sequence[Opened], out: Outbox) -> None:
        rest = [message for message in messages if message[1] != 2]
        if rest:
            super().relay(link, rest, out)


class Forger(Forwarder):
    """Relays the next message of a process together with the one that it has."""

    def relay(self, link: LinkId, messages: Sequence[Opened], out: Outbox) -> None:
        origin, seq, payload = messages[-1]
        super().relay(link, [*messages, (origin, seq + 1, payload)], out)


class Hasty(Forwarder):
    """Says that it has finished with everything at once, whatever the far side says."""

    def delivered_batch(self, batch: Batch, now: Nanos, out: Outbox) -> None:
        super().delivered_batch(batch, now, out)
        out.confirms.append((batch.sender, batch.number))


class Fragile(Forwarder):
    """Has an invariant that does not hold."""

    def invariants(self) -> None:
        assert self.batches < 2, f"{self.batches} batches"


def forwarders(topology: Topology, kind: Callable[..., Forwarder] = Forwarder) -> dict[ProcessId, Any]:
    """Gateways for every join with fixed assignment, by origin."""
    directory = topology.directory()
    made: dict[ProcessId, Any] = {}
    offsets = [
        next(i for i, link in enumerate(all_links(topology)) if link.join == n) for n in range(len(topology.joins))
    ]
    for system in topology.systems:
        for gateway in topology.gateway_slots(system.name):
            links: dict[ProcessId, list[LinkId]] = {}
            for index in range(len(topology.joins)):
                for forwarding in forwardings(topology, index):
                    if directory.id(*forwarding.gateway) == gateway:
                        for process in forwarding.processes:
                            links.setdefault(directory.id(*process), []).append(offsets[index] + forwarding.link)
            made[gateway] = kind(gateway, links, list(topology.process_slots(system.name)))
    return made


def two_systems(
    order: str,
    join: str,
    sends: Sequence[str],
    gateways: int = 1,
    processes: Sequence[str] = ("p", "q"),
    more: str = "",
) -> Topology:
    """Two systems of one order, each with these processes, joined by as many links as there are gateways."""
    names = ", ".join(f'"{name}"' for name in processes)
    system = f'kind = "embedded"\norder = "{order}"\nprocesses = [{names}]\ngateways = {gateways}\n'
    assign = 'assign = "uncoordinated"\n' if join != "fifo" else ""
    unsafe = "unsafe = true\n" if join != "fifo" else ""
    text = f"{unsafe}[systems.a]\n{system}[systems.b]\n{system}"
    text += f'[[joins]]\nbetween = ["a", "b"]\norder = "{join}"\n{assign}'
    text += f"[exploration]\nsends = [{', '.join(repr(each) for each in sends)}]\n{more}"
    return parse(text, "two.toml", allow_unsafe=True)

"""The counts of daisies (parallel, Sect. 8.2; daisy, Sect. 3.3), and how the headers of all kinds of systems grow.

Counted on the real protocol code, without load, on lines where every hop takes a millisecond. Groups deliver on
receipt, as in `joins.py`: the papers' broadcast is one round of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from isthmus.core.codec import body_of
from isthmus.core.endpoint import AddressedDelivery, Outbox
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.daisy import DaisyFrame, Parcel
from isthmus.core.wire.join import Block, first_epoch
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import Causes, unpack_with
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.lab.counts.clusters import Header, worst_header
from isthmus.lab.counts.joins import one_per_set
from isthmus.lab.counts.rig import PaperNetwork, SystemRig, run_while
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.planner.clusters import message_cost
from isthmus.planner.expressions import PARTS, daisy_header, daisy_hops, daisy_messages
from isthmus.simulator.world import Host

FAST = GroupSettings(heartbeat=20 * MILLISECOND, suspect_after=3600 * SECOND, retry_after=3600 * SECOND, uniform=False)
FIRST_HEARTBEAT: Nanos = 3600 * SECOND
"""Nobody speaks unasked before: 4,096 processes in groups of 64 would say a quarter of a million words a heartbeat."""
LAST_WORDS: Nanos = 10 * MILLISECOND
"""Time for the answers to what came last."""
SIZES = (8, 16, 64, 256, 1024, 4096)
SITES = 2
"""The comparison of parallel, Sect. 8.2, is of two systems, each divided into `PARTS` groups."""


# One message in a daisy


class MessageCost(Struct):
    """What one message cost: copies by (source, destination), the header of each multicast, when who delivered it.

    `words` counts everything that was sent, acknowledgements and all.
    """

    lines: list[tuple[int, int]]
    headers: dict[tuple[int, int, int], Header]
    at: dict[int, Nanos]
    words: int = 0


def _entries(batch: Batch) -> int:
    """Of the vector of the group that a batch is in, and of those that its messages carry beside it."""
    ways = [way for _, way in unpack_with(batch.segment) if isinstance(way, Causes)]
    return len(batch.stamp) + sum(len(way.group) + len(way.servers) for way in ways)


class DaisyRig(SystemRig):
    """A daisy to count on."""

    def __init__(
        self, table: DaisyTable, settings: GroupSettings = FAST, network: type[PaperNetwork] = PaperNetwork
    ) -> None:
        names = _processes(table)
        tree = self.tree = tree_of(table, {name: slot for slot, name in enumerate(names)}.__getitem__)
        self.sent = MessageCost([], {}, {})
        super().__init__(names, lambda slot: DaisyProcess(slot, tree, settings, FIRST_HEARTBEAT), network)

    def send(self, source: ProcessId, destinations: Sequence[ProcessId]) -> MessageCost:
        """One message without payload, until everybody has it whom it is for, and nobody has anything more to say."""
        sent = self.sent = MessageCost([], {}, {})
        began = self.world.now
        self.write(source, destinations, b"")
        run_while(self.world, lambda: len(sent.at) < len(destinations), "a message never arrived")
        self.world.run_until(self.world.now + LAST_WORDS)
        sent.at = {process: at - began for process, at in sent.at.items()}
        return sent

    def write(self, source: ProcessId, destinations: Sequence[ProcessId], payload: bytes) -> None:
        """Have a process send, and wait for nothing."""
        host = self.world.hosts[source]
        assert isinstance(host.endpoint, DaisyProcess)
        self.world.step(host, host.endpoint.send, tuple(destinations), [payload])

    def note(self, source: ProcessId, destination: ProcessId, pdu: Pdu) -> None:
        self.sent.words += 1
        word = pdu.pdu if isinstance(pdu, DaisyFrame) else None
        batch = word.batch if isinstance(word, Parcel) else word
        if isinstance(pdu, DaisyFrame) and isinstance(batch, Batch) and batch.segment:
            self.sent.lines.append((slot_of(source), slot_of(destination)))
            multicast = (pdu.group, batch.sender, batch.number)
            if multicast not in self.sent.headers:
                self.sent.headers[multicast] = Header(_entries(batch), len(body_of(pdu)))

    def on_message(self, host: Host, delivered: AddressedDelivery) -> None:
        self.sent.at[slot_of(host.id)] = self.world.now


def _processes(table: DaisyTable) -> list[str]:
    return [*table.processes, *(name for part in table.parts for name in _processes(part))]


def even_daisy(processes: int, parts: int, levels: int, name: str = "") -> DaisyTable:
    """So many processes in a daisy of so many levels; every servers' group has `parts` seats."""
    if levels == 1:
        return DaisyTable(name=name, processes=tuple(f"p{name}.{number}" for number in range(processes)))
    below = (even_daisy(processes // parts, parts, levels - 1, f"{name}.{part}") for part in range(parts))
    return DaisyTable(name=name, parts=tuple(below))


# parallel, Sect. 8.2: six groups of n


def compared(size: int) -> list[MessageCost]:
    """Two sites of three groups each. A broadcast of one process of each group of the first that is no server."""
    rig = DaisyRig(even_daisy(SITES * PARTS * size, SITES * PARTS, 2))
    everybody = range(SITES * PARTS * size)
    return [rig.send(group * size + size - 1, everybody) for group in range(PARTS)]


def between_sites(sent: MessageCost, size: int) -> int:
    """Copies from one site to the other."""
    border = PARTS * size
    return sum((source < border) != (destination < border) for source, destination in sent.lines)


def count_messages() -> list[CountRow]:
    rows = []
    for size in (2, 3, 4, 8):
        broadcasts = compared(size)
        joined = one_per_set(size, "transfer-sets")
        inside = [len(each.lines) for each in broadcasts]
        rows.append(row(f"n = {size}, daisy, all", "messages", daisy_messages(size), inside))
        crossing = [between_sites(each, size) for each in broadcasts]
        rows.append(row(f"n = {size}, daisy, between the sites", "messages", PARTS, crossing))
        links = [each.tally.between for each in joined]
        rows.append(row(f"n = {size}, parallel join, between the sites", "messages", 1, links))
    return rows


def count_hops() -> list[CountRow]:
    """To another group, at the other site or not, three; within the group one. The join: `hops` has its counts."""
    rows = []
    for size in (2, 4):
        groups: dict[str, list[int]] = {"own group": [], "another group, same site": [], "the other site": []}
        for number, sent in enumerate(compared(size)):
            for process, after in sent.at.items():
                if process == number * size + size - 1:
                    continue  # the sender itself
                group = process // size
                where = "own group" if group == number else "the other site"
                # The server of a group has a message one hop before the rest of it.
                if process % size and group != number and group < PARTS:
                    where = "another group, same site"
                if group == number or process % size:
                    groups[where].append(after // MILLISECOND)
        for where, hops in groups.items():
            rows.append(row(f"n = {size}, {where}", "hops", daisy_hops(same_group=where == "own group"), hops))
    return rows


def count_vectors() -> list[CountRow]:
    """Every copy of a message has one vector, as long as the group that it is in."""
    rows = []
    for size in (2, 3, 8):
        seen = [(group, header.entries) for sent in compared(size) for (group, _, _), header in sent.headers.items()]
        local = [entries for group, entries in seen if group]
        servers = [entries for group, entries in seen if not group]
        rows.append(row(f"n = {size}, in a local group", "entries", size, local))
        rows.append(row(f"n = {size}, in the servers' group", "entries", SITES * PARTS, servers))
    return rows


# Headers as n grows


class Growth(Struct, frozen=True):
    """The headers of one message on the longest way in an idle system of n processes, over all its hops."""

    kind: str
    processes: int
    expected: int
    header: Header


def flat_vector(processes: int) -> Header:
    """A message of a member of one causal group: the first batch that it sends, for which nobody else has to be there.

    A whole simulated group keeps n² numbers of who has what; a test holds that it sends the same, for n = 8 and 32.
    """
    member = GroupMember(0, range(processes), CausalOrder, FAST)
    out = Outbox()
    member.broadcast([b""], 0, out)
    (batch,) = {id(pdu): pdu for _, pdu in out.sends if isinstance(pdu, Batch)}.values()
    return Header(len(batch.stamp), len(body_of(batch)))


def parallel_join(processes: int) -> Header:
    """Two halves and a numbered link: a vector in each half, and on the link a number. Gateways are members."""
    half = flat_vector(processes // 2)
    link = Block(first_epoch(), 1, Segment.of(0, 1, [b""]))
    return Header(2 * half.entries, 2 * half.size + len(body_of(link)))


def daisy(processes: int, parts: int, levels: int) -> Header:
    """From the last process of the first local group to the last of all: neither is a server."""
    rig = DaisyRig(even_daisy(processes, parts, levels))
    first = next(group for group in rig.tree.groups if group.is_local)
    headers = rig.send(first.everybody[-1], (processes - 1,)).headers.values()
    return Header(sum(each.entries for each in headers), sum(each.size for each in headers))


@cache
def growth(sizes: tuple[int, ...] = SIZES) -> list[Growth]:
    """All kinds, all sizes. Two layers have √n parts, or the power of two below; many layers four in each group."""
    found = []
    for n in sizes:
        power = n.bit_length() - 1
        parts, many = 1 << power // 2, power // 2
        found.append(Growth("flat RST", n, n * n, worst_header(n, 1, 1)))
        found.append(Growth("clusters, 2 layers", n, message_cost(n, parts, 2), worst_header(n, parts, 2)))
        found.append(Growth("flat vector", n, n, flat_vector(n)))
        found.append(Growth("parallel join", n, n, parallel_join(n)))
        found.append(Growth("daisy, 2 levels", n, daisy_header(n, parts, 2), daisy(n, parts, 2)))
        if 4**many == n and many > 2:
            found.append(Growth("clusters of 4", n, message_cost(n, 4, many), worst_header(n, 4, many)))
            found.append(Growth("daisy of 4", n, daisy_header(n, 4, many), daisy(n, 4, many)))
    return found


def count_growth() -> list[CountRow]:
    return [
        row(f"n = {each.processes:,}, {each.kind}", "entries", each.expected, [each.header.entries])
        for each in growth()
    ]


def count_bytes() -> list[CountRow]:
    """Beside the number of entries: what the codec makes of them. In an idle system every number takes one byte."""
    return [
        row(f"n = {each.processes:,}, {each.kind}", "bytes", each.expected, [each.header.size], above=True)
        for each in growth()
    ]


def curves(sizes: tuple[int, ...] = SIZES) -> dict[str, list[tuple[int, int]]]:
    """Bytes over n, by kind."""
    found: dict[str, list[tuple[int, int]]] = {}
    for each in growth(sizes):
        found.setdefault(each.kind, []).append((each.processes, each.header.size))
    return found


SECTIONS: tuple[Section, ...] = (
    Section(
        name="daisy",
        what="Messages of one broadcast: a daisy of six groups of n, and two systems of 3n with a parallel join",
        paper="parallel, Sect. 8.2",
        formula="6n − 1, of which 3 between the sites; the join 1",
        count=count_messages,
    ),
    Section(
        name="daisy-hops",
        what="Hops of one broadcast in a daisy of six groups of n",
        paper="parallel, Sect. 8.2",
        formula="3 to another group, also of the same site; 1 within the group",
        count=count_hops,
    ),
    Section(
        name="daisy-header",
        what="Numbers in the header of a message, daisy of six groups of n",
        paper="daisy, Sect. 3.3",
        formula="the size of the group that it is in: n, 6",
        count=count_vectors,
    ),
    Section(
        name="header-growth",
        what="Numbers in the headers of one message over all its hops, as n grows from 8 to 4,096",
        paper="cluster, Sect. IV.A; daisy, Sect. 3.3",
        formula="n²; C(n); n; n; 2n/b + b, and 4(2l − 1) for n = 4^l",
        count=count_growth,
    ),
    Section(
        name="header-bytes",
        what="The same in bytes, as encoded, beside the number of entries",
        paper="none",
        formula="more than the entries, by some 20 to 50 bytes for each hop",
        count=count_bytes,
    ),
)

"""The counts of clusters: message cost and processing load (cluster, Sect. IV), counted on the real protocol code.

Costs are the numbers in headers, added up over the hops of a message. Loads are arrivals at coordinators when every
process sends one to every process, itself included; divided by n they are in multiples of the rate of one process. As
in the paper, a message to oneself counts as an arrival at one's own coordinator, though here it never gets there. So
that arrivals can be told from what a coordinator sends itself, coordinators are processes of their own that send
nothing: the paper has such an extra process at the top (Sect. IV.B).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import product

from msgspec import Struct

from isthmus.core.codec import body_of
from isthmus.core.endpoint import AddressedDelivery
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId
from isthmus.core.wire.clusters import HopFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.clusters.process import ClusterProcess, ClusterSettings
from isthmus.hierarchy.clusters.tree import hierarchy_of
from isthmus.lab.counts.rig import SystemRig, Tally, run_while
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.ordering.addressed.delivery import DeliveryName
from isthmus.planner.clusters import (
    exact_from_above,
    exact_from_below,
    message_cost,
    printed_from_above,
    printed_from_below,
)
from isthmus.simulator.world import Host

QUIET: Nanos = 3600 * SECOND
"""Settings under which nothing is sent again: nothing is lost here."""

LOOK_EVERY: Nanos = 10 * MILLISECOND

FIGURE_7_SENDERS = 24
FIGURE_7_PARTS = (2, 3, 4, 6, 8, 12)


# Trees


def even_tree(
    senders: int, parts: int, layers: int, delivery: DeliveryName, *, dedicated: bool = False, name: str = ""
) -> ClusterTable:
    """An even tree of processes that send. With `dedicated` every cluster has one more, its agent and coordinator."""
    extra: tuple[str, ...] = (f"c{name}",) if dedicated else ()
    below: tuple[ClusterTable, ...] = ()
    processes = extra
    if layers == 1:
        processes += tuple(f"p{name}.{number}" for number in range(senders))
    else:
        below = tuple(
            even_tree(senders // parts, parts, layers - 1, delivery, dedicated=dedicated, name=f"{name}.{part}")
            for part in range(parts)
        )
    return ClusterTable(name=name, delivery=delivery, processes=processes, parts=below)


# Counting


class ClusterRig(SystemRig):
    """A system of clusters: numbers and bytes in headers by message, hops by process and cluster.

    `weigh` counts bytes as well, which takes longer than all the rest.
    """

    def __init__(self, table: ClusterTable, *, weigh: bool = False) -> None:
        names = [process for cluster in table.all_clusters() for process in cluster.processes]
        self.senders = [slot for slot, name in enumerate(names) if name.startswith("p")]
        self.tree = hierarchy_of(table, {name: slot for slot, name in enumerate(names)}.__getitem__)
        self.entries: Counter[tuple[ProcessId, int]] = Counter()
        self.header_bytes: Counter[tuple[ProcessId, int]] = Counter()
        self.arrivals: Counter[tuple[ProcessId, int]] = Counter()
        self.tally = Tally()
        self._weigh = weigh
        self._delivered = 0
        settings = ClusterSettings(retry_after=QUIET)
        super().__init__(names, lambda slot: ClusterProcess(slot, self.tree, settings))

    def note(self, source: ProcessId, destination: ProcessId, pdu: Pdu) -> None:
        if not isinstance(pdu, HopFrame):
            self.tally.also["acknowledgement"] += 1
            return
        for hop in pdu.hops:
            message = (hop.run.origin, hop.run.last)
            self.entries[message] += sum(map(len, hop.rows))
            self.arrivals[destination, hop.cluster] += 1
            if self._weigh:
                self.header_bytes[message] += len(body_of(hop)) - hop.run.segment.payload_bytes

    def on_message(self, host: Host, delivered: AddressedDelivery) -> None:
        self._delivered += 1

    def send(self, source: ProcessId, destination: ProcessId, size: int = 0) -> tuple[ProcessId, int]:
        """Returns the id of the message."""
        endpoint = self._process(source)
        self.world.step(self.world.hosts[source], endpoint.send, destination, [bytes(size)])
        return source, endpoint.sent

    def rest(self) -> None:
        """Let everything arrive."""
        self.world.run_until(self.world.now + LOOK_EVERY)
        run_while(self.world, self._is_under_way, "a message never arrived", LOOK_EVERY)

    def _is_under_way(self) -> bool:
        return any(self._process(slot).channels.unacknowledged() for slot in self.world.hosts)

    def _process(self, slot: int) -> ClusterProcess:
        endpoint = self.world.hosts[slot].endpoint
        assert isinstance(endpoint, ClusterProcess)
        return endpoint

    def send_all_pairs(self) -> None:
        """Send one message from every sender to every sender, itself included."""
        for source, destination in product(self.senders, self.senders):
            self.send(source, destination)
        self.rest()
        assert self._delivered == len(self.senders) ** 2, "a message is missing"


# Message cost


def count_matrix() -> list[CountRow]:
    rows = []
    for size in (2, 8, 32):
        rig = ClusterRig(even_tree(size, 1, 1, "rst"))
        ids = [rig.send(rig.senders[0], other) for other in rig.senders[1:]]
        rig.rest()
        rows.append(row(f"n = {size}", "entries", size**2, [rig.entries[each] for each in ids], rig.tally))
    return rows


def count_cost() -> list[CountRow]:
    """The worst of all pairs: nothing can cost more than from one client at the bottom to another, over the top."""
    rows = []
    shapes = [(8, 8, 1), (16, 2, 2), (36, 6, 2), (16, 2, 3), (64, 4, 3), (32, 2, 4)]
    for senders, parts, layers in shapes:
        rig = ClusterRig(even_tree(senders, parts, layers, "rst"))
        rig.send_all_pairs()
        setting = f"n = {senders}, one layer" if layers == 1 else f"n = {senders}, b = {parts}, {layers} layers"
        worst = max(rig.entries.values())
        rows.append(row(setting, "entries", message_cost(senders, parts, layers), [worst], rig.tally))
    return rows


class Header(Struct, frozen=True):
    """What the headers of one message hold over all its hops."""

    entries: int
    size: int


def worst_header(senders: int, parts: int, layers: int, delivery: DeliveryName = "rst") -> Header:
    """The header of a message from the last sender of the first part to the last of the last: clients at the bottom."""
    rig = ClusterRig(even_tree(senders, parts, layers, delivery), weigh=True)
    source = rig.senders[senders // parts - 1] if layers > 1 else rig.senders[0]
    message = rig.send(source, rig.senders[-1])
    rig.rest()
    return Header(rig.entries[message], rig.header_bytes[message])


def count_growth() -> list[CountRow]:
    """One message in an idle system of each size: its matrices are all zeros, a byte each."""
    rows = []
    for power in range(2, 7):
        senders = 4**power
        for shape, parts, layers in (("flat", 1, 1), ("b = √n, two layers", 2**power, 2), ("b = 4", 4, power)):
            if shape == "b = 4" and layers == 2:
                continue
            header = worst_header(senders, parts, layers)
            setting = f"n = {senders:,}, {shape}{f', {layers} layers' if shape == 'b = 4' else ''}"
            expected = message_cost(senders, parts, layers)
            rows.append(row(setting, "entries", expected, [header.entries]))
    return rows


# Processing load


class CoordinatorLoad(Struct, frozen=True):
    """Arrivals at every coordinator of one layer, from below and from above, in multiples of one sender's rate."""

    layer: int
    below: list[Fraction]
    above: list[Fraction]


def loads(senders: int, parts: int, layers: int) -> list[CoordinatorLoad]:
    """Count arrivals when everybody sends to everybody, in a tree of centralised clusters."""
    rig = ClusterRig(even_tree(senders, parts, layers, "coordinator", dedicated=True))
    rig.send_all_pairs()
    arrivals = rig.arrivals
    found = []
    for layer in range(1, layers + 1):
        clusters = [cluster for cluster in rig.tree.clusters if cluster.layer == layer]
        below, above = [], []
        for cluster in clusters:
            to_themselves = sum(rig.tree.home[site] == cluster.number for site in rig.senders)
            below.append(Fraction(arrivals[cluster.coordinator, cluster.number] + to_themselves, senders))
            above.append(Fraction(arrivals[cluster.coordinator, cluster.parent], senders))
        found.append(CoordinatorLoad(layer, below, above))
    return found


def count_loads() -> list[CountRow]:
    rows = [_flat_matrix(), *_rows_of(16, 1, 1)]
    for senders, parts, layers in ((36, 2, 2), (36, 6, 2), (16, 2, 3), (27, 3, 3), (16, 2, 4)):
        rows += _rows_of(senders, parts, layers)
    return rows


def _flat_matrix() -> CountRow:
    """The same without coordinators: every sender has as many arrivals as it sends itself."""
    rig = ClusterRig(even_tree(16, 1, 1, "rst"))
    rig.send_all_pairs()
    counted = [Fraction(rig.arrivals[site, 0] + 1, 16) for site in rig.senders]
    return row("n = 16, flat RST, any site", "loads", 1, counted)


def _rows_of(senders: int, parts: int, layers: int) -> list[CountRow]:
    rows = []
    for load in loads(senders, parts, layers):
        shape = (senders, parts, layers, load.layer)
        what = f"n = {senders}, b = {parts}, layer {load.layer} of {layers}" if layers > 1 else f"n = {senders}, flat"
        for whence, exact, printed, counted in (
            ("from below", exact_from_below(*shape), printed_from_below(*shape), load.below),
            ("from above", exact_from_above(*shape), printed_from_above(*shape), load.above),
        ):
            if exact or printed:
                rows.append(row(f"{what}, {whence}", "loads", exact, counted, printed=printed))
    return rows


def figure_7(
    senders: int = FIGURE_7_SENDERS, parts: Iterable[int] = FIGURE_7_PARTS
) -> dict[str, list[tuple[int, Fraction]]]:
    """Fig. 7: arrivals at coordinators over b, in a hierarchy of two layers, counted. By curve: (b, load)."""
    top: list[tuple[int, Fraction]] = []
    bottom: list[tuple[int, Fraction]] = []
    for number in parts:
        lower, upper = loads(senders, number, 2)
        top.append((number, max(upper.below)))
        bottom.append((number, max(map(Fraction.__add__, lower.below, lower.above))))
    return {"layer 2: L(n)": top, "layer 1: R(n, 1) + S(n, 1)": bottom}


SECTIONS: tuple[Section, ...] = (
    Section(
        name="rst-header",
        what="Numbers in the header of a message, RST algorithm",
        paper="cluster, Sect. III.C",
        formula="n²",
        count=count_matrix,
    ),
    Section(
        name="cluster-cost",
        what="Worst message cost: numbers in headers over all hops of a message",
        paper="cluster, Sect. IV.A",
        formula="C(n) = n², 2(n/b)² + b², 2D(n) + b²",
        count=count_cost,
    ),
    Section(
        name="cluster-growth",
        what="Numbers in the headers of the worst message, as n grows",
        paper="cluster, Sect. IV.A",
        formula="n², 3n, and 32 more for each layer",
        count=count_growth,
    ),
    Section(
        name="cluster-loads",
        what="Arrivals at each coordinator of a layer; every site sends λ",
        paper="cluster, Sect. IV.B, exact",
        formula="n_k·λ·(1 − n_k/(b·n)) from below, n_k·λ·(1 − n_k/n) from above",
        count=count_loads,
    ),
)

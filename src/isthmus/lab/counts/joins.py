"""The counts of joins: message-passing, Sect. 4, and parallel, Sect. 8, counted on the real protocol code.

All systems here deliver on receipt (`delivery = "fast"`): the papers' broadcast is one round of messages, and two more
hops that make delivery uniform would be counted as latency. docs/counts.md says what else had to be decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import count

from msgspec import structs

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessName
from isthmus.lab.counts.rig import Broadcast, Charges, Flood, Rig
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.planner.expressions import (
    PARTS,
    JoinModel,
    best_links,
    broadcast_messages,
    join_rate_limit,
    parallel_hops,
    parallel_messages,
    serialised_rate_limit,
    star_latency,
    system_rate_limit,
    transfer_time,
)
from isthmus.topology.model import REST, Assign, Join, System, Topology, TransferSet
from isthmus.topology.read.simulation import Fixed, LinkNetwork, NetworkModel, Simulation, Workload

HEARTBEAT: Nanos = 20 * MILLISECOND
QUIET: Nanos = 10 * SECOND
"""Under load: nobody takes a message that waits its turn for a lost one."""

MESSAGE_BITS = 10_000
LOAD = 240
"""Messages of a flood: divides evenly by every number of links that is tried."""

STRETCH: Nanos = 30 * MILLISECOND


# Topologies


def topology(
    sizes: Sequence[int],
    joins: Sequence[tuple[int, int]],
    *,
    order: OrderName = "fifo",
    assign: Assign = "transfer-sets",
    links: int = 1,
    model: JoinModel | None = None,
    heartbeat: Nanos = HEARTBEAT,
) -> Topology:
    """Systems of so many processes, besides as many gateways as a join has links, and the joins between them."""
    model = model or JoinModel(local_delay=MILLISECOND, link_delay=25 * MILLISECOND)
    names = [f"s{index}" for index in range(len(sizes))]
    gateways = tuple(f"g{number}" for number in range(1, links + 1)) if joins else ()
    systems = tuple(
        System(
            name=name,
            provider="embedded",
            order=order,
            processes=tuple(f"p{number}" for number in range(1, size + 1)),
            gateways=gateways,
            delivery="fast",
            heartbeat=heartbeat,
            suspect_after=10 * heartbeat,
        )
        for name, size in zip(names, sizes, strict=True)
    )
    return Topology(
        file="counts",
        systems=systems,
        joins=tuple(
            Join(between=(names[near], names[far]), order=order, assign=assign, links=links) for near, far in joins
        ),
        simulation=Simulation(
            workload=Workload(rate=0),
            network=NetworkModel(delay=Fixed(model.local_delay), bandwidth=model.local_rate),
            links=LinkNetwork(delay=Fixed(model.link_delay), bandwidth=model.link_rate),
        ),
    )


def chain(systems: int) -> list[tuple[int, int]]:
    return [(index, index + 1) for index in range(systems - 1)]


def star(leaves: int) -> list[tuple[int, int]]:
    return [(0, leaf) for leaf in range(1, leaves + 1)]


def tree(systems: int) -> list[tuple[int, int]]:
    return [((index - 1) // 2, index) for index in range(1, systems)]


def everybody(described: Topology) -> list[ProcessName]:
    return [ProcessName(system.name, process) for system in described.systems for process in system.processes]


# message-passing, Sect. 4


def broadcasts(described: Topology) -> list[Broadcast]:
    """One message of every process, one after the other."""
    rig = Rig(described)
    return [rig.broadcast(sender) for sender in everybody(described)]


def count_messages() -> list[CountRow]:
    shapes: list[tuple[str, Sequence[int], Sequence[tuple[int, int]], OrderName]] = [
        *((f"n = {size}, one system", (size,), (), "fifo") for size in (2, 5, 9)),
        ("n = 2, m = 2", (1, 1), chain(2), "fifo"),
        ("n = 8, m = 2", (4, 4), chain(2), "fifo"),
        ("n = 8, m = 2, causal", (1, 7), chain(2), "causal"),
        ("n = 9, m = 3, chain", (2, 3, 4), chain(3), "fifo"),
        ("n = 10, m = 5, star", (2, 2, 2, 2, 2), star(4), "fifo"),
        ("n = 10, m = 5, star, causal", (2, 2, 2, 2, 2), star(4), "causal"),
        ("n = 14, m = 7, tree", (1, 3, 1, 2, 3, 2, 2), tree(7), "fifo"),
    ]
    rows = []
    for setting, sizes, joins, order in shapes:
        sent = broadcasts(topology(sizes, joins, order=order))
        expected = broadcast_messages(sum(sizes), len(sizes))
        rows.append(row(setting, "messages", expected, [each.tally.messages for each in sent], sent[0].tally))
    return rows


def star_of(leaves: int, model: JoinModel, *, gateway_per_join: bool) -> Topology:
    """A star in which every join of the hub has a gateway of its own there, or in which all share one."""
    described = topology((2,) * (leaves + 1), star(leaves), model=model)
    if not gateway_per_join:
        return described
    hub, *rest = described.systems
    gateways = tuple(f"g{number}" for number in range(1, leaves + 1))
    joins = tuple(
        structs.replace(join, sets=(_all_by(ProcessName(hub.name, gateway), ProcessName(join.between[1], "g1")),))
        for join, gateway in zip(described.joins, gateways, strict=True)
    )
    return structs.replace(described, systems=(structs.replace(hub, gateways=gateways), *rest), joins=joins)


def _all_by(gateway: ProcessName, to: ProcessName) -> TransferSet:
    return TransferSet(gateway=gateway, to=to, processes=(ProcessName(gateway.system, REST),), key="sets")


def count_star() -> list[CountRow]:
    rows = []
    for leaves, local, link in ((2, 1, 25), (4, 1, 25), (4, 3, 10), (6, 2, 100)):
        model = JoinModel(local_delay=local * MILLISECOND, link_delay=link * MILLISECOND)
        setting = f"{leaves} leaves, l = {local} ms, d = {link} ms"
        worst = max(broadcasts(star_of(leaves, model, gateway_per_join=True)), key=Broadcast.worst)
        expected = star_latency(model.local_delay, model.link_delay)
        rows.append(row(setting, "nanoseconds", expected, [worst.worst()], worst.tally))
    worst = max(broadcasts(star_of(leaves, model, gateway_per_join=False)), key=Broadcast.worst)
    expected = star_latency(model.local_delay, model.link_delay, gateway_per_join=False)
    rows.append(row(f"{setting}, shared gateway", "nanoseconds", expected, [worst.worst()], worst.tally))
    return rows


# parallel, Sect. 8.2


def one_per_set(set_size: int, assign: Assign) -> list[Broadcast]:
    """Two systems of 3n nodes, three of which are gateways; a message from each set, the sequencer's first."""
    model = JoinModel(local_delay=MILLISECOND, link_delay=MILLISECOND)
    processes = PARTS * set_size - PARTS
    described = topology((processes, processes), [(0, 1)], order="causal", assign=assign, links=PARTS, model=model)
    rig = Rig(described)
    return [rig.broadcast(ProcessName("s0", f"p{number}")) for number in range(1, PARTS + 1)]


def count_parallel() -> list[CountRow]:
    rows = []
    for set_size in (2, 3, 4, 6):
        own, *others = one_per_set(set_size, "transfer-sets")
        striped = one_per_set(set_size, "striped")
        for who, sent, sequencer_forwards in (
            ("another gateway forwards", others, False),
            ("the sequencer forwards", [own], True),
            ("striped", striped, True),
        ):
            expected = parallel_messages(set_size, sequencer_forwards=sequencer_forwards)
            inside = [each.tally.inside for each in sent]
            rows.append(row(f"n = {set_size}, inside, {who}", "messages", expected, inside, sent[0].tally))
        between = [each.tally.between for each in (own, *others, *striped)]
        rows.append(row(f"n = {set_size}, between the systems", "messages", 1, between, own.tally))
    return rows


def count_hops() -> list[CountRow]:
    own, *others = one_per_set(2, "transfer-sets")
    striped = one_per_set(2, "striped")
    best, worst = parallel_hops(sequencer_forwards=True), parallel_hops(sequencer_forwards=False)
    return [
        row("the sequencer forwards", "hops", best, _hops([own]), own.tally),
        row("another gateway forwards", "hops", worst, _hops(others), others[0].tally),
        row("striped", "hops", best, _hops(striped), striped[0].tally),
    ]


def _hops(sent: Sequence[Broadcast]) -> list[Fraction]:
    """Every hop takes a millisecond here, inside a system or between two."""
    return [Fraction(each.worst("s1"), MILLISECOND) for each in sent]


# parallel, Sect. 8 and 8.1


def count_transfer_time() -> list[CountRow]:
    rows = []
    for links in (1, 2, 3, 4):
        model = JoinModel(
            links=links,
            local_delay=MILLISECOND,
            local_rate=100_000_000,
            link_delay=50 * MILLISECOND,
            link_rate=10_000_000,
            message_bits=MESSAGE_BITS,
        )
        rig = Rig(_loaded(model, HEARTBEAT), Charges(MESSAGE_BITS, MESSAGE_BITS))
        sent = [rig.broadcast(ProcessName("s0", f"p{number}")) for number in range(1, links + 1)]
        mean = Fraction(sum(each.worst("s1") for each in sent), links)
        rows.append(row(f"n_isps = {links}", "nanoseconds", transfer_time(model), [mean], sent[-1].tally))
    return rows


def _loaded(model: JoinModel, heartbeat: Nanos = QUIET, assign: Assign = "transfer-sets") -> Topology:
    """Two systems of six processes; in each one sender for each link of the join."""
    processes = max(6, model.links)
    return topology(
        (processes, processes),
        [(0, 1)],
        order="causal",
        assign=assign,
        links=model.links,
        model=model,
        heartbeat=heartbeat,
    )


def saturate(model: JoinModel, assign: Assign = "transfer-sets", load: int = LOAD) -> Flood:
    """One sender for each link, all of them faster than anything can carry. Numbering messages weigh nothing."""
    rig = Rig(_loaded(model, assign=assign), Charges(model.message_bits), checked=False)
    senders = [ProcessName("s0", f"p{number}") for number in range(1, model.links + 1)]
    return rig.flood(senders, load // model.links, at=ProcessName("s1", "p1"))


def within_stretch(limit: Fraction | None, stretch: Nanos = STRETCH) -> Fraction:
    """What a limit in messages per second allows in a stretch of time."""
    assert limit is not None
    return limit * stretch / SECOND


def _saturated(setting: str, model: JoinModel, limit: Fraction | None) -> CountRow:
    flood = saturate(model)
    return row(setting, "messages", within_stretch(limit), [flood.delivered_within(STRETCH)], flood.tally)


def count_system_rate() -> list[CountRow]:
    rows = []
    for rate in (5_000_000, 10_000_000, 20_000_000):
        model = JoinModel(
            local_delay=MILLISECOND, local_rate=rate, link_delay=25 * MILLISECOND, message_bits=MESSAGE_BITS
        )
        rows.append(_saturated(f"one link, ibw = {rate // 1_000_000} Mbit/s", model, system_rate_limit(model)))
    return rows


def count_join_rate() -> list[CountRow]:
    rows = []
    for links in (1, 2, 3, 4):
        model = JoinModel(
            links=links,
            local_delay=MILLISECOND // 10,
            link_delay=25 * MILLISECOND,
            link_rate=10_000_000,
            message_bits=MESSAGE_BITS,
        )
        rows.append(_saturated(f"n_isps = {links}, ebw = 10 Mbit/s", model, join_rate_limit(model)))
    return rows


def count_best_links() -> list[CountRow]:
    rows = []
    for system, link in ((10, 10), (10, 5), (10, 4), (20, 4)):
        model = JoinModel(local_rate=system * 1_000_000, link_rate=link * 1_000_000, message_bits=MESSAGE_BITS)
        setting = f"ibw = {system} Mbit/s, ebw = {link} Mbit/s"
        rows.append(row(setting, "links", best_links(model), [fewest_for_all(model)]))
    return rows


def fewest_for_all(model: JoinModel) -> int:
    """The fewest links with which as many messages get through as with one link more."""
    before = 0
    for links in count(1):
        with_links = JoinModel(
            links=links, local_rate=model.local_rate, link_rate=model.link_rate, message_bits=model.message_bits
        )
        delivered = saturate(with_links).delivered_within(STRETCH)
        if delivered == before:
            return links - 1
        before = delivered
    raise AssertionError


# What the expressions leave out

LOAD_PER_LINK = 480
"""Several blocks for every link: a block is what a stripe is made of."""

LONG_STRETCH: Nanos = 200 * MILLISECOND


def count_serialisation() -> list[CountRow]:
    rows = []
    for links in (2, 3):
        model = JoinModel(
            links=links,
            local_delay=5 * MILLISECOND,
            link_delay=25 * MILLISECOND,
            link_rate=10_000_000,
            message_bits=MESSAGE_BITS,
        )
        limit = within_stretch(serialised_rate_limit(model), LONG_STRETCH)
        sets, striped = saturate(model), saturate(model, "striped", LOAD_PER_LINK * links)
        counted = sets.delivered_within(LONG_STRETCH)
        rows.append(row(f"n_isps = {links}, transfer-sets", "messages", limit, [counted], sets.tally))
        counted = striped.delivered_within(LONG_STRETCH)
        rows.append(row(f"n_isps = {links}, striped", "messages", limit, [counted], striped.tally, above=True))
    return rows


SECTIONS: tuple[Section, ...] = (
    Section(
        name="messages",
        what="messages of one broadcast, n processes in m systems joined by single links",
        paper="message-passing, Sect. 4, Performance",
        formula="n + m − 1 (one system: n − 1)",
        count=count_messages,
    ),
    Section(
        name="star",
        what="worst latency over a star of single-link joins",
        paper="message-passing, Sect. 4, Performance",
        formula="3l + 2d (2l + 2d where the joins of the hub share a gateway)",
        count=count_star,
    ),
    Section(
        name="parallel",
        what="messages of one broadcast, two systems of 3n nodes, parallel causal join",
        paper="parallel, Sect. 8.2",
        formula="inside 6n − 1 (6n − 2 when the sequencer forwards), between 1",
        count=count_parallel,
    ),
    Section(
        name="hops",
        what="hops of one broadcast, two systems, parallel causal join",
        paper="parallel, Sect. 8.2",
        formula="3 in the best case, 4 in the worst",
        count=count_hops,
    ),
    Section(
        name="latency",
        what="mean latency of an unloaded parallel causal join",
        paper="parallel, Sect. 8.1, expression (3)",
        formula="(3 − 1/n_isps)(id + ms/ibw) + (ed + ms/ebw)",
        count=count_transfer_time,
    ),
    Section(
        name="system-rate",
        what="messages delivered in 30 ms when the systems are saturated",
        paper="parallel, Sect. 8, expression (1)",
        formula="sr < ibw / ms",
        count=count_system_rate,
    ),
    Section(
        name="join-rate",
        what="messages delivered in 30 ms when the join is saturated",
        paper="parallel, Sect. 8, expression (2)",
        formula="sr < ebw × n_isps / ms",
        count=count_join_rate,
    ),
    Section(
        name="best-links",
        what="links beyond which nothing is gained",
        paper="parallel, Sect. 8.1, expression (4)",
        formula="⌈ibw / ebw⌉",
        count=count_best_links,
    ),
    Section(
        name="serialisation",
        what="messages delivered in 200 ms when a local hop takes longer than a message on a link",
        paper="parallel, Fig. 5, Propagate_in; in no expression",
        formula="1 / (id + ms/ibw) with transfer sets, more when striped",
        count=count_serialisation,
    ),
)

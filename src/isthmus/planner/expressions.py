"""What the papers say that joins cost: their expressions, as functions, with their symbols spelled out.

Sources: message-passing, Sect. 4 ("Performance"), and parallel, Sect. 8 (expressions 1 to 4 and the comparison with
daisy). All of it is exact: times are nanoseconds, sizes bits, rates bits per second, and results are integers or
fractions, so that a simulator in virtual time can be held to them with `==`. `isthmus counts` does that;
`isthmus plan` prints them beside what isthmus itself is expected to do.

The last part is what the expressions leave out: uniform delivery, and the wait of Fig. 5 for the number before.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

from msgspec import Struct

from isthmus.core.ids import SECOND, Nanos
from isthmus.join.plan import Share

# message-passing, Sect. 4


def broadcast_messages(processes: int, systems: int) -> int:
    """Messages of one broadcast to n processes in m systems joined by single links: n + m − 1.

    The n do not hold the gateways, of which every system has one: with it, a system of k processes takes k messages,
    and each of the m − 1 links takes one. A single system needs no gateway, hence n − 1 and not n.
    """
    return processes - 1 if systems == 1 else processes + systems - 1


def star_latency(local_latency: Nanos, link_delay: Nanos, *, gateway_per_join: bool = True) -> Nanos:
    """Worst latency over a star of single-link joins, 3l + 2d: from a leaf through the hub to another leaf.

    The hub takes its l where one gateway broadcasts what comes in and another one sends it on. A gateway that serves
    both joins has its own broadcast at once: 2l + 2d. The paper's n + m − 1 messages are those of the latter; a
    gateway for each join of the hub makes n + 2m − 3 of them.
    """
    return (3 if gateway_per_join else 2) * local_latency + 2 * link_delay


# parallel, Sect. 8.2

PARTS = 3
"""The comparison with daisy divides each of its two systems into three sets."""


def parallel_messages(set_size: int, *, sequencer_forwards: bool) -> int:
    """Messages inside two systems of 3n nodes, for one broadcast: 6n − 1, or 6n − 2 without the numbering message.

    The 3n hold the gateways: the paper counts 3n − 1 messages for a broadcast that reaches them too.
    """
    return 2 * (PARTS * set_size - 1) + (0 if sequencer_forwards else 1)


def parallel_hops(*, sequencer_forwards: bool) -> int:
    """Broadcast, (number,) link, broadcast: three hops in the best case, four in the worst."""
    return 3 if sequencer_forwards else 4


def daisy_messages(group_size: int) -> int:
    """The same as a daisy of six groups of n, all messages: n − 1 in each group and five among servers, 6n − 1."""
    groups = 2 * PARTS
    return groups * (group_size - 1) + groups - 1


def daisy_hops(*, same_group: bool) -> int:
    """Group, servers, group: three hops to whoever is in another group, even of the same original system."""
    return 1 if same_group else 3


def daisy_header(processes: int, parts: int, levels: int) -> int:
    """daisy, Sect. 3.3: one vector at a time, as long as the group. Added up over the longest way."""
    if levels == 1:
        return processes
    local_groups: int = parts ** (levels - 1)
    return 2 * (processes // local_groups) + (2 * levels - 3) * parts


# parallel, Sect. 8 and 8.1


class JoinModel(Struct, frozen=True, kw_only=True):
    """The parameters of parallel, Sect. 8, with the paper's names behind them. A rate of None is without limit."""

    links: int = 1
    """n_isps: gateways of the sending system, each with one link."""
    local_delay: Nanos = 0
    """id: how long a message takes inside a system."""
    local_rate: int | None = None
    """ibw: what a system carries, in bits per second."""
    link_delay: Nanos = 0
    """ed: how long a message takes over a link."""
    link_rate: int | None = None
    """ebw: what one link carries, in bits per second."""
    message_bits: int = 0
    """ms: the size of a message."""

    @property
    def local_hop(self) -> Fraction:
        """One message inside a system, id + ms/ibw, in nanoseconds."""
        return self.local_delay + transmission(self.message_bits, self.local_rate)

    @property
    def link_hop(self) -> Fraction:
        """One message over a link, ed + ms/ebw, in nanoseconds."""
        return self.link_delay + transmission(self.message_bits, self.link_rate)


def transmission(bits: int, rate: int | None) -> Fraction:
    """Nanoseconds that a line is busy with so many bits."""
    return Fraction(0) if rate is None else Fraction(bits * SECOND, rate)


def system_rate_limit(model: JoinModel) -> Fraction | None:
    """Expression (1): sr < ibw / ms, in messages per second. None: without limit."""
    if model.local_rate is None or not model.message_bits:
        return None
    return Fraction(model.local_rate, model.message_bits)


def join_rate_limit(model: JoinModel) -> Fraction | None:
    """Expression (2): sr < ebw × n_isps / ms, in messages per second. None: without limit."""
    if model.link_rate is None or not model.message_bits:
        return None
    return Fraction(model.link_rate * model.links, model.message_bits)


def transfer_time(model: JoinModel) -> Fraction:
    """Expression (3), the mean time from one system into the other without load, in nanoseconds.

    (3 − 1/n_isps) × (id + ms/ibw) + (ed + ms/ebw): two broadcasts, the link, and a numbering message for the share
    1 − 1/n_isps of all messages that another gateway than the sequencer forwards. The paper lets a numbering
    message be as large as any other.
    """
    return (3 - Fraction(1, model.links)) * model.local_hop + model.link_hop


def best_links(model: JoinModel) -> int:
    """Expression (4): ⌈ibw / ebw⌉ links, beyond which the systems are the bottleneck and no longer the join.

    One where links are as fast as systems, or without limit. A system without limit has no best number; 0 says so.
    """
    if model.link_rate is None:
        return 1
    return 0 if model.local_rate is None else max(1, ceil(Fraction(model.local_rate, model.link_rate)))


def links_needed(model: JoinModel, rate: Fraction) -> int:
    """The fewest links that expression (2) allows this rate (in messages per second) on."""
    if model.link_rate is None:
        return 1
    return floor(rate * model.message_bits / model.link_rate) + 1


# What the expressions leave out


def serialised_rate_limit(model: JoinModel) -> Fraction | None:
    """Messages per second that the receiving system admits under Fig. 5 as printed. None: without limit.

    A gateway broadcasts number k when it has *delivered* k − 1. Where k − 1 came over another link that is one local
    hop later, for every message, however many links there are. With one link nobody waits.
    """
    return Fraction(SECOND) / model.local_hop if model.links > 1 and model.local_hop else None


def uniform_words(members: int) -> int:
    """Hops of small words between the arrival of a message and its uniform delivery in a group.

    It waits for an acknowledgement and for the word that a quorum has the message, unless the sender and one receiver
    are a quorum. (In a group of four the first member and any other are a quorum, so that what the first member sends
    comes sooner.)
    """
    return 0 if members <= 3 else 2


def numbering_share(share: Share, links: int) -> Fraction:
    """The share of messages, without load, that wait for a numbering message before they go onto a link.

    With sets it is the paper's 1 − 1/n_isps. Striped, an idle sequencer uses its own link. Nobody else is numbered.
    """
    return 1 - Fraction(1, links) if share == "sets" else Fraction(0)

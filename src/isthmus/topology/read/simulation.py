"""The `[simulation]` table: what a simulated run of a topology looks like.

All of it is optional, and none of it matters to a real run. The simulator draws from these settings with its own
seed; equal files and equal seeds give equal runs. The defaults are a small office with a long line to the next one.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessName
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.topology.problem import quote
from isthmus.topology.read.table import NAME, Table, describe

MAX_RATE = 10_000_000.0
MAX_BURST = 1_000_000
MAX_DEPTH = 1_000
MAX_FAULTS = 1_000_000


class Fixed(Struct, frozen=True):
    """Every PDU takes the same time."""

    delay: Nanos


class Uniform(Struct, frozen=True):
    minimum: Nanos
    maximum: Nanos


class Exponential(Struct, frozen=True):
    """Mostly quick, at times very slow: the distribution that overtakes most."""

    mean: Nanos


Delay: TypeAlias = Fixed | Uniform | Exponential


class Workload(Struct, frozen=True, kw_only=True):
    """What every sending process does.

    `rate` is messages per second and process, sent in bursts of `burst` back to back. A process answers a message
    that it delivers with probability `reply`; an answer may be answered, up to `reply_depth` deep: this is what
    makes long causal chains through many processes. `senders` None means everybody. Where messages are for some
    processes only, up to `together` go to the same ones at once.
    """

    rate: float = 100.0
    minimum_size: int = 100
    maximum_size: int = 100
    burst: int = 1
    together: int = 1
    reply: float = 0.0
    reply_depth: int = 4
    senders: tuple[ProcessName, ...] | None = None


class NetworkModel(Struct, frozen=True, kw_only=True):
    """How PDUs travel. `bandwidth` is bits per second from one process to one other, None for no limit."""

    delay: Delay = Uniform(100_000, MILLISECOND)
    bandwidth: int | None = None
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0


class LinkNetwork(Struct, frozen=True, kw_only=True):
    """The line between two gateways. A link is FIFO and loses nothing; what can happen to it is a cut.

    `loss` is of the line below it: what is lost there comes a round trip later, and all behind it waits.
    """

    delay: Delay = Fixed(25 * MILLISECOND)
    bandwidth: int | None = 100_000_000
    loss: float = 0.0


class OwnLine(Struct, frozen=True, kw_only=True):
    """A line that is not like the others: of one link, between two gateways, or of every link between two systems."""

    between: tuple[str, str]
    line: LinkNetwork

    def is_for(self, near: ProcessName, far: ProcessName) -> bool:
        return set(self.between) in ({near.system, far.system}, {str(near), str(far)})


class Faults(Struct, frozen=True, kw_only=True):
    """At most how many of each in one run, per system; `link_cuts` and `site_cuts` (all links of a site) in all.

    `restarts` are of systems that keep a journal: all processes die at once, and the system is started again. Logs have
    `pauses` (gateways that stop, and go on when others have taken over), `broker_kills` (brokers that lose what was not
    durable), `trims` (heads that go) and `recreations` (logs that are deleted and made anew).

    With `swarm` every run draws which kinds it has at all and how many of them; without, every run has all of them.
    Swarms find more: a run with many cuts and no crash visits states that an even mixture never sees.
    """

    crashes: int = 0
    partitions: int = 0
    cuts: int = 0
    slow: int = 0
    joins: int = 0
    leaves: int = 0
    link_cuts: int = 0
    site_cuts: int = 0
    restarts: int = 0
    pauses: int = 0
    broker_kills: int = 0
    trims: int = 0
    recreations: int = 0
    swarm: bool = False


class Simulation(Struct, frozen=True, kw_only=True):
    """`network` is the inside of every system, `links` what lies between systems where no line of `link` says more."""

    duration: Nanos = 2 * SECOND
    workload: Workload = Workload()
    network: NetworkModel = NetworkModel()
    links: LinkNetwork = LinkNetwork()
    link: tuple[OwnLine, ...] = ()
    faults: Faults = Faults()

    def line(self, near: ProcessName, far: ProcessName) -> LinkNetwork:
        """The line of the link between two gateways; where several entries are for it, the last one counts."""
        return next((own.line for own in reversed(self.link) if own.is_for(near, far)), self.links)


def read_simulation(table: Table) -> Simulation:
    default = Simulation()
    links = _links(table.table("links"), LinkNetwork())
    simulation = Simulation(
        duration=table.duration("duration", default.duration, low=1),
        workload=_workload(table.table("workload")),
        network=_network(table.table("network")),
        links=links,
        link=tuple(_own_line(each, links) for each in table.tables("link")),
        faults=_faults(table.table("faults")),
    )
    table.close()
    return simulation


def _workload(table: Table) -> Workload:
    default = Workload()
    minimum, maximum = _size(table, default)
    senders = table.names("senders", is_name=_is_reference, form='write "system/process"')
    workload = Workload(
        rate=table.number("rate", default.rate, 0.0, MAX_RATE),
        minimum_size=minimum,
        maximum_size=maximum,
        burst=table.integer("burst", default.burst, 1, MAX_BURST),
        together=table.integer("together", default.together, 1, MAX_BURST),
        reply=table.number("reply", default.reply, 0.0, 1.0),
        reply_depth=table.integer("reply-depth", default.reply_depth, 0, MAX_DEPTH),
        senders=None if senders is None else tuple(ProcessName(*sender.split("/")) for sender in senders),
    )
    table.close()
    return workload


def _is_reference(text: str) -> bool:
    parts = text.split("/")
    return len(parts) == 2 and all(NAME.fullmatch(part) for part in parts)


def _size(table: Table, default: Workload) -> tuple[int, int]:
    """`size = 100`, or `size = [10, 1000]` for something in between."""
    value = table.take("size")
    if value is None:
        return default.minimum_size, default.maximum_size
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2 or any(type(bound) is not int for bound in bounds):
        table.refuse(
            "size", f"must be a number of bytes or [minimum, maximum], not {describe(value)}", "write size = 100"
        )
    elif not 0 <= bounds[0] <= bounds[1] <= MAX_PAYLOAD:
        table.refuse(
            "size", f"must be from 0 to {MAX_PAYLOAD} bytes, the smaller number first", "write size = [10, 1000]"
        )
    else:
        return bounds[0], bounds[1]
    return default.minimum_size, default.maximum_size


def _network(table: Table) -> NetworkModel:
    default = NetworkModel()
    network = NetworkModel(
        delay=_delay(table, default.delay),
        bandwidth=table.rate("bandwidth", default.bandwidth),
        # At 1 nothing ever arrives, and no protocol can promise anything.
        loss=table.number("loss", default.loss, 0.0, 0.99),
        duplication=table.number("duplication", default.duplication, 0.0, 1.0),
        reordering=table.number("reordering", default.reordering, 0.0, 1.0),
    )
    table.close()
    return network


def _own_line(table: Table, usual: LinkNetwork) -> OwnLine:
    """What an entry does not say is as for all links."""
    ends = table.names("between", is_name=_is_end, form='write "system" or "system/gateway"')
    if ends is None or len(ends) != 2:
        table.refuse("between", "must name the two ends of a link", 'write between = ["a/g1", "b/g1"], or two systems')
        ends = ("", "")
    return OwnLine(between=(ends[0], ends[1]), line=_links(table, usual))


def _is_end(text: str) -> bool:
    return bool(NAME.fullmatch(text)) or _is_reference(text)


def _links(table: Table, default: LinkNetwork) -> LinkNetwork:
    links = LinkNetwork(
        delay=_delay(table, default.delay),
        bandwidth=table.rate("bandwidth", default.bandwidth),
        loss=table.number("loss", default.loss, 0.0, 0.99),
    )
    table.close()
    return links


def _delay(table: Table, default: Delay) -> Delay:
    """`"1ms"`, `{ min = "1ms", max = "5ms" }` (uniform) or `{ mean = "2ms" }` (exponential)."""
    if not isinstance(table.entries.get("delay"), dict):
        missing = -1
        nanos = table.duration("delay", missing)
        return default if nanos == missing else Fixed(nanos)
    inner = table.table("delay")
    names = inner.entries.keys() & {"mean", "min", "max"}
    mean, minimum, maximum = inner.duration("mean", 0), inner.duration("min", 0), inner.duration("max", 0)
    inner.close()
    if names == {"mean"}:
        return Exponential(mean)
    if names == {"min", "max"} and minimum <= maximum:
        return Uniform(minimum, maximum)
    reason = (
        "min is more than max" if names == {"min", "max"} else f"cannot be made of {quote(', '.join(sorted(names)))}"
    )
    table.refuse("delay", reason, 'write { min = "1ms", max = "5ms" }, { mean = "2ms" }, or just "1ms"')
    return default


def _faults(table: Table) -> Faults:
    default = Faults()
    faults = Faults(
        crashes=table.integer("crashes", default.crashes, 0, MAX_FAULTS),
        partitions=table.integer("partitions", default.partitions, 0, MAX_FAULTS),
        cuts=table.integer("cuts", default.cuts, 0, MAX_FAULTS),
        slow=table.integer("slow", default.slow, 0, MAX_FAULTS),
        joins=table.integer("joins", default.joins, 0, MAX_FAULTS),
        leaves=table.integer("leaves", default.leaves, 0, MAX_FAULTS),
        link_cuts=table.integer("link-cuts", default.link_cuts, 0, MAX_FAULTS),
        site_cuts=table.integer("site-cuts", default.site_cuts, 0, MAX_FAULTS),
        restarts=table.integer("restarts", default.restarts, 0, MAX_FAULTS),
        pauses=table.integer("pauses", default.pauses, 0, MAX_FAULTS),
        broker_kills=table.integer("broker-kills", default.broker_kills, 0, MAX_FAULTS),
        trims=table.integer("trims", default.trims, 0, MAX_FAULTS),
        recreations=table.integer("recreations", default.recreations, 0, MAX_FAULTS),
        swarm=table.boolean("swarm", default.swarm),
    )
    table.close()
    return faults

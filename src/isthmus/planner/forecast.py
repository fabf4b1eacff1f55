"""What to expect of a topology: the papers' expressions for each join, and what isthmus itself makes of it.

The papers' figures are those of `analysis`, with the parameters that the file or its reader gives. Beside them stands
what is known to differ here: delivery is uniform unless a system says otherwise (two hops more), a numbering message
is small, striped joins need none without load, transfer sets may burden one link more than another, and Fig. 5 as
printed admits one message per local hop. Latencies are without load; limits are what the first bottleneck carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Literal

from msgspec import Struct, structs

from isthmus.core.ids import Nanos, ProcessName
from isthmus.join.plan import JoinPlan, Share
from isthmus.planner.expressions import (
    JoinModel,
    best_links,
    join_rate_limit,
    links_needed,
    numbering_share,
    serialised_rate_limit,
    system_rate_limit,
    transfer_time,
)
from isthmus.planner.kinds import KINDS
from isthmus.topology.model import System, Topology
from isthmus.topology.plans import plans
from isthmus.topology.read.simulation import Delay, Exponential, Fixed
from isthmus.topology.wiring import links as links_of
from isthmus.topology.wiring import named_pairs, path_links, upstream


class Load(Struct, frozen=True, kw_only=True):
    """What is assumed: the lines, the size of a message, and how many messages a second are born in each system."""

    model: JoinModel
    rates: Mapping[str, Fraction]


class SystemForecast(Struct, frozen=True, kw_only=True):
    """`born` and `rate` are messages per second: of its own processes, and of everybody, which is what it carries."""

    name: str
    members: int
    born: Fraction
    rate: Fraction
    limit: Fraction | None
    latency: Fraction

    @property
    def overloaded(self) -> bool:
        return self.limit is not None and self.rate >= self.limit


class DirectionForecast(Struct, frozen=True, kw_only=True):
    """One direction of a join. `paper_*` are expressions (2) and (3); the others are what isthmus is expected to do."""

    source: str
    target: str
    share: Share
    rate: Fraction
    paper_latency: Fraction
    latency: Fraction
    worst_latency: Fraction
    paper_limit: Fraction | None
    limit: Fraction | None

    @property
    def overloaded(self) -> bool:
        return self.limit is not None and self.rate >= self.limit


class JoinForecast(Struct, frozen=True, kw_only=True):
    """`links` are in use, `asked` is what the file says, `needed` carry the load, `best` is expression (4).

    `possible` is how many pairs of gateways there are, `named` how many of them sets or paths ask for.
    """

    between: tuple[str, str]
    order: str
    asked: int | Literal["auto"] | None
    links: int
    needed: int
    best: int
    possible: int
    named: int
    directions: tuple[DirectionForecast, ...]

    @property
    def planned(self) -> int:
        """The answer to `links = "auto"`: enough for the load, but none that gains nothing or that has no gateways.

        What sets or paths name stays.
        """
        return max(self.named, min(self.needed, self.best or self.needed, self.possible))


class Route(Struct, frozen=True):
    """The systems that a message passes through, and how long it takes at most without load."""

    systems: tuple[str, ...]
    latency: Fraction


class Forecast(Struct, frozen=True, kw_only=True):
    """`own_lines`: the file gives some links lines of their own, and all of them are taken for like the others here."""

    load: Load
    systems: tuple[SystemForecast, ...]
    joins: tuple[JoinForecast, ...]
    worst: Route
    own_lines: bool


def load_of(topology: Topology) -> Load:
    """What the `[simulation]` table says, or its defaults: means of whatever is drawn."""
    simulation = topology.simulation
    workload = simulation.workload
    senders = None if workload.senders is None else set(workload.senders)
    model = JoinModel(
        local_delay=mean_delay(simulation.network.delay),
        local_rate=simulation.network.bandwidth,
        link_delay=mean_delay(simulation.links.delay),
        link_rate=simulation.links.bandwidth,
        message_bits=4 * (workload.minimum_size + workload.maximum_size),
    )
    rates = {
        system.name: Fraction(workload.rate)
        * sum(senders is None or ProcessName(system.name, name) in senders for name in system.processes)
        for system in topology.systems
    }
    return Load(model=model, rates=rates)


def mean_delay(delay: Delay) -> Nanos:
    if isinstance(delay, Fixed):
        return delay.delay
    return delay.mean if isinstance(delay, Exponential) else (delay.minimum + delay.maximum) // 2


def forecast(topology: Topology, load: Load) -> Forecast:
    """Everything that can be said before anything runs."""
    carried = {system.name: {plan.join: plan for plan in plans(topology, system.name)} for system in topology.systems}
    weights = _weights(topology, load)
    joins = tuple(_join(topology, index, load, carried, weights) for index in range(len(topology.joins)))
    return Forecast(
        load=load,
        systems=tuple(_system(topology, system, load) for system in topology.systems),
        joins=joins,
        worst=_worst(topology, load, joins),
        own_lines=bool(topology.simulation.link),
    )


def local_latency(system: System, model: JoinModel) -> Fraction:
    """From `send` until every process of this system has delivered."""
    return KINDS[system.kind].latency(system, model)


def _system(topology: Topology, system: System, load: Load) -> SystemForecast:
    joined = [join for join in range(len(topology.joins)) if system.name in topology.joins[join].between]
    heard = {system.name}
    for join in joined:
        near, far = topology.joins[join].between
        heard.update(upstream(topology, join, far if near == system.name else near))
    return SystemForecast(
        name=system.name,
        members=len(system.members),
        born=load.rates[system.name],
        rate=sum((load.rates[name] for name in heard), Fraction(0)),
        limit=system_rate_limit(load.model),
        latency=local_latency(system, load.model),
    )


def _join(
    topology: Topology,
    index: int,
    load: Load,
    carried: Mapping[str, Mapping[int, JoinPlan]],
    weights: Mapping[int, Fraction],
) -> JoinForecast:
    join = topology.joins[index]
    near, far = (topology.system(name) for name in join.between)
    links = len(links_of(topology, index))
    model = structs.replace(load.model, links=links)
    directions = tuple(
        _direction(topology, carried[source.name][index], source, target, model, load, weights)
        for source, target in ((near, far), (far, near))
    )
    return JoinForecast(
        between=join.between,
        order=join.order,
        asked=join.links,
        links=links,
        needed=max(links_needed(model, each.rate) for each in directions),
        best=best_links(model),
        possible=len(near.gateways) * len(far.gateways),
        named=len(named_pairs(topology, index)),
        directions=directions,
    )


def _direction(
    topology: Topology,
    plan: JoinPlan,
    source: System,
    target: System,
    model: JoinModel,
    load: Load,
    weights: Mapping[int, Fraction],
) -> DirectionForecast:
    join = topology.joins[plan.join]
    if join.assign == "paths":
        rate = sum((weights[slot] for slot in plan.exported), Fraction(0))
    else:
        rate = sum((load.rates[name] for name in upstream(topology, plan.join, source.name)), Fraction(0))
    both = local_latency(source, model) + local_latency(target, model) + model.link_hop
    numbering = numbering_share(plan.share, model.links)
    # A FIFO join numbers nothing, so expression (3) is for it what it is for one link: two broadcasts and the link.
    paper_model = model if join.order == "causal" else structs.replace(model, links=1)
    return DirectionForecast(
        source=source.name,
        target=target.name,
        share=plan.share,
        rate=rate,
        paper_latency=transfer_time(paper_model),
        latency=both + numbering * model.local_delay,
        worst_latency=both + (model.local_delay if numbering else 0),
        paper_limit=join_rate_limit(model),
        limit=_limit(plan, model, weights),
    )


def _weights(topology: Topology, load: Load) -> dict[int, Fraction]:
    """Messages per second of each listed process: its system's, in equal parts."""
    return {
        slot: load.rates[system.name] / len(system.processes)
        for system in topology.systems
        for slot in topology.process_slots(system.name)
    }


def _limit(plan: JoinPlan, model: JoinModel, weights: Mapping[int, Fraction]) -> Fraction | None:
    """Where origins have fixed links the busiest link is the first that is full; then, with sets, Fig. 5's wait."""
    limits = [join_rate_limit(model), system_rate_limit(model)]
    if plan.share in ("by-origin", "sets") and plan.carriers:
        by_link: dict[int, Fraction] = {}
        for origin, link in plan.carriers.items():
            # Without any load all origins count alike.
            weight = weights[origin] if any(weights[each] for each in plan.carriers) else Fraction(1)
            by_link[link] = by_link.get(link, Fraction(0)) + weight
        of_one = join_rate_limit(structs.replace(model, links=1))
        if of_one is not None:
            limits[0] = of_one * sum(by_link.values()) / max(by_link.values())
        if plan.share == "sets":
            limits.append(serialised_rate_limit(structs.replace(model, links=len(by_link))))
    return min((limit for limit in limits if limit is not None), default=None)


def _worst(topology: Topology, load: Load, joins: tuple[JoinForecast, ...]) -> Route:
    """The longest way of a message. Every system on it is counted in full: another gateway may send the message on."""
    inside = {system.name: local_latency(system, load.model) for system in topology.systems}
    between = {
        (each.source, each.target): each.worst_latency - inside[each.source] - inside[each.target]
        for join in joins
        for each in join.directions
    }
    worst = Route((), Fraction(-1))
    for start, steps in _trees(topology):
        # (system, where from, latency so far): a stack, because a chain may be longer than Python recurses.
        reached: list[tuple[str, int, Fraction]] = [(start, -1, inside[start])]
        for index, (name, previous, latency) in enumerate(reached):
            if latency > worst.latency:
                worst = Route(_back_from(reached, index), latency)
            for neighbour in steps.get(name, ()):
                if previous < 0 or neighbour != reached[previous][0]:
                    reached.append((neighbour, index, latency + between[name, neighbour] + inside[neighbour]))
    return worst


def _back_from(reached: list[tuple[str, int, Fraction]], index: int) -> tuple[str, ...]:
    names: list[str] = []
    while index >= 0:
        names.append(reached[index][0])
        index = reached[index][1]
    return tuple(reversed(names))


def _trees(topology: Topology) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """From where messages start, and where they go on to from each system: one tree for all, or one per path."""
    if topology.paths:
        for origin, tree in path_links(topology).items():
            yield origin.system, _neighbours((start.system, end.system) for start, end in tree)
    else:
        both_ways = [step for join in topology.joins for step in (join.between, (join.between[1], join.between[0]))]
        neighbours = _neighbours(both_ways)
        for system in topology.systems:
            yield system.name, neighbours


def _neighbours(steps: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    neighbours: dict[str, list[str]] = {}
    for start, end in steps:
        neighbours.setdefault(start, []).append(end)
    return neighbours

"""A topology: systems, joins and paths, as their author named them.

This is what a topology file says once it has been read, no more: names, counts and choices. Which links follow from
it, and who forwards whose messages over them, is worked out in `wiring`; whether the papers allow it, in
`check/rules.py`. `docs/design/topology.md` explains the file.

Inside the protocols processes are integers; `Topology.directory` is where the names turn into slots. Slots are given
out in the order of the file, system by system, processes before gateways, so that the same file always gives the
same ids.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import MILLISECOND, SECOND, Directory, Nanos, ProcessName
from isthmus.topology.read.exploration import Exploration
from isthmus.topology.read.flow import EVERYTHING, Flow
from isthmus.topology.read.simulation import Simulation

AnyTable = TypeVar("AnyTable", bound=Struct)

Delivery: TypeAlias = Literal["uniform", "fast"]
Assign: TypeAlias = Literal["striped", "transfer-sets", "paths", "uncoordinated"]

ORDERS: tuple[OrderName, ...] = ("fifo", "causal", "total")
"""Weakest first. Each contains those before it: total order here is always causal (a log, or the embedded group)."""

SUSPECT_AFTER: Nanos = 200 * MILLISECOND
"""The default of `suspect-after`. A real run then takes longer: operating systems have other things to do."""

START_WITHIN: Nanos = 30 * SECOND
"""For so long the founders of a real run wait for those that are missing, unless a file says otherwise."""

REST = "*"
"""In place of a process: every process that comes this way and that no other set or path names."""


class BaseAddress(NamedTuple):
    """Where the first of several listens; the next ones listen on the ports after it."""

    host: str
    port: int

    def plus(self, ports: int) -> BaseAddress:
        return BaseAddress(self.host, self.port + ports)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsFiles(Struct, frozen=True, kw_only=True):
    """Where the gateways of a system find what TLS needs; `{gateway}` stands for the name of each."""

    certificate: str
    key: str
    authority: str


class System(Struct, frozen=True, kw_only=True):
    """One system. `provider` is what the file calls its kind: who runs it, isthmus itself (`embedded`) or a broker.

    Its `kind` is what it is made of; every layer has a table of kinds by these names, and what the table of that kind
    in the file says is in `table`. Others need to know this much: whether it `broadcasts`, that is, whether every
    message is for everybody; whether it `revives` members, that is, whether somebody who is gone may come back as a new
    process; and whether one gateway `acts_alone` for all of it, by a claim.

    Members on `standby` are not there at the start; they may come, and go, while the system runs.
    """

    name: str
    provider: str
    order: OrderName
    kind: str = "group"
    table: Struct | None = None
    broadcasts: bool = True
    revives: bool = True
    acts_alone: bool = False
    processes: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()
    address: BaseAddress | None = None
    link_address: BaseAddress | None = None
    other_link_addresses: tuple[BaseAddress, ...] = ()
    tls: TlsFiles | None = None
    journal: str | None = None
    delivery: Delivery = "uniform"
    heartbeat: Nanos = 20 * MILLISECOND
    suspect_after: Nanos = SUSPECT_AFTER
    start_within: Nanos = START_WITHIN

    @property
    def members(self) -> tuple[str, ...]:
        """Processes, then gateways: the order of their slots and of their ports."""
        return self.processes + self.gateways

    def own(self, table: type[AnyTable]) -> AnyTable:
        """What the table of its kind says, for whoever knows that kind."""
        if not isinstance(self.table, table):
            raise TypeError(f"{self.name} is of kind {self.kind} and has no {table.__name__}")
        return self.table

    @property
    def founders(self) -> tuple[str, ...]:
        """The members that the system begins with."""
        return tuple(member for member in self.members if member not in self.standby)

    def takes_links_at(self, gateway: str) -> tuple[BaseAddress, ...]:
        """Where a gateway waits for links, if the file says so; one that several hosts may run at one of these."""
        if self.link_address is None:
            return ()
        return (self.link_address.plus(self.gateways.index(gateway)), *self.other_link_addresses)


class TransferSet(Struct, frozen=True, kw_only=True):
    """set_w(isp_v) and link_w(isp_v) of parallel, Sect. 3: `gateway` forwards the messages of `processes` to `to`.

    `to` None leaves the far gateway to `wiring`. `key` is where the processes stand in the file.
    """

    gateway: ProcessName
    to: ProcessName | None
    processes: tuple[ProcessName, ...]
    key: str = ""


class Join(Struct, frozen=True, kw_only=True):
    """What connects two systems. `links` None: as many as the rest of the file calls for; `auto`: as `planned`.

    The gateways of the first system dial those of the second; `dial` is where they find the first link, if not there.
    `flows` say, by system, what of it goes over the join.
    """

    between: tuple[str, str]
    order: OrderName
    assign: Assign
    links: int | Literal["auto"] | None = None
    planned: int = 0
    sets: tuple[TransferSet, ...] = ()
    dial: BaseAddress | None = None
    flows: tuple[tuple[str, Flow], ...] = ()

    def flow(self, system: str) -> Flow:
        """What of a system goes over this join: of one that the file says nothing of, everything."""
        return dict(self.flows).get(system, EVERYTHING)


class Path(Struct, frozen=True, kw_only=True):
    """paths(p) of parallel, Sect. 4: the tree of links that the messages of these processes take, as (from, to)."""

    processes: tuple[ProcessName, ...]
    links: tuple[tuple[ProcessName, ProcessName], ...]


class Topology(Struct, frozen=True, kw_only=True):
    file: str
    systems: tuple[System, ...]
    joins: tuple[Join, ...] = ()
    paths: tuple[Path, ...] = ()
    simulation: Simulation = Simulation()
    exploration: Exploration = Exploration()
    unsafe: bool = False

    def system(self, name: str) -> System:
        """The system of this name; `KeyError` where there is none."""
        for system in self.systems:
            if system.name == name:
                return system
        raise KeyError(name)

    def directory(self) -> Directory:
        return Directory([ProcessName(system.name, member) for system in self.systems for member in system.members])

    def slots(self, name: str) -> range:
        """All slots of a system: those of its processes, then those of its gateways."""
        first = 0
        for system in self.systems:
            if system.name == name:
                return range(first, first + len(system.members))
            first += len(system.members)
        raise KeyError(name)

    def process_slots(self, name: str) -> range:
        return self.slots(name)[: len(self.system(name).processes)]

    def gateway_slots(self, name: str) -> range:
        return self.slots(name)[len(self.system(name).processes) :]

    def is_joined(self, name: str) -> bool:
        """Whether anything joins this system to others."""
        return any(name in join.between for join in self.joins)

    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The names of systems that joins connect, part by part, in the order of the first system of each."""
        neighbours: dict[str, list[str]] = {system.name: [] for system in self.systems}
        for join in self.joins:
            near, far = join.between
            neighbours[near].append(far)
            neighbours[far].append(near)
        part_of: dict[str, int] = {}
        for system in self.systems:
            number = len(set(part_of.values()))
            waiting = [system.name]
            for name in waiting:
                if name not in part_of:
                    part_of[name] = number
                    waiting += neighbours[name]
        return tuple(
            tuple(system.name for system in self.systems if part_of[system.name] == number)
            for number in sorted(set(part_of.values()))
        )

    def run_of(self, run: str, name: str) -> str:
        """Under which run a system records: every part has one of its own, so that all who are in it can agree."""
        parts = self.parts()
        return run if len(parts) == 1 else next(f"{run}.{place}" for place, part in enumerate(parts, 1) if name in part)

    def promise(self, part: Collection[str] | None = None) -> OrderName:
        """The order that the whole, or one part, is meant to keep: the weakest of its joins, and of systems alone.

        A join's own order decides and not that of its systems, so that an unsafe topology is judged by what it claims.
        """
        joins = [join for join in self.joins if part is None or join.between[0] in part]
        joined = {name for join in joins for name in join.between}
        orders = [join.order for join in joins]
        alone = [system for system in self.systems if system.name not in joined]
        orders += [system.order for system in alone if part is None or system.name in part]
        return min(orders, key=ORDERS.index)

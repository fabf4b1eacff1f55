"""One simulated system: its processes and gateways, their application, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from isthmus.core.endpoint import Member, View
from isthmus.core.ids import LIFE, ProcessId, incarnation_of, life_of, slot_of
from isthmus.join.export import Export
from isthmus.join.grouped import GroupGateway
from isthmus.join.member import GatewayMember, Group, gateway_settings, seats_of
from isthmus.join.plan import JoinPlan
from isthmus.join.share import Counted, Sequenced
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.quorum import is_quorum
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.order import ORDERS
from isthmus.simulator.faults.lives import Lives
from isthmus.simulator.faults.nemesis import Nemesis, group_of
from isthmus.simulator.faults.plan import FaultPlan, draw_plan
from isthmus.simulator.systems.kind import OpenLog, SimulatedKind, Traits
from isthmus.simulator.workload import Application, window_for
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.topology.plans import plans
from isthmus.topology.read.simulation import Simulation

SIMULATED_WINDOW = 512
"""Small, so that back-pressure is met in short runs."""

JOINED_WINDOW = 20
"""Smaller still where systems are joined: what a process sends counts until the last of them has it."""

JOIN_WINDOW = 24
JOIN_BLOCK = 3
"""Small for the same reason: the window of a join gets full, and every burst is spread over several links."""


class SimulatedSystem:
    """Starts the members of one system and keeps starting new ones where a fault plan wants it."""

    stopped = ""

    def __init__(
        self,
        topology: Topology,
        system: System,
        world: World,
        seed: int,
        open_log: OpenLog,
        *,
        tight: bool,
    ) -> None:
        self._tight = tight and bool(topology.joins)
        self.topology = topology
        self.system = system
        self.world = world
        self.slots = list(topology.slots(system.name))
        self.gateways = set(topology.gateway_slots(system.name)) if topology.joins else set()
        self.joins: tuple[JoinPlan, ...] = plans(topology, system.name) if topology.joins else ()
        self._open_log = open_log
        self._incarnations: dict[int, int] = {}
        self._standby = {slot for slot, name in zip(self.slots, system.members, strict=True) if name in system.standby}
        self._not_yet = set(self._standby)
        """Who is on standby and has never come in this life of the system."""
        simulation = topology.simulation
        self.application = Application(
            world, Random(f"workload {seed} {system.name}"), simulation.workload, simulation.duration
        )
        self.settings = GroupSettings(
            heartbeat=system.heartbeat,
            suspect_after=system.suspect_after,
            retry_after=2 * system.heartbeat,
            uniform=system.delivery == "uniform",
            window_messages=window_for(simulation.workload, JOINED_WINDOW if self._tight else SIMULATED_WINDOW),
            keepers=frozenset(self.gateways) if system.journal is not None else frozenset(),
            seats=seats_of(self.joins) if system.revives else (),
        )
        self.lives = Lives(world, self.slots, self._standby, self.gateways, self._begin_life)
        self._latest = View(1, tuple(self.lives.founders()))
        self._quorum_lost_in = 0
        self._bereft: set[int] = set()
        senders = simulation.workload.senders
        self._senders = {
            slot
            for slot in topology.process_slots(system.name)
            if senders is None or world.names.slots[slot] in senders
        }
        plan = draw_plan(
            Random(f"faults {seed} {system.name}"),
            simulation.faults,
            simulation.network,
            self.slots,
            simulation.duration,
            system.suspect_after,
        )
        self.nemesis = self._make_nemesis(plan)
        self._start_founders()
        newcomers = Random(f"newcomers {seed} {system.name}")
        for slot in sorted(self._standby):
            world.at(newcomers.randrange(simulation.duration), self._come, slot)
        if system.journal is not None:
            rng = Random(f"lives {seed} {system.name}")
            self.lives.schedule(rng, simulation.faults, simulation.duration, system.suspect_after)

    def _make_nemesis(self, plan: FaultPlan) -> Nemesis:
        return Nemesis(self.world, self.slots, plan, self._revive)

    def _begin_life(self) -> None:
        """All processes died, and the founders are started again, as new ones."""
        self._incarnations = dict.fromkeys(self.slots, self.lives.life * LIFE)
        self._latest, self._quorum_lost_in = View(1, tuple(self.lives.founders())), 0
        self._not_yet = set(self._standby)
        self._start_founders()
        for slot in self.slots:
            host = self.world.hosts[slot]
            if isinstance(host.endpoint, GatewayMember):
                # As for real: a link is down until it says that it is up.
                for link in host.endpoint.gateway.links:
                    self.world.step(host, host.endpoint.link_down, link)
            self.world.on_view(host)

    def _start_founders(self) -> None:
        for slot in self.slots:
            if slot not in self._standby:
                self._start(slot, joining=False)
            elif slot not in self.world.hosts:
                process = incarnation_of(slot, 0)
                self.world.hosts[slot] = absent(self._endpoint(process, slot in self.gateways, joining=True))

    def _come(self, slot: int) -> None:
        """Somebody on standby comes, unless it was called before."""
        if slot in self._not_yet and not self.lives.is_dead:
            self.world.sometimes.reach("join")
            self._revive(slot)

    def _start(self, slot: int, *, joining: bool) -> None:
        process = incarnation_of(slot, self._incarnations.get(slot, 0))
        is_gateway = slot in self.gateways
        recorder = self._open_log(process, "gateway" if is_gateway else "app")
        host = Host(self._endpoint(process, is_gateway, joining), recorder, self._on_batch(is_gateway))
        if is_gateway and self.settings.keepers:
            self.lives.open_journal(host)
        host.view = None if joining else self._first_view(host)
        recorder.began("join" if joining or self.lives.life else "start", host.view, self.world.now)
        self.world.start(host)
        if slot in self._senders:
            self.application.begin(host)

    def _first_view(self, host: Host) -> View:
        return View(1, tuple(self.lives.founders()))

    def _endpoint(self, process: ProcessId, is_gateway: bool, joining: bool) -> Member:
        if not is_gateway:
            return self._member(process, self.settings, joining)
        settings = gateway_settings(self.settings)
        group = self._member(process, settings, joining)
        retry_after = 2 * settings.suspect_after
        gateway = GroupGateway(
            process,
            self.lives.founders(),
            self.joins,
            retry_after,
            joining=joining,
            keeping=bool(self.settings.keepers),
            recovered=self.lives.recovered,
        )
        if self._tight:
            tighten(gateway.exports.values())
        return GatewayMember(group, gateway)

    def _member(self, process: ProcessId, settings: GroupSettings, joining: bool) -> Group:
        members = self.lives.everybody() if joining else self.lives.founders()
        now = self.world.now
        return GroupMember(process, members, ORDERS[self.system.order], settings, now, joining=joining)

    def _on_batch(self, is_gateway: bool) -> Callable[..., None]:
        return _nothing if is_gateway else self.application.on_batch

    def _revive(self, slot: int) -> None:
        if slot in self._not_yet:
            self._not_yet.discard(slot)
        else:
            self._incarnations[slot] = self._incarnations.get(slot, 0) + 1
            if slot in self.gateways:
                self.world.sometimes.reach("gateway came back")
        self._start(slot, joining=True)

    def revive(self) -> None:
        """What an operator does in the end: whoever is gone is started anew."""
        if self.lives.is_dead:
            return
        for slot in self.slots:
            if not self.world.hosts[slot].alive:
                self._revive(slot)

    # What has happened to it

    def ended(self, host: Host) -> None:
        """Count what the end of a process was. The end of a whole site is another matter: it begins again."""
        if self.lives.is_dead:
            return
        reach = self.world.sometimes.reach
        if host.ended == "crash" and group_of(host).membership.blocked:
            reach("crash in a view change")
        if isinstance(host.endpoint, GatewayMember):
            if host.ended == "crash":
                reach("gateway crashed")
                if any(export.leads for export in host.endpoint.gateway.exports.values()):
                    reach("sequencer crashed")
            elif host.ended == "leave":
                reach("gateway left")
        if self.joins and self.system.delivery == "fast" and host.ended != "leave":
            name = self.world.names.name(host.id)
            self.world.causes.note("fast-delivery", f"{name} was gone at {self.world.now} ns")
        self._count_lost_quorum()
        self._look_after_joins(slot_of(host.id))

    def _count_lost_quorum(self) -> None:
        if self.without_quorum() and self._quorum_lost_in != self._latest.number:
            self._quorum_lost_in = self._latest.number
            self.world.sometimes.reach("quorum lost")

    def viewed(self, host: Host) -> None:
        if host.view is not None and life_of(host.id) == self.lives.life and host.view.number > self._latest.number:
            self._latest = host.view
            for slot in sorted(self.gateways):
                self._look_after_joins(slot)

    def _look_after_joins(self, slot: int) -> None:
        """A join needs, at all times, a gateway on each side that knows what is outstanding."""
        for plan in self.joins:
            if slot in plan.fellows and not any(map(self._serves, plan.fellows)):
                if plan.join not in self._bereft:
                    self.world.sometimes.reach("last gateway gone")
                    self._bereft.add(plan.join)
            elif slot in plan.fellows:
                self._bereft.discard(plan.join)

    def _serves(self, slot: int) -> bool:
        """Whether the gateway in this slot is there, is in the group, and knows what its fellows know."""
        host = self.world.hosts[slot]
        return self._is_there(slot) and host.id in self._latest.members

    def _is_there(self, slot: int) -> bool:
        host = self.world.hosts[slot]
        assert isinstance(host.endpoint, GatewayMember)
        return host.alive and host.endpoint.gateway.is_caught_up

    def without_quorum(self) -> str:
        """Who cannot go on, because too many are gone, in words; empty if that is nobody.

        A quorum has to be left of the latest view, and of the latest that somebody who lives is in: if the only ones
        who knew of a later one are gone, the others need a quorum of theirs to find out.
        """
        living = {host.id: host for slot in self.slots if (host := self.world.hosts[slot]).alive}
        known = [host.view for host in living.values() if host.view is not None]
        latest = max(known, key=lambda view: view.number, default=self._latest)
        sound = all(
            is_quorum([each for each in view.members if each in living], view.members)
            for view in (latest, self._latest)
        )
        return "" if sound else "the group"

    def note_causes(self) -> None:
        if not self.lives.is_dead and (who := self.without_quorum()):
            self.world.causes.note("lost-quorum", f"{who} of {self.system.name} has lost its quorum")

    def unfinished(self) -> str:
        """What a living process is not done with, in words; empty when all are."""
        if self.lives.is_dead:
            return f"{self.system.name} has died and not begun again"
        living = [host for slot in self.slots if (host := self.world.hosts[slot]).alive]
        for host in living:
            reason = self._unfinished_at(host, living)
            if reason:
                return f"{self.world.names.name(host.id)} {reason}"
        return ""

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        names = self.world.names
        if host.view is None:
            return "is not let in"
        if set(host.view.members) != {each.id for each in living}:
            members = ", ".join(names.name(member).process for member in host.view.members)
            return f"is in view {host.view.number} of {members}, which are not all that live"
        group = group_of(host)
        for hold in group.waiting():
            return f"holds batch {hold.batch.number} of {names.name(hold.batch.sender)}: {hold.reason}"
        if group.unfinished():
            return f"has {group.unfinished()} messages that are not stable"
        return not_confirmed(host)


def absent(endpoint: Member) -> Host:
    """The place of a process that has not come yet."""
    host = Host(endpoint, None, _nothing)
    host.alive = False
    return host


def not_confirmed(host: Host) -> str:
    """What a gateway has to see through yet, in words; empty if there is nothing."""
    if isinstance(host.endpoint, GatewayMember) and host.endpoint.gateway.unfinished():
        return f"has {host.endpoint.gateway.unfinished()} messages that the far side has not confirmed"
    return ""


def tighten(exports: Iterable[Export]) -> None:
    """Give joins windows and blocks so small that short runs fill them and use all links."""
    for export in exports:
        share = export.share
        if isinstance(share, Sequenced):
            share.window, share.block_messages = JOIN_WINDOW, JOIN_BLOCK
        elif isinstance(share, Counted):
            share.window, share.stripe = JOIN_WINDOW, JOIN_BLOCK


def _nothing(host: Host, batch: object) -> None:
    """Gateways' own deliveries are not application events."""


def _traits(system: System, simulation: Simulation) -> Traits:
    own = frozenset({"join"} if system.standby else ())
    return Traits(holds=system.order == "causal", sequenced=system.order == "total", own=own)


GROUP = SimulatedKind(make=SimulatedSystem, traits=_traits)

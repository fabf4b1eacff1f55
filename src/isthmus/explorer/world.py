"""All sites and the links between them: one state of everything, and every state that can follow.

A state is a tuple of small numbers, one for each site and a last one for the links, with the crashes and the jumps of
time that are left. Two sites meet only in the queues of links, so a step of the whole is a step of one site and a
change of queues, both looked up.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from isthmus.core.gateway import Gateway
from isthmus.core.ids import Nanos, ProcessId, ProcessName, incarnation_of
from isthmus.explorer.account import AccountLine, account
from isthmus.explorer.intern import Interner
from isthmus.explorer.log import ExploredLog
from isthmus.explorer.scenario import Ledger, Scenario, first_of
from isthmus.explorer.site import CRASHED, ExploredSite, Pdus, Wire
from isthmus.explorer.step import END, BrokenPromise, Direction, PduNumber, Step, StepEvent, token_of
from isthmus.join.grouped import GroupGateway
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans
from isthmus.topology.wiring import all_links

State: TypeAlias = tuple[int, ...]
Queue: TypeAlias = tuple[PduNumber, ...]

DEAF: Queue = (-2,)
"""The queue towards a gateway that has crashed: whatever is put there is gone."""

JUMPS_OF_TIME = 2

NOTHING = Step(0, 0, (), False, (), 0, 0, None, ())


class Net(NamedTuple):
    queues: tuple[Queue, ...]
    crashes: int
    jumps: int


class LinkArrival(NamedTuple):
    """A PDU that can come off a link now, where, and the links afterwards."""

    site: int
    direction: Direction
    pdu: PduNumber
    net: int


class ExploredWorld:
    """`successors` is the whole behaviour; `judge` and `judge_end` are what only the whole can tell."""

    def __init__(self, topology: Topology, gateways: Mapping[ProcessId, Gateway], scenario: Scenario) -> None:
        self.topology = topology
        self.directory = topology.directory()
        self.links = all_links(topology)
        self.ledger = Ledger(scenario.sends, topology.promise(), self.directory)
        self.pdus = Pdus()
        systems = {system.name: index for index, system in enumerate(topology.systems)}
        wires: list[list[Wire]] = [[] for _ in systems]
        self._receivers: list[int] = []
        striped = {
            (system.name, plan.join)
            for system in topology.systems
            for plan in plans(topology, system.name)
            if plan.share == "striped"
        }
        for number, link in enumerate(self.links):
            for end, other, out, into in (
                (link.near, link.far, 2 * number, 2 * number + 1),
                (link.far, link.near, 2 * number + 1, 2 * number),
            ):
                rank = topology.system(end.system).members.index(end.process)
                patient = (end.system, link.join) in striped
                wires[systems[end.system]].append(
                    Wire(number, link.join, rank, first_process(topology, other), out, into, patient)
                )
            self._receivers += [systems[link.far.system], systems[link.near.system]]
        self.sites: list[Any] = [
            (ExploredLog if system.acts_alone else ExploredSite)(
                index, topology, wires[index], self.ledger, scenario, self.pdus
            )
            for index, system in enumerate(topology.systems)
        ]
        self._reduced = scenario.reduced
        self.nets: Interner[Net] = Interner()
        self._after: dict[Hashable, int] = {}
        self._arrivals: dict[int, tuple[LinkArrival, ...]] = {}
        self._connected: dict[tuple[tuple[bool, ...], ...], list[set[int]]] = {}
        self._histories: dict[tuple[int, ...], BrokenPromise | None] = {}
        self._site_of = {member: site.index for site in self.sites for member in site.ids}
        self.start = self._start(gateways, scenario)
        self.judges_all = self.ledger.promise == "total"

    @property
    def reactions(self) -> int:
        return sum(len(site.reactions) for site in self.sites)

    def account(self, events: Sequence[StepEvent]) -> tuple[AccountLine, ...]:
        return account(self, events)

    def _start(self, gateways: Mapping[ProcessId, Gateway], scenario: Scenario) -> State:
        ends = [end for link in self.links for end in (link.far, link.near)]
        queues = tuple(() if first_process(self.topology, end) in gateways else DEAF for end in ends)
        net = self._number(Net(queues, scenario.crashes, JUMPS_OF_TIME))
        numbers = []
        for site in self.sites:
            step = site.start(gateways)
            numbers.append(step.target)
            net = self._carry(net, step)
        return (*numbers, net)

    # Steps

    def successors(self, state: State) -> tuple[list[tuple[State, Step]], bool]:
        """All that can happen next, and whether nothing more has to: crashes never have to."""
        net = state[-1]
        sites = self.sites
        arriving = self._arriving(net)
        for index, direction, pdu, following in arriving:
            if self._reduced and sites[index].ignores(state[index], direction, pdu):
                # Whatever else can happen now can happen after it just as well: this alone, and it is no event.
                return [((*state[:-1], following), NOTHING)], False
        moves = [site.moves(number) for site, number in zip(sites, state, strict=False)]
        found: list[tuple[State, Step]] = []
        for index, each in enumerate(moves):
            self._follow(found, state, index, each.usual, net)
        for index, direction, pdu, following in arriving:
            self._follow(found, state, index, (sites[index].take(state[index], direction, pdu),), following)
        if not found:
            for index, site in enumerate(sites):
                if not found:
                    self._follow(found, state, index, site.late(state[index]), net)
            if not found:
                found += self._jump(state)
        for index, each in enumerate(moves):
            self._follow(found, state, index, each.deliveries, net)
        end = not found
        if self.nets[net].crashes:
            for index, site in enumerate(sites):
                self._follow(found, state, index, site.crashes(state[index]), net)
        return found, end

    def _follow(
        self, found: list[tuple[State, Step]], state: State, index: int, steps: tuple[Step, ...], net: int
    ) -> None:
        """Add the states that steps of one site lead to. Runs once per transition: nothing here can be saved."""
        before, behind = state[:index], state[index + 1 : -1]
        for step in steps:
            following = self._carry(net, step) if step.frames or step.crash else net
            found.append(((*before, step.target, *behind, following), step))

    def _jump(self, state: State) -> list[tuple[State, Step]]:
        """Nothing can happen, so time passes until somebody wants to be woken."""
        net = self.nets[state[-1]]
        due = self._due(state)
        if not due or not net.jumps:
            return []
        following = self._number(net._replace(jumps=net.jumps - 1))
        numbers = []
        steps = []
        for site, number in self._numbered(state):
            step = site.awaken(number, min(due))
            numbers.append(step.target)
            following = self._carry(following, step)
            steps.append(step)
        return [((*numbers, following), _joint(steps))]

    def _due(self, state: State) -> list[Nanos]:
        return [due for site, number in self._numbered(state) if (due := site.deadline(number)) is not None]

    def waits(self, state: State) -> bool:
        """Whether somebody wants to be woken."""
        return bool(self._due(state))

    def _numbered(self, state: State) -> list[tuple[ExploredSite, int]]:
        return list(zip(self.sites, state[:-1], strict=True))

    # Links

    def _number(self, net: Net) -> int:
        return self.nets.number(net, net)

    def _carry(self, number: int, step: Step) -> int:
        """Put on links what a step has for them. A crash ends what comes from there, and all that goes there."""
        key = (number, step.frames, step.closes)
        known = self._after.get(key)
        if known is None:
            net = self.nets[number]
            queues = list(net.queues)
            for direction, pdu in step.frames:
                if queues[direction] != DEAF:
                    queues[direction] = self._behind_its_like(queues[direction], pdu)
            for direction in step.closes:
                queues[direction] = DEAF
            known = self._number(net._replace(queues=tuple(queues), crashes=net.crashes - step.crash))
            self._after[key] = known
        return known

    def _behind_its_like(self, queue: Queue, pdu: PduNumber) -> Queue:
        """Words and blocks are two queues of one link (docs/design/links.md), kept in one: first all words."""
        before = self._before_the_present(queue)
        queue, former = queue[before:], queue[:before]
        place = len(queue) if pdu < 0 or self.pdus.is_block(pdu) else self._words(queue)
        return (*former, *queue[:place], pdu, *queue[place:])

    def _before_the_present(self, queue: Queue) -> int:
        """How much of a queue was put there before the gateway that is there now."""
        return max((place + 1 for place, pdu in enumerate(queue) if token_of(pdu) > 0), default=0)

    def _words(self, queue: Queue) -> int:
        """How many of a queue are words; behind them come the blocks, and at last perhaps the end."""
        return next((place for place, pdu in enumerate(queue) if pdu < 0 or self.pdus.is_block(pdu)), len(queue))

    def _arriving(self, number: int) -> tuple[LinkArrival, ...]:
        known = self._arrivals.get(number)
        if known is None:
            known = self._arrivals[number] = tuple(self._all_arriving(number))
        return known

    def _all_arriving(self, number: int) -> list[LinkArrival]:
        """The next word and the next block of each link; where the far end has crashed, the end, as all may be lost."""
        found = []
        net = self.nets[number]
        for direction, queue in enumerate(net.queues):
            if not queue or queue == DEAF:
                continue
            places = {0, min(self._words(queue), len(queue) - 1)} if queue[0] >= END else {0}
            if END in queue:
                places.add(queue.index(END))
            for place in sorted(places):
                rest = queue[place + 1 :] if queue[place] == END else (*queue[:place], *queue[place + 1 :])
                queues = (*net.queues[:direction], rest, *net.queues[direction + 1 :])
                if queue[place] < END and END not in rest:
                    # Who has come hears what is said from now on.
                    queues = (*queues[: direction ^ 1], (), *queues[(direction ^ 1) + 1 :])
                following = self._number(net._replace(queues=queues))
                found.append(LinkArrival(self._receivers[direction], direction, queue[place], following))
        return found

    # Judgement

    def judge(self, after: State, step: Step) -> BrokenPromise | None:
        """What a step did that only the whole can tell to be wrong."""
        ledger = self.ledger
        if step.relayed:
            sent = 0
            for site, number in self._numbered(after):
                for process in site.rules.processes:
                    sent |= site.states[number].system.given[process]
            if step.relayed & ~sent:
                text = ledger.text(first_of(step.relayed & ~sent))
                return BrokenPromise("integrity", "", text, "", f"{text} is broadcast by a gateway before it was sent")
        if step.settles:
            for index, (site, number) in enumerate(self._numbered(after)):
                missing = step.settles & ~site.rules.floor(site.states[number].system)
                for bit in self._reachable(after, index, missing):
                    text = ledger.text(bit)
                    why = f"{text} is settled where it was sent, but not every process of {site.name} has delivered it"
                    return BrokenPromise("stable", site.name, text, "", why)
        return self._judge_total(after) if ledger.promise == "total" else None

    def rest(self, state: State) -> tuple[StepEvent, ...]:
        """What processes may have left for the end, where they deliver only when it matters."""
        return tuple(event for site, number in self._numbered(state) for event in site.rest(number))

    def judge_end(self, state: State) -> BrokenPromise | None:
        """Nothing can happen any more: every message must be everywhere."""
        for index, (site, number) in enumerate(self._numbered(state)):
            missing = self.ledger.everything & ~site.rules.everything(site.states[number].system)
            for bit in self._reachable(state, index, missing if site.rules.processes else 0):
                process, text = site.names[site.rules.processes[0]], self.ledger.text(bit)
                why = f"{text} was sent, and nothing can happen any more, but {process} has not delivered it"
                return BrokenPromise("agreement", process, text, "", why)
        return None

    def _reachable(self, state: State, site: int, messages: int) -> list[int]:
        """Those of the messages whose origin is still connected with a site by links with two live ends."""
        if not messages:
            return []
        alive = tuple(
            tuple(gateway != CRASHED for gateway in each.states[number].gateways)
            for each, number in self._numbered(state)
        )
        if alive not in self._connected:
            self._connected[alive] = self._parts(alive)
        part = next(part for part in self._connected[alive] if site in part)
        return [bit for origin, bit in self.ledger.origins() if bit & messages and self._site_of[origin] in part]

    def _parts(self, alive: tuple[tuple[bool, ...], ...]) -> list[set[int]]:
        """A join whose links are all dead connects nothing; without a live gateway nothing could be promised."""
        parts = [{index} for index in range(len(self.sites))]
        for number in range(len(self.links)):
            ends = [
                (site.index, alive[site.index][site.wire_of[number].gateway - site.rules.gateways.start])
                for site in self.sites
                if number in site.wire_of
            ]
            if all(up for _, up in ends):
                joined = [part for part in parts if any(index in part for index, _ in ends)]
                parts = [part for part in parts if part not in joined] + [set().union(*joined)]
        return parts

    def _judge_total(self, state: State) -> BrokenPromise | None:
        numbers = state[:-1]
        if numbers not in self._histories:
            self._histories[numbers] = self._compare_histories(state)
        return self._histories[numbers]

    def _compare_histories(self, state: State) -> BrokenPromise | None:
        """Two processes that deliver the same two messages in different orders."""
        text = self.ledger.text
        met: dict[tuple[int, int], str] = {}
        for site, number in self._numbered(state):
            for process, history in enumerate(site.states[number].system.histories):
                for place, first in enumerate(history):
                    for second in history[place + 1 :]:
                        met.setdefault((first, second), site.names[process])
                        other = met.get((second, first))
                        if other is not None:
                            name = site.names[process]
                            why = f"{name} delivers {text(first)} before {text(second)}, {other} the other way round"
                            return BrokenPromise("total", name, text(first), text(second), why)
        return None


def _joint(steps: Sequence[Step]) -> Step:
    """Several steps as one, for the search: all that they did, without where each of them led."""
    events = tuple(event for step in steps for event in step.events)
    relayed = settles = 0
    for step in steps:
        relayed |= step.relayed
        settles |= step.settles
    violation = next((step.violation for step in steps if step.violation), None)
    return steps[-1]._replace(
        cost=max(1, len(events)), events=events, violation=violation, relayed=relayed, settles=settles
    )


def first_process(topology: Topology, end: ProcessName) -> ProcessId:
    """Who is in a gateway's place at the start. That of a log has taken its claim, with the first token."""
    slot = topology.directory().id(*end)
    return incarnation_of(slot, 1) if topology.system(end.system).acts_alone else slot


def make_gateways(topology: Topology) -> dict[ProcessId, Gateway]:
    """All gateways that a topology begins with, as they are then, by process id."""
    made: dict[ProcessId, Gateway] = {}
    directory = topology.directory()
    for system in topology.systems:
        joins = plans(topology, system.name)
        founders = [directory.id(system.name, name) for name in system.founders]
        for slot in topology.gateway_slots(system.name):
            if system.acts_alone:
                # Its log starts it, and another one when it is gone.
                made[incarnation_of(slot, 1)] = GroupGateway(slot, founders, joins)
            elif slot in founders:
                made[slot] = GroupGateway(slot, founders, joins)
    return made

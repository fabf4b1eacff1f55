"""Every schedule of a few messages that are for some processes only: what clusters and daisies have in common.

The processes are machines without a clock, and between any two of them is a channel, FIFO and reliable. What can happen
next is that a process sends its next message, or that the first item on any channel arrives. Judged at every step are
causal order and exactly once, by definition: who delivers a message has delivered all its causes that are for it.

A state is a tuple of small numbers: what was sent, the channels, the causality so far, and one for each process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from isthmus.core.ids import Directory, ProcessId, ProcessName
from isthmus.explorer.account import AccountLine
from isthmus.explorer.intern import Interner
from isthmus.explorer.scenario import first_of
from isthmus.explorer.step import BrokenPromise, Step, StepEvent
from isthmus.explorer.world import State
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import Directed

DEFAULT_MESSAGES = 3


class Forkable(Protocol):
    """What a process of a world is."""

    def fork(self) -> Self: ...
    def snapshot(self) -> Hashable: ...


Machine = TypeVar("Machine", bound=Forkable)
Item = TypeVar("Item", bound=Hashable)


class ScenarioMessage(NamedTuple):
    """A message of the scenario: sent when all that its sender sends before is sent, and `needs` is delivered."""

    bit: int
    sender: ProcessId
    destinations: tuple[ProcessId, ...]
    earlier: int
    needs: int

    @property
    def destination(self) -> ProcessId:
        """Where there is only one."""
        return self.destinations[0]


class Past(NamedTuple):
    """The causality of a schedule, as sets of messages. `known` and `delivered` are by process, `causes` by message.

    `inside` and `inside_causes` are the same within single clusters, by (cluster, process) and (cluster, message):
    there a message is sent and delivered once more for each cluster on its way.
    """

    known: tuple[int, ...]
    delivered: tuple[int, ...]
    causes: tuple[int, ...]
    inside: tuple[tuple[tuple[int, ProcessId], int], ...] = ()
    inside_causes: tuple[tuple[tuple[int, int], int], ...] = ()


class ProcessReaction(NamedTuple):
    """What a process did about an input: its state afterwards, what it delivered, what it relayed, and the items."""

    machine: int
    delivered: tuple[int, ...]
    relayed: tuple[int, ...]
    items: tuple[tuple[ProcessId, Any], ...]


class StepJudge:
    """The causality of one step while it is made, and the first thing that is wrong with it."""

    def __init__(self, world: AddressedWorld[Any, Any], past: Past) -> None:
        self._world = world
        self._past = past
        self.violation: BrokenPromise | None = None

    def delivers(self, place: int, number: int) -> None:
        """By an application process: causal order and integrity, by their definition."""
        world, past = self._world, self._past
        name, bit = world.name(world.processes[place]), 1 << number
        if past.delivered[place] & bit or not world.is_for(number, place):
            self._violated(
                "integrity", name, number, None, f"{name} delivers {world.text(number)} again, or by mistake"
            )
        missing = past.causes[number] & world.mask_for(place) & ~past.delivered[place]
        if missing:
            cause = first_of(missing).bit_length() - 1
            why = f"{name} delivers {world.text(number)}, but its cause {world.text(cause)} has not been delivered here"
            self._violated("causal", name, cause, number, why)
        known = past.known[place] | past.causes[number] | bit
        self._past = past._replace(
            known=_put(past.known, place, known), delivered=_put(past.delivered, place, past.delivered[place] | bit)
        )

    def past(self) -> Past:
        return self._past

    def _violated(self, judged: str, name: str, first: int, second: int | None, why: str) -> None:
        if self.violation is None:
            text = self._world.text
            self.violation = BrokenPromise(judged, name, text(first), "" if second is None else text(second), why)


class AddressedWorld(ABC, Generic[Machine, Item]):
    """`successors` is the whole behaviour. Processes are forked, never run on; equal ones are stored once."""

    judges_all = False
    make_judge: ClassVar[type[StepJudge]] = StepJudge

    def __init__(self, machines: dict[ProcessId, Machine], names: Directory, messages: Sequence[Directed]) -> None:
        self.names = names
        self.processes = sorted(machines)
        self.messages: list[ScenarioMessage] = []
        for number, each in enumerate(messages):
            sender = names.id(*each.sender)
            destinations = tuple(names.id(*name) for name in each.destinations)
            earlier = sum(other.bit for other in self.messages if other.sender == sender)
            needs = 1 << (each.after - 1) if each.after else 0
            self.messages.append(ScenarioMessage(1 << number, sender, destinations, earlier, needs))
        self._for = [
            sum(each.bit for each in self.messages if process in each.destinations) for process in self.processes
        ]
        self._machines: list[Interner[Machine]] = [Interner() for _ in self.processes]
        self._nets: Interner[dict[tuple[ProcessId, ProcessId], tuple[Item, ...]]] = Interner()
        self._pasts: Interner[Past] = Interner()
        self._reactions: dict[Hashable, ProcessReaction] = {}
        size = len(self.processes)
        past = Past((0,) * size, (0,) * size, (0,) * len(self.messages))
        kept = [self._keep(place, machines[process]) for place, process in enumerate(self.processes)]
        self.start: State = (0, self._nets.number((), {}), self._pasts.number(past, past), *kept)

    @property
    def reactions(self) -> int:
        return len(self._reactions)

    # Steps

    def successors(self, state: State) -> tuple[list[tuple[State, Step]], bool]:
        sent, net, past = state[0], state[1], self._pasts[state[2]]
        found = []
        for each in self.messages:
            if not sent & each.bit and sent & each.earlier == each.earlier:
                if past.delivered[self.processes.index(each.sender)] & each.needs == each.needs:
                    found.append(self._send(state, each))
        found += [self._arrive(state, *line) for line in sorted(self._nets[net])]
        return found, not found

    def _send(self, state: State, message: ScenarioMessage) -> tuple[State, Step]:
        place = self.processes.index(message.sender)
        number = message.bit.bit_length() - 1
        reaction = self._react(place, state[3 + place], None, number)
        past = self._pasts[state[2]]
        causes = past.known[place]
        past = past._replace(
            causes=_put(past.causes, number, causes), known=_put(past.known, place, causes | message.bit)
        )
        judge = self.make_judge(self, past)
        self._judge_send(judge, message.sender, number, reaction)
        for each in reaction.delivered:
            judge.delivers(place, each)
        event = StepEvent("send", 0, message.sender, (number,))
        return self._after(state, place, reaction, judge, event, state[0] | message.bit, self._nets[state[1]])

    def _arrive(self, state: State, source: ProcessId, destination: ProcessId) -> tuple[State, Step]:
        place = self.processes.index(destination)
        queues = dict(self._nets[state[1]])
        item, *rest = queues.pop((source, destination))
        if rest:
            queues[source, destination] = tuple(rest)
        reaction = self._react(place, state[3 + place], source, item)
        judge = self.make_judge(self, self._pasts[state[2]])
        self._judge_arrival(judge, place, item, reaction)
        event = StepEvent("take", 0, destination, (source, item, reaction))
        return self._after(state, place, reaction, judge, event, state[0], queues)

    def _after(
        self,
        state: State,
        place: int,
        reaction: ProcessReaction,
        judge: StepJudge,
        event: StepEvent,
        sent: int,
        queues: dict[tuple[ProcessId, ProcessId], tuple[Item, ...]],
    ) -> tuple[State, Step]:
        queues = dict(queues)
        for peer, item in reaction.items:
            line = (self.processes[place], peer)
            queues[line] = (*queues.get(line, ()), item)
        machines = list(state[3:])
        machines[place] = reaction.machine
        net = self._nets.number(tuple(sorted(queues.items(), key=lambda each: each[0])), queues)
        past = judge.past()
        after = (sent, net, self._pasts.number(past, past), *machines)
        return after, Step(0, 1, (), False, (), 0, 0, judge.violation, (event,))

    def _react(self, place: int, machine: int, source: ProcessId | None, what: int | Item) -> ProcessReaction:
        key = (place, machine, source, what)
        known = self._reactions.get(key)
        if known is None:
            fork = self._machines[place][machine].fork()
            known = self._reactions[key] = self._run(place, fork, source, what)
        return known

    @abstractmethod
    def _run(self, place: int, machine: Machine, source: ProcessId | None, what: int | Item) -> ProcessReaction:
        """One input to a process that may be changed: the number of a message to send, or an item from `source`."""

    def _keep(self, place: int, machine: Machine) -> int:
        return self._machines[place].number(machine.snapshot(), machine)

    # Judgement

    def _judge_send(self, judge: Any, sender: ProcessId, number: int, reaction: ProcessReaction) -> None:
        """What is to be judged about a send, besides deliveries."""

    def _judge_arrival(self, judge: Any, place: int, item: Item, reaction: ProcessReaction) -> None:
        for number in reaction.delivered:
            judge.delivers(place, number)

    def judge(self, after: State, step: Step) -> BrokenPromise | None:
        """Everything is judged where it happens."""
        return None

    def judge_end(self, state: State) -> BrokenPromise | None:
        """Nothing can happen any more: everything must be sent, and be where it belongs."""
        past = self._pasts[state[2]]
        for process, mask, delivered in zip(self.processes, self._for, past.delivered, strict=True):
            if mask & ~delivered:
                missing = first_of(mask & ~delivered).bit_length() - 1
                name, text = self.name(process), self.text(missing)
                why = f"{text} is for {name}, and nothing can happen any more, but it is not delivered"
                return BrokenPromise("agreement", name, text, "", why)
        return None

    def rest(self, state: State) -> tuple[StepEvent, ...]:
        return ()

    def waits(self, state: State) -> bool:
        """Time stands still here."""
        return False

    def is_for(self, number: int, place: int) -> bool:
        return self.processes[place] in self.messages[number].destinations

    def mask_for(self, place: int) -> int:
        return self._for[place]

    # Words

    def text(self, number: int) -> str:
        return f"message {number + 1}"

    def name(self, process: ProcessId) -> str:
        return str(self.names.name(process))

    def account(self, events: Sequence[StepEvent]) -> tuple[AccountLine, ...]:
        return tuple(self._line(number, event) for number, event in enumerate(events, start=1))

    def _line(self, number: int, event: StepEvent) -> AccountLine:
        where = self.name(event.process)
        if event.kind == "send":
            (message,) = event.subject
            whom = ", ".join(map(self.name, self.messages[message].destinations))
            return AccountLine(number, 0, where, f"sends {self.text(message)} to {whom}")
        source, item, reaction = event.subject
        then = [f"delivers {self.text(each)}" for each in reaction.delivered]
        then += [f"relays {self.text(each)}" for each in reaction.relayed]
        return AccountLine(
            number, 0, where, f"takes {self._words(source, item)}", tuple(then + self._rest(item, reaction))
        )

    @abstractmethod
    def _words(self, source: ProcessId, item: Item) -> str:
        """What arrives, and from whom."""

    @abstractmethod
    def _rest(self, item: Item, reaction: ProcessReaction) -> list[str]:
        """What else follows from it."""


def directed_of(topology: Topology, messages: int | None = None) -> tuple[Directed, ...]:
    """What the file says; else a few messages, from each process to the next, but for those on standby."""
    if topology.exploration.messages and messages is None:
        return topology.exploration.messages
    names = [ProcessName(system.name, name) for system in topology.systems for name in system.founders]
    count = DEFAULT_MESSAGES if messages is None else messages
    return tuple(
        Directed(sender=names[each % len(names)], destination=names[(each + 1) % len(names)]) for each in range(count)
    )


def _put(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def bits(mask: int) -> Iterable[int]:
    """The numbers of the messages in a set."""
    while mask:
        yield first_of(mask).bit_length() - 1
        mask &= mask - 1

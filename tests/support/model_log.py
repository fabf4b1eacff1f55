"""Durable logs in memory, their gateways and the links between them, played step by step in any order.

A log keeps its promises (docs/design/logs.md) and nothing else. Gateways die at any moment, with reads, appends and
blocks under way, and are replaced by one that claims the log; some of those who died do not know it, and go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import LinkId, ProcessId, incarnation_of, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Segment
from isthmus.core.wire.join import Block, LinkPdu
from isthmus.join.logged import LogGateway
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans
from isthmus.topology.wiring import all_links

Entry = tuple[ProcessId, int]


class ModelLog:
    """`record` is what was brought in, `checkpoint` from where a gateway has to read, with the marks there."""

    def __init__(self, origin: ProcessId) -> None:
        self.origin = origin
        self.entries: list[Entry] = []
        self.local = 0
        self.record: dict[ProcessId, int] = {}
        self.token = 0
        self.checkpoint: tuple[int, dict[ProcessId, int]] = (0, {})

    def write(self) -> None:
        """A client that nobody has changed appends."""
        self.local += 1
        self.entries.append((self.origin, self.local))

    def append(
        self, token: int, segment: Segment, record: dict[ProcessId, int], expected: dict[ProcessId, int]
    ) -> bool:
        """One atomic step; says whether it was taken."""
        if token != self.token or expected != self.record:
            return False
        self.entries.extend(segment.ids())
        self.record = record
        return True


class Runner:
    """Runs one gateway. `appends` are under way to the broker, pipelined: each expects the record of the one before."""

    def __init__(self, process: ProcessId, log: ModelLog, topology: Topology, system: str) -> None:
        self.gateway = LogGateway(process, plans(topology, system))
        self.log = log
        self.out = Outbox()
        log.token += 1
        self.token = log.token
        self.position, begin = log.checkpoint
        self.marks = SlotMarks(begin.items())
        self.appends: deque[tuple[Segment, dict[ProcessId, int], dict[ProcessId, int]]] = deque()
        self._record = dict(log.record)
        self.is_durable = True
        self.superseded = False
        self.links: list[tuple[LinkId, LinkPdu]] = []

    def claim(self, now: int) -> None:
        self.step(self.gateway.claimed, self.token, dict(self.log.record), dict(self.log.checkpoint[1]), now)

    def step(self, action: Callable[..., None], *arguments: object) -> None:
        out = self.out
        action(*arguments, out)
        self.gateway.invariants()
        for segment in out.relays:
            before, self._record = self._record, dict(self.gateway.record_after([segment]))
            self.appends.append((segment, self._record, before))
        assert not any(fellows for fellows, _ in out.to_fellows), "nobody else is there"
        self.links += out.links
        out.clear()

    def read(self, count: int, now: int) -> None:
        entries = self.log.entries[self.position : self.position + count]
        self.position += len(entries)
        segment = Segment.pack([(origin, seq, b"%d/%d" % (origin, seq)) for origin, seq in entries])
        self.marks.update(segment.marks)
        self.is_durable = False
        self.step(self.gateway.read, segment, now)

    def settle(self) -> None:
        self.is_durable = True
        self.step(self.gateway.durable, dict(self.marks.items()))

    def append(self) -> None:
        if not self.log.append(self.token, *self.appends.popleft()):
            self.superseded = True

    def note(self) -> None:
        """Write down how far everything is confirmed. An old gateway's note is refused, like its appends."""
        place, marks = self.log.checkpoint
        marks = dict(marks)
        for origin, seq in self.log.entries[place : self.position]:
            if seq > self.gateway.confirmed.get(origin):
                break
            marks[origin] = seq
            place += 1
        if self.token == self.log.token:
            self.log.checkpoint = (place, marks)


class World:
    """All logs of a topology, each with a gateway; `trouble` of a thousand steps replace one of these."""

    def __init__(self, topology: Topology, seed: int, messages: int, trouble: int) -> None:
        self.topology = topology
        self.random = Random(seed)
        self.now = 0
        self.left = messages
        self.trouble = trouble
        self.replaced = self.refused = 0
        self.logs: dict[str, ModelLog] = {}
        self.runners: dict[str, Runner] = {}
        self.zombies: list[Runner] = []
        self._lives: dict[str, int] = {}
        self._ends: dict[LinkId, tuple[str, str]] = {}
        self._queues: dict[tuple[LinkId, str, bool], deque[LinkPdu]] = {}
        self._ready: set[tuple[LinkId, str]] = set()
        directory = topology.directory()
        for system in topology.systems:
            self.logs[system.name] = ModelLog(directory.id(system.name, system.processes[0]))
        for number, link in enumerate(all_links(topology)):
            self._ends[number] = (link.near.system, link.far.system)
        for name in self.logs:
            self._start(name)

    def _start(self, name: str) -> None:
        slot = next(iter(self.topology.gateway_slots(name)))
        self._lives[name] = life = self._lives.get(name, -1) + 1
        self.runners[name] = runner = Runner(incarnation_of(slot_of(slot), life), self.logs[name], self.topology, name)
        runner.claim(self.now)
        for link, ends in self._ends.items():
            if name in ends:
                for key in [key for key in self._queues if key[0] == link]:
                    del self._queues[key]
                for end in ends:
                    other = ends[1 - ends.index(end)]
                    if end in self.runners and other in self.runners:
                        self._step(end, self.runners[end].gateway.link_up, link, self.runners[other].gateway.id)
                        self._ready.add((link, end))
        self._carry(name)

    def _step(self, name: str, action: Callable[..., None], *arguments: object) -> None:
        self.runners[name].step(action, *arguments, self.now)
        self._carry(name)

    def _carry(self, name: str) -> None:
        runner = self.runners[name]
        for link, pdu in runner.links:
            ends = self._ends[link]
            far = ends[1 - ends.index(name)]
            self._queues.setdefault((link, far, isinstance(pdu, Block)), deque()).append(pdu)
            if isinstance(pdu, Block):
                self._ready.add((link, name))
        runner.links.clear()

    # What can happen

    def _can_happen(self) -> Iterator[tuple[Callable[..., None], tuple[object, ...]]]:
        for name, runner in self.runners.items():
            if self.left:
                yield self._write, (name,)
            if runner.position < len(runner.log.entries):
                yield self._read, (name,)
            if runner.appends:
                yield self._append, (name,)
            if not runner.is_durable:
                yield self._settle, (name,)
        for key, queue in self._queues.items():
            if queue:
                yield self._take, key
        for ready in sorted(self._ready):
            yield self._tell_ready, ready

    def _write(self, name: str) -> None:
        self.left -= 1
        self.logs[name].write()

    def _read(self, name: str) -> None:
        self.runners[name].read(self.random.randrange(1, 5), self.now)
        self._carry(name)

    def _append(self, name: str) -> None:
        self.runners[name].append()
        assert not self.runners[name].superseded, "only its successor may come before a holder of the claim"

    def _settle(self, name: str) -> None:
        self.runners[name].settle()
        self._carry(name)
        self.runners[name].note()

    def _take(self, link: LinkId, name: str, blocks: bool) -> None:
        pdu = self._queues[link, name, blocks].popleft()
        self._step(name, self.runners[name].gateway.from_link, link, [pdu])

    def _tell_ready(self, link: LinkId, name: str) -> None:
        self._ready.discard((link, name))
        self._step(name, self.runners[name].gateway.link_ready, link)

    def _replace(self) -> None:
        name = self.random.choice(sorted(self.runners))
        self.zombies.append(self.runners[name])
        self.replaced += 1
        self._start(name)

    def _play_zombie(self) -> None:
        """One that was replaced goes on: its appends arrive, and it notes how far it is."""
        zombie = self.random.choice(self.zombies)
        if zombie.appends:
            entries = list(zombie.log.entries)
            zombie.append()
            assert zombie.superseded
            assert zombie.log.entries == entries
            self.refused += 1
        zombie.note()

    def run(self) -> None:
        """Until everything is written, carried and confirmed."""
        for _ in range(200_000):
            if self.left and self.random.randrange(1000) < self.trouble:
                self._replace()
            if self.zombies and self.random.randrange(4) == 0:
                self._play_zombie()
            possible = list(self._can_happen())
            if possible:
                action, arguments = self.random.choice(possible)
                action(*arguments)
            elif not self._wake():
                for runner in self.runners.values():
                    runner.note()
                return
        raise AssertionError("it does not come to rest")

    def _wake(self) -> bool:
        """Nothing else can happen: let time pass, if anybody waits for that."""
        due = [each for runner in self.runners.values() if (each := runner.gateway.deadline()) is not None]
        if not due:
            return False
        self.now = max(self.now, min(due))
        for name in sorted(self.runners):
            self._step(name, self.runners[name].gateway.wake)
        return True

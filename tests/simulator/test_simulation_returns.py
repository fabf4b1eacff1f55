"""Processes and gateways that come back again and again: what is kept and said for that does not grow.

Two joined systems, a (p1 p2; gateways g1 g2) and b (q1 q2; h1 h2). In each turn some of them send, one of a crashes
right after that and comes back as a new process, and everything becomes stable. Or all of a die at once, and it goes on
from its journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest

from isthmus.core.freeze import freeze
from isthmus.core.ids import MILLISECOND, LinkId, ProcessId, slot_of
from isthmus.core.wire.join import LinkPdu
from isthmus.join.member import GatewayMember
from isthmus.simulator.run import Run, judge_parts
from isthmus.simulator.world import Host
from isthmus.topology.file import parse
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Role
from isthmus.trace.writer import MemorySink, ProcessLog

TWO_SYSTEMS = """
[systems.a]
kind = "embedded"
order = "ORDER"
processes = ["p1", "p2"]
gateways = ["g1", "g2"]JOURNAL
heartbeat = "5 ms"
suspect-after = "50 ms"
[systems.b]
kind = "embedded"
order = "ORDER"
processes = ["q1", "q2"]
gateways = ["h1", "h2"]
heartbeat = "5 ms"
suspect-after = "50 ms"
[[joins]]
between = ["a", "b"]
order = "JOIN"
links = 2
[simulation]
duration = "1 ms"
[simulation.workload]
rate = 0
[simulation.faults]
swarm = false
"""

FEW = 130
"""More often than a process could return before, and enough to see what grows by one entry each time."""

FEWER = 100
"""Deaths of a whole site take longer."""

BEGINNING = 10
"""Turns until everything is as large as it gets."""


class Returns:
    """Both systems, and what they keep and say: `words` are the numbers in the longest word of each kind on a link."""

    def __init__(self, order: str, join: str, *, journal: bool = False) -> None:
        text = TWO_SYSTEMS.replace("JOURNAL", '\njournal = "journal"' if journal else "")
        self.topology = parse(text.replace("ORDER", order).replace("JOIN", join), "returns.toml")
        self.names = self.topology.directory()
        self.sink = MemorySink()
        self.logs: list[ProcessLog] = []
        self.run = Run(self.topology, 1, check=False, tight=False, record=self.record)
        self.world = self.run.world
        self.words: Counter[str] = Counter()
        self.put_on_link = self.world.send_on_link
        self.world.send_on_link = self.send_on_link
        self.run.begin()
        self.settle()

    def record(self, process: ProcessId, role: Role) -> Recorder:
        name = self.names.name(process)
        self.logs.append(ProcessLog(self.sink, "returns", name.system, name.process, role, self.names))
        return Recorder(process, self.logs[-1])

    def send_on_link(self, link: LinkId, source: ProcessId, pdu: LinkPdu) -> None:
        kind = type(pdu).__name__
        self.words[kind] = max(self.words[kind], entries(freeze(pdu)))
        self.put_on_link(link, source, pdu)

    def host(self, name: str) -> Host:
        return next(host for host in self.world.hosts.values() if self.names.slots[slot_of(host.id)].process == name)

    def turn(self, name: str) -> None:
        for sender in ("p1", "p2", "q1"):
            host = self.host(sender)
            self.world.send(host, host.member.broadcast, [b"one", b"two"])
        self.world.run_until(self.world.now + 2 * MILLISECOND)
        if name == "a":
            self.run.systems[0].lives.die(3 * MILLISECOND)
        else:
            self.world.crash(self.host(name), "as planned")
        self.settle()

    def settle(self) -> None:
        """Whoever is gone comes back, and everything becomes stable."""
        for _ in range(400):
            for system in self.run.systems:
                system.revive()
            self.world.run_until(self.world.now + 5 * MILLISECOND)
            if not any(system.unfinished() for system in self.run.systems) and self.all_are_caught_up():
                return
        raise AssertionError([system.unfinished() for system in self.run.systems])

    def all_are_caught_up(self) -> bool:
        members = [host.endpoint for host in self.world.hosts.values()]
        return all(member.gateway.is_caught_up for member in members if isinstance(member, GatewayMember))

    def kept(self) -> int:
        """What all members keep, in entries."""
        return sum(entries(host.endpoint.snapshot()) for host in self.world.hosts.values())

    def read(self) -> int:
        """How many marks the last life of a has read in its journal."""
        return len(self.run.systems[0].lives.recovered.done)

    def judge(self) -> None:
        for host in self.world.living():
            assert host.recorder is not None
            host.recorder.ended("end", "", self.world.now)
        for log in self.logs:
            log.close()
        report = judge_parts(self.topology, self.sink.events)
        assert report.verdicts
        assert {verdict.verdict for verdict in report.verdicts} == {"holds"}, report.violations[:3]


def entries(state: Hashable) -> int:
    return 1 + sum(map(entries, state)) if isinstance(state, (tuple, frozenset)) else 1


def hold_the_promise(name: str, times: int, order: str, join: str) -> None:
    returns = Returns(order, join, journal=name == "a")
    for _ in range(BEGINNING):
        returns.turn(name)
    returns.turn("g2")
    returns.settle()
    before, words, read = returns.kept(), returns.words, returns.read()
    returns.words = Counter()
    for _ in range(times - BEGINNING):
        returns.turn(name)
    # So that an epoch begins, and everything that a link is told in its life is told.
    returns.turn("g2")
    returns.settle()
    assert returns.host("p1" if name == "a" else name).id >> 16 >= times
    assert returns.read() <= read
    assert bool(read) == (name == "a")
    assert returns.kept() <= before * 1.05, f"{before} entries after {BEGINNING} returns"
    for kind, size in returns.words.items():
        assert size <= words[kind], f"{kind} grew from {words[kind]} to {size} numbers"
    assert returns.words["Resume"]
    assert returns.words["Confirm"]
    returns.judge()


CASES = [
    ("a", "causal", "causal"),
    ("a", "fifo", "fifo"),
    ("p1", "causal", "causal"),
    ("g1", "causal", "causal"),
    ("p1", "fifo", "fifo"),
    ("g1", "total", "causal"),
]


@pytest.mark.parametrize(("name", "order", "join"), [case for case in CASES if case[1] == "causal"])
def test_who_returns_often_is_as_little_to_keep_and_to_tell_as_who_returned_a_few_times(
    name: str, order: str, join: str
) -> None:
    hold_the_promise(name, FEWER if name == "a" else FEW, order, join)


@pytest.mark.real
@pytest.mark.parametrize(("name", "order", "join"), CASES)
def test_the_same_holds_for_a_thousand_returns(name: str, order: str, join: str) -> None:
    hold_the_promise(name, 1_000, order, join)

"""The order of seats where messages come before their causes; what a holder makes of vectors; and the file."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_support import refused

from isthmus.core.endpoint import Hold
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Segment
from isthmus.hierarchy.daisy.early import EarlyServersGroup
from isthmus.hierarchy.daisy.early_orders import SeatOrder
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.record import Causes, pack, unpack_with
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.ordering.group.window import GroupSettings
from isthmus.topology.file import parse

SEATS, MEMBERS = 3, 2
GROUPS = [tuple(range(seat * MEMBERS, seat * MEMBERS + MEMBERS)) for seat in range(SEATS)]
Id = tuple[int, int]


class Daisy:
    """Local groups that deliver in causal order, at any speed; servers that forward in any order that is FIFO.

    Every message goes everywhere. `causes` are all of each one, whatever the vectors say.
    """

    def __init__(self) -> None:
        self.causes: dict[Id, set[Id]] = {}
        self.had: list[set[Id]] = [set() for _ in range(SEATS * MEMBERS)]
        self.heard = [[0] * SEATS for _ in self.had]
        self.taken = [0] * len(self.had)
        self.sent = [0] * len(self.had)
        self.waiting: list[deque[tuple[int, Causes]]] = [deque() for _ in self.had]
        self.streams: list[list[Batch]] = [[] for _ in range(SEATS)]
        self.arrived = [[0] * SEATS for _ in range(SEATS)]
        self.orders = [SeatOrder(GROUPS) for _ in range(SEATS)]
        self.delivered: list[list[Batch]] = [[] for _ in range(SEATS)]
        for seat, order in enumerate(self.orders):
            order.install(range(SEATS), seat, [0] * SEATS)

    def send(self, process: int) -> None:
        group = GROUPS[process // MEMBERS]
        vector = [max((seq for origin, seq in self.had[process] if origin == each), default=0) for each in group]
        self.sent[process] += 1
        self.waiting[process].append((self.sent[process], Causes(vector, 1, self.heard[process].copy())))
        self.causes[process, self.sent[process]] = set(self.had[process])
        self.had[process].add((process, self.sent[process]))

    def have(self, process: int) -> None:
        """What a fellow has sent, and all causes of it; or the next that the server has relayed."""
        seat = process // MEMBERS
        fellows = [each for each in self.causes if each[0] // MEMBERS == seat and each not in self.had[process]]
        if fellows and self.causes[fellows[0]] <= self.had[process]:
            self.had[process].add(fellows[0])
        elif self.taken[process] < len(self.delivered[seat]):
            batch = self.delivered[seat][self.taken[process]]
            self.taken[process] += 1
            self.had[process] |= set(batch.segment.ids())
            if batch.sender != seat:
                self.heard[process][batch.sender] = max(batch.number, self.heard[process][batch.sender])

    def forward(self, process: int) -> None:
        if self.waiting[process]:
            seat = process // MEMBERS
            seq, causes = self.waiting[process].popleft()
            segment = Segment.pack([pack(Clocked(process, seq, b"", (0,), 1), Causes(causes.group, 0, []))])
            self.streams[seat].append(Batch(1, seat, len(self.streams[seat]) + 1, causes.servers, 0, segment))
            self.arrive(seat, seat)

    def arrive(self, source: int, target: int) -> None:
        place = self.arrived[target][source]
        if place < len(self.streams[source]):
            self.arrived[target][source] += 1
            batch, ready, holds = self.streams[source][place], list[Batch](), list[Hold]()
            assert self.orders[target].well_formed(source, batch)
            self.orders[target].arrived(source, batch, ready, holds)
            assert bool(ready) != bool(holds)
            self.delivered[target] += ready

    def play(self, seed: int) -> None:
        rng = Random(seed)
        for _ in range(150):
            self.arrive(rng.randrange(SEATS), rng.randrange(SEATS))
            self.have(rng.randrange(SEATS * MEMBERS))
            rng.choice((self.send, self.forward, self.have))(rng.randrange(SEATS * MEMBERS))
        for process in range(SEATS * MEMBERS):
            while self.waiting[process]:
                self.forward(process)
        for source in range(SEATS):
            for target in range(SEATS):
                while self.arrived[target][source] < len(self.streams[source]):
                    self.arrive(source, target)


class ServersVector(Daisy):
    """The vector of the servers' group is not the origin's, but that of the server when it forwards."""

    def forward(self, process: int) -> None:
        if self.waiting[process]:
            seat = process // MEMBERS
            received = self.orders[seat].received.copy()
            received[seat] = 0  # what comes from its own group, the other vector is for
            seq, causes = self.waiting[process][0]
            self.waiting[process][0] = (seq, Causes(causes.group, 1, received))
        super().forward(process)


@given(st.integers(0, 1 << 32))
def test_seats_deliver_causes_first_and_nobody_waits_in_a_circle(seed: int) -> None:
    """Drawn with a generator: lists of steps that a search makes seldom get anywhere."""
    daisy = Daisy()
    daisy.play(seed)
    for order, delivered in zip(daisy.orders, daisy.delivered, strict=True):
        ids = [each for batch in delivered for each in batch.segment.ids()]
        assert sorted(ids) == sorted(daisy.causes)
        assert not list(order.waiting())
        for place, each in enumerate(ids):
            assert daisy.causes[each] <= set(ids[:place])


def test_with_a_vector_of_the_server_messages_wait_for_each_other() -> None:
    """It covers what was sent after the message. This is why the origin makes it."""
    circles = 0
    for seed in range(20):
        daisy = ServersVector()
        daisy.play(seed)
        circles += any(list(order.waiting()) for order in daisy.orders)
    assert circles


# A holder and the vectors that come to it

TREE = tree_of(
    DaisyTable(
        options=DaisyOptions(forward="on-receipt"),
        parts=(DaisyTable(name="a", processes=("a1", "a2")), DaisyTable(name="b", processes=("b1",))),
    ),
    ("a1", "a2", "b1").index,
)
MESSAGE = Clocked(1, 7, b"", (2,), 9)


def forwarded(causes: Causes) -> tuple[list[int], list[int]]:
    """The two vectors that a message goes on with, from a holder that told its list at (3, 5) of its group."""
    group = EarlyServersGroup(0, TREE, TREE.groups[0], 0, 1, (), GroupSettings(), 0)
    group.floor = {0: 3, 1: 5}
    assert group.forward(MESSAGE, causes, 0)
    assert not group.forward(MESSAGE, causes, 0)
    ((_, batch),) = group.sends
    assert isinstance(batch, Batch)
    ((_, way),) = unpack_with(batch.segment)
    assert isinstance(way, Causes)
    return way.group, batch.stamp


def test_a_vector_says_nothing_of_what_was_before_the_view() -> None:
    assert forwarded(Causes([4, 6], 1, [0, 2])) == ([4, 6], [0, 2])
    assert forwarded(Causes([3, 6], 1, [0, 2])) == ([0, 6], [0, 2])
    assert forwarded(Causes([4, 6], 2, [0, 2])) == ([4, 6], [0, 0])


@pytest.mark.parametrize("causes", [Causes([], 1, []), Causes([4, 6, 8, 9], 1, [0, 1, 2]), Causes([4], 1, [])])
def test_a_vector_that_makes_no_sense_does_no_harm(causes: Causes) -> None:
    assert forwarded(causes)[1] == [0, 0]


# The file

FILE = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2"]
[systems.shop.daisy]
forward = "on-receipt"
[systems.shop.daisy.parts.a]
processes = ["a1"]
[systems.shop.daisy.parts.b]
processes = ["a2"]
"""


def test_the_file_says_when_servers_forward() -> None:
    for text, forward in ((FILE, "on-receipt"), (FILE.replace('forward = "on-receipt"', ""), "on-delivery")):
        daisy = parse(text, "t.toml").system("shop").table
        assert daisy is not None
        assert tree_of(daisy, ("a1", "a2").index).options.forward == forward


@pytest.mark.parametrize(
    ("old", "new", "reason", "way_out"),
    [
        ('"on-receipt"', '"early"', 'must be "on-delivery" or "on-receipt"', "the choices are"),
        ('"on-receipt"', '"on-receipt"\nstar = true', "in a star the server gets everything in causal order", "remove"),
        (
            '"on-receipt"\n',
            '"on-receipt"\ninside = "recipients"\n',
            "a server has to know of all messages that leave its group",
            "remove",
        ),
    ],
)
def test_what_cannot_be_forwarded_on_receipt_is_refused(old: str, new: str, reason: str, way_out: str) -> None:
    problems = {each.key: each for each in refused(FILE.replace(old, new, 1))}
    problem = problems["systems.shop.daisy.forward"]
    assert reason in problem.reason
    assert way_out in problem.way_out

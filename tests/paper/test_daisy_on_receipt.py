"""daisy, Sect. 3.4, the first optimisation: servers forward what has come to them, deliverable or not."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest

from isthmus.core.endpoint import Outbox
from isthmus.core.message import Batch
from isthmus.core.wire.daisy import DaisyFrame, SeatState
from isthmus.hierarchy.daisy.early import EarlyLocalGroup
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable, Forward
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import Causes, unpack_with
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.lab.counts.daisies_on_receipt import SECTIONS
from isthmus.lab.counts.table import Section

NAMES = ("a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3")
A1, A2, A3, B1, B2, _B3, C1, C2, _C3 = range(9)
TOP = 0


class Wires:
    """Three groups of three, of which a test says what arrives when. Channels are FIFO; nothing is lost."""

    def __init__(self, forward: Forward) -> None:
        parts = tuple(
            DaisyTable(name=part, processes=tuple(name for name in NAMES if name[0] == part)) for part in "abc"
        )
        tree = tree_of(DaisyTable(options=DaisyOptions(forward=forward), parts=parts), NAMES.index)
        self.processes = [DaisyProcess(process, tree) for process in range(len(NAMES))]
        self.under_way: dict[tuple[int, int], deque[DaisyFrame]] = defaultdict(deque)
        self.delivered: list[tuple[str, bytes]] = []

    def send(self, source: int, target: int, payload: bytes) -> None:
        out = Outbox()
        self.processes[source].send((target,), [payload], 0, out)
        self._carry(source, out)

    def arrive(self, source: int, target: int) -> None:
        """Everything that is under way from one to the other."""
        frames = self.under_way.pop((source, target), ())
        out = Outbox()
        self.processes[target].receive(source, frames, 0, out)
        self._carry(target, out)

    def arrive_all(self, *, but: tuple[int, int] | None = None) -> None:
        while left := [wire for wire, frames in self.under_way.items() if frames and wire != but]:
            self.arrive(*left[0])

    def batches(self, source: int, target: int, group: int = TOP) -> list[Batch]:
        """Messages under way in a group."""
        frames = self.under_way[source, target]
        return [each.pdu for each in frames if each.group == group and isinstance(each.pdu, Batch)]

    def listed(self, source: int, target: int) -> list[list[bytes] | None]:
        """The lists under way among servers; None is the word that there is none yet."""
        states = [each.pdu for each in self.under_way[source, target] if isinstance(each.pdu, SeatState)]
        return [sorted(entry.segment.data for entry in each.entries) if each.complete else None for each in states]

    def _carry(self, source: int, out: Outbox) -> None:
        self.delivered += [(NAMES[source], each.run.segment.data) for each in out.addressed]
        for destinations, frame in out.sends:
            assert isinstance(frame, DaisyFrame)
            for target in destinations:
                self.under_way[source, target].append(frame)


def overtaken(forward: Forward) -> Wires:
    """a2 has written to c2 and then to a3, a3 to c2; and the server a1 has what a3 sent before what a2 sent."""
    wires = Wires(forward)
    wires.send(A2, C2, b"cause")
    wires.send(A2, A3, b"by another")
    wires.arrive_all(but=(A2, A1))
    wires.send(A3, C2, b"effect")
    wires.arrive(A3, A1)
    return wires


def test_a_server_forwards_what_is_not_causally_deliverable_in_its_group() -> None:
    """ "as soon as it receives the message, and not wait for it to become causally deliverable in the local group" """
    assert not overtaken("on-delivery").batches(A1, C1)
    wires = overtaken("on-receipt")
    assert [len(batch.segment) for batch in wires.batches(A1, C1)] == [1]
    assert [hold.reason for hold in wires.processes[A1].waiting()] == ["delivered", "delivered"]


def test_a_server_forwards_what_is_not_deliverable_among_servers_into_its_group() -> None:
    """ "a causal server that receives a message in the servers group can forward it immediately inside its local
    group": everybody there has it, and nobody delivers it before its cause."""
    wires = overtaken("on-receipt")
    wires.arrive_all(but=(A2, A1))
    group = wires.processes[C2].local
    assert isinstance(group, EarlyLocalGroup)
    assert [run.segment.data for run in group.ahead.values()] == [b"effect"]
    assert ("c2", b"effect") not in wires.delivered
    wires.arrive_all()
    assert [payload for name, payload in wires.delivered if name == "c2"] == [b"cause", b"effect"]
    assert not group.ahead


def test_a_message_that_waits_for_another_that_is_not_for_its_group_is_delivered_too() -> None:
    """Members of c never see the cause. Their server says when they need not wait for it any longer."""
    wires = Wires("on-receipt")
    wires.send(A2, B1, b"cause")
    wires.send(A2, A3, b"by another")
    wires.arrive_all(but=(A2, A1))
    wires.send(A3, C2, b"effect")
    wires.arrive_all(but=(A2, A1))
    assert ("c2", b"effect") not in wires.delivered
    wires.arrive_all()
    assert ("c2", b"effect") in wires.delivered


def test_a_message_carries_one_vector_for_each_group_that_it_was_in() -> None:
    """ "this requires the message to carry one vector for each group it traverses in" """
    (batch,) = overtaken("on-receipt").batches(A1, C1)
    ((_, way),) = unpack_with(batch.segment)
    assert isinstance(way, Causes)
    assert way.group == [0, 1, 0]  # of a: the first message of a2, which a3 had and the server has not
    assert batch.stamp == [0, 0, 0]  # of the servers' group: nothing has come from others
    (plain,) = overtaken_in_order().batches(A1, C1)
    ((_, none),) = unpack_with(plain.segment)
    assert (len(plain.stamp), none) == (3, None)


def test_a_holder_tells_what_it_has_when_its_group_has_delivered_what_it_forwarded() -> None:
    """b has a new server. What a1 has forwarded too early would be without its cause in the list of its seat."""
    wires = overtaken("on-receipt")
    news = SeatState([(1, A1), (2, B2), (1, C1)], True, [], None, True)
    wires.under_way[B2, A1].append(DaisyFrame(TOP, 0, news))
    wires.under_way[A1, B2].clear()
    wires.arrive(B2, A1)
    assert set(map(bool, wires.listed(A1, B2))) == {False}
    wires.arrive(A1, A3)
    wires.send(A3, C2, b"in the flush")
    wires.arrive(A3, A1)  # and that a3 vouches for a1
    assert not wires.batches(A1, B2)
    wires.arrive(A2, A1)
    assert wires.listed(A1, B2)[-1] == [b"cause", b"effect", b"in the flush"]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_headers_hops_and_delays_are_as_the_formulas_say(section: Section) -> None:
    """ "reducing message delays requires more control information" """
    rows = section.count()
    assert rows
    assert not [f"{row.setting}: {row.counted}, not {row.expected}" for row in rows if not row.holds]


def overtaken_in_order() -> Wires:
    wires = Wires("on-delivery")
    wires.send(A2, C2, b"alone")
    wires.arrive(A2, A1)
    return wires


@pytest.mark.parametrize("size", [3, 4, 5])
def test_what_is_forwarded_a_quorum_holds(size: int) -> None:
    """In a group of five the server and the origin are none: it waits for the word that enough others have it."""
    names = tuple(f"a{number}" for number in range(size))
    parts = (DaisyTable(name="a", processes=names), DaisyTable(name="b", processes=("b",)))
    table = DaisyTable(options=DaisyOptions(forward="on-receipt"), parts=parts)
    tree = tree_of(table, (*names, "b").index)
    origin, server = DaisyProcess(size - 1, tree), DaisyProcess(0, tree)
    out, forwarded = Outbox(), Outbox()
    origin.send((size,), [b"out"], 0, out)
    server.receive(origin.id, [pdu for destinations, pdu in out.sends if 0 in destinations], 0, forwarded)
    assert any(size in destinations for destinations, _ in forwarded.sends) == (size < 5)

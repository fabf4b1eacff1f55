"""What a process sends and what its steps lead to become rows that make sense."""

from __future__ import annotations

from isthmus.core.codec import body_of
from isthmus.core.endpoint import AddressedDelivery, Carried, Hold, Outbox, Staged, View
from isthmus.core.ids import Directory, ProcessName
from isthmus.core.message import Addressed, Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.clusters import Hop
from isthmus.trace.recorder import Recorder
from isthmus.trace.schema import Event, problem
from isthmus.trace.writer import MemorySink, ProcessLog

NAMES = Directory([ProcessName("madrid", "p1"), ProcessName("madrid", "p2")])
BATCH = Batch(1, 1, 3, [4, 2], 2, Segment.of(1, 7, [b"seven", b"eight"]))
LETTER = Addressed(1, 9, b"nine", (0,))
NOW = 5


class Recorded:
    """A recorder and the rows that come out of it."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.recorder = Recorder(0, ProcessLog(self.sink, "run", "madrid", "p1", "app", NAMES, flush_rows=1))

    def step(self, **fields: object) -> list[Event]:
        out = Outbox()
        for name, value in fields.items():
            setattr(out, name, value)
        self.recorder.step(out, NOW)
        return self.rows()

    def rows(self) -> list[Event]:
        assert all(problem(row) is None and row.time_ns == NOW for row in self.sink.events)
        return self.sink.events


def test_a_beginning_says_how_and_in_which_view() -> None:
    first, later = Recorded(), Recorded()
    first.recorder.began("start", View(1, (0, 1)), NOW)
    later.recorder.began("join", None, NOW)
    start, view = first.rows()
    assert (start.event, view.event, view.peer, view.destinations) == ("start", "view", "1", ("madrid/p1", "madrid/p2"))
    assert [row.event for row in later.rows()] == ["join"]


def test_what_is_sent_to_everybody_has_no_destinations() -> None:
    recorded = Recorded()
    recorded.recorder.sent(5, [b"a", b"bc"], None, NOW)
    assert [(row.event, row.origin_process, row.origin_seq, row.payload_bytes) for row in recorded.rows()] == [
        ("send", "p1", 5, 1),
        ("send", "p1", 6, 2),
    ]
    assert all(row.destinations is None for row in recorded.rows())


def test_what_is_sent_to_some_names_them() -> None:
    recorded = Recorded()
    recorded.recorder.sent(5, [b"a"], (1,), NOW)
    assert [(row.origin_seq, row.destinations) for row in recorded.rows()] == [(5, ("madrid/p2",))]


def test_a_delivery_carries_its_share_of_what_its_batch_brought_besides_payloads() -> None:
    rows = Recorded().step(stages=[Staged("receive", BATCH)], deliveries=[BATCH])
    assert [row.event for row in rows] == ["receive", "receive", "deliver", "deliver"]
    assert {row.control_bytes for row in rows} == {(len(body_of(BATCH)) - 10) // 2}


def test_a_message_for_some_carries_what_came_with_it() -> None:
    hop = Hop(0, 1, (), LETTER)
    rows = Recorded().step(
        addressed=[AddressedDelivery(LETTER, hop), AddressedDelivery(LETTER, BATCH), AddressedDelivery(LETTER, None)]
    )
    assert [row.control_bytes for row in rows] == [len(body_of(hop)) - 4, (len(body_of(BATCH)) - 10) // 2, 0]
    assert all((row.event, row.destinations) == ("deliver", ("madrid/p1",)) for row in rows)


def test_a_hold_says_what_it_waits_for() -> None:
    row, _ = Recorded().step(holds=[Hold(BATCH, "delivered", 0, 4)])
    assert (row.event, row.peer, row.note) == ("hold", "madrid/p1", "waits until batch 4 of madrid/p1 is delivered")


def test_what_is_carried_names_the_link_or_else_the_next_process() -> None:
    carried = LETTER.segment
    rows = Recorded().step(carried=[Carried("transfer", 3, carried), Carried("transfer", 0, carried, 1)])
    assert [row.peer for row in rows] == ["link 3", "madrid/p2"]


def test_an_end_says_why_if_there_is_a_reason() -> None:
    recorded = Recorded()
    recorded.recorder.ended("leave", "left", NOW)
    recorded.recorder.ended("end", "", NOW)
    assert [(row.event, row.note) for row in recorded.rows()] == [("leave", "left"), ("end", None)]

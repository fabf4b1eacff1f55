"""Gateways of logs, one step after another, in any order: docs/design/logs.md. Every schedule of a small case is in
tests/explorer/test_explorer_logs.py, long runs with all faults in tests/simulator/test_simulation_logs.py.
"""

from __future__ import annotations

import pytest
from join_support import join, system

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import incarnation_of
from isthmus.core.segment import Segment
from isthmus.join.log_holder import Append, Ask, LogHolder, Look, Note, Read, Sync, Unavailable
from isthmus.join.logged import LogGateway, MissingEntries
from isthmus.join.memory_log import MemoryLog, Recreated, Superseded, Trimmed
from isthmus.topology.file import parse
from isthmus.topology.plans import plans

PAIR = parse(
    system("a", "causal", "log-a", "a1")
    + system("b", "causal", "log-b", "b1")
    + join("a", "b", "causal", "links = 1\n"),
    "t.toml",
)
ORIGIN, OTHER = PAIR.process_slots("a")[0], PAIR.process_slots("b")[0]
OWN = PAIR.gateway_slots("a")[0]


class Served:
    """A log and the gateway that holds it, with everything that it asks for put at once, or as a test says."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.out = Outbox()
        kept = self.log.claim()
        self.holder = LogHolder(incarnation_of(OWN, kept.token), (ORIGIN,), plans(PAIR, "a"))
        self.holder.begin(kept, 0, self.out)

    def ask(self, kind: type[Ask]) -> Ask | None:
        return next((each for each in self.holder.asks if isinstance(each, kind)), None)

    def answer(self, kind: type[Ask], answer: object = None) -> object:
        """Have the broker carry out an ask of this kind, or give it this answer."""
        ask = self.ask(kind)
        assert ask is not None, f"it does not ask for {kind.__name__}"
        self.holder.asks.remove(ask)
        if answer is None:
            try:
                answer = ask.put(self.log)
            except (Superseded, Trimmed, Recreated) as refusal:
                answer = refusal
        self.holder.answered(ask, answer, 0, self.out)
        return answer

    def bring_in(self, seq: int) -> None:
        """Have it append a message of the other log."""
        self.out.relays.append(Segment.pack([(OTHER, seq, b"%d" % seq)]))
        self.holder.wake(0, self.out)

    def read_marks(self) -> dict[int, int]:
        return dict(self.holder.gateway.read_to.items())


def write(log: MemoryLog, count: int = 1) -> None:
    for _ in range(count):
        log.write(0, b"x")
    log.sync()


def test_a_gap_in_what_is_read_is_an_error() -> None:
    gateway = LogGateway(OWN, plans(PAIR, "a"))
    gateway.claimed(1, {}, {ORIGIN: 10}, 0, Outbox())
    gateway.read(Segment.pack([(ORIGIN, 11, b"")]), 0, Outbox())
    with pytest.raises(MissingEntries):
        gateway.read(Segment.pack([(ORIGIN, 13, b"")]), 0, Outbox())


def test_what_is_not_durable_is_not_read() -> None:
    served = Served()
    write(served.log, 2)
    served.log.write(0, b"not yet")
    served.answer(Read)
    assert served.read_marks() == {ORIGIN: 2}
    served.log.sync()
    served.answer(Read)
    assert served.read_marks() == {ORIGIN: 3}


def test_entries_with_copied_headers_are_entries_of_the_log_s_own() -> None:
    served = Served()
    served.bring_in(1)
    served.answer(Append)
    served.log.write(0, b"copied", OTHER, 1)
    served.log.write(0, b"made up", OTHER, 7)
    served.log.sync()
    served.answer(Read)
    assert served.read_marks() == {}, "somebody else may have brought the last one in: it looks first"
    served.answer(Look)
    assert served.read_marks() == {ORIGIN: 2, OTHER: 1}


def test_one_that_reads_what_its_successor_brought_in_stops() -> None:
    former = Served()
    latter = Served(former.log)
    latter.bring_in(1)
    latter.answer(Append)
    latter.log.sync()
    former.answer(Read)
    former.answer(Look)
    assert former.holder.stopped == "superseded"
    assert former.read_marks() == {}


def test_an_append_whose_outcome_is_unknown_is_looked_up_and_done_once() -> None:
    for carried_out in (True, False):
        served = Served()
        served.bring_in(1)
        ask = served.ask(Append)
        assert ask is not None
        if carried_out:
            ask.put(served.log)
        served.answer(Append, Unavailable())
        served.answer(Look)
        if not carried_out:
            served.answer(Append)
        assert [(entry.origin, entry.seq) for entry in served.log.entries] == [(OTHER, 1)]
        assert served.ask(Append) is None


def test_what_a_former_holder_has_under_way_is_refused() -> None:
    former = Served()
    former.bring_in(1)
    Served(former.log)
    assert isinstance(former.answer(Append), Superseded)
    assert former.holder.stopped == "superseded"
    assert former.log.entries == []


def test_a_broker_that_lost_an_append_does_not_make_it_durable_by_saying_so() -> None:
    served = Served()
    served.bring_in(1)
    served.answer(Append)
    served.log.die(1)
    served.answer(Sync)
    assert served.holder.stopped == "superseded"
    assert not served.out.links, "nothing is confirmed"


def test_what_was_brought_in_before_is_confirmed_by_the_next_holder() -> None:
    """Else nobody would, if nothing more comes in, and the sending side would wait for ever."""
    former = Served()
    former.bring_in(1)
    former.answer(Append)
    latter = Served(former.log)
    assert latter.ask(Sync) == Sync(((OTHER, 1),))


def test_a_successor_reads_from_behind_what_is_confirmed() -> None:
    served = Served()
    for _ in range(2):
        write(served.log, 3)
        served.answer(Read)
    served.holder.gateway.confirmed.raise_to(ORIGIN, 4)
    served.holder.note(0, served.out)
    served.answer(Note)
    assert served.log.kept.checkpoint.marks == ((ORIGIN, 3),), "what was read at once is noted as a whole"
    successor = Served(served.log)
    assert successor.read_marks() == {ORIGIN: 3}
    successor.answer(Read)
    assert successor.read_marks() == {ORIGIN: 6}


def test_a_log_that_was_trimmed_or_deleted_stops_the_join_and_says_so() -> None:
    trimmed = Served()
    write(trimmed.log, 3)
    trimmed.log.trim(2)
    trimmed.answer(Read)
    assert "trimmed" in trimmed.holder.trouble
    deleted = Served()
    write(deleted.log, 3)
    deleted.log.recreate()
    write(deleted.log, 5)
    deleted.answer(Read)
    assert "deleted" in deleted.holder.trouble
    assert deleted.read_marks() == {}


def test_a_log_that_is_deleted_before_anything_was_read_is_known_for_another_one() -> None:
    first = Served()
    first.log.recreate()
    write(first.log, 5)
    second = Served(first.log)
    second.answer(Read)
    assert "deleted" in second.holder.trouble


def test_trimming_what_was_read_and_noted_stops_nothing() -> None:
    served = Served()
    write(served.log, 3)
    served.answer(Read)
    served.log.trim(3)
    write(served.log)
    served.answer(Read)
    assert served.read_marks() == {ORIGIN: 4}


def test_a_broker_that_dies_loses_entries_and_record_together_and_no_claim() -> None:
    served = Served()
    write(served.log)
    served.bring_in(1)
    served.answer(Append)
    token = served.log.kept.token
    gone = served.log.die(5)
    assert [entry.seq for entry in gone] == [1]
    assert (len(served.log.entries), served.log.kept.record, served.log.kept.token) == (1, (), token)

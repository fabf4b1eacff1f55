"""Runs in a daisy: what a process sends some others in one turn goes through all groups as one thing."""

from __future__ import annotations

import pytest

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Opened, Segment
from isthmus.core.wire.daisy import DaisyFrame, Offered, Parcel
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.local import Arrival, LocalGroup
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import unpack
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.ordering.group.window import GroupSettings

WINDOW = 64
PAYLOADS = [b"payload %d" % number for number in range(50)]
KINDS = [
    DaisyOptions(),
    DaisyOptions(star=True),
    DaisyOptions(forward="on-receipt"),
    DaisyOptions(inside="recipients", resilience=1),
]


class Meadow:
    """Three local groups of two, processes 0 to 5. `runs` are those that went over a line, wherever."""

    def __init__(self, options: DaisyOptions) -> None:
        groups = (("0", "1"), ("2", "3"), ("4", "5"))
        parts = tuple(DaisyTable(name=f"g{place}", processes=names) for place, names in enumerate(groups))
        tree = tree_of(DaisyTable(parts=parts, options=options), int)
        settings = GroupSettings(window_messages=WINDOW)
        self.processes = {each: DaisyProcess(each, tree, settings) for each in range(6)}
        self.now: Nanos = 0
        self.delivered: dict[ProcessId, list[Opened]] = {each: [] for each in self.processes}
        self.deliveries = 0
        self.stable: list[Segment] = []
        self.runs: list[tuple[int, Clocked]] = []
        self._under_way: list[tuple[ProcessId, ProcessId, Pdu]] = []

    def send(self, source: ProcessId, destinations: tuple[ProcessId, ...], payloads: list[bytes]) -> None:
        out = Outbox()
        self.processes[source].send(destinations, payloads, self.now, out)
        self._carry_out(source, out)

    def pass_time(self, heartbeats: int = 12) -> None:
        for _ in range(heartbeats):
            while self._under_way:
                source, target, pdu = self._under_way.pop(0)
                out = Outbox()
                self.processes[target].receive(source, [decode_body(body_of(pdu))], self.now, out)
                self._carry_out(target, out)
            self.now += GroupSettings().heartbeat
            for each, process in self.processes.items():
                out = Outbox()
                process.wake(self.now, out)
                self._carry_out(each, out)

    def _carry_out(self, owner: ProcessId, out: Outbox) -> None:
        self.processes[owner].invariants()
        for each in out.addressed:
            self.delivered[owner] += each.run.segment
            self.deliveries += 1
        self.stable += [batch.segment for batch in out.stable]
        for destinations, pdu in out.sends:
            word = pdu.pdu if isinstance(pdu, DaisyFrame) else pdu
            batch = word.batch if isinstance(word, Parcel) else word
            if isinstance(pdu, DaisyFrame) and isinstance(batch, (Batch, Offered)):
                self.runs += [(pdu.group, run) for run in unpack(batch.segment)]
            self._under_way += [(owner, each, pdu) for each in destinations]


@pytest.mark.parametrize("options", KINDS)
def test_a_run_goes_through_all_groups_as_it_was_sent(options: DaisyOptions) -> None:
    meadow = Meadow(options)
    meadow.send(1, (0, 3, 5), PAYLOADS)
    assert meadow.processes[1].credit() == WINDOW - len(PAYLOADS)
    meadow.pass_time()
    assert {group for group, _ in meadow.runs} == {0, 1, 2, 3}
    (run,) = {run for _, run in meadow.runs}
    assert (run.destinations, run.clock) == ((0, 3, 5), 1)
    sent = [(1, number, payload) for number, payload in enumerate(PAYLOADS, 1)]
    assert meadow.delivered == {each: sent if each in run.destinations else [] for each in meadow.processes}
    assert meadow.deliveries == 3
    assert [list(segment) for segment in meadow.stable] == [sent]
    assert meadow.processes[1].credit() == WINDOW


def test_word_that_a_run_is_stable_waits_for_the_run() -> None:
    """A group of one has delivered and finished with what it is given before anybody has asked what it delivered."""
    tree = tree_of(DaisyTable(processes=("0",)), int)
    group = LocalGroup(0, tree, tree.groups[0], GroupSettings(), 0)
    run = Clocked(0, 1, b"x", (0,), 1)
    group.send([run], 0)
    group.wake(GroupSettings().heartbeat)
    assert group.confirmed() == []
    (arrival,) = group.news()
    assert isinstance(arrival, Arrival)
    assert arrival.run == run
    assert group.confirmed() == [run.id]
    assert group.is_quiet


def test_the_window_counts_bytes_as_well() -> None:
    meadow = Meadow(DaisyOptions())
    meadow.send(1, (3,), [bytes(GroupSettings().window_bytes // 8)] * 8)
    assert meadow.processes[1].credit() == 0
    meadow.pass_time()
    assert meadow.processes[1].credit() == WINDOW


@pytest.mark.parametrize("options", KINDS)
def test_runs_to_different_processes_are_apart_and_in_order(options: DaisyOptions) -> None:
    meadow = Meadow(options)
    meadow.send(1, (3,), [b"a", b"b"])
    meadow.send(1, (3, 5), [b"c"])
    meadow.send(1, (5,), [b"d", b"e"])
    meadow.pass_time()
    assert meadow.delivered[3] == [(1, 1, b"a"), (1, 2, b"b"), (1, 3, b"c")]
    assert meadow.delivered[5] == [(1, 3, b"c"), (1, 4, b"d"), (1, 5, b"e")]
    assert sorted(number for segment in meadow.stable for _, number in segment.ids()) == [1, 2, 3, 4, 5]

"""Groups of daisies that split and merge while messages flow, in the simulator (daisy, Sect. 3.1, Fig. 4)."""

from __future__ import annotations

from known_holes import news

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import DaisyTree, tree_of
from isthmus.lab.standard import standard
from isthmus.ordering.group.window import GroupSettings
from isthmus.simulator.campaign import run_seed

SETTINGS = GroupSettings()


class Table:
    """Processes that hear each other at once, in order; nobody crashes unless it is taken away."""

    def __init__(self, tree: DaisyTree, everybody: range) -> None:
        self.now: Nanos = 0
        self.processes = {each: DaisyProcess(each, tree, SETTINGS, 0) for each in everybody}
        self.delivered: dict[ProcessId, list[bytes]] = {each: [] for each in everybody}
        self.stopped: dict[ProcessId, str] = {}
        self._under_way: list[tuple[ProcessId, ProcessId, Pdu]] = []

    def send(self, sender: ProcessId, destinations: tuple[ProcessId, ...], payload: bytes) -> None:
        out = Outbox()
        self.processes[sender].send(destinations, [payload], self.now, out)
        self._carry_out(sender, out)

    def pass_time(self, heartbeats: int) -> None:
        for _ in range(heartbeats):
            self.now += SETTINGS.heartbeat
            for each in list(self.processes):
                out = Outbox()
                self.processes[each].wake(self.now, out)
                self._carry_out(each, out)
            while self._under_way:
                source, target, pdu = self._under_way.pop(0)
                if target in self.processes:
                    out = Outbox()
                    self.processes[target].receive(source, [decode_body(body_of(pdu))], self.now, out)
                    self._carry_out(target, out)

    def groups(self) -> list[tuple[ProcessId, ...]]:
        """The local groups that there are, as their members see them."""
        return sorted({process.local.view.members for process in self.processes.values()})

    def _carry_out(self, owner: ProcessId, out: Outbox) -> None:
        self.delivered[owner] += [each.run.segment.data for each in out.addressed]
        self._under_way += [(owner, each, pdu) for destinations, pdu in out.sends for each in destinations]
        if out.stopped:
            self.stopped[owner] = out.stopped
            del self.processes[owner]
        else:
            self.processes[owner].invariants()


def one_group(count: int, **options: int) -> DaisyTree:
    names = tuple(f"p{each}" for each in range(count))
    return tree_of(DaisyTable(processes=names, options=DaisyOptions(**options)), names.index)


def test_fig_4_one_group_becomes_two_when_it_has_grown_too_large() -> None:
    """daisy, Fig. 4: a singleton, a group that others join, and "the processes split into two local groups"."""
    table = Table(one_group(1, split_above=3, merge_below=1), range(1))
    assert table.groups() == [(0,)]
    tree = table.processes[0].tree
    for newcomer in (1, 2):
        table.processes[newcomer] = DaisyProcess(newcomer, tree, SETTINGS, table.now)
        table.delivered[newcomer] = []
        table.pass_time(20)
    assert table.groups() == [(0, 1, 2)]
    table.processes[3] = DaisyProcess(3, tree, SETTINGS, table.now)
    table.delivered[3] = []
    table.pass_time(20)
    assert sorted(map(len, table.groups())) == [2, 2]
    assert {process.tree.generation for process in table.processes.values()} == {3}
    table.send(0, (0, 1, 2, 3), b"to all")
    table.pass_time(10)
    assert all(each == [b"to all"] for each in table.delivered.values())


def test_who_writes_to_each_other_comes_into_one_group() -> None:
    """daisy, footnote 4."""
    table = Table(one_group(6, split_above=3, merge_below=2), range(6))
    for sender in range(6):
        for receiver in range(6):
            if sender % 2 == receiver % 2:
                table.send(sender, (receiver,), b"")
    table.pass_time(30)
    assert table.groups() == [(0, 2, 4), (1, 3, 5)]


def test_what_is_sent_while_the_tree_changes_arrives_afterwards_in_order() -> None:
    table = Table(one_group(4, split_above=3, merge_below=1), range(4))
    numbered = [b"%d" % number for number in range(40)]
    for payload in numbered:
        table.send(1, (0, 2, 3), payload)
        table.pass_time(1)
    assert table.processes[1].tree.generation == 1
    table.pass_time(20)
    assert all(table.delivered[each] == numbered for each in (0, 2, 3))
    assert all(process.is_quiet for process in table.processes.values())


def test_small_groups_merge_after_crashes_and_the_dead_are_passed_over() -> None:
    names = ("a1", "a2", "a3", "b1", "b2", "b3")
    parts = (DaisyTable(name="a", processes=names[:3]), DaisyTable(name="b", processes=names[3:]))
    options = DaisyOptions(split_above=6, merge_below=3)
    table = Table(tree_of(DaisyTable(parts=parts, options=options), names.index), range(6))
    table.pass_time(5)
    assert table.groups() == [(0, 1, 2), (3, 4, 5)]
    del table.processes[0]
    table.pass_time(2 + 3 * SETTINGS.suspect_after // SETTINGS.heartbeat)
    assert table.groups() == [(1, 2, 3, 4, 5)]
    out = Outbox()
    table.processes[3].send((0,), [b"for the dead"], table.now, out)
    assert [batch.number for batch in out.stable] == [1]
    table.send(3, (0, 1), b"for one of them")
    table.pass_time(5)
    assert table.delivered[1] == [b"for one of them"]


def test_a_generation_is_over_when_all_have_begun_the_next_though_nobody_in_it_can_say_so() -> None:
    """Those of a group who were left when it was cut in two may be those who are taken for dead in the next generation;
    the others are out of the former one and alive. Then nobody answers there for their seat any more."""
    names = ("a1", "a2", "a3", "b1", "b2", "b3")
    parts = (DaisyTable(name="a", processes=names[:3]), DaisyTable(name="b", processes=names[3:]))
    options = DaisyOptions(split_above=4, merge_below=2)
    table = Table(tree_of(DaisyTable(parts=parts, options=options), names.index), range(6))
    newcomer = 6
    table.processes[newcomer] = DaisyProcess(newcomer, table.processes[0].tree, SETTINGS, 0)
    table.delivered[newcomer] = []
    while {process.tree.generation for process in table.processes.values()} != {1}:
        table.pass_time(1)
    for each in (3, 4, 5):
        table.processes[each].former = None
    assert all(table.processes[each].former is not None for each in (0, 1, 2))
    table.pass_time(20)
    assert not any(process.is_changing for process in table.processes.values())


def test_a_process_that_slept_through_a_change_is_told_that_it_is_over() -> None:
    table = Table(one_group(4, split_above=3, merge_below=1), range(4))
    asleep = table.processes.pop(3)
    table.pass_time(2 + 3 * SETTINGS.suspect_after // SETTINGS.heartbeat)
    assert {process.tree.generation for process in table.processes.values()} == {0}
    table.processes[4] = DaisyProcess(4, asleep.tree, SETTINGS, table.now)
    table.delivered[4] = []
    table.pass_time(20)
    assert {process.tree.generation for process in table.processes.values()} == {1}
    table.processes[3] = asleep
    table.pass_time(5)
    assert "the others went on without" in table.stopped[3]


def test_no_run_of_a_sample_breaks_a_promise_and_crashes_fall_into_changes() -> None:
    outcomes = [run_seed(standard("changing daisy", "causal"), seed) for seed in (6, 8)]
    assert not news(outcomes)
    reached = {case for outcome in outcomes for case in outcome.sometimes}
    assert {"groups changed", "let in", "server crashed", "crash in a change of groups"} <= reached

"""Who tells something in a flush is vouched for: by a quorum of its local group, by all seats in a group of servers."""

from __future__ import annotations

from isthmus.core.wire.daisy import Vouch, Vouched
from isthmus.hierarchy.daisy.generation import DaisyGeneration
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.ordering.group.window import GroupSettings

NAMES = tuple(f"{group}{number}" for group in "abc" for number in (1, 2, 3))
LOCAL = [DaisyTable(name=group, processes=NAMES[3 * place : 3 * place + 3]) for place, group in enumerate("abc")]
EAST = DaisyTable(name="east", parts=(LOCAL[0], LOCAL[1]))
TREE = tree_of(DaisyTable(parts=(EAST, LOCAL[2])), NAMES.index)
A1, A2, A3, B1, B2, B3 = range(6)


class Net:
    """Who vouches for whom: words arrive at once."""

    def __init__(self) -> None:
        self.processes = {each: DaisyGeneration(each, TREE, GroupSettings(), 0) for each in range(len(NAMES))}

    def block(self, *processes: int) -> None:
        """They have promised another view of their local group."""
        for each in processes:
            self.processes[each].local.member.membership.promised = 1

    def carry(self) -> None:
        moved = True
        while moved:
            moved = False
            for source, process in self.processes.items():
                process.vouching.end_step()
                words, process.vouching.words[:] = list(process.vouching.words), []
                for destinations, group, word in words:
                    for each in destinations:
                        other = self.processes[each]
                        place = [level.number for level in other.levels].index(group)
                        other.vouching.hear(place, source, word)
                        moved = True


def test_a_quorum_of_its_group_vouches_for_a_server() -> None:
    net = Net()
    vouching = net.processes[A1].vouching
    number = vouching.want(0)
    assert not vouching.is_done(0, number)
    net.carry()
    assert vouching.is_done(0, number)
    assert not vouching.is_done(0, number + 1), "an answer is for a question, not for ever"


def test_who_has_promised_another_view_does_not_vouch() -> None:
    """So a server that its group has gone on without is vouched for by nobody, whatever it believes."""
    net = Net()
    net.block(A2, A3)
    vouching = net.processes[A1].vouching
    number = vouching.want(0)
    net.carry()
    assert not vouching.is_done(0, number)


def test_a_seat_whose_group_has_gone_on_holds_up_those_above() -> None:
    net = Net()
    net.block(B2, B3)
    vouching = net.processes[A1].vouching
    number = vouching.want(1)
    net.carry()
    assert not vouching.is_done(1, number)
    assert vouching.is_done(0, 1), "its own group has vouched for it"


def test_seats_vouch_when_their_groups_do() -> None:
    """a1 is the server of east, which b1 holds a seat in; neither is sure of itself without its own group."""
    net = Net()
    vouching = net.processes[A1].vouching
    number = vouching.want(1)
    net.carry()
    assert vouching.is_done(1, number)
    lost = vouching.want(1)
    net.processes[B1].vouching.hear(1, A1, Vouch(7, lost))
    assert not net.processes[B1].vouching.words, "nobody vouches for a view that it is not in"


def test_words_that_make_no_sense_vouch_for_nothing() -> None:
    net = Net()
    vouching = net.processes[A1].vouching
    number = vouching.want(0)
    for word in (Vouched(2, number), Vouched(1, number + 1)):
        vouching.hear(0, A2, word)
    vouching.hear(0, B1, Vouched(1, number))
    assert not vouching.is_done(0, number)
    vouching.hear(0, A2, Vouched(1, number))
    assert vouching.is_done(0, number)
